//! Checks that `docs/cachebench-keys.md` has all keys, and `docs/cachebench.md` the shipped configs that are not supported yet.
//!
//! After a change of the keys run `UPDATE_DOCS=1 cargo test -p flashwright-bench --test bench documentation`.
use std::fmt::Write;
use std::path::{Path, PathBuf};

use flashwright_bench::config::Loaded;
use flashwright_bench::config::cachebench::load;
use flashwright_bench::config::keys::tables;
use flashwright_bench::config::schema::{KeyInfo, Status};
use flashwright_bench::report::figures::FIGURES;
use flashwright_bench::run::stop::Stop;
use flashwright_bench::study::{Progress, REPORTED_ONLY, Runner, STUDIES, table_row};

const HEAD: &str = "# Keys of a configuration, and figures of a result\n\n\
    Generated from the code. [cachebench.md](cachebench.md) explains the differences from CacheBench.\n\n";

fn page(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)
}

fn status(key_info: &KeyInfo) -> String {
    match key_info.status {
        Status::Honoured => "honoured".to_owned(),
        Status::HonouredIf(condition) => format!("honoured {}", condition.when()),
        Status::NoEffect(why) => format!("accepted, no effect: {why}"),
        Status::Legacy(why) => format!("accepted, ignored: {why}"),
        Status::Later(feature) => format!("checked; a run needs {feature}"),
    }
}

fn generated() -> String {
    let mut out = HEAD.to_owned();
    for (place, key_infos, defaults) in tables() {
        writeln!(
            out,
            "## {place}\n\n| key | type | default | unit | here | meaning |\n|---|---|---|---|---|---|"
        )
        .unwrap();
        for key_info in key_infos {
            let default = match defaults.get(key_info.key) {
                Some(value) if value.is_object() => "{}".to_owned(),
                Some(value) => value.to_string(),
                None => String::new(),
            };
            let meaning = if matches!(key_info.status, Status::Legacy(_)) { "" } else { key_info.doc };
            writeln!(
                out,
                "| `{}` | {} | {default} | {} | {} | {meaning} |",
                key_info.key,
                key_info.kind,
                key_info.unit,
                status(key_info)
            )
            .unwrap();
        }
        out.push('\n');
    }
    writeln!(out, "## Figures of the result file\n\n| name | unit | formula | better |\n|---|---|---|---|")
        .unwrap();
    for figure in FIGURES {
        let (name, unit, formula, better) = (figure.name, figure.unit, figure.formula, figure.better.word());
        writeln!(out, "| `{name}` | {unit} | {formula} | {better} |").unwrap();
    }
    out
}

#[test]
fn page_lists_every_key_and_figure() {
    let page = page("cachebench-keys.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(page, generated()).unwrap();
        return;
    }
    let is_current = std::fs::read_to_string(&page).unwrap() == generated();
    assert!(is_current, "{} is out of date: run this test with UPDATE_DOCS=1", page.display());
}

#[test]
fn page_lists_shipped_configs_that_need_unsupported_features() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .map(|parent| parent.join("shared/cachelib_test_configs"));
    let Some(root) = root.into_iter().find(|root| root.is_dir()) else {
        println!("skipped: CacheBench's shipped configs are not available");
        return;
    };
    let mut needing = Vec::new();
    collect(&root, &root, &mut needing);
    needing.sort();
    let text = std::fs::read_to_string(page("cachebench.md")).unwrap();
    let missing: Vec<_> = needing.iter().filter(|line| !text.contains(*line)).collect();
    assert!(missing.is_empty(), "docs/cachebench.md lacks:\n{}", needing.join("\n"));
    let listed = text.lines().filter(|line| line.starts_with("| `") && line.contains(".json` |")).count();
    assert_eq!(listed, needing.len(), "the page lists more configs");
}

fn collect(root: &Path, directory: &Path, into: &mut Vec<String>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(root, &path, into);
        } else if path.extension().is_some_and(|it| it == "json")
            && let Ok(Loaded::Config(config)) = load(&path, &[])
            && !config.later.is_empty()
        {
            let features: Vec<_> = config.later.iter().map(|it| it.message.as_str()).collect();
            into.push(format!(
                "| `{}` | {} |",
                path.strip_prefix(root).unwrap().display(),
                features.join(", ")
            ));
        }
    }
}

/// `examples/study_tables.rs` writes the tables. The values of `fdp-table2` need no run, so they are compared here.
#[test]
fn study_tables_list_every_study_and_mark_reported_only_values() {
    let text = std::fs::read_to_string(page("study-results.md")).unwrap();
    for study in STUDIES {
        let start = format!("| {} |", study.name);
        let rows: Vec<&str> = text.lines().filter(|line| line.starts_with(&start)).collect();
        assert!(rows.len() > 1, "{}: no rows of values", study.name);
        for row in rows.iter().filter(|row| row.matches('|').count() == 6) {
            let accepted = row.trim_end_matches(" |").rsplit("| ").next().unwrap();
            assert!(accepted == REPORTED_ONLY || accepted.contains(" to "), "{row}");
        }
    }
    let table2 = STUDIES.iter().find(|study| study.name == "fdp-table2").unwrap();
    let outcome = table2.make(&Runner::new(2048, 1, Stop::default(), Progress::new(true))).unwrap();
    for point in &outcome.points {
        assert!(text.contains(&table_row(table2.name, point)), "{}", table_row(table2.name, point));
    }
}
