//! What the requests of a trace are cut into.

use super::super::keys::TestConfig;
use super::super::knob::Findings;
use super::super::text::join;

/// Items of one request stand in memory together.
const MOST_ITEMS: u64 = 1 << 20;

/// Checks what a replay is told of its trace.
pub(super) fn check(test: &TestConfig, at: &str, findings: &mut Findings) {
    let inside = join(at, "replayGeneratorConfig");
    let replay = &test.replay;
    let mut refuse = |broken: bool, at: &str, words: &str| {
        if broken {
            findings.problem(at, words);
        }
    };
    match test.generator.as_str() {
        "block-replay" => {
            let (block, chunk) = (replay.block_kib, replay.chunk_kib);
            let fits = (1..=block).contains(&chunk) && block <= u64::MAX >> 10;
            refuse(!fits, &join(&inside, "chunkSizeKB"), "must be 1 to blockSizeKB");
            let many = fits && block.div_ceil(chunk) > MOST_ITEMS;
            refuse(many, &join(&inside, "chunkSizeKB"), "cuts a block into more than 1,048,576 chunks");
        }
        "piecewise-replay" => {
            refuse(test.piece_bytes == 0, &join(at, "cachePieceSize"), "must be above 0");
            refuse(test.max_pieces > MOST_ITEMS, &join(at, "maxCachePieces"), "must be at most 1,048,576");
        }
        _ => {}
    }
}
