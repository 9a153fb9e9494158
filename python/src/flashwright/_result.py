"""Results: dictionaries with the names of the command line's JSON, and tables of their rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from . import _native

if TYPE_CHECKING:
    import pandas
    import polars


class Result(dict[str, Any]):
    """A result as the command line's ``--json`` writes it."""

    @property
    def passed(self) -> bool:
        """Whether all checks of the run passed."""
        return bool(self["verdict"]["passed"])

    @property
    def failures(self) -> list[str]:
        """The checks that failed, one line each."""
        return list(self["verdict"]["failures"])

    def _repr_html_(self) -> str:
        return f"<pre>{escape(json.dumps(self, indent=1)[:20_000])}</pre>"


class Table:
    """Rows of a result.

    The table iterates over dictionaries with the names of the JSON. It implements the Arrow PyCapsule interface, so that
    ``pyarrow.table(t)``, ``polars.DataFrame(t)`` and others read it. There, a nested value is a column with a dotted name, and a
    list is JSON text.

    Attributes
    ----------
    result : Result
        The whole result that the rows are part of.
    """

    def __init__(self, rows: list[dict[str, Any]], result: Result) -> None:
        self._rows = rows
        self.result = result

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._rows)

    def __getitem__(self, place: Any) -> Any:
        """Row ``place``, a slice of rows, or the list of values of the column named ``place``."""
        if isinstance(place, str):
            return [row[place] for row in self._rows]
        return self._rows[place]

    def __repr__(self) -> str:
        return f"<flashwright.Table: {len(self)} rows>"

    def to_dicts(self) -> list[dict[str, Any]]:
        """The rows as dictionaries, nested as in the JSON."""
        return [dict(row) for row in self._rows]

    def to_pandas(self) -> pandas.DataFrame:
        """The table as a ``pandas.DataFrame`` with one row per row; needs pandas."""
        import pandas

        return pandas.DataFrame({name: values for name, _, values in self._columns()})

    def to_polars(self) -> polars.DataFrame:
        """The table as a ``polars.DataFrame`` with one row per row; needs polars."""
        import polars

        return polars.DataFrame(self)

    def to_parquet(self, path: str | PathLike[str]) -> None:
        """Write the table to a Parquet file; needs polars or pyarrow."""
        try:
            self.to_polars().write_parquet(fspath(path))
        except ImportError:
            import pyarrow
            from pyarrow import parquet

            parquet.write_table(pyarrow.table(self), fspath(path))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """An ``arrow_array_stream`` capsule of the table. ``requested_schema`` is ignored, as the interface allows."""
        return _native.arrow_stream(self._columns())

    def _columns(self) -> list[tuple[str, str, list[Any]]]:
        flat = [_flatten(row) for row in self._rows]
        names = list(dict.fromkeys(name for row in flat for name in row))
        return [(name, *_typed([row.get(name) for row in flat])) for name in names]

    def _repr_html_(self) -> str:
        columns = [column for column in self._columns() if any(value is not None for value in column[2])]
        head = "".join(f"<th>{escape(name)}</th>" for name, _, _ in columns)
        lines = (
            "".join(f"<td>{escape(_short(values[row]))}</td>" for _, _, values in columns)
            for row in range(len(self))
        )
        body = "".join(f"<tr>{line}</tr>" for line in lines)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _flatten(row: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict):
            flat.update(_flatten(value, f"{prefix}{name}."))
        else:
            flat[prefix + name] = json.dumps(value) if isinstance(value, list) else value
    return flat


def _typed(values: list[Any]) -> tuple[str, list[Any]]:
    """The Arrow type of a column, and its values in that type."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return "bool", values
    if kinds == {int} and all(value is None or -(2**63) <= value < 2**63 for value in values):
        return "int64", values
    if kinds and kinds <= {int, float}:
        return "float64", [None if value is None else float(value) for value in values]
    return "string", [None if value is None else str(value) for value in values]


def _short(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
