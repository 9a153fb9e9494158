//! Servers whose settings are in files, as in `/etc/flashwright/block.d`.

use std::io::{BufRead as _, BufReader};
use std::os::unix::net::UnixDatagram;
use std::process::Stdio;

use serde_json::Value;

use super::{Client, Ending, Place, Server, printed};
use crate::http_get;

impl Place {
    /// Writes `NAME.toml` for this cache, with more lines.
    fn settings_file(&self, name: &str, more: &str) {
        let buffered = if self.flags.is_empty() { "" } else { "buffered = true\n" };
        let text = format!("flash = \"flash\"\ndisk = \"disk\"\n{buffered}{more}");
        std::fs::write(self.path(name), text).unwrap();
    }

    fn list(&self, more: &[&str]) -> std::process::Output {
        let mut list = self.command("list", false);
        list.arg("--directory").arg(self.directory.path()).args(more).current_dir(self.directory.path());
        list.output().unwrap()
    }
}

#[test]
fn cache_of_a_file_is_served_and_listed() {
    let place = Place::new();
    place.settings_file("photos.toml", "socket = \"in-file\"\n");
    let state = |place: &Place| {
        let listed = place.list(&["--json", "-", "--quiet"]);
        assert!(listed.status.success(), "{}", printed(&listed));
        serde_json::from_slice::<Value>(&listed.stdout).unwrap()["caches"][0].clone()
    };
    assert_eq!((&state(&place)["name"], &state(&place)["served"]), (&"photos".into(), &false.into()));
    let server = serve_file(&place, &[]);
    assert!(server.ready.starts_with("ready nbd+unix:///?socket=in-file"), "{}", server.ready);
    Client::connect(&place.path("in-file")).call(1, 0, 4096, &[7; 4096]);
    let served = state(&place);
    assert_eq!((&served["served"], &served["dirty_blocks"]), (&true.into(), &1.into()), "{served}");
    let text = printed(&place.list(&[]));
    assert!(text.lines().any(|line| line.starts_with("photos           served")), "{text}");
    server.stop();
    // A typed flag takes precedence.
    let server = serve_file(&place, &["--socket", "typed"]);
    assert!(place.path("typed").exists() && !place.path("in-file").exists(), "{}", server.ready);
    server.stop();
}

fn serve_file(place: &Place, more: &[&str]) -> Server {
    let mut text = vec!["photos.toml"];
    text.extend(more);
    // The settings file already names the flash, the disk and the socket.
    let mut command = place.command("serve", false);
    let mut child =
        command.args(text).current_dir(place.directory.path()).stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.as_mut().unwrap()), &mut ready)
        .unwrap();
    Server { child: Ending(child), ready }
}

#[test]
fn wrong_file_is_refused_with_the_nearest_key() {
    let place = Place::new();
    place.settings_file("photos.toml", "sokket = \"s\"\n");
    let line = if place.flags.is_empty() { 3 } else { 4 };
    let refused = place.command("serve", false).arg(place.path("photos.toml")).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let error = format!("photos.toml: line {line}: unknown key `sokket`; did you mean `socket`?");
    assert!(printed(&refused).contains(&error), "{}", printed(&refused));
    let listed = place.list(&[]);
    assert_eq!(listed.status.code(), Some(1), "{}", printed(&listed));
    assert!(printed(&listed).contains("photos           invalid"), "{}", printed(&listed));
    let missing = place.command("serve", false).arg(place.path("missing.toml")).output().unwrap();
    assert!(printed(&missing).contains("missing.toml: No such file"), "{}", printed(&missing));
}

/// systemd starts mounts after this message.
#[test]
fn service_manager_is_notified_when_clients_can_connect() {
    let place = Place::new();
    let notifications = UnixDatagram::bind(place.path("notify")).unwrap();
    let mut command = place.command("serve", true);
    command.arg("--socket").arg(place.path("s")).env("NOTIFY_SOCKET", place.path("notify"));
    let child = Ending(command.stdout(Stdio::null()).spawn().unwrap());
    let mut message = [0; 64];
    let mut receive = || {
        let len = notifications.recv(&mut message).unwrap();
        String::from_utf8_lossy(&message[..len]).into_owned()
    };
    assert_eq!(receive(), "READY=1\n");
    Client::connect(&place.path("s"));
    Server { child, ready: String::new() }.stop();
    assert_eq!(receive(), "STOPPING=1\n");
}

#[test]
fn metrics_and_health_are_served_by_http() {
    let place = Place::new();
    let refused = place.run("serve", &["--socket", "s", "--metrics", "0.0.0.0:0"], true);
    assert!(
        printed(&refused).contains("--metrics 0.0.0.0:0: other machines can reach it"),
        "{}",
        printed(&refused)
    );
    let mut command = place.command("serve", true);
    command.arg("--socket").arg(place.path("s")).args(["--metrics", "127.0.0.1:0"]);
    let mut child = Ending(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    let ready = lines.next().unwrap().unwrap();
    let address = lines.next().unwrap().unwrap();
    let address = address.strip_prefix("metrics and a live page on http://").unwrap().trim_end_matches('/');
    Client::connect(&place.path("s")).call(1, 0, 4096, &[7; 4096]);
    let metrics = http_get(address, "/metrics");
    let dirty = metrics.lines().find(|line| line.starts_with("flashwright_block_dirty_blocks{")).unwrap();
    assert!(dirty.ends_with(" 1"), "{dirty}");
    let health = http_get(address, "/health");
    assert!(health.starts_with("HTTP/1.1 200 "), "{health}");
    Server { child, ready }.stop();
}
