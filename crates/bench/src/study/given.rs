//! A trace on which studies run instead of their generated workload.

use std::fmt;
use std::path::Path;

use device::names::noun;

use super::error::StudyError;
use crate::run::stop::Stop;
use crate::trace::{self, Accesses, Input, ReadReport};

/// A trace, with the totals that a study needs in advance.
#[derive(Debug, Clone)]
pub struct GivenTrace {
    input: Input,
    /// Number of gets and sets.
    pub requests: u64,
    /// Total size of all objects, each with the size of its first request.
    pub footprint_bytes: u64,
    /// Mean size of a request.
    pub mean_bytes: u64,
    /// Report of the trace reader.
    pub read: ReadReport,
}

impl GivenTrace {
    /// Reads the trace once. Each run reads it again.
    ///
    /// # Errors
    /// The trace cannot be read, is standard input, has no requests, or reading was stopped.
    pub fn survey(input: Input, stop: &Stop, quiet: bool) -> Result<Self, StudyError> {
        if input.paths.iter().any(|path| path == Path::new("-")) {
            return Err(StudyError::ReadOnce);
        }
        let (survey, _, read) = trace::survey(&mut *input.open().map_err(trace::Error::from)?, stop, quiet)?;
        if stop.is_set() {
            return Err(StudyError::Interrupted);
        }
        let requests = survey.gets + survey.sets;
        if requests == 0 {
            return Err(StudyError::EmptyTrace { files: input.names() });
        }
        let (footprint_bytes, mean_bytes) = (survey.footprint_bytes, survey.requested_bytes / requests);
        Ok(Self { input, requests, footprint_bytes, mean_bytes, read })
    }

    /// Opens the trace from the start.
    ///
    /// # Errors
    /// As [`Input::open`].
    pub fn open(&self) -> Result<Box<dyn Accesses>, StudyError> {
        Ok(self.input.open().map_err(trace::Error::from)?)
    }
}

impl fmt::Display for GivenTrace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { input, requests, footprint_bytes, .. } = self;
        let (of_requests, of_bytes) = (noun(*requests, "request"), noun(*footprint_bytes, "byte"));
        write!(out, "{}: {requests} {of_requests}, footprint {footprint_bytes} {of_bytes}", input.names())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    fn surveyed(text: &str) -> Result<GivenTrace, StudyError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let input =
            Input { paths: vec![file.path().into()], format: "plain".into(), options: Default::default() };
        GivenTrace::survey(input, &Stop::default(), true)
    }

    #[test]
    fn survey_ignores_deletes_and_counts_each_object_once() {
        let given = surveyed("ts,key,op,size\n0,1,GET,10\n1,2,SET,20\n2,1,GET,99\n3,1,DELETE,0\n").unwrap();
        assert_eq!((given.requests, given.footprint_bytes), (3, 30));
        assert!(given.to_string().ends_with(": 3 requests, footprint 30 bytes"), "{given}");
    }

    #[test]
    fn survey_refuses_empty_trace_and_standard_input() {
        let nothing = surveyed("ts,key,op,size\n3,1,DELETE,0\n").unwrap_err();
        assert!(nothing.to_string().ends_with(": the trace has no requests"), "{nothing}");
        let input = Input { paths: vec!["-".into()], format: "auto".into(), options: Default::default() };
        let once = GivenTrace::survey(input, &Stop::default(), true).unwrap_err().to_string();
        assert!(once.contains("standard input"), "{once}");
    }
}
