//! A seccomp filter that denies io_uring: `block serve` uses threads instead, and warns.

use std::io::{BufRead as _, BufReader};
use std::process::Command;

use super::super::without_io_uring::{WARNING, spawn, usual_path};
use super::{Client, Place};

const EPERM: u32 = 1;

#[test]
fn block_server_without_io_uring_warns_and_serves() {
    let place = Place::in_directory(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap(), "2");
    let mut command = place.command("serve", true);
    let mut server = spawn(command.arg("--socket").arg(place.path("s")), EPERM);
    let mut ready = String::new();
    BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut ready).unwrap();
    assert!(ready.starts_with("ready "), "{ready}");
    let mut client = Client::connect(&place.path("s"));
    client.call(1, 4096, 8192, &[5; 8192]);
    client.call(3, 0, 0, &[]);
    assert_eq!(client.call(0, 4096, 8192, &[]), [5; 8192]);
    drop(client);
    let status = place.status();
    assert_eq!((&status["flash"]["io"], &status["disk"]["io"]), (&"threads".into(), &"threads".into()));
    assert!(Command::new("kill").arg(server.id().to_string()).status().unwrap().success());
    let output = server.wait_with_output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{err}");
    for flag in ["--flash", "--disk"] {
        let line = err.lines().find(|line| line.contains(&format!("warning: {flag} ")));
        assert!(line.is_some_and(|line| line.contains(WARNING)), "{flag}: {err}");
    }
    let permitted = place.serve();
    assert_eq!(place.status()["disk"]["io"], usual_path());
    permitted.stop();
}
