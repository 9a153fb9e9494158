//! Reads truncated results and results with arbitrary values: each is refused with a reason or shown, without a panic.
use flashwright_bench::report::compare::compare;
use flashwright_bench::report::finished::Finished;
use flashwright_bench::report::page;
use serde_json::{Value, json};

fn latency() -> Value {
    json!({ "count": 100, "mean": 5.5, "p50": 5, "p90": 7, "p99": 9, "p999": 10, "p9999": 10, "max": 10 })
}

fn result() -> Value {
    let interval = |number: u32| {
        json!({ "until_seconds": number + 1, "seconds": 1.0, "ops": 100 + number % 3, "gets": 80, "get_misses": 10, "get_hits_dram": 50,
            "get_hits_flash": 20, "flash_bytes_logical": 9000, "flash_bytes_waiting": 5, "flash_bytes_host": 4096, "flash_bytes_media": 8192 })
    };
    let totals = json!({ "ops": 2000, "seconds": 20.0, "hit_ratio": 0.8, "dlwa": null, "inconsistencies": 0,
        "latency_ns": { "timed_one_in": 16, "cache": { "get": latency() }, "device": { "read": latency() } },
        "placement": [{ "consumer": "soc", "handle": 1 }], "warnings": ["w"] });
    json!({
        "flashwright": "0.1.0", "command": "bench", "config": { "cache_config": { "cacheSizeMB": 8, "paths": ["a"] } },
        "environment": { "cores": 2, "arguments": ["bench", "a b"] }, "seed": 1, "world": "simulated",
        "drive": { "card": "test", "dlwa": 1.5, "handles": [{ "instance": 0, "consumer": "soc", "handle": 1 }] },
        "instances": [totals], "totals": totals,
        "intervals": (0..20).map(interval).collect::<Vec<_>>(),
        "verdict": { "passed": true, "failures": [], "stopped": null },
    })
}

/// Reads, compares and renders `text`; returns whether it was accepted.
fn use_up(text: &[u8], good: &Finished, directory: &std::path::Path) -> bool {
    let file = directory.join("foreign.json");
    std::fs::write(&file, text).unwrap();
    match Finished::read(&file) {
        Err(error) => {
            let message = error.to_string();
            assert!(message.starts_with(file.to_str().unwrap()) && message.lines().count() == 1, "{message}");
            false
        }
        Ok(run) => {
            page::render(&[run.clone(), good.clone()]).unwrap();
            page::render(std::slice::from_ref(&run)).unwrap();
            if let Ok(comparison) = compare(std::slice::from_ref(good), &[run]) {
                let formatted = (comparison.to_text(), comparison.to_json(), comparison.worse());
                assert!(formatted.0.contains("figure") && formatted.1["figures"].is_array());
            }
            true
        }
    }
}

fn good(directory: &std::path::Path) -> Finished {
    let file = directory.join("good.json");
    std::fs::write(&file, result().to_string()).unwrap();
    Finished::read(&file).unwrap()
}

#[test]
fn truncated_result_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (good, text) = (good(directory.path()), result().to_string());
    let cuts = (0..text.len()).step_by(7).chain(text.len() - 20..text.len());
    cuts.for_each(|cut| assert!(!use_up(&text.as_bytes()[..cut], &good, directory.path()), "cut at {cut}"));
    assert!(use_up(text.as_bytes(), &good, directory.path()));
}

/// Collects the JSON pointers of `value`.
fn places(value: &Value, at: &str, into: &mut Vec<String>) {
    into.push(at.to_owned());
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(name, value)| places(value, &format!("{at}/{name}"), into));
        }
        Value::Array(list) => {
            list.iter()
                .take(2)
                .enumerate()
                .for_each(|(number, value)| places(value, &format!("{at}/{number}"), into));
        }
        _ => {}
    }
}

#[test]
fn arbitrary_value_at_any_key_is_refused_or_rendered() {
    let directory = tempfile::tempdir().unwrap();
    let good = good(directory.path());
    let mut everywhere = Vec::new();
    places(&result(), "", &mut everywhere);
    let others = [
        json!(null),
        json!(-1),
        json!(1e300),
        json!(0),
        json!(true),
        json!("x"),
        json!([]),
        json!({}),
        json!([{ "name": 3 }, 7, [1]]),
    ];
    let mut taken = 0;
    for place in &everywhere {
        for other in &others {
            let mut changed = result();
            *changed.pointer_mut(place).unwrap() = other.clone();
            taken += usize::from(use_up(changed.to_string().as_bytes(), &good, directory.path()));
        }
    }
    assert!(everywhere.len() > 80 && taken > 300, "{} places, {taken} taken", everywhere.len());
}
