//! `flashwright serve`: bad settings are refused before flash is created, and a restarted server has its items.

mod fleet;
mod kills;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::{FLASHWRIGHT, err, flashwright};

const SIZES: [&str; 4] = ["--flash-size", "64MiB", "--dram", "16MiB"];

#[test]
fn bad_settings_are_refused_before_flash_is_created() {
    let directory = tempfile::tempdir().unwrap();
    let flash = directory.path().join("flash");
    let cases: [(&[&str], &str); 7] = [
        (&["--listen", "./socket"], "write unix:./socket"),
        (&["--listen", "0.0.0.0:11211"], "0.0.0.0:11211 can be reached from other machines"),
        (&["--listen", "127.0.0.1:0", "--allow-commands", "get,sett"], "did you mean `set`?"),
        (
            &["--listen", "127.0.0.1:0", "--tls-certificate", "missing.pem"],
            "needs both --tls-certificate and --tls-key",
        ),
        (
            &["--listen", "127.0.0.1:0", "--tls-certificate", "missing.pem", "--tls-key", "missing.pem"],
            "missing.pem",
        ),
        (&["--listen", "127.0.0.1:0", "--auth-file", "missing.txt"], "cannot read missing.txt"),
        (&["--listen", "127.0.0.1:0", "--metrics", "0.0.0.0:9100"], "--metrics 0.0.0.0:9100"),
    ];
    for (settings, reason) in cases {
        let output =
            flashwright(&[&["serve", "--flash", flash.to_str().unwrap()], &SIZES[..], settings].concat());
        assert_eq!(output.status.code(), Some(2), "{settings:?}");
        assert!(err(&output).contains(reason), "{settings:?}: {}", err(&output));
        assert!(!flash.exists(), "{settings:?}: flash was created");
    }
}

/// A server on a Unix socket, once it accepts connections.
fn serve(directory: &Path) -> Child {
    serve_at(directory, "unix:socket")
}

fn serve_at(directory: &Path, listen: &str) -> Child {
    let mut server = Command::new(FLASHWRIGHT)
        .args(["serve", "--flash", "flash", "--listen", listen])
        .args(SIZES)
        .current_dir(directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("serving memcached's text protocol"), "{line}");
    server
}

fn request(directory: &Path, lines: &str) -> String {
    let mut socket = UnixStream::connect(directory.join("socket")).unwrap();
    socket.write_all(lines.as_bytes()).unwrap();
    socket.shutdown(Shutdown::Write).unwrap();
    let mut replies = String::new();
    socket.read_to_string(&mut replies).unwrap();
    replies
}

fn stop(mut server: Child) {
    assert!(Command::new("kill").arg(server.id().to_string()).status().unwrap().success());
    assert!(server.wait().unwrap().success());
}

#[test]
fn item_is_found_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve(directory.path());
    assert_eq!(request(directory.path(), "set key 7 0 5\r\nvalue\r\n"), "STORED\r\n");
    stop(server);
    let server = serve(directory.path());
    assert_eq!(request(directory.path(), "get key\r\n"), "VALUE key 7 5\r\nvalue\r\nEND\r\n");
    stop(server);
}
