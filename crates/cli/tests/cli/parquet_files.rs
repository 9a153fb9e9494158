//! Rows and traces as Parquet files.

use std::fs::File;
use std::path::Path;

use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::Field;
use serde_json::{Map, Value, json};

use super::{err, flashwright, json};

/// The rows of a Parquet file, without nulls.
pub(crate) fn parquet_rows(file: &Path) -> Vec<Map<String, Value>> {
    let file = SerializedFileReader::new(File::open(file).unwrap()).unwrap();
    let cell = |field: &Field| match field {
        Field::Bool(value) => json!(value),
        Field::Long(value) => json!(value),
        Field::ULong(value) => json!(value),
        Field::Double(value) => json!(value),
        Field::Str(value) => json!(value),
        Field::Null => Value::Null,
        other => panic!("no command writes {other:?}"),
    };
    let row = |row: parquet::record::Row| {
        let cells = row.get_column_iter().map(|(name, field)| (name.clone(), cell(field)));
        cells.filter(|(_, value)| !value.is_null()).collect()
    };
    file.get_row_iter(None).unwrap().map(|it| row(it.unwrap())).collect()
}

/// A row of a result as a row of a table: nested values have dotted names, lists are text, and nulls are absent.
fn flattened(row: &Value) -> Map<String, Value> {
    fn add(path: &str, value: &Value, to: &mut Map<String, Value>) {
        match value {
            Value::Null => {}
            Value::Object(fields) => {
                let dot = if path.is_empty() { "" } else { "." };
                fields.iter().for_each(|(name, value)| add(&format!("{path}{dot}{name}"), value, to));
            }
            Value::Array(_) => drop(to.insert(path.to_owned(), json!(value.to_string()))),
            value => drop(to.insert(path.to_owned(), value.clone())),
        }
    }
    let mut flat = Map::new();
    add("", row, &mut flat);
    flat
}

/// Asserts that the file has the same names and values; a column of whole and other numbers has only doubles.
pub(crate) fn assert_rows_equal(file: &Path, expected: &Value) {
    let (found, expected) = (parquet_rows(file), expected.as_array().unwrap());
    assert!(!expected.is_empty() && found.len() == expected.len(), "{} of {}", found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        let expected = flattened(expected);
        assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
        for (name, value) in expected {
            // Parsing the JSON rounds the last digit.
            let is_near = |found: f64, value: f64| (found - value).abs() <= 1e-12 * value.abs();
            let are_near = || found[&name].as_f64().zip(value.as_f64()).is_some_and(|(a, b)| is_near(a, b));
            let is_equal = found[&name] == value || are_near();
            assert!(is_equal, "{name}: {} {value}", found[&name]);
        }
    }
}

fn at(directory: &Path, name: &str) -> String {
    directory.join(name).to_str().unwrap().to_owned()
}

/// Gets, sets and deletes of 500 objects, some with a TTL and a tenant.
fn trace(directory: &Path) -> String {
    let mut text = String::from("ts,key,op,size,ttl,tenant\n");
    for number in 0..20_000_u32 {
        let key = number.wrapping_mul(2_654_435_761) % 500 * (number % 3);
        let op = ["GET", "GET", "SET", "GET", "DELETE"][number as usize % 5];
        let ttl = [0, 900][usize::from(number.is_multiple_of(4))];
        text += &format!("{}.5,{key},{op},{},{ttl},t{}\n", number / 10, 100 + key % 900, key % 3);
    }
    let file = at(directory, "trace.csv");
    std::fs::write(&file, text).unwrap();
    file
}

#[test]
fn trace_converted_to_parquet_gives_the_rows_of_the_csv() {
    let directory = tempfile::tempdir().unwrap();
    let csv = trace(directory.path());
    let converted = at(directory.path(), "trace.parquet");
    json(&["trace", "convert", &csv, &converted]);
    // The magic number decides if the name says nothing.
    let renamed = at(directory.path(), "renamed");
    std::fs::copy(&converted, &renamed).unwrap();
    let simulated = |file: &str| json(&["simulate", file, "-p", "lru,s3fifo", "--by-tenant=3"]);
    let expected = simulated(&csv);
    for file in [&converted, &renamed] {
        let found = simulated(file);
        assert_eq!((&found["rows"], &found["tenants"]), (&expected["rows"], &expected["tenants"]), "{file}");
    }
    assert_eq!(json(&["trace", "info", &converted])["reading"]["format"], "parquet");
    let chosen = "parquet:time=time_ns,key=key,size=size,op=op,ttl=ttl,tenant=tenant";
    let named = json(&["simulate", &renamed, "-p", "lru,s3fifo", "--by-tenant=3", "--format", chosen]);
    assert_eq!(named["rows"], expected["rows"]);
}

#[test]
fn wrong_column_of_a_parquet_trace_is_reported_with_the_nearest_name() {
    let directory = tempfile::tempdir().unwrap();
    let (csv, file) = (trace(directory.path()), at(directory.path(), "trace.parquet"));
    json(&["trace", "convert", &csv, &file]);
    let output = flashwright(&["simulate", &file, "--format", "parquet:key=kye,size=size"]);
    assert_eq!(output.status.code(), Some(2), "{}", err(&output));
    assert_eq!(err(&output), format!("error: {file}: the table has no column `kye`; did you mean `key`?\n"));
}

#[test]
fn rows_of_simulate_predict_sweep_and_ssd_jobs_are_written_as_parquet() {
    let directory = tempfile::tempdir().unwrap();
    let csv = trace(directory.path());
    let file = |name: &str| at(directory.path(), name);
    let simulated = json(&["simulate", &csv, "-p", "lru,log", "--parquet", &file("simulated.parquet")]);
    assert_rows_equal(Path::new(&file("simulated.parquet")), &simulated["rows"]);

    let predict = [
        "predict",
        &csv,
        "--drive",
        "pm9d3",
        "--dram",
        "20%,40%",
        "--scale",
        "1/16384",
        "--parquet",
        &file("points.parquet"),
    ];
    let predicted = json(&predict);
    assert_rows_equal(Path::new(&file("points.parquet")), &predicted["points"]);

    std::fs::write(
        file("plan.toml"),
        format!("command = \"simulate\"\n[axes]\ntrace = [{csv:?}]\npolicy = [\"lru\", \"sieve\"]\nsize = [\"10%\"]\n"),
    )
    .unwrap();
    json(&["sweep", &file("plan.toml"), "--out", &file("out"), "--parquet", &file("sweep.parquet")]);
    let lines = std::fs::read_to_string(file("out/results.jsonl")).unwrap();
    let lines = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_rows_equal(Path::new(&file("sweep.parquet")), &Value::Array(lines));

    std::fs::write(file("job.fio"), "[j]\nrw=randwrite\nbs=4k\nfilename=/dev/x\nio_size=300%\n").unwrap();
    let job = json(&["ssd", "run", "test", "--job", &file("job.fio"), "--parquet", &file("curve.parquet")]);
    assert_rows_equal(Path::new(&file("curve.parquet")), &job["intervals"]);
}

#[test]
fn parquet_file_that_cannot_be_written_is_refused_before_the_run() {
    let directory = tempfile::tempdir().unwrap();
    let csv = trace(directory.path());
    let output = flashwright(&["simulate", &csv, "--parquet", "/no/such/rows.parquet"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("/no/such/rows.parquet"), "{}", err(&output));
}
