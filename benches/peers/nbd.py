"""The NBD server beside nbdkit, interleaved: requests a second, median latency, CPU a request.

    apt-get install nbdkit fio
    cargo build --release -p flashwright
    python3 benches/peers/nbd.py target/release/flashwright [--rounds 5] [--seconds 4] [--directory DIRECTORY] [--only hit-32]

The client is fio's `nbd` engine, 4 KiB at random offsets, over a Unix socket. A round runs every server of a case once, one
after the other; the table has medians over the rounds, and the ratio of ours to the peer's. CPU is of the server's process,
user and system. The files lie in DIRECTORY, which should be on the drive that matters.

Before each run the page cache gives up what it holds of the files: nbdkit reads through it, and with `cache=none` asks it to
drop each page that was read, which it may do late or not at all, so that runs after runs would be answered from memory.
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
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def main():
    arguments = parsed()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        bench = Bench(arguments, directory)
        print(f"medians of {arguments.rounds} rounds of {arguments.seconds} s; ours over the peer's in brackets")
        print(f"{'case':<18} {'requests/s':>24} {'p50 us':>22} {'CPU us a request':>24}")
        for name, case in bench.cases().items():
            if arguments.only in (None, name):
                compare(name, *case, bench)


def parsed():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("flashwright")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--mib", type=int, default=512, help="size of the file, and of what is asked for of the disk")
    parser.add_argument("--directory", help="where the files go")
    parser.add_argument("--only", help="one case")
    return parser.parse_args()


class Bench:
    """The files, and how each server is started on them."""

    def __init__(self, arguments, directory):
        self.arguments = arguments
        self.directory = directory
        self.size = arguments.mib * MIB
        self.file, self.flash, self.disk = (os.path.join(directory, name) for name in ("file", "flash", "disk"))
        for path, size in ((self.file, self.size), (self.disk, self.size), (self.flash, self.size * 5 // 4)):
            # Written, so that no read finds a hole and no write has to find room.
            subprocess.run(["fio", "--name=fill", "--filename=" + path, "--rw=write", "--bs=1M", "--direct=1", "--end_fsync=1",
                            f"--size={size}"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([arguments.flashwright, "block", "create", "--flash", self.flash, "--disk", self.disk, "--yes", "--quiet"],
                       check=True)
        # Every block is brought into the cache, and then to the disk.
        with self.serving(self.ours_cached()) as (socket, _):
            fio(socket, "write", 32, self.size, bs="64k", seconds=None)
            subprocess.run([arguments.flashwright, "block", "flush", "--socket", socket, "--quiet"], check=True)

    def cases(self):
        alone = lambda disk: [self.arguments.flashwright, "block", "serve", "--disk", disk, "--quiet"]
        null = ["nbdkit", "-f", "null", f"size={self.size}"]
        memory = ["nbdkit", "-f", "memory", f"size={self.size}"]
        file = ["nbdkit", "-f", "file", self.file, "cache=none"]
        cached = self.ours_cached()
        return {
            "null-32": (alone(f"memory:{self.size}"), null, "randread", 32),
            "memory-32": (alone(f"memory:{self.size}"), memory, "randread", 32),
            "file-32": (alone(self.file), file, "randread", 32),
            "file-1": (alone(self.file), file, "randread", 1),
            "hit-32": (cached, file, "randread", 32),
            "hit-1": (cached, file, "randread", 1),
            "write-1": (cached, file, "randwrite", 1),
            "write-32": (cached, file, "randwrite", 32),
        }

    def ours_cached(self):
        return [self.arguments.flashwright, "block", "serve", "--flash", self.flash, "--disk", self.disk, "--quiet"]

    @contextlib.contextmanager
    def serving(self, command):
        socket = os.path.join(self.directory, "socket")
        with contextlib.suppress(FileNotFoundError):
            os.remove(socket)
        where = ["-U", socket] if command[0] == "nbdkit" else ["--socket", socket]
        for path in (self.file, self.flash, self.disk):
            forget(path)
        server = subprocess.Popen(command[:1] + where + command[1:] if command[0] == "nbdkit" else command + where)
        try:
            while not os.path.exists(socket):
                if server.poll() is not None:
                    sys.exit(f"{' '.join(command)}: ended with {server.returncode}")
                time.sleep(0.01)
            yield socket, server.pid
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait()


def forget(path):
    """Empties the page cache of a file."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def compare(name, ours, peer, pattern, depth, bench):
    seen = ([], [])
    for _ in range(bench.arguments.rounds):
        for command, found in zip((ours, peer), seen):
            with bench.serving(command) as (socket, pid):
                before = cpu_seconds(pid)
                done = fio(socket, pattern, depth, bench.size, bs="4k", seconds=bench.arguments.seconds)
                used = cpu_seconds(pid) - before
            found.append((done["iops"], done["clat_ns"]["percentile"]["50.000000"] / 1e3, used * 1e6 / done["total_ios"]))
    rows = [[statistics.median(column) for column in zip(*found)] for found in seen]
    cells = (f"{mine:>9.{digits}f} {its:>7.{digits}f} ({mine / its:.2f})" for mine, its, digits in zip(*rows, (0, 1, 1)))
    print(f"{name:<18} " + "  ".join(f"{cell:>24}" for cell in cells), flush=True)


def fio(socket, pattern, depth, size, bs, seconds):
    command = ["fio", "--name=job", "--ioengine=nbd", f"--uri=nbd+unix:///?socket={socket}", f"--rw={pattern}", f"--bs={bs}",
               f"--iodepth={depth}", f"--size={size}", "--output-format=json", "--randrepeat=0", "--norandommap"]
    if seconds:
        command += ["--time_based", f"--runtime={seconds}"]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(told[told.index("{"):])["jobs"][0]["write" if "write" in pattern else "read"]


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


if __name__ == "__main__":
    main()
