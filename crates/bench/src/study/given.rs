//! A trace that studies run on in place of the workload they generate.

use std::fmt;
use std::path::Path;

use super::StudyError;
use crate::report::text::noun;
use crate::run::stop::Stop;
use crate::trace::{self, Accesses, Input, ReadReport};

/// A trace, and what a study must know of all of it before the first request.
#[derive(Debug, Clone)]
pub struct GivenTrace {
    input: Input,
    /// Gets and sets.
    pub requests: u64,
    /// What all objects take together, each as large as it was first.
    pub footprint_bytes: u64,
    /// What a request asks for, in the mean.
    pub mean_bytes: u64,
    /// How reading went.
    pub read: ReadReport,
}

impl GivenTrace {
    /// Reads it once. Its runs will read it again, each for itself.
    ///
    /// # Errors
    /// A trace that cannot be read, or only once, or that asks for nothing, or whose reading was interrupted.
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

    /// From its beginning.
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

    fn surveyed(words: &str) -> Result<GivenTrace, StudyError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), words).unwrap();
        let input =
            Input { paths: vec![file.path().into()], format: "plain".into(), options: Default::default() };
        GivenTrace::survey(input, &Stop::default(), true)
    }

    #[test]
    fn deletes_are_no_requests_and_an_object_counts_once() {
        let given = surveyed("ts,key,op,size\n0,1,GET,10\n1,2,SET,20\n2,1,GET,99\n3,1,DELETE,0\n").unwrap();
        assert_eq!((given.requests, given.footprint_bytes), (3, 30));
        assert!(given.to_string().ends_with(": 3 requests, footprint 30 bytes"), "{given}");
    }

    #[test]
    fn what_cannot_be_studied_is_refused() {
        let nothing = surveyed("ts,key,op,size\n3,1,DELETE,0\n").unwrap_err();
        assert!(nothing.to_string().ends_with(": the trace has no requests"), "{nothing}");
        let input = Input { paths: vec!["-".into()], format: "auto".into(), options: Default::default() };
        let once = GivenTrace::survey(input, &Stop::default(), true).unwrap_err().to_string();
        assert!(once.contains("standard input"), "{once}");
    }
}
