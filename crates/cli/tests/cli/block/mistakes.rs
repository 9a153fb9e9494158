//! What people do by mistake, and what they are told then.

use std::os::unix::fs::FileExt;

use super::{Client, Place, told};

/// The words of a command that is refused, in the directory of the cache.
fn refused(place: &Place, command: &str, words: &[&str]) -> String {
    let mut command = place.command(command, false);
    let output = command.args(words).current_dir(place.directory.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{words:?}: {}", told(&output));
    told(&output)
}

#[test]
fn what_was_no_cache_was_destroyed_by_force() {
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
fn a_disk_of_another_size_was_to_be_taken_by_force_which_refused_it() {
    let place = Place::new();
    std::fs::File::options().write(true).open(place.path("disk")).unwrap().set_len(33 << 20).unwrap();
    for more in [&[][..], &["--force-disk"]] {
        let flush = place.run("flush", more, true);
        let said = told(&flush);
        assert!(!flush.status.success() && said.contains("it has 34603008 bytes, not 33554432"), "{said}");
        assert!(!said.contains("--force-disk takes it"), "{said}");
    }
}

#[test]
fn damage_of_flash_was_blamed_on_the_disk() {
    for has_checksums in [true, false] {
        let place = Place::new();
        std::fs::remove_file(place.path("flash")).unwrap();
        let checksums = ["--force", "--yes", "--flash-size", "8MiB", "--associativity", "64", "--checksums"];
        let flags = &checksums[..checksums.len() - usize::from(!has_checksums)];
        let made = place.run("create", flags, true);
        assert!(made.status.success(), "{}", told(&made));
        let server = place.serve();
        let mut client = Client::connect(&place.path("s"));
        for at in 0..6 {
            client.call(1, at << 20, 1 << 20, &vec![7; 1 << 20]);
        }
        let flushed = place.ask("flush", &[]);
        assert!(flushed.status.success(), "{}", told(&flushed));
        server.stop();
        let flash = std::fs::File::options().write(true).open(place.path("flash")).unwrap();
        flash.write_all_at(&vec![9; 4 << 20], 2 << 20).unwrap();
        for full in [&[][..], &["--full"]] {
            let check = place.run("check", full, true);
            let said = told(&check);
            assert!(!check.status.success(), "{said}");
            let blames_disk = said.contains("without the cache");
            if has_checksums {
                assert!(!blames_disk && said.contains("the checksum of page"), "{full:?}: {said}");
            } else if full.is_empty() {
                assert!(blames_disk && said.contains("or the flash is damaged"), "{said}");
            }
        }
        if has_checksums {
            // The disk has all of it.
            let server = place.serve();
            let read = Client::connect(&place.path("s")).call(0, 4 << 20, 1 << 20, &[]);
            assert!(read == vec![7; 1 << 20]);
            server.stop();
        }
    }
}

#[test]
fn flash_too_small_for_a_superblock_was_said_to_hold_a_cache() {
    let place = Place::new();
    let words = ["--flash", "ff", "--disk", "dd", "--flash-size", "64KiB", "--disk-size", "64MiB", "--yes"];
    let words: Vec<&str> = words.into_iter().chain(place.flags.iter().map(String::as_str)).collect();
    let said = refused(&place, "create", &words);
    assert!(said.contains("is too small") && !said.contains("--force"), "{said}");
    assert!(!place.path("ff").exists() && !place.path("dd").exists());
}

#[test]
fn a_directory_was_to_be_given_a_size_and_a_member_named_twice_to_be_stopped() {
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
fn a_setting_that_is_none_was_answered_with_half_of_those_that_are() {
    let place = Place::new();
    let server = place.serve();
    let said = told(&place.ask("set", &["foo=3"]));
    for name in ["policy", "clean_run_blocks", "cache_all", "uncached_clients", "zero_stats", "stop_sync"] {
        assert!(said.contains(name), "{name}: {said}");
    }
    server.stop();
    let said = refused(&place, "replay", &["trace", "--set", "hot_percent=10"]);
    assert!(said.contains("only for the policy lru2q") && said.contains("preset v2"), "{said}");
}

/// A line to the server was shorter than the list that there is room for.
#[test]
fn a_hundred_networks_could_not_be_set_at_once() {
    let place = Place::new();
    let server = place.serve();
    let networks: Vec<String> = (0..100)
        .map(|number| format!("2001:db8:1111:2222:3333:4444:5555:{:04x}/128", number + 0x1000))
        .collect();
    let set = place.ask("set", &[&format!("uncached_clients={}", networks.join(","))]);
    assert!(set.status.success(), "{}", told(&set));
    assert!(told(&set).contains("2001:db8:1111:2222:3333:4444:5555:1063"), "{}", told(&set));
    server.stop();
}
