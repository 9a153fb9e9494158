//! `valueDedupRatio`: the share of duplicate blocks that a deduplicating drive finds in the written data.

use std::collections::HashSet;

use super::{config, err, flashwright};

const BLOCK_BYTES: usize = 4096;

/// Share of the non-empty blocks in the flash file that are duplicates.
fn repeated(ratio: f64) -> f64 {
    let (directory, file) = config(
        "sets.json",
        r#"{ "cache_config": { "cacheSizeMB": 16, "nvmCacheSizeMB": 96, "navyRegionSizeMB": 4, "navyBlockSize": 4096 },
          "test_config": { "generator": "online", "numOps": 1500, "numThreads": 2, "numKeys": 100000, "checkConsistency": true,
            "keySizeRange": [16, 17], "keySizeRangeProbability": [1.0], "valSizeRange": [60000, 100000],
            "valSizeRangeProbability": [1.0], "getRatio": 0.1, "setRatio": 0.9 } }"#,
    );
    let flash = directory.path().join("flash");
    // A default flash file would be removed after the run.
    std::fs::File::create(&flash).unwrap().set_len(96 << 20).unwrap();
    let device = format!("file:{}", flash.display());
    let chosen = format!("test_config.valueDedupRatio={ratio}");
    let output = flashwright(&["bench", &file, "--device", &device, "--set", &chosen]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let bytes = std::fs::read(&flash).unwrap();
    let blocks = bytes.chunks_exact(BLOCK_BYTES).filter(|block| block.iter().any(|byte| *byte != 0));
    let (mut all, mut distinct) = (0_u32, HashSet::new());
    for block in blocks {
        all += 1;
        distinct.insert(block);
    }
    assert!(all > 10_000, "{all} blocks");
    1.0 - distinct.len() as f64 / f64::from(all)
}

#[test]
fn share_of_duplicate_blocks_on_flash_is_as_configured() {
    for ratio in [0.0, 0.3, 0.8] {
        let found = repeated(ratio);
        assert!((found - ratio).abs() < 0.04, "{found:.3} of the blocks are duplicates, {ratio} configured");
    }
    let (_directory, file) = config("c.json", super::SMALL);
    let output = flashwright(&["bench", &file, "--validate", "--set", "test_config.valueDedupRatio=1.5"]);
    assert!(err(&output).contains("valueDedupRatio: must be 0 to 1"), "{}", err(&output));
}
