//! Block traces in every format, named or detected.

use workload::block::BlockKind;
use workload::trace::block::{BLOCK_FORMATS, BlockTrace, BlockTraceOptions};

use crate::scratch::Scratch;

/// The first byte selects the format; the rest is the file.
pub fn check(data: &[u8]) {
    let Some((&choice, bytes)) = data.split_first() else { return };
    let scratch = Scratch::new();
    let path = scratch.file("recording.bin", bytes);
    let format = BLOCK_FORMATS.get(usize::from(choice & 15));
    let wrong_rows = if choice & 16 == 0 { 1000 } else { 0 };
    let options = BlockTraceOptions { format, wrong_rows, ..BlockTraceOptions::default() };
    let mut trace = match BlockTrace::open(&[&path], options) {
        Ok(trace) => trace,
        Err(error) => return assert!(error.to_string().contains("recording.bin"), "no file in: {error}"),
    };
    let (mut last_ns, mut requests) = (0, 0);
    for request in trace.by_ref() {
        let request = match request {
            Ok(request) => request,
            Err(error) => return assert!(error.to_string().contains("recording.bin"), "no file in: {error}"),
        };
        assert!(request.time_ns >= last_ns, "times do not decrease");
        assert!(request.bytes > 0 || request.kind == BlockKind::Flush, "{request:?}");
        assert!(request.first_byte.checked_add(request.bytes).is_some(), "{request:?}");
        last_ns = request.time_ns;
        requests += 1;
    }
    let stats = trace.stats();
    assert_eq!(stats.requests, requests);
    assert!(stats.requests + stats.wrong_rows + stats.other_devices <= stats.rows, "{stats:?}");
    assert!(stats.rows <= bytes.len() as u64, "a row has at least one byte");
    assert_eq!(stats.wrong_rows > 0, stats.first_wrong.is_some());
}
