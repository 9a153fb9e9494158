"""Sweeps: a command over all combinations of values, on this machine or on a Ray cluster."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from os import PathLike
from typing import Any, Union

from . import _native
from ._call import call, flags
from ._ray import sweep_on_ray
from ._result import Result, Table

Plan = Union[str, "PathLike[str]", Mapping[str, Any]]


def sweep(
    plan: Plan,
    out: str | PathLike[str],
    *,
    engine: str | None = None,
    address: str | None = None,
    jobs: int | None = None,
    memory: int | str | None = None,
) -> Table:
    """Run a command over all combinations of values.

    A cell, one combination, that has a result in ``out`` is not run again, so that an interrupted sweep goes on where it ended.

    Parameters
    ----------
    plan : path or mapping
        A TOML file, or its content: ``{"command": "simulate", "fixed": {"trace": "a.csv"}, "axes": {"policy": ["lru", "sieve"]}}``.
    out : path
        Directory of the results. With Ray, all nodes must share it, and the files that the cells read.
    engine : {None, "ray"}
        ``None`` runs the cells on this machine, ``"ray"`` as tasks of a Ray cluster (``pip install flashwright[ray]``).
    address : str, optional
        Address of the Ray cluster; by default the one in use, or a new one on this machine.
    jobs : int, optional
        Cells in progress at a time on this machine. The default is one per core.
    memory : int or str, optional
        Bytes for all cells in progress on this machine, or with Ray for each cell. With Ray the default is what the first cell
        took, which runs alone.

    Returns
    -------
    Table
        The rows of all cells, in the order of the cells: ``cell``, ``key``, the values of the axes, and the columns of the command's
        rows. Cells that failed are missing; ``result.failures`` has their messages.
    """
    out = os.path.abspath(os.fspath(out))
    with tempfile.TemporaryDirectory(prefix="flashwright-sweep-") as directory:
        if isinstance(plan, Mapping):
            file = os.path.join(directory, "plan.toml")
            with open(file, "w", encoding="utf-8") as text:
                text.write(_toml(plan))
        else:
            file = os.path.abspath(os.fspath(plan))
        arguments = ["sweep", file, f"--out={out}"]
        if engine is None:
            result = Result(call([*arguments, *flags({"jobs": jobs, "memory": memory})]))
        elif engine == "ray":
            if jobs is not None:
                raise _native.Error("jobs: not with engine='ray', where each cell takes one of the cluster's CPUs")
            result = sweep_on_ray(file, out, address=address, memory=memory)
        else:
            raise _native.Error(f"engine {engine!r}: must be None or 'ray'")
    with open(result["results"], encoding="utf-8") as lines:
        return Table([json.loads(line) for line in lines], result)


def _toml(plan: Mapping[str, Any]) -> str:
    """The plan as TOML. Keys and values are written as JSON, which is TOML for text, numbers, truths and lists."""
    plain = [f"{name} = {json.dumps(value)}\n" for name, value in plan.items() if not isinstance(value, Mapping)]
    tables = [
        f"[{name}]\n" + "".join(f"{json.dumps(key)} = {json.dumps(value)}\n" for key, value in table.items())
        for name, table in plan.items()
        if isinstance(table, Mapping)
    ]
    return "".join(plain + tables)
