//! `--validate`: checks of a config without a run.

use std::path::{Path, PathBuf};

use crate::{err, flashwright};

fn configs(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            configs(&path, into);
        } else if path.extension().is_some_and(|ending| ending == "json") {
            into.push(path);
        }
    }
}

/// Some configs need things that this machine lacks: a drive, memory, a trace that another config creates or that is not published; or a
/// feature. Otherwise all are valid.
#[test]
fn every_shipped_cachebench_config_is_valid() {
    let Some(shipped) = super::shipped() else { return };
    let mut files = Vec::new();
    configs(&shipped, &mut files);
    assert_eq!(files.len(), 118);
    for file in files {
        let output = flashwright(&["bench", file.to_str().unwrap(), "--validate", "--json", "-"]);
        let text = format!("{}: {}", file.display(), err(&output));
        let result: serde_json::Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{text}"));
        assert_eq!(result["valid"], true, "{text}");
        let stops = result["stops"].as_array().cloned().unwrap_or_default();
        let known =
            ["does not exist", "no such device", "No such file", "of memory", "which is not supported yet"];
        let is_known =
            |stop: &serde_json::Value| known.iter().any(|text| stop.as_str().unwrap().contains(text));
        assert!(stops.iter().all(is_known), "{text}");
        assert_eq!(output.status.code(), Some(if stops.is_empty() { 0 } else { 2 }), "{text}");
        // The available memory changes between the two commands.
        let is_lasting = |stop: &serde_json::Value| !stop.as_str().unwrap().contains("of memory");
        if stops.iter().any(is_lasting) {
            let run = flashwright(&["bench", file.to_str().unwrap(), "--timeout-seconds", "1"]);
            assert_eq!(run.status.code(), Some(2), "the run is refused as well: {}", err(&run));
        }
        let warnings = result["warnings"].as_array().unwrap().len();
        assert!(warnings <= 10, "{warnings} warnings: {text}");
    }
}

#[test]
fn missing_trace_fails_run_and_validation() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("c.json");
    let text = r#"{ "cache_config": { "cacheSizeMB": 64 }, "test_config": { "generator": "replay", "numOps": 10,
        "numThreads": 1, "traceFileName": "later.csv" } }"#;
    std::fs::write(&config, text).unwrap();
    let message = |arguments: &[&str]| {
        let output = flashwright(&[&["bench", config.to_str().unwrap()], arguments].concat());
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, text) = message(&["--validate"]);
    assert!(code == Some(2) && text.contains("test_config.traceFileName: "), "{text}");
    let remedy = "later.csv does not exist; name another with --set test_config.traceFileName=FILE";
    assert!(text.contains(remedy), "{text}");
    assert_eq!(message(&[]), (code, text));
    for wrong in ["numThreads=0", "replayGeneratorConfig.ampFactor=5000000000"] {
        let (code, text) = message(&["--validate", "--set", &format!("test_config.{wrong}")]);
        let key = wrong.split('=').next().unwrap();
        assert!(code == Some(2) && text.contains(key), "whatever else is wrong is: {text}");
    }
}

#[test]
fn missing_trace_is_in_the_validation_result() {
    let replay = r#"{ "cache_config": { "cacheSizeMB": 64, "htBucketPower": 10 }, "test_config": { "generator": "replay", "numOps": 10,
        "numThreads": 1, "traceFileName": "later.csv" } }"#;
    let (_directory, file) = super::config("replay.json", replay);
    let output = flashwright(&["bench", &file, "--validate", "--json", "-"]);
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let warnings = result["warnings"].as_array().unwrap();
    assert!(
        warnings.len() == 1 && err(&output).contains("1 warning(s), but a run"),
        "{warnings:?} {}",
        err(&output)
    );
    assert!(result["stops"][0].as_str().unwrap().contains("later.csv does not exist"), "{result:#}");
    assert_eq!((&result["valid"], &result["would_run"]), (&true.into(), &false.into()));
    assert_eq!(err(&output).matches("later.csv").count(), 1, "{}", err(&output));
    assert_eq!(result["world"], "real");
}

/// Catches a regression: the run ends immediately and blames rows that do not exist; validation passes.
#[test]
fn trace_with_only_a_header_is_refused() {
    let replay = r#"{ "cache_config": { "cacheSizeMB": 8 }, "test_config": { "generator": "replay", "numOps": 100, "numThreads": 2,
      "traceFileNames": ["a.csv", "b.csv"], "enableLookaside": true } }"#;
    let (directory, file) = super::config("replay.json", replay);
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    write("a.csv", "key,op,size\n");
    write("b.csv", "key,op,size\n");
    for more in [&["bench", &file][..], &["bench", &file, "--validate"]] {
        let output = flashwright(more);
        assert_eq!(output.status.code(), Some(2), "{}", err(&output));
        let message = "a.csv and 1 more: the trace has no requests, not even one row";
        assert!(err(&output).contains(message), "{}", err(&output));
    }
    write("b.csv", "key,op,size\na,GET,10\n");
    assert_eq!(flashwright(&["bench", &file]).status.code(), Some(0), "one of several files can be empty");
}

/// Catches a regression: `--json` writes no file with `--validate`.
#[test]
fn validation_writes_a_requested_result() {
    let text = r#"{ "cache_config": { "cacheSizeMB": 8, "htBucketPower": 10 }, "test_config": { "numOps": 10, "numThreads": 1,
        "numKeys": 10, "keySizeRange": [8, 16], "keySizeRangeProbability": [1.0], "valSizeRange": [100, 200],
        "valSizeRangeProbability": [1.0], "getRatio": 1.0 } }"#;
    let (_directory, file) = super::config("c.json", text);
    let result = crate::json(&["bench", &file, "--validate"]);
    assert_eq!((&result["command"], &result["valid"]), (&"bench --validate".into(), &true.into()));
    assert!(result["warnings"][0].as_str().unwrap().contains("htBucketPower"), "{result:#}");
    assert_eq!(result["config"]["cache_config"]["cacheSizeMB"], 8);
    for refused in [&file, "/nonexistent/result"] {
        let output = flashwright(&["bench", &file, "--validate", "--json", refused]);
        assert_eq!(output.status.code(), Some(2), "{}", err(&output));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    }
}

/// Root may write to every directory, so the test runs the command as another user.
#[test]
fn flash_file_on_a_file_system_of_the_kernel_fails_run_and_validation() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("c.json");
    let text = r#"{ "cache_config": { "cacheSizeMB": 16, "nvmCacheSizeMB": 64 }, "test_config": { "numOps": 10, "numThreads": 1,
        "numKeys": 10, "keySizeRange": [8, 9], "keySizeRangeProbability": [1.0], "valSizeRange": [10, 20],
        "valSizeRangeProbability": [1.0], "getRatio": 1.0 } }"#;
    std::fs::write(&config, text).unwrap();
    for flash in ["/proc/flash", "/sys/flash"] {
        for more in [&[][..], &["--validate"]] {
            let device = format!("file:{flash}");
            let asked = ["bench", config.to_str().unwrap(), "--device", &device];
            let output = flashwright(&[&asked[..], more].concat());
            let message = err(&output);
            assert_eq!(output.status.code(), Some(2), "{flash} {more:?}: {message}");
            assert!(message.contains("no file can be created in /"), "{flash} {more:?}: {message}");
        }
    }
}

#[test]
fn flash_file_in_a_directory_without_permission_fails_run_and_validation() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::os::unix::process::CommandExt;

    const NOBODY: u32 = 65534;
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let text = r#"{ "cache_config": { "cacheSizeMB": 16, "nvmCacheSizeMB": 64 }, "test_config": { "numOps": 10, "numThreads": 1,
        "numKeys": 10, "keySizeRange": [8, 9], "keySizeRangeProbability": [1.0], "valSizeRange": [10, 20],
        "valSizeRangeProbability": [1.0], "getRatio": 1.0 } }"#;
    std::fs::write(at("c.json"), text).unwrap();
    // A copy, because another user may have no access to the build directory.
    std::fs::copy(env!("CARGO_BIN_EXE_flashwright"), at("flashwright")).unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o555)).unwrap();
    for more in [&[][..], &["--validate"]] {
        let mut command = std::process::Command::new(at("flashwright"));
        command.args(["bench", &at("c.json"), "--device", &format!("file:{}", at("flash"))]).args(more);
        if std::fs::metadata("/proc/self").unwrap().uid() == 0 {
            command.uid(NOBODY);
        }
        let output = command.current_dir("/").output().unwrap();
        let message = err(&output);
        assert!(
            output.status.code() == Some(2) && message.contains("no file can be created in"),
            "{more:?}: {message}"
        );
    }
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
}
