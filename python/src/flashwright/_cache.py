"""The cache engine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any

from . import _native


def _plain(value: Any) -> bytes | bytearray:
    """Bytes-like values of other types are copied."""
    if isinstance(value, (bytes, bytearray)):
        return value
    if isinstance(value, memoryview):
        return value.tobytes()
    if isinstance(value, str):
        raise TypeError("keys and values are bytes: encode the text")
    return bytes(memoryview(value))


class Cache(_native.Cache):
    """A hybrid cache of bytes under keys, in DRAM and on flash, shared by all threads.

    It may lose any item at any time, and never returns an old value of a key. A cache with flash keeps its items over
    :meth:`close`; one that was not closed reopens empty.

    Parameters
    ----------
    dram : int or str
        Bytes of DRAM, or text such as ``"64MiB"``. The default is 64 MiB.
    flash : path, optional
        File or block device. A file is created if there is none; a device with other data is refused.
    flash_size : int or str, optional
        Bytes of flash. Required for a new file; the default is all of an existing one.
    max_item : int or str, optional
        Largest item in bytes.
    small_item_share : float, optional
        Share of flash, 0 to 1, for items of at most 2 KiB. The default is 0.1.

    Examples
    --------
    >>> with Cache(dram="16MiB") as cache:
    ...     cache[b"planet"] = b"Mars"
    ...     cache[b"planet"]
    b'Mars'
    """

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value under ``key`` as ``bytes``, or ``default``."""
        found = super().get(_plain(key))
        return default if found is None else found

    def set(self, key: Any, value: Any, ttl: int | None = None) -> None:
        """Store ``value`` under ``key``.

        Parameters
        ----------
        key, value : bytes-like
        ttl : int, optional
            Seconds until the item expires. It can expire up to one second early.

        Raises
        ------
        Error
            The item is not stored, for example because it is too large. An older value of the key is gone.
        """
        super().set(_plain(key), _plain(value), ttl)

    def get_or_load(
        self, key: Any, load: Callable[[bytes], bytes | bytearray], ttl: int | None = None
    ) -> bytes:
        """Return the value under ``key``. If there is none, call ``load(key)`` and store what it returns.

        Concurrent callers of one key call ``load`` once. An exception of ``load`` is raised to all of them.
        """
        return super().get_or_load(_plain(key), load, ttl)

    def delete(self, key: Any) -> bool:
        """Remove ``key``. Return whether it may have been present, which is certain for items in DRAM."""
        return super().delete(_plain(key))

    def __getitem__(self, key: Any) -> bytes:
        return super().__getitem__(_plain(key))

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(_plain(key), _plain(value))

    def __delitem__(self, key: Any) -> None:
        super().__delitem__(_plain(key))

    def __contains__(self, key: Any) -> bool:
        """Whether a get would probably find ``key``. False is certain. Reads no flash."""
        return super().__contains__(_plain(key))

    async def aget(self, key: Any, default: Any = None) -> Any:
        """As :meth:`get`, without blocking the event loop."""
        return await asyncio.to_thread(self.get, key, default)

    async def aset(self, key: Any, value: Any, ttl: int | None = None) -> None:
        """As :meth:`set`, without blocking the event loop."""
        await asyncio.to_thread(self.set, key, value, ttl)

    async def adelete(self, key: Any) -> bool:
        """As :meth:`delete`, without blocking the event loop."""
        return await asyncio.to_thread(self.delete, key)

    async def aget_or_load(
        self, key: Any, load: Callable[[bytes], Awaitable[bytes | bytearray]], ttl: int | None = None
    ) -> bytes:
        """As :meth:`get_or_load` with an async ``load``, which runs on the caller's event loop."""
        loop = asyncio.get_running_loop()

        async def run(name: bytes) -> bytes | bytearray:
            return await load(name)

        def wait(name: bytes) -> bytes | bytearray:
            return asyncio.run_coroutine_threadsafe(run(name), loop).result()

        return await asyncio.to_thread(self.get_or_load, key, wait, ttl)

    def __enter__(self) -> Cache:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
