//! `replayGeneratorConfig`: how a trace is replayed.

use serde_json::{Map, Value};

use crate::config::knob::Status::{Honoured, Later, NoEffect};
use crate::config::knob::section;

const BY_NAME: &str =
    "columns are told by the header, and `tenants` of the result has figures of those that name one";
const ML: &str = "learned admission";

section! {
    /// How a trace is replayed.
    ReplayConfig: "test_config.replayGeneratorConfig" => {
        "Copies of the trace, each with keys of its own.";
        amplification: u64 = 1, "ampFactor", "", Honoured;
        "Multiplies value sizes.";
        size_amplification: u64 = 1, "ampSizeFactor", "", Honoured;
        "`strict`: requests of one key keep their order; `relaxed` and `none`: any thread takes any.";
        serialization: String = "strict".to_owned(), "replaySerializationMode", "", Honoured;
        "Interval of relaxed order.";
        relaxed_interval_ms: u64 = 500, "relaxedSerialIntervalMs", "ms", NoEffect("CacheBench reads it and never uses it");
        "With `replay`, a binary trace that is written of the requests, in place of a run; with `binary-replay`, the one that is read, in place of traceFileName.";
        binary_file: String = String::new(), "binaryFileName", "path", Honoured;
        "Requests to skip at the start.";
        fast_forward: u64 = 0, "fastForwardCount", "requests", Honoured;
        "Requests of a binary trace to load ahead.";
        preload: u64 = 0, "preLoadReqs", "requests", NoEffect("a binary trace is read ahead of the threads, and mapped nowhere");
        "Extra columns that figures are split by.";
        aggregation_fields: u64 = 0, "numAggregationFields", "", NoEffect(BY_NAME);
        "Extra columns.";
        extra_fields: u64 = 0, "numExtraFields", "", NoEffect(BY_NAME);
        "Values of the extra columns that get figures of their own.";
        stats_per_field: Map<String, Value> = Map::new(), "statsPerAggField", "", NoEffect(BY_NAME);
        "`block-replay`: a block; a range that reaches beyond its end is a wrong row.";
        block_kib: u64 = 16384, "blockSizeKB", "KiB", Honoured;
        "`block-replay`: what a block is cached in.";
        chunk_kib: u64 = 128, "chunkSizeKB", "KiB", Honoured;
        "Learned admission.";
        ml_admission: MlAdmission = MlAdmission::default(), "mlAdmissionConfig", "", Later(ML);
        "Ours. Amplify as CacheBench does: a suffix that cuts long keys and so merges some.";
        cachebench_amplification: bool = false, "ampKeysLikeCacheBench", "", Honoured;
        "Ours. `replay`: what the trace is, one of `flashwright trace formats`, or `auto` to tell it by the first file.";
        format: String = "kvcache".to_owned(), "traceFormat", "", Honoured;
    }
    legacy {}
}

section! {
    /// Learned admission, of which CacheBench publishes only the keys.
    MlAdmission: "test_config.replayGeneratorConfig.mlAdmissionConfig" => {
        "The model.";
        model: String = String::new(), "modelPath", "path", Later(ML);
        "Numeric columns.";
        numeric: Map<String, Value> = Map::new(), "numericFeatures", "", Later(ML);
        "Categorical columns.";
        categorical: Map<String, Value> = Map::new(), "categoricalFeatures", "", Later(ML);
        "Recall aimed at.";
        recall: f64 = 0.0, "targetRecall", "", Later(ML);
        "Category that is admitted.";
        category: u64 = 0, "admitCategory", "", Later(ML);
    }
    legacy {}
}
