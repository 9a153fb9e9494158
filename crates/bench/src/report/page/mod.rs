//! Finished runs as one page that needs nothing else: no script, no font, no picture from elsewhere.

mod charts;
mod sections;

use std::path::PathBuf;

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

    /// They were kilobytes of JSON in a cell.
    #[test]
    fn lists_in_a_list_are_tables_of_their_own() {
        let result = serde_json::json!({ "flashwright": "0.1.0", "command": "evaluate",
            "profiles": [{ "profile": "kv", "runs": [{ "offered": 5, "latency_ns": { "get": { "p50": 3 } } }] }] });
        let serde_json::Value::Object(result) = result else { unreachable!("it is one") };
        let page = render(&[Finished { file: "e.json".into(), result, intervals: Vec::new() }]).unwrap();
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
