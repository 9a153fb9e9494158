//! Servers whose settings are in files, as in `/etc/flashwright/block.d`.

use std::os::unix::net::UnixDatagram;
use std::process::Stdio;

use serde_json::Value;

use super::{Client, Ending, Place, Server, told};

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
        assert!(listed.status.success(), "{}", told(&listed));
        serde_json::from_slice::<Value>(&listed.stdout).unwrap()["caches"][0].clone()
    };
    assert_eq!((&state(&place)["name"], &state(&place)["served"]), (&"photos".into(), &false.into()));
    let server = serve_file(&place, &[]);
    assert!(server.ready.starts_with("ready nbd+unix:///?socket=in-file"), "{}", server.ready);
    Client::connect(&place.path("in-file")).call(1, 0, 4096, &[7; 4096]);
    let served = state(&place);
    assert_eq!((&served["served"], &served["dirty_blocks"]), (&true.into(), &1.into()), "{served}");
    let text = told(&place.list(&[]));
    assert!(text.lines().any(|line| line.starts_with("photos           served")), "{text}");
    server.stop();
    // A typed flag takes precedence.
    let server = serve_file(&place, &["--socket", "typed"]);
    assert!(place.path("typed").exists() && !place.path("in-file").exists(), "{}", server.ready);
    server.stop();
}

fn serve_file(place: &Place, more: &[&str]) -> Server {
    let mut words = vec!["photos.toml"];
    words.extend(more);
    // The file has the flags of the place already.
    let mut command = place.command("serve", false);
    let mut child =
        command.args(words).current_dir(place.directory.path()).stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.as_mut().unwrap()), &mut ready)
        .unwrap();
    Server { child: Ending(child), ready }
}

#[test]
fn wrong_file_is_refused_with_the_nearest_key() {
    let place = Place::new();
    place.settings_file("photos.toml", "sokket = \"s\"\n");
    let refused = place.command("serve", false).arg(place.path("photos.toml")).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        told(&refused).contains("photos.toml: unknown key `sokket`; did you mean `socket`?"),
        "{}",
        told(&refused)
    );
    let listed = place.list(&[]);
    assert_eq!(listed.status.code(), Some(1), "{}", told(&listed));
    assert!(told(&listed).contains("photos           invalid"), "{}", told(&listed));
    let missing = place.command("serve", false).arg(place.path("missing.toml")).output().unwrap();
    assert!(told(&missing).contains("missing.toml: No such file"), "{}", told(&missing));
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
