"""The cache engine from Python."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest

import flashwright as fw


def test_values_of_bytes_like_types_come_back_as_bytes() -> None:
    with fw.Cache(dram="16MiB") as cache:
        cache[b"bytes"] = b"one"
        cache[bytearray(b"bytearray")] = bytearray(b"two")
        cache[memoryview(b"view")] = memoryview(b"three")
        assert [cache[key] for key in (b"bytes", b"bytearray", b"view")] == [b"one", b"two", b"three"]
        assert (b"view" in cache, b"absent" in cache, len(cache)) == (True, False, 3)
        assert cache.get(b"absent") is None and cache.get(b"absent", b"default") == b"default"
        with pytest.raises(KeyError):
            cache[b"absent"]
        with pytest.raises(TypeError, match="encode the text"):
            cache.get("text")


def test_delete_removes_a_key_once() -> None:
    with fw.Cache(dram="16MiB") as cache:
        cache[b"k"] = b"v"
        assert cache.delete(b"k") and not cache.delete(b"k")
        cache[b"k"] = b"v"
        del cache[b"k"]
        with pytest.raises(KeyError):
            del cache[b"k"]
        cache[b"k"] = b"v"
        cache.clear()
        assert len(cache) == 0


def test_item_expires_after_its_ttl() -> None:
    with fw.Cache(dram="16MiB") as cache:
        cache.set(b"k", b"v", ttl=2)
        cache.set(b"kept", b"v")
        assert cache.get(b"k") == b"v"
        time.sleep(2.1)
        assert cache.get(b"k") is None and cache.get(b"kept") == b"v"


def test_closed_cache_reopens_with_its_items(tmp_path: Path) -> None:
    flash = tmp_path / "cache.flash"
    items = {f"key-{number}".encode(): bytes([number % 256]) * 3000 for number in range(500)}
    with fw.Cache(dram="16MiB", flash=flash, flash_size="64MiB") as cache:
        for key, value in items.items():
            cache[key] = value
    assert cache.closed
    with pytest.raises(fw.Error, match="closed"):
        cache.get(b"key-1")
    with fw.Cache(dram="16MiB", flash=flash) as again:
        assert again.stats()["recovered"] is True
        assert {key: again.get(key) for key in items} == items
        assert len(again) == len(items)
        assert again.stats()["hits_flash"] > 0


def test_concurrent_get_or_load_loads_once() -> None:
    calls = []

    def load(key: bytes) -> bytes:
        calls.append(key)
        time.sleep(0.2)
        return b"value of " + key

    with fw.Cache(dram="16MiB") as cache:
        found: list[bytes] = []
        threads = [threading.Thread(target=lambda: found.append(cache.get_or_load(b"k", load))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (found, calls) == ([b"value of k"] * 4, [b"k"])
        assert cache[b"k"] == b"value of k"


def test_error_of_the_loader_is_raised_and_nothing_stored() -> None:
    def fail(key: bytes) -> bytes:
        raise LookupError(key)

    with fw.Cache(dram="16MiB") as cache:
        with pytest.raises(LookupError):
            cache.get_or_load(b"k", fail)
        with pytest.raises(TypeError, match="must return bytes"):
            cache.get_or_load(b"k", lambda key: 5)  # type: ignore[arg-type, return-value]
        assert b"k" not in cache


def test_async_methods_store_and_load() -> None:
    async def load(key: bytes) -> bytes:
        await asyncio.sleep(0)
        return key.upper()

    async def program() -> None:
        with fw.Cache(dram="16MiB") as cache:
            await cache.aset(b"k", b"v")
            assert await cache.aget(b"k") == b"v"
            assert await cache.aget_or_load(b"abc", load) == b"ABC"
            assert await cache.adelete(b"k")
            assert await cache.aget(b"k") is None

    asyncio.run(program())


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="flash_size"):
        fw.Cache(flash_size="1GiB")
    with pytest.raises(ValueError, match="dram"):
        fw.Cache(dram="much")
    foreign = tmp_path / "letter.txt"
    foreign.write_bytes(b"not a cache\n" * 1_000_000)
    with pytest.raises(fw.Error, match="letter.txt: the flash device holds unknown data"):
        fw.Cache(flash=foreign)
    assert foreign.read_bytes().startswith(b"not a cache")
    with fw.Cache(dram="16MiB") as cache, pytest.raises(fw.Error, match="at most .* are accepted"):
        cache[b"k"] = bytes(64 << 20)
