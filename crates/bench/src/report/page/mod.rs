//! Finished runs as one page that needs nothing else: no script, no font, no picture from elsewhere.

mod charts;
mod evaluation;
mod sections;

use std::path::PathBuf;

pub(super) use evaluation::years_words;

use super::finished::Finished;
use super::html::{Html, escape};

/// Says in a page that it is one of ours.
pub const MARK: &str = "<meta name=\"generator\" content=\"flashwright report\">";

const STYLE: &str = include_str!("page.css");

/// What a page is made of: runs, by names that tell them apart.
struct Named<'a> {
    name: String,
    run: &'a Finished,
}

/// The page of `runs`.
///
/// # Errors
/// What the drawing library says; drawing in memory gives it no reason.
pub fn render(runs: &[Finished]) -> Result<String, Box<dyn std::error::Error>> {
    let names = names(&runs.iter().map(|run| run.file.clone()).collect::<Vec<_>>());
    let runs: Vec<Named<'_>> = names.into_iter().zip(runs).map(|(name, run)| Named { name, run }).collect();
    let title = match runs.as_slice() {
        [one] => format!("{} — flashwright {}", one.name, one.run.command()),
        several => format!("{} runs — flashwright", several.len()),
    };
    let mut body = Html::default();
    body.element("h1", &title);
    sections::verdicts(&mut body, &runs);
    evaluation::evaluations(&mut body, &runs)?;
    sections::differences(&mut body, &runs);
    sections::figures(&mut body, &runs);
    charts::over_time(&mut body, &runs)?;
    charts::latencies(&mut body, &runs)?;
    sections::latencies(&mut body, &runs);
    sections::drives(&mut body, &runs);
    sections::tenants(&mut body, &runs);
    sections::everything_else(&mut body, &runs);
    sections::as_run(&mut body, &runs);
    Ok(format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n{MARK}\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{}</title>\n<style>\n{}{STYLE}</style>\n\
         </head>\n<body>\n{}</body>\n</html>\n",
        escape(&title),
        charts::style(),
        body.finish(),
    ))
}

/// File names without their ending; whole paths where these are not all different, and numbers where those are not.
fn names(files: &[PathBuf]) -> Vec<String> {
    let stem = |file: &PathBuf| file.file_stem().unwrap_or(file.as_os_str()).to_string_lossy().into_owned();
    let whole = |file: &PathBuf| file.display().to_string();
    let forms: [&dyn Fn(&PathBuf) -> String; 2] = [&stem, &whole];
    for form in forms {
        let names: Vec<String> = files.iter().map(form).collect();
        let mut distinct = names.clone();
        distinct.sort();
        distinct.dedup();
        if distinct.len() == names.len() {
            return names;
        }
    }
    files.iter().enumerate().map(|(number, file)| format!("{} ({})", whole(file), number + 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(result: serde_json::Value) -> String {
        let serde_json::Value::Object(result) = result else { unreachable!("it is one") };
        render(&[Finished { file: "e.json".into(), result, intervals: Vec::new() }]).unwrap()
    }

    #[test]
    fn evaluation_page_has_rates_verdicts_and_reasons() {
        let row = |offered: u64, p99: u64, years: f64, failures: &[&str]| {
            serde_json::json!({ "placed": false, "offered_ops_per_second": offered, "throughput_ops_per_second": offered,
                "latency_ns": { "device": { "read": { "p50": p99 / 2, "p99": p99, "p999": p99 } } }, "life_years": years,
                "dlwa": 1.25, "passed": failures.is_empty(), "failures": failures })
        };
        let slow = ["read p99 is 12 ms, more than 5 ms"];
        let page = page(serde_json::json!({ "flashwright": "0.1.0", "command": "evaluate",
            "config": { "drive": { "name": "tlc" }, "criteria": { "max_read_p99_ns": 5_000_000, "min_years": 5.0, "min_reached": 0.95 } },
            "profiles": [{ "profile": "kv", "title": "small objects", "passing_ops_per_second": 1000, "passing_placement": false,
                "passing_years": 8.0, "runs": [row(1000, 200_000, 8.0, &[]), row(50_000, 12_000_000, 0.2, &slow)] }] }));
        assert!(page.contains("passes</span> up to 1,000 ops/s, without placement, 8.0 years"), "{page}");
        assert!(page.contains("fails</span>: it read p99 is 12 ms, more than 5 ms"), "{page}");
        assert!(page.contains("<h2>kv: small objects</h2>") && page.contains("<td>1.25</td>"), "{page}");
        assert_eq!(page.matches("<svg").count(), 2, "latency and life over the rate");
        assert!(page.contains("<title>p99, without placement, 50,000 ops/s: 12 ms</title>"), "{page}");
        assert!(!page.contains("<h2>Figures</h2>") && !page.contains("profiles[kv]"), "{page}");
    }

    #[test]
    fn lists_in_a_list_are_tables_of_their_own() {
        let page = page(serde_json::json!({ "flashwright": "0.1.0", "command": "other",
            "profiles": [{ "profile": "kv", "runs": [{ "offered": 5, "latency_ns": { "get": { "p50": 3 } } }] }] }));
        assert!(page.contains("<h3>profiles, kv: runs</h3>") && page.contains("<td>5</td>"), "{page}");
        assert!(!page.contains("[{&quot;") && page.contains("<td><details>"), "{page}");
    }

    #[test]
    fn names_tell_runs_apart() {
        let of = |files: &[&str]| names(&files.iter().map(PathBuf::from).collect::<Vec<_>>());
        assert_eq!(of(&["a/x.json", "a/y.json"]), ["x", "y"]);
        assert_eq!(of(&["a/x.json", "b/x.json"]), ["a/x.json", "b/x.json"]);
        assert_eq!(of(&["x.json", "x.json"]), ["x.json (1)", "x.json (2)"]);
    }
}
