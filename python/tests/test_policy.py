"""Policies written in Python, in ``simulate``."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest

import flashwright as fw


class PythonLru(fw.Policy):
    """Least recently used."""

    def __init__(self) -> None:
        self.order: OrderedDict[int, int] = OrderedDict()

    def hit(self, key: int, size: int) -> None:
        assert self.order[key] == size
        self.order.move_to_end(key)

    def miss(self, key: int, size: int) -> None:
        self.order[key] = size

    def evict(self, key: int, size: int) -> int:
        assert key not in self.order
        return self.order.popitem(last=False)[0]

    def remove(self, key: int) -> None:
        del self.order[key]


COUNTS = ["size_bytes", "requests", "hits", "object_hit_ratio", "byte_hit_ratio", "inserts"]


def counts(table: fw.Table, policy: str) -> list[list[Any]]:
    return [[row[name] for name in COUNTS if name in row] for row in table if row["policy"] == policy]


def test_lru_in_python_equals_the_built_in_one_row_for_row(trace_file: Any) -> None:
    table = fw.simulate(trace_file, ["lru", PythonLru(), "fifo"], sizes=["1%", "10%", "50%", 4096])
    assert table["policy"] == [name for name in ("lru", "PythonLru", "fifo") for _ in range(4)]
    assert counts(table, "PythonLru") == counts(table, "lru")
    assert counts(table, "PythonLru") != counts(table, "fifo")
    assert all(row["hits"] > 0 for row in table)


def test_lru_in_python_equals_the_built_in_one_with_deletes_ttls_and_new_sizes(columns: Any) -> None:
    pytest.importorskip("numpy")
    requests = len(columns["key"])
    table = {
        **columns,
        "size": [100 + number * 37 % 900 for number in range(requests)],
        "op": [("get", "get", "get", "set", "delete")[number * 7 % 5] for number in range(requests)],
        "ttl": [number % 3 * 50 for number in range(requests)],
    }
    for options in ({}, {"size_on_hit": "update"}, {"ignore_size": True}, {"warmup": 0, "threads": 1}):
        size = "100obj" if "ignore_size" in options else "10%"

        class Resized(PythonLru):
            def hit(self, key: int, size: int) -> None:
                self.order.move_to_end(key)

            def evict(self, key: int, size: int) -> int:
                return self.order.popitem(last=False)[0]

        rows = fw.simulate(table, ["lru", Resized()], sizes=size, **options)
        name = "size_objects" if "ignore_size" in options else "size_bytes"
        python, built_in = ([{**row, "policy": "", "policy_as_given": ""} for row in rows if row["policy"] == policy] for policy in ("Resized", "lru"))
        assert python == built_in and len(python) == 1 and name in python[0]


def test_each_cache_has_a_copy_of_the_policy_and_its_capacity(trace_file: Any) -> None:
    started = []

    class Noting(PythonLru):
        def start(self, capacity: int) -> None:
            assert not self.order
            started.append(capacity)

    policy = Noting()
    fw.simulate(trace_file, policy, sizes=[4096, 65536])
    assert sorted(started) == [4096, 65536]
    assert not policy.order


def test_exception_in_a_policy_ends_the_run_with_that_exception(long_trace: Any) -> None:
    class Failing(PythonLru):
        calls = 0

        def miss(self, key: int, size: int) -> None:
            Failing.calls += 1
            if Failing.calls == 1000:
                raise ZeroDivisionError("at object 999")
            super().miss(key, size)

    with pytest.raises(ZeroDivisionError, match="at object 999") as raised:
        fw.simulate(long_trace, ["lru", Failing()], sizes="1MB", progress=False)
    assert raised.traceback[-1].name == "miss"
    assert Failing.calls == 1000


@pytest.mark.parametrize("answer", [None, -1, 1 << 40, 999_999, "17", 3.5])
def test_evicting_an_uncached_object_is_an_error_that_names_the_policy(trace_file: Any, answer: Any) -> None:
    class Wrong(PythonLru):
        def evict(self, key: int, size: int) -> int:
            return answer  # type: ignore[no-any-return]

    message = rf"Wrong\.evict returned {answer!r}: it must return the key of a cached object \(\d+ are cached\)"
    with pytest.raises(fw.Error, match=message):
        fw.simulate(trace_file, Wrong(), sizes="1%")


def test_evicting_an_object_twice_is_an_error(trace_file: Any) -> None:
    class Twice(PythonLru):
        def evict(self, key: int, size: int) -> int:
            self.victim = getattr(self, "victim", None) or super().evict(key, size)
            return self.victim

    with pytest.raises(fw.Error, match=r"Twice\.evict returned \d+: it must return the key of a cached object"):
        fw.simulate(trace_file, Twice(), sizes="1%")


def test_missing_methods_are_named(trace_file: Any) -> None:
    class Nothing(fw.Policy):
        pass

    with pytest.raises(NotImplementedError, match=r"Nothing must define miss\(key, size\)"):
        fw.simulate(trace_file, Nothing())


def test_names_of_policies_are_checked(trace_file: Any) -> None:
    class Lru(PythonLru):
        name = "s3-fifo"

    with pytest.raises(ValueError, match='"s3-fifo": a built-in policy has that name'):
        fw.simulate(trace_file, Lru())
    Lru.name = "a,b"
    with pytest.raises(ValueError, match='"a,b": a name has at least one letter or digit'):
        fw.simulate(trace_file, Lru())
    Lru.name = "python_lru"
    with pytest.raises(fw.Error, match="two policies are named python_lru"):
        fw.simulate(trace_file, [Lru(), Lru()])
    with pytest.raises(fw.Error, match="python_lru is not a built-in policy and cannot be sampled"):
        fw.simulate(trace_file, Lru(), sample="50%")
