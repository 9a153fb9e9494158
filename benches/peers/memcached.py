"""The cache server beside memcached with extstore, interleaved: requests a second, CPU a request, bytes written, objects found.

    apt-get install memcached
    cargo build --release -p flashwright
    python3 benches/peers/memcached.py target/release/flashwright [--rounds 5] [--seconds 3] [--directory DIRECTORY] [--only dram-32]

Both servers get the same memory (`-m`, `--dram`), the same flash (`ext_path`, `--flash-size`) and two threads. extstore stores items
from 128 bytes on, and has no direct I/O: its file is dropped from the page cache 20 times a second, so that its reads reach the drive.
CPU is of the server's process, user and system; memory is its resident set. Bytes written and items admitted to flash are those of `stats`:
/proc/PID/io counts a page that is overwritten in the page cache once. The client is this
program: `connections` sockets, each with `depth` gets in one write. A round runs both servers once, one after the other; the table has
medians over the rounds.
"""

import argparse
import os
import random
import signal
import socket
import statistics
import subprocess
import tempfile
import threading
import time

MIB = 1 << 20
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class Server:
    """A server on a Unix socket."""

    def __init__(self, command, directory):
        self.command, self.directory = command, directory
        self.path = os.path.join(directory, "socket")
        self.start()

    def start(self):
        if os.path.exists(self.path):
            os.remove(self.path)
        command = [part.format(socket=self.path) for part in self.command]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        deadline = time.time() + 60
        while True:
            try:
                self.connect().close()
                return
            except OSError:
                assert time.time() < deadline and self.process.poll() is None, command
                time.sleep(0.02)

    def connect(self):
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(60)
        connection.connect(self.path)
        return connection

    def cpu_seconds(self):
        with open(f"/proc/{self.process.pid}/stat") as file:
            words = file.read().rsplit(")", 1)[1].split()
        return (int(words[11]) + int(words[12])) / TICKS_PER_SECOND

    def stat(self, name):
        connection = self.connect()
        connection.sendall(b"stats\r\n")
        text = b""
        while not text.endswith(b"END\r\n"):
            text += connection.recv(1 << 16)
        connection.close()
        return next(int(line.split()[2]) for line in text.decode().splitlines() if line.startswith(f"STAT {name} "))

    def memory_mib(self):
        with open(f"/proc/{self.process.pid}/status") as file:
            line = next(line for line in file if line.startswith("VmRSS:"))
        return int(line.split()[1]) / 1024

    def restart(self):
        self.stop()
        self.start()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(120)


class PageCacheDropper:
    """Drops the files of a directory from the page cache, again and again."""

    def __init__(self, directory):
        self.directory, self.ended = directory, threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.ended.wait(0.05):
            for name in ("extstore", "flash"):
                path = os.path.join(self.directory, name)
                if os.path.exists(path):
                    file = os.open(path, os.O_RDONLY)
                    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
                    os.close(file)

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()


def memcached(memory_mib, flash_mib, directory):
    command = ["memcached", "-s", "{socket}", "-m", str(memory_mib), "-t", "2", "-u", "root"]
    if flash_mib:
        options = f"ext_page_size=8,ext_wbuf_size=2,ext_item_size=128,ext_threads=2,ext_path={directory}/extstore:{flash_mib}m"
        command += ["-o", options]
    return command


def flashwright(program, memory_mib, flash_mib, directory, small):
    command = [program, "serve", "--listen", "unix:{socket}", "--dram", f"{memory_mib}MiB", "--threads", "2"]
    if flash_mib:
        command += ["--flash", f"{directory}/flash", "--flash-size", f"{flash_mib}MiB"]
        command += ["--small-item-share", "90%" if small else "10%"]
    return command


def key(number):
    return b"key%09d" % number


def receive(connection, wanted):
    """Reads replies until `wanted` of them have ended; returns how many bytes there were."""
    replies, total, tail = 0, 0, b""
    while replies < wanted:
        part = connection.recv(1 << 20)
        assert part, "the server closed the connection"
        total += len(part)
        text = tail + part
        replies += text.count(b"END\r\n")
        tail = text[-4:]
    return total


def fill(server, first, count, value_bytes, mb_per_second=None):
    """Stores keys from `first` on, many in a write; returns how many were stored. memcached drops items if extstore cannot follow."""
    refused, begin = 0, time.time()
    connection = server.connect()
    batch = max(1, min(256, 256 * 1024 // value_bytes))
    body = b" 0 0 %d\r\n" % value_bytes + b"v" * value_bytes + b"\r\n"
    for start in range(first, first + count, batch):
        numbers = range(start, min(start + batch, first + count))
        if mb_per_second:
            time.sleep(max(0, begin + (start - first) * value_bytes / mb_per_second / 1e6 - time.time()))
        connection.sendall(b"".join(b"set " + key(number) + body for number in numbers))
        replies = 0
        while replies < len(numbers):
            part = connection.recv(1 << 16)
            assert part, "the server closed the connection"
            # memcached refuses items while extstore is behind, "SERVER_ERROR out of memory storing object".
            refused += part.count(b"ERROR")
            replies += part.count(b"\n")
    connection.close()
    return count - refused


def gets(server, keys, connections, depth, seconds, value_bytes):
    """Gets of random keys by several connections; returns requests a second, CPU seconds a request and the share that hit."""
    sockets = [server.connect() for _ in range(connections)]
    # Requests are made beforehand, so that the client needs little CPU.
    batches = [b"".join(b"get " + key(random.randrange(*keys)) + b"\r\n" for _ in range(depth)) for _ in range(2000)]
    hit_bytes = len(b"VALUE  0 \r\n\r\n" + key(0) + b"%d" % value_bytes) + value_bytes
    requests, received = 0, 0
    start, cpu = time.time(), server.cpu_seconds()
    while time.time() < start + seconds:
        for connection in sockets:
            connection.sendall(random.choice(batches))
        for connection in sockets:
            received += receive(connection, depth)
            requests += depth
    elapsed, cpu = time.time() - start, server.cpu_seconds() - cpu
    hits = (received - 5 * requests) / hit_bytes
    return requests / elapsed, cpu / requests * 1e6, hits / requests


def found(server, count, value_bytes):
    """About how many of the first `count` keys are there: 20,000 random gets."""
    connection = server.connect()
    hits, sample = 0, 20_000
    hit_bytes = len(b"VALUE  0 \r\n\r\n" + key(0) + b"%d" % value_bytes) + value_bytes
    for _ in range(sample // 20):
        connection.sendall(b"".join(b"get " + key(random.randrange(count)) + b"\r\n" for _ in range(20)))
        hits += (receive(connection, 20) - 100) / hit_bytes
    connection.close()
    return hits / sample * count


def objects():
    """Small items on a flash that is large for the memory: the index in memory limits how many there can be."""

    def run(server, _seconds, flash_mib):
        count = flash_mib * MIB // 320
        fill(server, 0, count, 300)
        time.sleep(2)
        held = found(server, count, 300)
        return held / 1000, server.memory_mib(), held / server.memory_mib()

    return run, 64, 1536, True, ("1000 objects", "RSS MiB", "objects/MiB RSS")


def dram_gets(depth):
    def run(server, seconds, _flash):
        fill(server, 0, 100_000, 300)
        return gets(server, (0, 100_000), 4, depth, seconds, 300)

    return run, 128, 0, True, ("gets/s", "CPU us a get", "hits")


def flash_gets(connections):
    def run(server, seconds, _flash):
        # Six times as much as DRAM, and a third of flash.
        fill(server, 0, 24_000, 16_000, mb_per_second=20)
        time.sleep(2)
        with PageCacheDropper(server.directory):
            return gets(server, (0, 24_000), connections, 1, seconds, 16_000)

    return run, 64, 1024, False, ("gets/s", "CPU us a get", "hits")


def writes(value_bytes):
    def run(server, _seconds, flash_mib):
        # New keys, three times as many bytes as flash has.
        count = 3 * flash_mib * MIB // value_bytes
        cpu = server.cpu_seconds()
        stored = fill(server, 0, count, value_bytes, mb_per_second=20)
        time.sleep(2)
        admitted = server.stat("extstore_objects_written")
        amplification = server.stat("extstore_bytes_written") / (admitted * (value_bytes + len(key(0))))
        cpu = (server.cpu_seconds() - cpu) / count * 1e6
        memory_mib = server.memory_mib()
        held = found(server, count, value_bytes)
        server.restart()
        warm = found(server, count, value_bytes)
        return 100 * stored / count, 100 * admitted / count, amplification, cpu, held / 1000, held / memory_mib, 100 * warm / max(held, 1)

    titles = ("% stored", "% admitted", "B written/B", "CPU us a set", "1000 objects", "objects/MiB RSS", "% after restart")
    return run, 64, 256, value_bytes <= 2048, titles


CASES = {
    "dram-1": dram_gets(1),
    "dram-32": dram_gets(32),
    "flash-1": flash_gets(1),
    "flash-32": flash_gets(32),
    "writes-300": writes(300),
    "writes-16000": writes(16_000),
    "objects-300": objects(),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("flashwright")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--directory", help="where flash is")
    parser.add_argument("--only", help="one case")
    arguments = parser.parse_args()
    print(f"medians of {arguments.rounds} rounds; memcached's in brackets; then ours over memcached's")
    for name, case in CASES.items():
        if arguments.only in (None, name):
            compare(name, case, arguments)


def compare(name, case, arguments):
    run, memory, flash, small, titles = case
    results = {"ours": [], "theirs": []}
    for _ in range(arguments.rounds):
        for which in results:
            with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
                ours = flashwright(arguments.flashwright, memory, flash, directory, small)
                server = Server(ours if which == "ours" else memcached(memory, flash, directory), directory)
                try:
                    results[which].append(run(server, arguments.seconds, flash))
                finally:
                    server.stop()
    for column, title in enumerate(titles):
        ours, theirs = (statistics.median(row[column] for row in results[which]) for which in ("ours", "theirs"))
        print(f"{name:<14} {title:<16} {ours:>12.2f} ({theirs:.2f})  {ours / theirs if theirs else float('nan'):.2f}", flush=True)


if __name__ == "__main__":
    main()
