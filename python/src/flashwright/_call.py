"""Python calls as command lines: keywords become flags, results come back as JSON."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike, fspath
from typing import Any, Union

from . import _native
from ._policy import Policy

Option = Union[None, bool, int, float, str, "PathLike[str]", Iterable[Any]]


def flags(options: Mapping[str, Option]) -> list[str]:
    """Command-line flags of keyword options.

    ``True`` is a flag without a value, ``None`` and ``False`` leave the flag out, and a list is joined by commas.
    """
    typed: list[str] = []
    for name, value in options.items():
        flag = "--" + name.strip("_").replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            typed.append(flag)
        else:
            typed.append(f"{flag}={text(value)}")
    return typed


def text(value: Option) -> str:
    """A value as the command line takes it."""
    if isinstance(value, (str, PathLike)):
        return fspath(value)
    if isinstance(value, Iterable):
        return ",".join(text(part) for part in value)
    return str(value)


def call(
    arguments: list[str],
    *,
    progress: bool = True,
    policies: Sequence[tuple[str, Policy]] = (),
    stacklevel: int = 3,
) -> dict[str, Any]:
    """Run a command and return its JSON. Its warnings become Python warnings."""
    shown = bar(arguments[0]) if progress else None
    try:
        text, said = _native.call(arguments, shown.update if shown else None, list(policies))
    finally:
        if shown:
            shown.close()
    for warning in said:
        warnings.warn(warning, stacklevel=stacklevel)
    result: dict[str, Any] = json.loads(text)
    return result


class Bar:
    """A progress bar, drawn by tqdm."""

    def __init__(self, make: Callable[..., Any], name: str) -> None:
        self._make = make
        self._name = name
        self._bar: Any = None

    def update(self, done: int, total: int | None) -> None:
        if self._bar is None:
            if done == 0:
                return
            self._bar = self._make(desc=self._name, unit_scale=True, leave=False, delay=0.5)
        if self._bar.total != total:
            self._bar.total = total
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def bar(name: str) -> Bar | None:
    """A progress bar if tqdm is installed."""
    try:
        with warnings.catch_warnings():
            # In a notebook without ipywidgets, tqdm warns and draws with text.
            warnings.simplefilter("ignore")
            from tqdm.auto import tqdm
    except ImportError:
        return None
    return Bar(tqdm, name)
