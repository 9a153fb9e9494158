"""Reads and writes by pymemcache's HashClient, while a server stops and starts again between the printed steps.

A client sends keys of a stopped server to the others, so the value of a key never changes here.
"""
import sys
import time

from pymemcache.client.hash import HashClient

# Enough that a third of the servers has a third of the keys, to half a point.
KEYS = 30_000


def value(key):
    return f"{key}-{'x' * (key % 300)}".encode()


def hit_ratio(client, fill=False):
    """The share of all keys that are found; each is read once."""
    hits = 0
    for key in range(KEYS):
        found = client.get(f"key{key}")
        assert found in (None, value(key)), f"key{key}: {found!r}"
        hits += found is not None
        if fill and found is None:
            client.set(f"key{key}", value(key))
    return hits / KEYS


def step(line, wait=True):
    print(line, flush=True)
    if wait:
        sys.stdin.readline()


servers = [("127.0.0.1", int(port)) for port in sys.argv[1:]]
# Without no_delay, the kernel holds each request after a `set noreply` for 40 ms.
client = HashClient(servers, ignore_exc=True, retry_attempts=0, dead_timeout=1, timeout=10, no_delay=True)
for key in range(KEYS):
    assert client.set(f"key{key}", value(key))
assert hit_ratio(client) == 1
step("filled")
ratio = hit_ratio(client)
print(f"hits with a server stopped: {ratio:.4f}", file=sys.stderr)
assert 1 - ratio <= 1 / 3 + 0.01, ratio
hit_ratio(client, fill=True)
step("lost at most a third")
time.sleep(1.5)
hit_ratio(client)
ratio = hit_ratio(client)
print(f"hits after the restart: {ratio:.4f}", file=sys.stderr)
assert ratio >= 0.99, ratio
step("warm", wait=False)
