"""Eviction policies written in Python."""

from __future__ import annotations


class Policy:
    """An eviction policy for :func:`simulate`; derive a class that defines ``miss`` and ``evict``, and usually ``hit``.

    A key is an integer that identifies an object of the trace: objects are numbered from 0 in the order of their first request. Sizes
    are bytes, or 1 with ``ignore_size=True``. Each simulated cache works on a deep copy of the object that was passed to
    :func:`simulate`, so that a policy can keep its state in attributes. Caches run on several threads, which Python lets take turns.

    An exception in a method ends the simulation and is raised by :func:`simulate`.

    Attributes
    ----------
    name : str, optional
        The policy's name in results. By default the name of the class.

    Examples
    --------
    >>> class LRU(fw.Policy):
    ...     name = "python-lru"
    ...     def __init__(self):
    ...         self.order = collections.OrderedDict()
    ...     def hit(self, key, size):
    ...         self.order.move_to_end(key)
    ...     def miss(self, key, size):
    ...         self.order[key] = None
    ...     def evict(self, key, size):
    ...         return self.order.popitem(last=False)[0]
    ...     def remove(self, key):
    ...         del self.order[key]
    >>> fw.simulate(trace, ["lru", LRU()], sizes=["10%"])
    """

    name: str | None = None

    def start(self, capacity: int) -> None:
        """Prepare an empty cache of ``capacity`` bytes, or objects with ``ignore_size=True``."""

    def hit(self, key: int, size: int) -> None:
        """Note a request for a cached object. ``size`` is its size in the cache. By default nothing is done."""

    def miss(self, key: int, size: int) -> None:
        """Note a request for an object that was not cached and now is.

        Space has been made by ``evict`` before. Objects larger than the cache are not cached and not reported.
        """
        raise NotImplementedError(f"{type(self).__name__} must define miss(key, size)")

    def evict(self, key: int, size: int) -> int:
        """Choose an object to evict, forget it, and return its key.

        Called until the object ``key`` of ``size`` bytes, which is being requested, fits. That object is not yet cached; only with
        ``size_on_hit="update"`` it can be, if it has grown. The returned key must be that of a cached object.
        """
        raise NotImplementedError(f"{type(self).__name__} must define evict(key, size)")

    def remove(self, key: int) -> None:
        """Forget a cached object that the trace deletes, or that expires."""
        raise NotImplementedError(
            f"the trace deletes objects or lets them expire: {type(self).__name__} must define remove(key)"
        )
