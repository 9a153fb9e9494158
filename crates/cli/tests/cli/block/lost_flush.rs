//! Flash that lost part of the last flush: `check`, `serve` and `status` report how much.

use std::os::unix::fs::FileExt;
use std::process::Stdio;

use super::{Client, Place, Server, printed};

/// Writes three blocks to a cache, flushes, and kills the server after `pause_ms`; then damages the page of the second block.
#[expect(clippy::disallowed_methods, reason = "the server needs time to become idle")]
fn damaged(pause_ms: u64) -> Place {
    let place = Place::new();
    let server: Server = place.serve();
    let mut client = Client::connect(&place.path("s"));
    for byte in 1..=3_u8 {
        client.call(1, u64::from(byte) << 20, 4096, &[byte; 4096]);
    }
    client.call(3, 0, 0, &[]);
    std::thread::sleep(std::time::Duration::from_millis(pause_ms));
    server.kill();
    let flash = std::fs::read(place.path("flash")).unwrap();
    let page = flash.chunks(4096).position(|page| page == [2; 4096]).unwrap();
    let file = std::fs::File::options().write(true).open(place.path("flash")).unwrap();
    file.write_all_at(b"damage", page as u64 * 4096 + 100).unwrap();
    place
}

/// Standard error of `serve`, and `status` while it serves.
fn served(place: &Place) -> (String, String, serde_json::Value, String) {
    let mut command = place.command("serve", true);
    command.arg("--socket").arg(place.path("s")).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut server = super::Ending(command.spawn().unwrap());
    let mut ready = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(server.0.stdout.as_mut().unwrap()), &mut ready)
        .unwrap();
    let status = place.status();
    let text = printed(&place.ask("status", &[]));
    let metrics = printed(&place.ask("status", &["--prometheus"]));
    server.0.kill().unwrap();
    let mut warned = String::new();
    std::io::Read::read_to_string(server.0.stderr.as_mut().unwrap(), &mut warned).unwrap();
    (warned, text, status, metrics)
}

/// Catches a regression: the cache is reported as recovered and sound.
#[test]
fn flush_that_may_be_incomplete_is_dropped_with_a_warning() {
    let place = damaged(0);
    let check = place.run("check", &["--full"], true);
    let text = printed(&check);
    assert!(check.status.success(), "a power cut can leave the same state: {text}");
    let warning =
        "the last flush was not on flash as it was written, and 2 written blocks of it were dropped";
    assert!(text.contains(&format!("WARNING: {warning}")), "{text}");
    assert!(text.contains("sound but for the end that is missing"), "{text}");
    let (warned, text, status, metrics) = served(&place);
    assert!(
        warned.contains(&format!("warning: --flash {}: {warning}", place.path("flash").display())),
        "{warned}"
    );
    assert!(text.contains(&format!("WARNING: {warning}")), "{text}");
    let recovery = &status["recovery"];
    assert_eq!((&recovery["rolled_back"], &recovery["rolled_back_blocks"]), (&true.into(), &2.into()));
    assert!(metrics.contains("flashwright_block_rolled_back_blocks{"), "{metrics}");
}

#[test]
fn damage_to_an_acknowledged_flush_fails_the_check() {
    let place = damaged(1500);
    let check = place.run("check", &["--full"], true);
    let text = printed(&check);
    assert_eq!(check.status.code(), Some(1), "{text}");
    let warning = "1 block of the last acknowledged flush is damaged on flash";
    assert!(text.contains(&format!("WARNING: {warning}")) && text.contains("NOT sound"), "{text}");
    assert!(text.contains("the checksum of page"), "{text}");
    let (warned, text, status, _) = served(&place);
    assert!(warned.contains(warning) && text.contains(warning), "{warned}{text}");
    let recovery = &status["recovery"];
    assert_eq!((&recovery["rolled_back_blocks"], &recovery["damaged_blocks"]), (&0.into(), &1.into()));
    // A reader gets an error instead of wrong bytes.
    let server = place.serve();
    let mut client = Client::connect(&place.path("s"));
    assert_eq!(client.call(0, 3 << 20, 4096, &[]), [3; 4096]);
    assert_eq!(client.error_of(0, 2 << 20, 4096, &[]), 5);
    server.kill();
}

/// The number of dirty blocks is the data lost with an unserved flash.
#[test]
fn status_of_unserved_flash_counts_dirty_blocks() {
    for end in [Server::kill as fn(Server), Server::stop] {
        let place = Place::new();
        let server = place.serve();
        let mut client = Client::connect(&place.path("s"));
        for block in 0..5_u64 {
            client.call(1, block << 20, 4096, &[7; 4096]);
        }
        client.call(0, 20 << 20, 4096, &[]);
        drop(client);
        end(server);
        let mut status = place.command("status", false);
        status.arg("--flash").arg(place.path("flash")).args(&place.flags);
        let status = status.args(["--json", "-", "--quiet"]).output().unwrap();
        let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
        let state = &status["state"];
        assert_eq!(
            (&state["dirty_blocks"], &state["capacity_blocks"].is_u64()),
            (&5.into(), &true),
            "{state}"
        );
        let text = place
            .command("status", false)
            .arg("--flash")
            .arg(place.path("flash"))
            .args(&place.flags)
            .output();
        let text = printed(&text.unwrap());
        let line = text.lines().find(|line| line.trim_start().starts_with("dirty_blocks")).unwrap();
        assert!(line.ends_with(" 5"), "{text}");
    }
}
