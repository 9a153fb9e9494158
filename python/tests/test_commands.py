"""Tests that the functions return what the command line does, and their errors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import flashwright as fw

CONFIG = {
    "cache_config": {"cacheSizeMB": 64},
    "test_config": {
        "numOps": 2000,
        "numThreads": 1,
        "numKeys": 500,
        "keySizeRange": [8, 16],
        "keySizeRangeProbability": [1.0],
        "valSizeRange": [100, 200],
        "valSizeRangeProbability": [1.0],
        "getRatio": 0.9,
        "setRatio": 0.1,
    },
}


def test_predict_points_equal_those_of_the_command_line(trace_file: Path, cli: Any) -> None:
    options = ["--drive=pm9d3", "--scale=1/600000", "--rate=200000", "--dram=16GiB"]
    with pytest.warns(UserWarning, match="bounds of write amplification are not known"):
        table = fw.predict(trace_file, "pm9d3", scale="1/600000", rate=200_000, dram=["16GiB"])
    expected = cli("predict", trace_file, *options)
    assert len(table) > 0
    assert table.to_dicts() == expected["points"]
    assert table.to_dicts()[0]["dram_bytes"] > 0


def test_bench_of_a_mapping_equals_a_run_of_the_file_with_overrides() -> None:
    result = fw.bench(CONFIG, {"cache_config.cacheSizeMB": 32, "test_config.numOps": 1000}, seed=3)
    assert result.passed and not result.failures
    assert result["command"] == "bench" and result["seed"] == 3
    assert result["totals"]["counts"] is not None


def test_simulated_bench_equals_that_of_the_command_line(tmp_path: Path, cli: Any) -> None:
    example = Path(__file__).parents[2] / "examples" / "fdp.json"
    result = fw.bench(example, {"test_config.numOps": 2000}, device="sim:pm9d3", scale="1/16384")
    expected = cli(
        "bench", example, "--set", "test_config.numOps=2000", "--device", "sim:pm9d3", "--scale", "1/16384"
    )
    assert result["totals"] == expected["totals"]
    assert result["drive"] == expected["drive"]


def test_drive_run_equals_that_of_the_command_line(cli: Any) -> None:
    drive = fw.Drive("pm9d3")
    result = drive.run(scale="1/8192", warm_up=1, measure=1, op="20%")
    assert result == cli("ssd", "run", "pm9d3", "--scale=1/8192", "--warm-up=1", "--measure=1", "--op=20%")
    assert drive.description["command"] == "ssd cards"


def test_study_writes_its_figures_into_the_directory(tmp_path: Path) -> None:
    result = fw.study("fdp-table2", figures=tmp_path)
    assert result["study"] == "fdp-table2"
    assert result["points"] and all(Path(figure).parent == tmp_path for figure in result["figures"])


def test_errors_have_the_messages_of_the_command_line(trace_file: Path, tmp_path: Path) -> None:
    def message_of(*arguments: str) -> str:
        command = [sys.executable, "-m", "flashwright._program", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        return done.stderr.strip().removeprefix("error: ")

    with pytest.raises(fw.Error) as wrong_policy:
        fw.simulate(trace_file, "lur")
    assert str(wrong_policy.value) == message_of("simulate", str(trace_file), "--policy=lur")
    assert "did you mean `lru`" in str(wrong_policy.value)
    with pytest.raises(fw.Error, match="--warmpu.*similar argument exists: '--warmup'"):
        fw.simulate(trace_file, "lru", warmpu="1%")
    with pytest.raises(fw.Error, match="cannot open the trace .*absent.csv"):
        fw.open_trace(tmp_path / "absent.csv")
    with pytest.raises(fw.Error, match="cacheSizeMb.*cacheSizeMB"):
        fw.bench({"cache_config": {"cacheSizeMb": 1}, "test_config": CONFIG["test_config"]})
    with pytest.raises(fw.Error, match="run it in a shell"):
        fw._call.call(["model", "lifetime"])


def test_wrong_tables_are_refused_with_the_column() -> None:
    pytest.importorskip("numpy")
    with pytest.raises(fw.Error, match="no column for the size: it has key"):
        fw.open_trace({"key": [1]})
    with pytest.raises(fw.Error, match="size has values below 0"):
        fw.open_trace({"key": [1], "size": [-1]})
    with pytest.raises(fw.Error, match="must be get, set or delete"):
        fw.open_trace({"key": [1], "size": [1], "op": ["got"]})
    with pytest.raises(ValueError, match="the columns have different lengths: .*2.*1"):
        fw.open_trace({"key": [1, 2], "size": [1]})
    with pytest.raises(TypeError, match="not a int"):
        fw.open_trace(5)


def test_temporary_file_of_a_table_is_removed_with_the_trace() -> None:
    pytest.importorskip("numpy")
    trace = fw.open_trace({"key": [1, 2, 1], "size": [5, 6, 5]})
    (file,) = trace.paths
    assert trace.info()["requests"] == 3
    del trace
    assert not os.path.exists(file)


def test_ctrl_c_ends_a_simulation(long_trace: Path) -> None:
    program = (
        "import flashwright as fw, signal, sys\n"
        # A background job of a shell inherits that SIGINT is ignored.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "print('begins', flush=True)\n"
        f"try: fw.simulate({str(long_trace)!r}, ['clairvoyant-size', 'gdsf'], threads=1)\n"
        "except KeyboardInterrupt: print('interrupted'); sys.exit(7)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "begins\n"
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (7, "interrupted\n")


def test_warnings_of_the_command_line_are_python_warnings(trace_file: Path) -> None:
    with pytest.warns(UserWarning, match="--size: lru of 50 B admits no object of this trace"):
        fw.simulate(trace_file, "lru", sizes=[50, "10%"])


def test_version_is_that_of_the_results(trace_file: Path) -> None:
    assert fw.open_trace(trace_file).info()["flashwright"] == fw.__version__
    assert json.loads(json.dumps(fw.simulate(trace_file, "lru").result))["flashwright"] == fw.__version__
