//! Rules for caching by client: on the command line, at run time, reported and rejected.

use super::{Client, Place, printed};

/// Whether a new block is cached when `client` writes it.
fn is_cached_by(place: &Place, client: &mut Client, number: u64) -> bool {
    let held = || place.status()["state"]["held_blocks"].as_u64().unwrap();
    let before = held();
    client.call(1, number << 16, 4096, &[7; 4096]);
    assert_eq!(client.call(0, number << 16, 4096, &[]), [7; 4096]);
    held() > before
}

#[test]
fn client_rules_apply_at_start_and_change_for_open_connections() {
    let place = Place::new();
    let process = format!("pid:{}", std::process::id());
    let devices = ["--flash", "flash", "--disk", "disk"];
    let rules = ["--cache-all", "0", "--cached-client", "uid:4000000000", "--cached-client", "10.0.0.0/8"];
    let server = place.serve_with(&[&devices[..], &rules].concat());
    let mut client = Client::connect(&place.path("s"));
    assert!(!is_cached_by(&place, &mut client, 1));
    let status = &place.status()["rules"];
    assert_eq!(
        *status,
        serde_json::json!({
            "cache_all": 0,
            "uncached_clients": [],
            "cached_clients": ["uid:4000000000", "10.0.0.0/8"],
            "kept_out_requests": 2,
            "kept_out_connections": 1,
        })
    );
    let set = |words: &[&str]| printed(&place.ask("set", words));
    let said = set(&[&format!("whitelist=+{process}"), "idle_seconds=7"]);
    assert!(said.contains(&format!("\ncached_clients=uid:4000000000,10.0.0.0/8,{process}\n")), "{said}");
    assert!(is_cached_by(&place, &mut client, 2));
    let said = set(&["cache_all=1", &format!("uncached_clients={process}")]);
    assert!(said.contains(&format!("\nuncached_clients={process}\n")), "{said}");
    assert!(is_cached_by(&place, &mut client, 3), "the client is on both lists");
    set(&[&format!("cached_clients=-{process}")]);
    assert!(!is_cached_by(&place, &mut client, 4));
    let said = printed(&place.ask("status", &[]));
    assert!(said.contains("\nrules\n  cache_all ") && said.contains(&process), "{said}");
    let prometheus = printed(&place.ask("status", &["--prometheus"]));
    assert!(prometheus.contains("\n# TYPE flashwright_block_rules_kept_out_requests_total counter\n"));
    let listed = printed(&place.ask("set", &[]));
    assert!(listed.lines().any(|line| line.starts_with("uncached_clients ") && line.contains(&process)));
    set(&["zero_stats=1", "blacklist="]);
    assert!(is_cached_by(&place, &mut client, 5));
    assert_eq!(place.status()["rules"]["kept_out_requests"], 0);
    server.stop();
}

/// A command with an invalid part changes nothing.
#[test]
fn invalid_rule_is_rejected_with_name_value_and_reason() {
    let place = Place::new();
    let server = place.serve();
    for (text, expected) in [
        (&["cache_all=0", "blacklist=pid:x"][..], "blacklist=pid:x: \"pid:x\" must be pid: and the number"),
        (&["cache_all=0", "dirty_procent=1"], "dirty_procent: unknown setting"),
        (&["cache_al=0"], "cache_al: unknown setting; did you mean cache_all?"),
        (&["max_pids=7"], "max_pids: has no counterpart here: cached_clients and uncached_clients have room"),
        (&["pid_expiry_secs=7"], "a process stays on its list until it is removed"),
    ] {
        let refused = place.ask("set", text);
        assert_eq!(refused.status.code(), Some(2));
        assert!(printed(&refused).contains(expected), "{}", printed(&refused));
    }
    assert_eq!(place.status()["rules"]["cache_all"], 1);
    server.stop();
    let said = printed(&place.run("set", &["cache_all=0"], true));
    assert!(said.contains("cache_all=0: is for a cache that is being served"), "{said}");
    let serve = |devices: &[&str], flags: &[&str]| {
        let mut serve = place.command("serve", false);
        serve.current_dir(place.path("")).args(devices).args(["--socket", "s"]).args(flags);
        printed(&serve.output().unwrap())
    };
    for (flags, expected) in [
        (["--cache-all", "yes"], "invalid value 'yes' for '--cache-all <0|1>': must be 0 or 1"),
        (
            ["--uncached-client", "localhost"],
            "'localhost' for '--uncached-client <CLIENT>': must be pid:NUMBER",
        ),
        (["--cached-client", "10.0.0.0/64"], "for '--cached-client <CLIENT>': the prefix length must be"),
    ] {
        let said = serve(&["--flash", "flash", "--disk", "disk"], &flags);
        assert!(said.contains(expected), "{said}");
    }
    let said = serve(&["--disk", "disk"], &["--uncached-client", "uid:0"]);
    assert!(said.contains("required") && said.contains("--flash"), "{said}");
}
