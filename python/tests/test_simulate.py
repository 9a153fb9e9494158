"""Tests that ``simulate`` returns what the command line does, with tables as input and output."""

from __future__ import annotations

from typing import Any

import pytest

import flashwright as fw
from flashwright import _trace

POLICIES = ["fifo", "lru", "s3fifo", "sieve", "gdsf", "clairvoyant", "log"]


def test_simulate_rows_equal_those_of_the_command_line(trace_file: Any, cli: Any) -> None:
    table = fw.simulate(fw.open_trace(trace_file), POLICIES, sizes=["1%", "10%", 65536])
    expected = cli("simulate", trace_file, "--policy", ",".join(POLICIES), "--size", "1%,10%,65536")
    assert len(table) == len(POLICIES) * 3
    assert table.to_dicts() == expected["rows"]
    assert {**table.result, "config": None} == {**expected, "config": None}


def test_simulate_options_equal_flags(trace_file: Any, cli: Any) -> None:
    table = fw.simulate(trace_file, "lru", sizes="100obj", warmup="10%", threads=1, ignore_size=True)
    expected = cli(
        "simulate", trace_file, "--policy=lru", "--size=100obj", "--warmup=10%", "--threads=1", "--ignore-size"
    )
    assert table.to_dicts() == expected["rows"]
    assert table[0]["size_objects"] == 100


@pytest.mark.parametrize("library", ["lists", "numpy", "pyarrow", "polars", "pandas"])
def test_table_in_memory_gives_the_rows_of_the_file(library: str, columns: Any, trace_file: Any) -> None:
    pytest.importorskip("numpy")
    table: Any = columns
    if library == "numpy":
        numpy = pytest.importorskip("numpy")
        table = {name: numpy.array(values) for name, values in columns.items()}
    elif library != "lists":
        module = pytest.importorskip(library)
        table = getattr(module, {"pyarrow": "table"}.get(library, "DataFrame"))(columns)
    from_table = fw.simulate(table, POLICIES)
    assert from_table.to_dicts() == fw.simulate(trace_file, POLICIES).to_dicts()


@pytest.mark.parametrize("has_text_keys", [False, True])
def test_table_longer_than_a_part_gives_the_rows_and_times_of_the_file(tmp_path: Any, has_text_keys: bool) -> None:
    numpy = pytest.importorskip("numpy")
    count = 2 * _trace._PART_ROWS + 17
    times, keys = numpy.arange(count) // 8, numpy.random.default_rng(3).integers(0, 5000, count)
    keys = numpy.char.add("object-", keys.astype(str)) if has_text_keys else keys
    file = tmp_path / "long.csv"
    rows = "".join(f"{time},{key},300\n" for time, key in zip(times, keys))
    file.write_text("time,key,size\n" + rows)
    options: Any = {"sizes": "10%", "interval": "600s"}
    from_file = fw.simulate(file, ["lru", "fifo"], **options).result["rows"]
    from_table = fw.simulate({"time": times, "key": keys, "size": numpy.full(count, 300)}, ["lru", "fifo"], **options)
    assert from_table.result["rows"] == from_file
    assert len(from_file[0]["series"]) == times[-1] // 600 + 1


def test_text_keys_give_the_rows_of_the_file(tmp_path: Any, columns: Any) -> None:
    pytest.importorskip("numpy")
    named = {**columns, "key": [f"object-{key}" for key in columns["key"]]}
    file = tmp_path / "named.csv"
    rows = zip(named["time"], named["key"], named["size"])
    file.write_text("time,key,size\n" + "".join(f"{time},{key},{size}\n" for time, key, size in rows))
    assert fw.simulate(named, "lru").to_dicts() == fw.simulate(file, "lru").to_dicts()


def test_parquet_file_gives_the_rows_of_the_file(tmp_path: Any, columns: Any, trace_file: Any) -> None:
    polars = pytest.importorskip("polars")
    file = tmp_path / "trace.parquet"
    expected = fw.simulate(trace_file, "lru").to_dicts()
    polars.DataFrame(columns).write_parquet(file)
    trace = fw.open_trace(str(file))
    assert trace.paths == [str(file)], "the commands read the file itself"
    assert fw.simulate(trace, "lru").to_dicts() == expected
    named = {"object": columns["key"], "length": columns["size"], "when": [time * 1000 for time in columns["time"]]}
    polars.DataFrame(named).write_parquet(file)
    chosen = fw.open_trace(file, columns={"size": "length", "time": "when"}, time_unit="ms")
    assert fw.simulate(chosen, "lru").to_dicts() == expected
    assert chosen.info()["span_seconds"] == columns["time"][-1]
    with pytest.raises(fw.Error, match="no column for the size: it has object, length, when"):
        fw.open_trace(file)


def test_pyarrow_reads_the_rows_that_the_command_line_writes(tmp_path: Any, trace_file: Any, cli: Any) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "rows.parquet"
    rows = cli("simulate", trace_file, "--policy", ",".join(POLICIES), "--parquet", file)["rows"]
    table = parquet.read_table(file)
    for name in ("policy", "size_bytes", "hits", "object_hit_ratio", "write_amplification"):
        assert table[name].to_pylist() == [row.get(name) for row in rows], name
    assert str(table.schema.field("hits").type) == "int64"


def test_pyarrow_reads_the_trace_that_the_command_line_writes(
    tmp_path: Any, columns: Any, trace_file: Any, cli: Any
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "trace.parquet"
    cli("trace", "convert", trace_file, file)
    table = parquet.read_table(file)
    assert table["key"].to_pylist() == columns["key"] and table["size"].to_pylist() == columns["size"]
    assert table["time_ns"].to_pylist() == [time * 10**9 for time in columns["time"]]
    assert table["ttl"].null_count == len(columns["key"])


def test_damaged_parquet_file_is_an_error_with_its_name(tmp_path: Any, columns: Any) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "trace.parquet"
    parquet.write_table(pyarrow.table(columns), file, write_page_checksum=True)
    whole = file.read_bytes()
    file.write_bytes(whole[:4000] + bytes([whole[4000] ^ 1]) + whole[4001:])
    with pytest.raises(fw.Error, match=r"trace\.parquet.*column `time`"):
        fw.simulate(file, "lru")
    file.write_bytes(whole[:-100])
    with pytest.raises(fw.Error, match=r"trace\.parquet"):
        fw.simulate(file, "lru")


def test_arrow_libraries_read_the_table(trace_file: Any) -> None:
    table = fw.simulate(trace_file, ["lru", "log"])
    pyarrow = pytest.importorskip("pyarrow")
    arrow = pyarrow.table(table)
    assert arrow.num_rows == len(table)
    assert arrow.column("hits").to_pylist() == table["hits"]
    assert str(arrow.schema.field("hits").type) == "int64"
    polars = pytest.importorskip("polars")
    assert table.to_polars()["object_hit_ratio"].to_list() == table["object_hit_ratio"]
    assert table.to_polars()["write_amplification"].to_list() == table["write_amplification"]
    assert polars.DataFrame(table).height == len(table)
    pytest.importorskip("pandas")
    assert table.to_pandas()["policy"].to_list() == table["policy"]


def test_table_shows_its_rows_as_html(trace_file: Any) -> None:
    html = fw.simulate(trace_file, "lru", sizes=["1%"])._repr_html_()
    assert html.count("<tr>") == 2 and "<td>lru</td>" in html and "interval" not in html


def test_info_equals_that_of_the_command_line(trace_file: Any, columns: Any, cli: Any) -> None:
    info = fw.open_trace(trace_file).info()
    assert info == cli("trace", "info", trace_file)
    assert info["requests"] == len(columns["key"])
    assert fw.open_trace(trace_file, limit=10).info()["requests"] == 10
