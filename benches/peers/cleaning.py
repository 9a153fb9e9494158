"""What cleaning costs the clients of a cached disk, over the model disk with one head.

    apt-get install fio
    cargo build --release -p flashwright
    python3 benches/peers/cleaning.py PROGRAM [PROGRAM…] [--rounds 3] [--seconds 6] [--directory DIRECTORY] [--only hits|writes]

`hits`: random reads of cached blocks, at depth 1 and 8, while nothing is cleaned and while all that is dirty is. Each round has
both, one after the other; the ratio is of the 99th percentiles within a round.

`writes`: eight clients write 1 GiB through a cache of 14 MiB, so that most writes find everything dirty and wait for the
cleaning; all blocks as likely, and Zipf 1.1. Several programs, as of two versions, take turns.
"""

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

MIB = 1 << 20
HOT = ["--bs=4k", f"--size={64 * MIB}"]


def main():
    arguments = parsed()
    cases = {"hits": hits, "writes": writes}
    for name, case in cases.items():
        if arguments.only in (None, name):
            case(arguments)


def parsed():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="+")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--directory", help="where the files go")
    parser.add_argument("--only", choices=["hits", "writes"])
    return parser.parse_args()


def hits(arguments):
    print(f"hits, 99th percentile in us without and with cleaning, {arguments.rounds} rounds of {arguments.seconds} s")
    for program in arguments.programs:
        with serving(arguments, program, "128MiB", ["dirty_percent=100"]) as server:
            for depth in (1, 8):
                reads = ["--rw=randread", f"--iodepth={depth}", "--time_based", f"--runtime={arguments.seconds}", *HOT]
                rounds = [one_round(server, reads) for _ in range(arguments.rounds)]
                pairs = ", ".join(f"{alone:.0f} {beside:.0f}" for alone, beside in rounds)
                ratio = statistics.median(beside / alone for alone, beside in rounds)
                print(f"{program} depth {depth}: {pairs}; median ratio {ratio:.2f}", flush=True)


def one_round(server, reads):
    # All is dirty: single blocks scattered over the disk, so that the cleaning outlasts the reads.
    server.fio("write", ["--rw=randwrite", "--iodepth=8", *HOT])
    alone = percentile(server.fio("read", reads), 99)
    server.block("set", "clean_run_blocks=1", "do_sync=1")
    beside = percentile(server.fio("read", reads), 99)
    left = server.dirty_blocks()
    server.block("set", "clean_run_blocks=256", "stop_sync=1")
    if left == 0:
        sys.exit("the cleaning ended before the reads did: fewer --seconds")
    return alone, beside


def writes(arguments):
    print(f"writes that wait for room, {arguments.rounds} rounds of {arguments.seconds} s: writes/s, 99th percentile in ms; medians")
    seen = {}
    for _ in range(arguments.rounds):
        for program in arguments.programs:
            for spread in ("random", "zipf:1.1"):
                with serving(arguments, program, "16MiB", []) as server:
                    job = server.fio("write", ["--rw=randwrite", "--numjobs=8", "--group_reporting", "--bs=4k", f"--size={1024 * MIB}",
                                               f"--random_distribution={spread}", "--time_based", f"--runtime={arguments.seconds}"])
                seen.setdefault((program, spread), []).append((job["iops"], percentile(job, 99) / 1e3))
    for (program, spread), found in seen.items():
        rate, slowest = (statistics.median(column) for column in zip(*found))
        print(f"{program} {spread}: {rate:.0f}/s, {slowest:.0f} ms", flush=True)


class Server:
    """A cached disk that is served."""

    def __init__(self, program, socket):
        self.program = program
        self.socket = socket

    def fio(self, direction, how):
        command = ["fio", "--name=job", "--ioengine=nbd", f"--uri=nbd+unix:///?socket={self.socket}", "--randrepeat=0",
                   "--output-format=json", *how]
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return json.loads(told[told.index("{"):])["jobs"][0][direction]

    def block(self, command, *settings):
        subprocess.run([self.program, "block", command, "--socket", self.socket, "--quiet", *settings], check=True,
                       stdout=subprocess.DEVNULL)

    def dirty_blocks(self):
        status = [self.program, "block", "status", "--socket", self.socket, "--quiet", "--json", "-"]
        told = subprocess.run(status, check=True, capture_output=True, text=True).stdout
        return json.loads(told)["state"]["dirty_blocks"]


@contextlib.contextmanager
def serving(arguments, program, flash_size, settings):
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        flash, disk, socket = (os.path.join(directory, name) for name in ("flash", "disk", "socket"))
        with open(disk, "wb") as file:
            file.truncate(1024 * MIB)
        devices = ["--flash", flash, "--disk", f"hdd:{disk}", "--quiet"]
        given = [argument for setting in settings for argument in ("--set", setting)]
        subprocess.run([program, "block", "create", *devices, "--flash-size", flash_size, *given, "--yes"], check=True)
        server = subprocess.Popen([program, "block", "serve", *devices, "--socket", socket])
        try:
            while not os.path.exists(socket):
                if server.poll() is not None:
                    sys.exit(f"{program} block serve: ended with {server.returncode}")
                time.sleep(0.01)
            yield Server(program, socket)
        finally:
            # What is dirty is not wanted any more.
            server.send_signal(signal.SIGKILL)
            server.wait()


def percentile(job, percent):
    """In microseconds."""
    return job["clat_ns"]["percentile"][f"{percent}.000000"] / 1e3


if __name__ == "__main__":
    main()
