"""Sweeps on a Ray cluster of three nodes on this machine, one of which is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import flashwright as fw

ray = pytest.importorskip("ray")
from ray.cluster_utils import Cluster  # noqa: E402  # after the import that may skip

STORE_BYTES = 80 << 20
CELLS_BEFORE_KILL = 40


@pytest.fixture()
def cluster() -> Iterator[Any]:
    """Three nodes with a CPU each."""
    # Ray gives its workers the lowest priority by default, and other processes may use all cores.
    os.environ["RAY_worker_niceness"] = "0"
    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 1, "object_store_memory": STORE_BYTES, "include_dashboard": False},
    )
    try:
        for _ in range(2):
            cluster.add_node(num_cpus=1, object_store_memory=STORE_BYTES)
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


def plan(trace: Path, seeds: int) -> dict[str, Any]:
    axes = {"policy": ["lru", "sieve", "arc"], "size": ["1%", "10%"], "seed": list(range(seeds))}
    return {"command": "simulate", "fixed": {"trace": str(trace)}, "axes": axes}


def kill_node(node: Any) -> int:
    """Kill the raylet of a node, and its workers with it. Returns the number of workers."""
    (raylet,) = node.all_processes["raylet"]
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(raylet.process.pid)], capture_output=True, text=True)
    children = [int(number) for number in found.stdout.split()]
    for number in [raylet.process.pid, *children]:
        os.kill(number, signal.SIGKILL)
    return len(children)


def test_sweep_with_a_node_killed_has_the_dataset_of_a_serial_one(trace_file: Path, tmp_path: Path, cluster: Any) -> None:
    plan_of_204 = plan(trace_file, 34)
    serial = fw.sweep(plan_of_204, tmp_path / "serial", jobs=1)
    node = list(cluster.worker_nodes)[0]
    killed: list[int] = []

    def kill_in_the_middle() -> None:
        cells = tmp_path / "ray" / "cells"
        while not cells.is_dir() or len(list(cells.glob("*.json"))) < CELLS_BEFORE_KILL:
            time.sleep(0.01)
        killed.append(kill_node(node))
        killed.append(len(list(cells.glob("*.json"))))

    killer = threading.Thread(target=kill_in_the_middle)
    killer.start()
    there = fw.sweep(plan_of_204, tmp_path / "ray", engine="ray", address=cluster.address)
    killer.join()
    workers, done = killed
    assert workers > 0 and done < 204, "the node was killed while it had workers and cells were left"
    assert there.result["ran"] == 204 and there.result.passed
    parts = [sorted((tmp_path / name / "results.jsonl").read_bytes().splitlines()) for name in ("serial", "ray")]
    assert len(parts[0]) == 204 and parts[0] == parts[1]
    assert there.to_dicts() == serial.to_dicts()
    files = {file: file.stat().st_mtime_ns for file in (tmp_path / "ray" / "cells").glob("*.json")}
    again = fw.sweep(plan_of_204, tmp_path / "ray", engine="ray", address=cluster.address)
    assert (again.result["ran"], again.result["had_results"]) == (0, 204)
    assert files == {file: file.stat().st_mtime_ns for file in (tmp_path / "ray" / "cells").glob("*.json")}


def test_command_runs_a_sweep_on_the_cluster_and_reports_bad_cells(trace_file: Path, tmp_path: Path, cluster: Any) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text("time,key,size\nno,number,here\n")
    file = tmp_path / "plan.toml"
    file.write_text(
        f'command = "simulate"\n[axes]\ntrace = ["{bad}", "{trace_file}"]\npolicy = ["lru", "sieve"]\nsize = ["1%"]\n'
    )
    engine = f"ray:{cluster.address}"
    command = [sys.executable, "-m", "flashwright._program", "sweep", str(file), "--out", str(tmp_path / "out")]
    done = subprocess.run([*command, "--engine", engine], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("2 cells ran, 0 had results, 2 failed\n"), done.stdout
    assert done.stderr.count("bad.csv: row 2") == 2, done.stderr
    assert len((tmp_path / "out" / "results.jsonl").read_text().splitlines()) == 2
    wrong = subprocess.run([*command, "--engine", "rey"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2 and "the engine is `ray` or `ray:ADDRESS`" in wrong.stderr
