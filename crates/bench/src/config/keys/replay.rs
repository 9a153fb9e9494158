//! `replayGeneratorConfig`: how a trace is replayed.

use serde_json::{Map, Value};

use crate::config::condition::Condition;
use crate::config::schema::Status::{Honoured, HonouredIf, NoEffect};
use crate::config::schema::section;

const BY_NAME: &str = "columns are found by the header, and `tenants` in the result has the figures of columns that name a tenant";

section! {
    /// How a trace is replayed.
    ReplayConfig: "test_config.replayGeneratorConfig" => {
        "Number of copies of the trace, each with its own keys.";
        amplification: u64 = 1, "ampFactor", "", HonouredIf(Condition::Trace);
        "Factor that multiplies value sizes.";
        size_amplification: u64 = 1, "ampSizeFactor", "", HonouredIf(Condition::Trace);
        "`strict`: requests for one key keep their order; `relaxed` and `none`: any thread takes any request.";
        serialization: String = "strict".to_owned(), "replaySerializationMode", "", HonouredIf(Condition::Trace);
        "Interval of the relaxed order.";
        relaxed_interval_ms: u64 = 500, "relaxedSerialIntervalMs", "ms", NoEffect("CacheBench reads it and never uses it");
        "With `replay`, the requests are written to this binary trace instead of being run; with `binary-replay`, the binary trace to read, instead of traceFileName.";
        binary_file: String = String::new(), "binaryFileName", "path", Honoured;
        "Number of rows to skip at the start, each with its repetitions (`op_count`), as in CacheBench.";
        fast_forward: u64 = 0, "fastForwardCount", "rows", HonouredIf(Condition::Trace);
        "Number of requests of a binary trace to load ahead.";
        preload: u64 = 0, "preLoadReqs", "requests", NoEffect("a binary trace is read ahead of the threads, and is not mapped into memory");
        "Number of extra columns by which the figures are split.";
        aggregation_fields: u64 = 0, "numAggregationFields", "", NoEffect(BY_NAME);
        "Number of extra columns.";
        extra_fields: u64 = 0, "numExtraFields", "", NoEffect(BY_NAME);
        "Values of the extra columns that get their own figures.";
        stats_per_field: Map<String, Value> = Map::new(), "statsPerAggField", "", NoEffect(BY_NAME);
        "`block-replay`: size of a block; a row whose range ends past it is wrong.";
        block_kib: u64 = 16384, "blockSizeKB", "KiB", HonouredIf(Condition::Chunks);
        "`block-replay`: size of the chunks in which a block is cached.";
        chunk_kib: u64 = 128, "chunkSizeKB", "KiB", HonouredIf(Condition::Chunks);
        "Learned admission: a gradient-boosted model admits or rejects each set.";
        ml_admission: MlAdmission = MlAdmission::default(), "mlAdmissionConfig", "", Honoured;
        "Ours. Amplify keys as CacheBench does, with a suffix that truncates long keys and so merges some of them.";
        cachebench_amplification: bool = false, "ampKeysLikeCacheBench", "", HonouredIf(Condition::Copies);
        "Ours. `replay`: format of the trace, one of `flashwright trace formats` (a table with its columns: `csv:time,key,-,size`), or `auto` to detect it from the first file.";
        format: String = "kvcache".to_owned(), "traceFormat", "", Honoured;
    }
    legacy {}
}

section! {
    /// Learned admission. CacheBench publishes the keys and no model.
    MlAdmission: "test_config.replayGeneratorConfig.mlAdmissionConfig" => {
        "File of the model, as XGBoost saves it in JSON, with feature names.";
        model: String = String::new(), "modelPath", "path", HonouredIf(Condition::Trace);
        "Features of the model by name: for each its column of the trace, `size`, `key_size`, `ttl` or `op_time` (seconds).";
        numeric: Map<String, Value> = Map::new(), "numericFeatures", "", HonouredIf(Condition::Trace);
        "Categorical features, as in `numericFeatures`: the value of the column is the number of the category.";
        categorical: Map<String, Value> = Map::new(), "categoricalFeatures", "", HonouredIf(Condition::Trace);
        "Recall that selects a threshold from the model's attribute `recall_thresholds` (`{\"0.9\": 0.4}`); 0 is a threshold of 0.5.";
        recall: f64 = 0.0, "targetRecall", "", HonouredIf(Condition::Trace);
        "Category (class of the model) that is admitted.";
        category: u64 = 0, "admitCategory", "", HonouredIf(Condition::Trace);
    }
    legacy {}
}
