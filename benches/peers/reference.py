"""`flashwright simulate` against a file of reference miss ratios, every row of it.

    cargo build --release -p flashwright
    python3 benches/peers/reference.py target/release/flashwright TRACES [--only NAME]

TRACES is a folder with `reference_miss_ratios.csv` (trace, ..., cache_bytes, policy, ..., request_miss_ratio, byte_miss_ratio, run) and
the traces in subfolders. Each trace is simulated once, all its policies and sizes in one pass; printed is, for each trace and
policy, how many rows there are and how far the furthest is away. The exit code is 1 if an exact policy differs in any of
the six digits.
"""

import argparse
import collections
import csv
import json
import pathlib
import subprocess
import sys

NAMES = {
    "FIFO": "fifo",
    "LRU": "lru",
    "SLRU4": "slru4",
    "S3FIFO": "s3fifo",
    "SIEVE": "sieve",
    "GDSF": "gdsf",
    "Belady": "clairvoyant",
    "BeladySize": "clairvoyant-size",
}
FILES = {
    "block_arc_oltp": ("arc/OLTP.lis.zst", ["--format", "arc", "--page-size", "4096"]),
    "block_arc_p3": ("arc/P3.lis.zst", ["--format", "arc", "--page-size", "512"]),
    "block_arc_p6": ("arc/P6.lis.zst", ["--format", "arc", "--page-size", "512"]),
    "db_cache2k_orm_busy": ("caffeine/orm-busy.trace.xz", ["--format", "u32le", "--page-size", "1024"]),
    "db_cache2k_orm_night": ("caffeine/orm-night.trace.xz", ["--format", "u32le", "--page-size", "1024"]),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("flashwright")
    parser.add_argument("traces", type=pathlib.Path)
    parser.add_argument("--only", help="traces whose name holds this")
    arguments = parser.parse_args()
    rows = collections.defaultdict(list)
    with open(arguments.traces / "reference_miss_ratios.csv", newline="") as file:
        for row in csv.DictReader(file):
            if arguments.only is None or arguments.only in row["trace"]:
                rows[row["trace"]].append(row)
    print(f"{'trace':<28} {'policy':<17} {'rows':>4} {'furthest, by requests and bytes':>32}")
    exact = [check(arguments, trace, of_trace) for trace, of_trace in rows.items()]
    sys.exit(0 if all(exact) else 1)


def check(arguments, trace, rows):
    ours = simulated(arguments, trace, rows)
    furthest = collections.defaultdict(lambda: [0, 0.0, 0.0])
    for row in rows:
        name = NAMES[row["policy"]]
        objects, size_bytes = ours[name, int(row["cache_bytes"])]
        seen = furthest[name]
        seen[0] += 1
        for place, (our, key) in enumerate([(objects, "request_miss_ratio"), (size_bytes, "byte_miss_ratio")], 1):
            seen[place] = max(seen[place], abs(round(1 - our, 6) - float(row[key])), key=abs)
    for name, (count, objects, size_bytes) in furthest.items():
        print(f"{trace:<28} {name:<17} {count:>4} {objects:>16.6f} {size_bytes:>15.6f}", flush=True)
    exact = (seen for name, seen in furthest.items() if name != "clairvoyant-size")
    return all(max(objects, size_bytes) < 5e-7 for _, objects, size_bytes in exact)


def simulated(arguments, trace, rows):
    """Object and byte hit ratios by policy and size."""
    file, flags = FILES.get(trace, (None, []))
    if file is None:
        (path,) = arguments.traces.glob(f"*/{trace.removesuffix('_fs')}.csv.zst")
        flags = ["--format", "plain"] + (["--first-size"] if trace.endswith("_fs") else [])
    else:
        path = arguments.traces / file
    policies = sorted({NAMES[row["policy"]] for row in rows})
    sizes = sorted({int(row["cache_bytes"]) for row in rows})
    command = [arguments.flashwright, "simulate", path, *flags, "--policy", ",".join(policies)]
    command += ["--size", ",".join(map(str, sizes)), "--warmup", "0", "--quiet", "--json", "-"]
    result = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return {
        (row["policy"], row["size_bytes"]): (row["object_hit_ratio"], row["byte_hit_ratio"]) for row in result["rows"]
    }


if __name__ == "__main__":
    main()
