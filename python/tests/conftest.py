"""A small trace as a file and as columns, and the command line of the wheel."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

REQUESTS = 20_000


@pytest.fixture(scope="session")
def columns() -> dict[str, list[int]]:
    """Requests with a skewed popularity, as lists."""
    draw = random.Random(7)
    keys = [int(1000 * draw.random() ** 3) for _ in range(REQUESTS)]
    return {
        "time": [number // 10 for number in range(REQUESTS)],
        "key": keys,
        "size": [100 + key * 37 % 900 for key in keys],
    }


@pytest.fixture(scope="session")
def trace_file(columns: dict[str, list[int]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same requests as a CSV file."""
    file = tmp_path_factory.mktemp("trace") / "trace.csv"
    rows = zip(columns["time"], columns["key"], columns["size"])
    file.write_text("time,key,size\n" + "".join(f"{time},{key},{size}\n" for time, key, size in rows))
    return file


@pytest.fixture(scope="session")
def cli() -> Callable[..., Any]:
    """Runs the command ``flashwright`` of the wheel and returns its JSON."""

    def run(*arguments: object) -> Any:
        typed = [str(argument) for argument in arguments]
        command = [sys.executable, "-m", "flashwright._program", *typed, "--json", "-", "-q"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode in (0, 1), done.stderr
        return json.loads(done.stdout)

    return run


@pytest.fixture()
def long_trace(tmp_path: Path) -> Path:
    """A trace file whose simulation takes long enough to be interrupted."""
    draw = random.Random(1)
    block = "".join(f"{draw.randrange(1 << 40)},100\n" for _ in range(100_000))
    file = tmp_path / "long.csv"
    with file.open("w") as out:
        out.write("key,size\n")
        for _ in range(60):
            out.write(block)
    return file
