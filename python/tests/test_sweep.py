"""``sweep`` on this machine and on Ray."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import flashwright as fw

AXES = {"policy": ["lru", "sieve"], "size": ["1%", "10%"], "seed": [1, 2]}


def plan(*traces: Path) -> dict[str, Any]:
    return {"command": "simulate", "fixed": {}, "axes": {"trace": [str(trace) for trace in traces], **AXES}}


def test_sweep_of_a_mapping_has_the_rows_of_simulate(trace_file: Path, tmp_path: Path) -> None:
    table = fw.sweep(plan(trace_file), tmp_path / "out")
    assert len(table) == 8 and table.result["ran"] == 8
    for row in table:
        (alone,) = fw.simulate(trace_file, row["policy"], sizes=row["size"], seed=row["seed"])
        assert {name: row[name] for name in alone} == alone
    again = fw.sweep(plan(trace_file), tmp_path / "out")
    assert again.result["ran"] == 0 and again.to_dicts() == table.to_dicts()


def test_failed_cells_are_reported_and_the_rest_is_there(trace_file: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text("time,key,size\nno,number,here\n")
    table = fw.sweep(plan(bad, trace_file), tmp_path / "out")
    assert len(table) == 8 and len(table.result.failures) == 8
    assert "bad.csv" in table.result.failures[0]


def test_table_of_a_sweep_is_a_parquet_file(trace_file: Path, tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    table = fw.sweep(plan(trace_file), tmp_path / "out")
    table.to_parquet(tmp_path / "rows.parquet")
    assert polars.read_parquet(tmp_path / "rows.parquet")["hits"].to_list() == table["hits"]


def test_wrong_plans_and_engines_are_refused(tmp_path: Path) -> None:
    with pytest.raises(fw.Error, match="did you mean `simulate`"):
        fw.sweep({"command": "simulat"}, tmp_path)
    with pytest.raises(fw.Error, match="must be None or 'ray'"):
        fw.sweep({"command": "simulate"}, tmp_path, engine="slurm")
    with pytest.raises(fw.Error, match="jobs: not with engine='ray'"):
        fw.sweep({"command": "simulate"}, tmp_path, engine="ray", jobs=2)


def test_sweep_on_ray_equals_one_on_this_machine(trace_file: Path, tmp_path: Path) -> None:
    ray = pytest.importorskip("ray")
    bad = tmp_path / "bad.csv"
    bad.write_text("time,key,size\nno,number,here\n")
    here = fw.sweep(plan(bad, trace_file), tmp_path / "here")
    try:
        there = fw.sweep(plan(bad, trace_file), tmp_path / "there", engine="ray")
        again = fw.sweep(plan(bad, trace_file), tmp_path / "there", engine="ray")
    finally:
        ray.shutdown()
    assert there.to_dicts() == here.to_dicts()
    assert len(there.result.failures) == 8 and there.result["ran"] == 8
    assert again.result["had_results"] == 8 and again.to_dicts() == here.to_dicts()
