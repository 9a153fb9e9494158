//! Users' mistakes and the messages for them.

use std::os::unix::fs::FileExt;

use super::{Client, Place, printed};

/// The error of a command on the cache's directory that fails.
fn refused(place: &Place, command: &str, words: &[&str]) -> String {
    let mut command = place.command(command, false);
    let output = command.args(words).current_dir(place.directory.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{words:?}: {}", printed(&output));
    printed(&output)
}

#[test]
fn destroy_with_force_refuses_foreign_data() {
    let place = Place::new();
    let mut file_system = vec![0; 8 << 20];
    file_system[1080..1082].copy_from_slice(b"\x53\xef");
    std::fs::write(place.path("ext4"), &file_system).unwrap();
    for more in [&["--yes"][..], &["--yes", "--force"]] {
        let words: Vec<&str> = ["--flash", "ext4", "--disk", "disk"].iter().chain(more).copied().collect();
        let words: Vec<&str> = words.into_iter().chain(place.flags.iter().map(String::as_str)).collect();
        let said = refused(&place, "destroy", &words);
        assert!(said.contains("there is no cache on it") && said.contains("ext4 file system"), "{said}");
        assert!(!said.contains("--force"), "{said}");
        assert!(std::fs::read(place.path("ext4")).unwrap() == file_system);
    }
}

#[test]
fn disk_of_another_size_gets_no_hint_at_force() {
    let place = Place::new();
    std::fs::File::options().write(true).open(place.path("disk")).unwrap().set_len(33 << 20).unwrap();
    for more in [&[][..], &["--force-disk"]] {
        let flush = place.run("flush", more, true);
        let said = printed(&flush);
        assert!(!flush.status.success() && said.contains("it has 34603008 bytes, not 33554432"), "{said}");
        assert!(!said.contains("--force-disk accepts it"), "{said}");
    }
}

#[test]
fn damaged_flash_is_reported_as_such() {
    for has_checksums in [true, false] {
        let place = Place::new();
        std::fs::remove_file(place.path("flash")).unwrap();
        let checksums = ["--force", "--yes", "--flash-size", "8MiB", "--associativity", "64", "--checksums"];
        let flags = &checksums[..checksums.len() - usize::from(!has_checksums)];
        let made = place.run("create", flags, true);
        assert!(made.status.success(), "{}", printed(&made));
        let server = place.serve();
        let mut client = Client::connect(&place.path("s"));
        for at in 0..6 {
            client.call(1, at << 20, 1 << 20, &vec![7; 1 << 20]);
        }
        let flushed = place.ask("flush", &[]);
        assert!(flushed.status.success(), "{}", printed(&flushed));
        server.stop();
        let flash = std::fs::File::options().write(true).open(place.path("flash")).unwrap();
        flash.write_all_at(&vec![9; 4 << 20], 2 << 20).unwrap();
        for full in [&[][..], &["--full"]] {
            let check = place.run("check", full, true);
            let said = printed(&check);
            assert!(!check.status.success(), "{said}");
            let blames_disk = said.contains("without the cache");
            if has_checksums {
                assert!(!blames_disk && said.contains("the checksum of page"), "{full:?}: {said}");
            } else if full.is_empty() {
                assert!(blames_disk && said.contains("or the flash is damaged"), "{said}");
            }
        }
        if has_checksums {
            // The disk has all blocks.
            let server = place.serve();
            let read = Client::connect(&place.path("s")).call(0, 4 << 20, 1 << 20, &[]);
            assert!(read == vec![7; 1 << 20]);
            server.stop();
        }
    }
}

#[test]
fn flash_too_small_for_a_superblock_is_reported_as_too_small() {
    let place = Place::new();
    let words = ["--flash", "ff", "--disk", "dd", "--flash-size", "64KiB", "--disk-size", "64MiB", "--yes"];
    let words: Vec<&str> = words.into_iter().chain(place.flags.iter().map(String::as_str)).collect();
    let said = refused(&place, "create", &words);
    assert!(said.contains("is too small") && !said.contains("--force"), "{said}");
    assert!(!place.path("ff").exists() && !place.path("dd").exists());
}

#[test]
fn directory_and_duplicate_member_are_rejected() {
    let place = Place::new();
    for more in [&[][..], &["--disk-size", "64MiB"]] {
        let words: Vec<&str> =
            ["--flash", "flash", "--disk", ".", "--yes"].iter().chain(more).copied().collect();
        let said = refused(&place, "create", &words);
        assert!(said.contains(". is a directory") && !said.contains("size"), "{said}");
    }
    std::fs::write(place.path("sa"), vec![0; 8 << 20]).unwrap();
    let said = refused(&place, "create", &["--flash", "stripe:sa,./sa", "--disk", "disk", "--yes"]);
    assert!(said.contains("sa is named twice"), "{said}");
}

#[test]
fn unknown_setting_lists_all_settings() {
    let place = Place::new();
    let server = place.serve();
    let said = printed(&place.ask("set", &["foo=3"]));
    for name in ["policy", "clean_run_blocks", "cache_all", "uncached_clients", "zero_stats", "stop_sync"] {
        assert!(said.contains(name), "{name}: {said}");
    }
    server.stop();
    let said = refused(&place, "replay", &["trace", "--set", "hot_percent=10"]);
    assert!(said.contains("only for the policy lru2q") && said.contains("preset v2"), "{said}");
}

/// Catches a regression: the longest accepted request line is shorter than the longest list.
#[test]
fn hundred_networks_can_be_set_in_one_request() {
    let place = Place::new();
    let server = place.serve();
    let networks: Vec<String> = (0..100)
        .map(|number| format!("2001:db8:1111:2222:3333:4444:5555:{:04x}/128", number + 0x1000))
        .collect();
    let set = place.ask("set", &[&format!("uncached_clients={}", networks.join(","))]);
    assert!(set.status.success(), "{}", printed(&set));
    assert!(printed(&set).contains("2001:db8:1111:2222:3333:4444:5555:1063"), "{}", printed(&set));
    server.stop();
}
