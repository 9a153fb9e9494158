"""`flashwright simulate` beside libCacheSim, in the same run: requests a CPU-second, memory, miss ratios.

    python3 -m venv DIRECTORY && DIRECTORY/bin/pip install numpy libcachesim==0.3.5
    cargo build --release -p flashwright
    DIRECTORY/bin/python benches/peers/simulate.py target/release/flashwright [--requests 20e6] [--policies fifo,lru]

Zipf 0.99 over a million objects, every object of one size, a cache of a tenth of them (--fraction), the trace in oracleGeneral's
binary form for both. libCacheSim's time is of `process_trace` in a process of its own, reading from the file included;
ours is of the whole process. CPU time, user and system, so that a busy machine matters little.
"""

import argparse
import json
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile

PEERS = {
    "fifo": "FIFO",
    "lru": "LRU",
    "slru4": "SLRU",
    "s3fifo": "S3FIFO",
    "sieve": "Sieve",
    "gdsf": "GDSF",
    "clairvoyant": "Belady",
}


def main():
    arguments = parsed()
    if arguments.peer:
        return run_peer(arguments)
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        trace = os.path.join(directory, "zipf.oracleGeneral")
        # In a process of its own: a child's memory is at least what its parent had when it was made.
        writer = multiprocessing.get_context("spawn").Process(target=write_trace, args=(trace, arguments))
        writer.start()
        writer.join()
        capacity = int(arguments.objects * arguments.fraction) * arguments.size
        print(f"{arguments.requests:,} requests, cache of {capacity:,} bytes; M requests a CPU-second and MB at most")
        print(f"{'policy':<12} {'ours':>7} {'peer':>7} {'ratio':>6} {'our MB':>7} {'peer MB':>8}  miss ratio, ours and peer's")
        for name in arguments.policies.split(","):
            compare(name, trace, capacity, arguments)


def parsed():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("flashwright")
    parser.add_argument("--requests", type=lambda text: int(float(text)), default=20_000_000)
    parser.add_argument("--objects", type=lambda text: int(float(text)), default=1_000_000)
    parser.add_argument("--alpha", type=float, default=0.99)
    parser.add_argument("--size", type=int, default=4096, help="bytes of an object")
    parser.add_argument("--fraction", type=float, default=0.1, help="share of the objects that fits")
    parser.add_argument("--policies", default=",".join(PEERS))
    parser.add_argument("--directory", help="where the trace goes")
    parser.add_argument("--peer", nargs=3, help=argparse.SUPPRESS)
    return parser.parse_args()


def write_trace(path, arguments):
    """Keys are a permutation of ranks, so that popular ones lie anywhere; next uses as oracleGeneral has them."""
    import numpy

    random = numpy.random.default_rng(1)
    weights = numpy.arange(1, arguments.objects + 1, dtype=float) ** -arguments.alpha
    ladder = numpy.cumsum(weights)
    ranks = numpy.searchsorted(ladder, random.random(arguments.requests) * ladder[-1])
    keys = random.permutation(arguments.objects)[ranks]
    order = numpy.argsort(keys, kind="stable")
    next_use = numpy.full(arguments.requests, -1, dtype=numpy.int64)
    same = keys[order[1:]] == keys[order[:-1]]
    next_use[order[:-1][same]] = order[1:][same]
    record = numpy.dtype([("time", "<u4"), ("key", "<u8"), ("size", "<u4"), ("next", "<i8")])
    records = numpy.empty(arguments.requests, dtype=record)
    records["time"] = numpy.arange(arguments.requests) // 1000
    records["key"], records["size"], records["next"] = keys, arguments.size, next_use
    records.tofile(path)


def compare(name, trace, capacity, arguments):
    ours, our_usage = timed(
        [arguments.flashwright, "simulate", trace, "--format", "oracle-general", "--policy", name, "--size", str(capacity)]
        + ["--warmup", "0", "--quiet", "--json", "-"]
    )
    peer, _ = timed([sys.executable, __file__, arguments.flashwright, "--peer", name, trace, str(capacity)])
    (row,) = json.loads(ours)["rows"]
    peer = json.loads(peer)
    our_rate = arguments.requests / our_usage["cpu_seconds"] / 1e6
    peer_rate = arguments.requests / peer["cpu_seconds"] / 1e6
    print(
        f"{name:<12} {our_rate:>7.2f} {peer_rate:>7.2f} {our_rate / peer_rate:>6.2f} {our_usage['mb']:>7.0f} "
        f"{peer['mb']:>8.0f}  {1 - row['object_hit_ratio']:.6f} {peer['miss_ratio']:.6f}",
        flush=True,
    )


def timed(command):
    """What the command printed, its CPU seconds, and its memory at most."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"failed: {' '.join(command)}")
    return output, {"cpu_seconds": usage.ru_utime + usage.ru_stime, "mb": usage.ru_maxrss * 1024 / 1e6}


def run_peer(arguments):
    import libcachesim

    name, trace, capacity = arguments.peer
    cache = getattr(libcachesim, PEERS[name])(int(capacity))
    reader = libcachesim.TraceReader(
        trace, libcachesim.TraceType.ORACLE_GENERAL_TRACE, libcachesim.ReaderInitParam(ignore_obj_size=False)
    )
    before = resource.getrusage(resource.RUSAGE_SELF)
    miss_ratio, _ = cache.process_trace(reader)
    after = resource.getrusage(resource.RUSAGE_SELF)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps({"cpu_seconds": seconds, "mb": after.ru_maxrss * 1024 / 1e6, "miss_ratio": miss_ratio}))


if __name__ == "__main__":
    main()
