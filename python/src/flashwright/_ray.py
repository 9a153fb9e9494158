"""Sweeps on a Ray cluster: each cell is a task that runs ``sweep --cell``."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from . import _native
from ._call import bar, call
from ._result import Result

MOST_SUBMITTED = 1000
"""Tasks that Ray has at a time: enough for the CPUs of a large cluster, few enough for a short wait."""

POLL_SECONDS = 0.2

RETRIES = 5
"""Runs of a cell after the first, each after the death of its node or worker. A cell that fails by itself is not tried again."""


def sweep_on_ray(
    plan: str, out: str, *, address: str | None = None, memory: int | str | None = None, progress: bool = True
) -> Result:
    """Run the cells of a plan that have no result as tasks of a Ray cluster, and combine the results."""
    try:
        import ray
    except ImportError:
        raise _native.Error("engine='ray' needs Ray: pip install ray") from None
    if isinstance(memory, str):
        raise _native.Error(f"memory {memory!r}: with engine='ray' give a number of bytes")
    arguments = ["sweep", plan, f"--out={out}"]
    cells = call([*arguments, "--dry-run"])["cells"]
    pending = [number for number, cell in enumerate(cells) if not cell["done"]]
    failures: dict[int, list[str]] = {}
    if pending:
        starts_ray = not ray.is_initialized()
        if starts_ray:
            ray.init(address=address, log_to_driver=False, include_dashboard=False)
        try:
            failures = _Tasks(Path(plan).read_text(encoding="utf-8"), out, memory, progress).run(pending)
        finally:
            if starts_ray:
                ray.shutdown()
    result = Result(call([*arguments, "--combine"]))
    result.update(ran=len(pending) - len(failures), had_results=len(cells) - len(pending))
    messages = [message for number in sorted(failures) for message in failures[number]]
    result["verdict"] = {"passed": not messages, "failures": messages}
    return result


class _Tasks:
    """The cells of one sweep as Ray tasks."""

    def __init__(self, plan: str, out: str, memory: int | None, progress: bool) -> None:
        # The plan travels as text: a temporary file of this machine may be absent on the others.
        self._call = (plan, out, os.getcwd())
        self._memory = memory
        self._bar = bar("sweep") if progress else None
        self._failures: dict[int, list[str]] = {}
        self._done = 0

    def run(self, pending: list[int]) -> dict[int, list[str]]:
        """Run these cells. Returns the messages of those that failed."""
        self._total = len(pending)
        try:
            if self._memory is None:
                # One cell alone, to reserve its memory for each of the others.
                self._finish(pending[:1], None)
                pending = pending[1:]
            self._finish(pending, self._memory)
        finally:
            if self._bar:
                self._bar.close()
        return self._failures

    def _finish(self, cells: list[int], memory: int | None) -> None:
        import ray

        # A task whose node or worker dies runs again elsewhere.
        options: dict[str, Any] = {"num_cpus": 1, "max_retries": RETRIES}
        if memory:
            # Only parts of Ray have types.
            cluster: Any = ray
            nodes = [node["Resources"].get("memory", 0) for node in cluster.nodes() if node["Alive"]]
            # A task that needs more memory than any node has would wait forever.
            options["memory"] = int(min(memory, max(nodes)))
        task = ray.remote(**options)(run_cell)
        waiting = iter(cells)
        running: dict[Any, int] = {}
        try:
            while True:
                for number in waiting:
                    running[task.remote(*self._call, number)] = number
                    if len(running) >= MOST_SUBMITTED:
                        break
                if not running:
                    return
                ended, _ = ray.wait(list(running), num_returns=len(running), timeout=POLL_SECONDS)
                for reference in ended:
                    self._record(running.pop(reference), reference)
        except BaseException:
            for reference in running:
                ray.cancel(reference, force=True)
            raise

    def _record(self, number: int, reference: Any) -> None:
        import ray

        try:
            messages, memory = ray.get(reference)
            self._memory = self._memory or memory
        except ray.exceptions.LocalRayletDiedError:
            # Ray fails all tasks then, though other nodes could run them.
            left = self._total - self._done
            raise _native.Error(f"the Ray node that this process uses died with {left} cells left: run the sweep again on another node")
        except ray.exceptions.RayError as error:
            # Its node or worker died in every run.
            messages = [f"cell {number}: {error}"]
        if messages:
            self._failures[number] = messages
        self._done += 1
        if self._bar:
            self._bar.update(self._done, self._total)


def run_cell(plan: str, out: str, directory: str, number: int) -> tuple[list[str], int | None]:
    """Run one cell, in a worker. Returns the messages of its failures, and the bytes of memory that it took."""
    os.chdir(directory)
    with tempfile.NamedTemporaryFile("w", suffix=".toml", encoding="utf-8") as file:
        file.write(plan)
        file.flush()
        try:
            result = Result(call(["sweep", file.name, f"--out={out}", f"--cell={number}"], progress=False))
        except _native.Error as error:
            return [f"cell {number}: {error}"], None
        return result.failures, result["cell_memory_bytes"]


def main(arguments: list[str]) -> int:
    """The command ``flashwright sweep --engine ray[:ADDRESS]``. Returns its exit code."""
    parser = argparse.ArgumentParser("flashwright sweep", description="Run a sweep on a Ray cluster.")
    parser.add_argument("plan", help="plan, a TOML file")
    parser.add_argument("--out", required=True, help="directory of the results, which all nodes share")
    parser.add_argument("--engine", required=True, metavar="ray[:ADDRESS]", help="address of the cluster; by default the one in use")
    parser.add_argument("--json", metavar="FILE", help="write the result as JSON to FILE; - is standard output")
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing but errors")
    given = parser.parse_args(arguments)
    name, _, address = given.engine.partition(":")
    if name != "ray":
        parser.error(f"--engine {given.engine}: the engine is `ray` or `ray:ADDRESS`")
    out = os.path.abspath(given.out)
    try:
        result = sweep_on_ray(given.plan, out, address=address or None, progress=not given.quiet)
    except (_native.Error, OSError) as error:
        print(f"flashwright: {error}", file=sys.stderr)
        return 2
    failed = len(result.failures)
    if given.json:
        text = json.dumps(result, indent=2) + "\n"
        sys.stdout.write(text) if given.json == "-" else Path(given.json).write_text(text, encoding="utf-8")
    if not given.quiet and given.json != "-":
        print(f"{result['ran']} cells ran, {result['had_results']} had results, {failed} failed")
        print(f"{result['results']}: {result['rows']} rows")
    for failure in result.failures:
        print(f"flashwright: failed: {failure}", file=sys.stderr)
    return 1 if failed else 0
