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
    let cases: [(&[&str], &str); 8] = [
        (&["--listen", "./socket"], "write unix:./socket"),
        (&["--recover-after", "kil"], "a similar value exists: 'kill'"),
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
    serve_with(directory, "unix:socket", &[])
}

fn serve_with(directory: &Path, listen: &str, settings: &[&str]) -> Child {
    let mut server = Command::new(FLASHWRIGHT)
        .args(["serve", "--flash", "flash", "--listen", listen])
        .args(SIZES)
        .args(settings)
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
    let mut writer = socket.try_clone().unwrap();
    let mut replies = String::new();
    // The server reads no requests while its replies are not read.
    std::thread::scope(|scope| {
        scope.spawn(move || {
            writer.write_all(lines.as_bytes()).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        socket.read_to_string(&mut replies).unwrap();
    });
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

#[test]
fn server_warns_of_items_it_does_not_use_and_of_a_share_without_percent() {
    let directory = tempfile::tempdir().unwrap();
    let warnings = |settings: &[&str]| {
        let mut server = Command::new(FLASHWRIGHT)
            .args(["serve", "--flash", "flash", "--listen", "unix:socket"])
            .args(SIZES)
            .args(settings)
            .current_dir(directory.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
        let mut stderr = server.stderr.take().unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
        let mut warnings = String::new();
        stderr.read_to_string(&mut warnings).unwrap();
        warnings
    };
    assert_eq!(warnings(&[]), "", "the first server has no items to use");
    let after_a_kill = warnings(&["--tenant", "a=user:10"]);
    assert!(after_a_kill.contains("warning: the items of the last server are not used: it was not closed"));
    assert!(after_a_kill.contains("--tenant a=user:10: \"10\" is part of the prefix; write a=PREFIX:10%"));
}

#[test]
fn server_uses_the_settings_of_a_file_and_refuses_a_wrong_one_with_its_line() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("serve.toml");
    std::fs::write(&file, "listen = \"unix:other\"\nallow-commands = [\"get\", \"set\"]\n").unwrap();
    let server = serve_with(directory.path(), "unix:socket", &["serve.toml"]);
    assert!(!directory.path().join("other").exists(), "a typed flag takes precedence");
    let replies = request(directory.path(), "set key 0 0 1\r\na\r\ndelete key\r\nget key\r\n");
    assert!(replies.starts_with("STORED\r\n") && !replies.contains("DELETED"), "{replies}");
    assert!(replies.ends_with("VALUE key 0 1\r\na\r\nEND\r\n"), "{replies}");
    stop(server);
    std::fs::write(&file, "flash = \"new\"\nrecover-after = \"kil\"\n").unwrap();
    let refused = flashwright(&["serve", file.to_str().unwrap(), "--flash-size", "64MiB"]);
    assert_eq!(refused.status.code(), Some(2), "{}", err(&refused));
    let error = "serve.toml: line 2: invalid value 'kil' for '--recover-after <END>'";
    assert!(err(&refused).contains(error), "{}", err(&refused));
}

/// Number of items of 1,100 bytes: about twice the size of DRAM.
const ITEMS: usize = 27_000;

fn value(number: usize, version: usize) -> String {
    format!("{version:03}-{number:06}").repeat(110)
}

fn set(number: usize, version: usize) -> String {
    let value = value(number, version);
    format!("set key-{number} 0 0 {} noreply\r\n{value}\r\n", value.len())
}

/// The version of each key that the server has.
fn versions(directory: &Path) -> Vec<Option<usize>> {
    let gets: String = (0..ITEMS).map(|number| format!("get key-{number}\r\n")).collect();
    let replies = request(directory, &gets);
    let mut versions = vec![None; ITEMS];
    let mut lines = replies.lines();
    while let Some(line) = lines.next() {
        let Some(header) = line.strip_prefix("VALUE key-") else { continue };
        let number: usize = header.split(' ').next().unwrap().parse().unwrap();
        let found = lines.next().unwrap();
        let version = found[..3].parse().unwrap();
        assert_eq!(found, value(number, version), "key {number}");
        versions[number] = Some(version);
    }
    versions
}

#[test]
fn killed_server_finds_small_items_on_flash_and_none_that_was_removed_or_replaced() {
    ["log", "sets"].into_iter().for_each(assert_killed_server_finds_small_items);
}

fn assert_killed_server_finds_small_items(engine: &str) {
    let directory = tempfile::tempdir().unwrap();
    let options = ["--recover-after", "kill", "--small-items", engine];
    let serve = || serve_with(directory.path(), "unix:socket", &options);
    let mut server = serve();
    request(directory.path(), &(0..ITEMS).map(|number| set(number, 1)).collect::<String>());
    let replaced: String = (0..ITEMS).step_by(10).map(|number| set(number, 2)).collect();
    let removed: String =
        (5..ITEMS).step_by(10).map(|number| format!("delete key-{number} noreply\r\n")).collect();
    assert!(request(directory.path(), &format!("{replaced}{removed}version\r\n")).starts_with("VERSION"));
    let before = versions(directory.path()).iter().flatten().count();
    server.kill().unwrap();
    server.wait().unwrap();
    let server = serve();
    let after = versions(directory.path());
    for (number, version) in after.iter().enumerate().filter_map(|(number, it)| Some((number, (*it)?))) {
        let expected = if number % 10 == 0 { 2 } else { 1 };
        assert!(version == expected && number % 10 != 5, "key {number} has version {version} after the kill");
    }
    let found = after.iter().flatten().count();
    assert!(
        before > ITEMS * 8 / 10 && found * 3 > before,
        "{engine}: {found} of {before} items were found after the kill"
    );
    stop(server);
}
