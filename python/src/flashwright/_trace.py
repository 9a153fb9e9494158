"""Traces: files in any supported format, and tables in memory."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike, fspath, unlink
from pathlib import Path
from typing import Any, Union

from . import _native
from ._call import Option, call, flags
from ._result import Result

PathLikes = Union[str, "PathLike[str]", Sequence[Union[str, "PathLike[str]"]]]

#: Names of a table's columns, in order of preference.
_NAMES = {
    "key": ("key", "id", "obj_id", "object_id", "object"),
    "size": ("size", "size_bytes", "obj_size", "object_size", "bytes"),
    "time": ("time", "timestamp", "ts", "clock_time"),
    "ttl": ("ttl", "ttl_seconds"),
    "op": ("op", "operation", "kind"),
}
#: Rows of a table that are converted at a time.
_PART_ROWS = 1 << 14
_KINDS = {"get": 0, "read": 0, "set": 1, "put": 1, "write": 1, "delete": 2, "remove": 2}


class Trace:
    """A trace, opened by :func:`open_trace`.

    A table in memory is kept in a temporary file in the binary trace format, which is removed with the object.

    Attributes
    ----------
    paths : list of str
        Its files.
    options : dict
        How they are read: flags of the command line, such as ``format`` or ``limit``.
    """

    def __init__(self, paths: list[str], options: dict[str, Option], description: str) -> None:
        self.paths = paths
        self.options = options
        self._description = description

    def __repr__(self) -> str:
        return f"<flashwright.Trace {self._description}>"

    def info(self, **options: Option) -> Result:
        """Count what is in the trace.

        Parameters
        ----------
        **options
            Flags of ``flashwright trace info``.

        Returns
        -------
        Result
            ``requests``, ``objects``, ``footprint_bytes``, ``one_hit_wonder_ratio`` and others, as ``flashwright trace info --json``.
        """
        return Result(call(["trace", "info", *self.arguments(), *flags(options)]))

    def arguments(self) -> list[str]:
        """The arguments of a command that reads the trace."""
        return [*flags(self.options), *self.paths]


def open_trace(
    source: PathLikes | Mapping[str, Any] | object,
    *,
    time_unit: str = "s",
    columns: Mapping[str, str] | None = None,
    **options: Option,
) -> Trace:
    """Open a trace.

    Parameters
    ----------
    source : path, list of paths, table or mapping of arrays
        A file in any format of ``flashwright trace formats``, or several files. A ``.parquet`` file, a pyarrow, polars or pandas
        table and a mapping from names to arrays are tables with the columns ``key`` (integers of 64 bits, text or bytes), ``size``
        (bytes), and optionally ``time``, ``ttl`` (seconds, 0 never expires) and ``op`` (``get``, ``set``, ``delete``). All columns
        have one value per request.
    time_unit : {"s", "ms", "us", "ns"}
        Unit of a table's ``time`` column, unless its values are timestamps.
    columns : mapping, optional
        Names of a table's columns, if they differ: ``{"key": "object_id"}``.
    **options
        How files are read, as on the command line: ``format``, ``page_size``, ``zero_size``, ``limit`` and others.

    Returns
    -------
    Trace

    Raises
    ------
    Error
        A file is missing or in no known format; the message names it. Other faults of files are found when the trace is read.
    """
    if isinstance(source, (str, PathLike)):
        source = [source]
    if isinstance(source, Sequence) and all(isinstance(path, (str, PathLike)) for path in source):
        paths = [fspath(path) for path in source]
        for path in paths:
            if not Path(path).exists():
                raise _native.Error(f"cannot open the trace {path}: No such file or directory")
        if len(paths) == 1 and paths[0].endswith(".parquet") and "format" not in options:
            return _of_parquet(paths[0], time_unit, columns, options)
        return Trace(paths, dict(options), ", ".join(paths))
    return _of_table(source, time_unit, columns, options, f"of a {type(source).__name__}")


def _of_parquet(
    path: str, time_unit: str, columns: Mapping[str, str] | None, options: Mapping[str, Option]
) -> Trace:
    """A Parquet file, which the commands read themselves: only its columns are chosen here, as those of a table."""
    chosen = _choose_all(_native.parquet_columns(path), columns)
    fields = ",".join(f"{column}={name}" for column, name in chosen.items() if name is not None)
    given: dict[str, Option] = {"format": f"parquet:{fields}"}
    if time_unit != "s":
        given["time_units"] = 10**9 // _nanoseconds(time_unit)
    return Trace([path], {**given, **options}, path)


def _of_table(
    table: Any,
    time_unit: str,
    columns: Mapping[str, str] | None,
    options: Mapping[str, Option],
    description: str,
) -> Trace:
    chosen = _choose_all(_column_names(table), columns)
    arrays = {column: _array(table, name) for column, name in chosen.items() if name is not None}
    file = tempfile.NamedTemporaryFile(prefix="flashwright-", suffix=".fwt", delete=False)
    file.close()
    trace = Trace([file.name], {"format": "binary", **options}, description)
    weakref.finalize(trace, _remove, file.name)
    _native.write_trace(file.name, _parts(arrays, time_unit))
    return trace


def _remove(path: str) -> None:
    try:
        unlink(path)
    except FileNotFoundError:
        pass


def _column_names(table: Any) -> list[str]:
    if isinstance(table, Mapping):
        return [str(name) for name in table]
    names = getattr(table, "column_names", None)  # pyarrow
    if names is None:
        names = getattr(table, "columns", None)  # polars, pandas
    if names is None:
        raise TypeError(f"a trace is a path, a table or a mapping of arrays, not a {type(table).__name__}")
    return [str(name) for name in names]


def _choose_all(names: list[str], columns: Mapping[str, str] | None) -> dict[str, str | None]:
    """The name of each column of a trace in a table with these names."""
    chosen = {column: _choose(column, names, columns or {}) for column in _NAMES}
    for column in ("key", "size"):
        if chosen[column] is None:
            raise _native.Error(
                f"the table has no column for the {column}: it has {', '.join(names)}; name it with columns={{\"{column}\": ...}}"
            )
    if chosen["ttl"] is not None and chosen["time"] is None:
        raise _native.Error("the table has a column for the ttl and none for the time: without times nothing expires")
    return chosen


def _choose(column: str, names: list[str], named: Mapping[str, str]) -> str | None:
    wrong = [name for name in named if name not in _NAMES]
    if wrong:
        raise _native.Error(f"columns: unknown column {wrong[0]!r}; the columns are {', '.join(_NAMES)}")
    if column in named:
        if named[column] not in names:
            raise _native.Error(f"the table has no column {named[column]!r}; it has {', '.join(names)}")
        return named[column]
    return next((name for name in _NAMES[column] if name in names), None)


def _array(table: Any, name: str) -> Any:
    import numpy

    column = table[name]
    return column.to_numpy() if hasattr(column, "to_numpy") else numpy.asarray(column)


def _parts(arrays: Mapping[str, Any], time_unit: str) -> Iterator[dict[str, Any]]:
    """The columns, a part at a time, so that their copies stay in the processor's cache."""
    lengths = {column: len(array) for column, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"the columns have different lengths: {lengths}")
    for first in range(0, lengths["key"], _PART_ROWS):
        part = slice(first, first + _PART_ROWS)
        yield _encode({column: array[part] for column, array in arrays.items()}, time_unit)


def _encode(arrays: Mapping[str, Any], time_unit: str) -> dict[str, Any]:
    """The columns as the native part takes them: little-endian bytes."""
    encoded: dict[str, Any] = {"keys": None, "names": None, "times": None, "ttls": None, "kinds": None}
    keys = arrays["key"]
    if keys.dtype.kind in "iu":
        # A negative key becomes the unsigned number with the same 64 bits, so distinct keys stay distinct.
        encoded["keys"] = keys.astype("<u8").tobytes()
    else:
        encoded["names"] = [key if isinstance(key, bytes) else str(key).encode() for key in keys.tolist()]
    encoded["sizes"] = _whole("size", arrays["size"], "<u8")
    if "time" in arrays:
        encoded["times"] = _times(arrays["time"], time_unit)
    if "ttl" in arrays:
        encoded["ttls"] = _whole("ttl", arrays["ttl"], "<u4")
    if "op" in arrays:
        encoded["kinds"] = bytes(_kind(op) for op in arrays["op"].tolist())
    return encoded


def _whole(name: str, array: Any, dtype: str) -> bytes:
    """A column of numbers that are not negative; a missing value becomes 0."""
    import numpy

    if array.dtype.kind == "f":
        array = numpy.nan_to_num(array)
    elif array.dtype.kind not in "iub":
        raise _native.Error(f"the column {name} must be of numbers, not of {array.dtype}")
    largest = numpy.iinfo(numpy.dtype(dtype)).max
    if len(array) and (array.min() < 0 or array.max() > largest):
        raise _native.Error(f"the column {name} has values below 0 or above {largest}")
    encoded: bytes = array.astype(dtype).tobytes()
    return encoded


def _times(times: Any, unit: str) -> bytes:
    if times.dtype.kind == "M":
        encoded: bytes = times.astype("datetime64[ns]").astype("<u8").tobytes()
        return encoded
    if times.dtype.kind == "f":
        return _whole("time", times * _nanoseconds(unit), "<u8")
    return _whole("time", times.astype("int64") * _nanoseconds(unit), "<u8")


def _nanoseconds(unit: str) -> int:
    factors = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
    if unit not in factors:
        raise _native.Error(f"time_unit {unit!r}: must be one of {', '.join(factors)}")
    return factors[unit]


def _kind(op: Any) -> int:
    name = op.decode() if isinstance(op, bytes) else str(op)
    kind = _KINDS.get(name.lower())
    if kind is None:
        raise _native.Error(f"the column op has the value {name!r}; it must be get, set or delete")
    return kind
