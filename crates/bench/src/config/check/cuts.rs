//! Checks the format of a trace and the sizes of the pieces or chunks of its requests.

use workload::trace::{FORMATS, Format, TraceError};

use super::super::findings::{Findings, join};
use super::super::keys::TestConfig;
use super::one_of;

/// All items of a request are in memory together.
const MAX_ITEMS: u64 = 1 << 20;

/// Checks the keys that describe the trace of a replay.
pub(super) fn check(test: &TestConfig, at: &str, findings: &mut Findings) {
    let inside = join(at, "replayGeneratorConfig");
    let replay = &test.replay;
    let at_format = join(&inside, "traceFormat");
    match Format::with_columns(&replay.format.to_ascii_lowercase()) {
        Err(error @ TraceError::Columns { .. }) => findings.problem(&at_format, error.to_string()),
        Err(_) => {
            let names = std::iter::once("auto").chain(FORMATS.iter().map(|format| format.name));
            one_of(&replay.format, &names.collect::<Vec<_>>(), &at_format, findings);
        }
        Ok(_) => {}
    }
    let mut refuse = |broken: bool, at: &str, message: &str| {
        if broken {
            findings.problem(at, message);
        }
    };
    let other = !replay.format.eq_ignore_ascii_case("kvcache") && test.generator != "replay";
    refuse(other, &at_format, "only for the generator `replay`: the others read one format each");
    let misses = !test.miss_trace.is_empty() && test.generator != "piecewise-replay";
    refuse(misses, &join(at, "missTraceFile"), "only for the generator `piecewise-replay`");
    match test.generator.as_str() {
        "block-replay" => {
            let (block, chunk) = (replay.block_kib, replay.chunk_kib);
            let fits = (1..=block).contains(&chunk) && block <= u64::MAX >> 10;
            refuse(!fits, &join(&inside, "chunkSizeKB"), "must be 1 to blockSizeKB");
            let many = fits && block.div_ceil(chunk) > MAX_ITEMS;
            refuse(many, &join(&inside, "chunkSizeKB"), "cuts a block into more than 1,048,576 chunks");
        }
        "piecewise-replay" => {
            refuse(test.piece_bytes == 0, &join(at, "cachePieceSize"), "must be above 0");
            refuse(test.max_pieces > MAX_ITEMS, &join(at, "maxCachePieces"), "must be at most 1,048,576");
        }
        _ => {}
    }
}
