//! Sources of block requests, with a warm-up.

use std::path::Path;

pub use workload::block::BlockRequest;
pub use workload::generate::innodb::{Innodb, InnodbConfig};
pub use workload::generate::linkbench::{LinkBench, LinkBenchConfig};
pub use workload::trace::block::{
    BLOCK_FORMATS, BlockFormat, BlockTrace, BlockTraceError, BlockTraceOptions, BlockTraceStats,
};

/// Requests per chunk.
const CHUNK: usize = 1 << 16;

/// A source of requests that starts with a warm-up.
pub struct Source {
    requests: Requests,
    warm_up: u64,
    done: u64,
    is_warm: bool,
}

enum Requests {
    Trace(Box<BlockTrace>),
    Innodb { innodb: Box<Innodb>, operations: u64 },
    Generated(Box<dyn Iterator<Item = BlockRequest> + Send>),
}

/// What follows a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// More requests.
    More,
    /// More requests, and the warm-up has ended.
    Warm,
    /// The end of the requests.
    End,
}

impl Source {
    /// A trace whose first `warm_up` requests are the warm-up.
    ///
    /// # Errors
    /// The trace cannot be opened.
    pub fn trace(
        paths: &[impl AsRef<Path>],
        options: BlockTraceOptions,
        warm_up: u64,
    ) -> Result<Self, BlockTraceError> {
        let requests = Requests::Trace(Box::new(BlockTrace::open(paths, options)?));
        Ok(Self { requests, warm_up, done: 0, is_warm: false })
    }

    /// The model of MySQL servers, for `operations` database operations; the first `warm_up` are the warm-up.
    #[must_use]
    pub fn innodb(config: InnodbConfig, seed: u64, operations: u64, warm_up: u64) -> Self {
        let requests = Requests::Innodb { innodb: Box::new(Innodb::new(config, seed)), operations };
        Self { requests, warm_up, done: 0, is_warm: false }
    }

    /// Requests from an iterator; the first `warm_up` are the warm-up.
    #[must_use]
    pub fn generated(requests: impl Iterator<Item = BlockRequest> + Send + 'static, warm_up: u64) -> Self {
        Self { requests: Requests::Generated(Box::new(requests)), warm_up, done: 0, is_warm: false }
    }

    /// Statistics of the trace reader; `None` without a trace.
    #[must_use]
    pub fn stats(&self) -> Option<&BlockTraceStats> {
        match &self.requests {
            Requests::Trace(trace) => Some(trace.stats()),
            Requests::Innodb { .. } | Requests::Generated(_) => None,
        }
    }

    /// Replaces the content of `chunk` by the next requests.
    ///
    /// # Errors
    /// The trace cannot be read.
    pub fn fill(&mut self, chunk: &mut Vec<BlockRequest>) -> Result<After, BlockTraceError> {
        chunk.clear();
        while chunk.len() < CHUNK {
            if !self.is_warm && self.done >= self.warm_up {
                self.is_warm = true;
                return Ok(After::Warm);
            }
            match self.next()? {
                Some(request) => chunk.push(request),
                // The source ended during the warm-up: the warm-up ends, and no request is counted.
                None if !self.is_warm => self.warm_up = 0,
                None => return Ok(After::End),
            }
        }
        Ok(After::More)
    }

    fn next(&mut self) -> Result<Option<BlockRequest>, BlockTraceError> {
        match &mut self.requests {
            Requests::Trace(trace) => {
                self.done += 1;
                trace.next().transpose()
            }
            Requests::Generated(requests) => {
                self.done += 1;
                Ok(requests.next())
            }
            Requests::Innodb { innodb, operations } if self.done < *operations => {
                let request = innodb.next();
                self.done = innodb.operations();
                Ok(request)
            }
            Requests::Innodb { .. } => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use workload::block::BlockKind;

    use super::*;

    /// Number of requests after the warm-up; `None` if it never ends.
    fn counted(mut source: Source) -> Option<usize> {
        let (mut chunk, mut counted) = (Vec::new(), None);
        loop {
            let after = source.fill(&mut chunk).expect("nothing fails");
            counted = counted.map(|counted| counted + chunk.len());
            match after {
                After::More => {}
                After::Warm => counted = Some(0),
                After::End => return counted,
            }
        }
    }

    #[test]
    fn source_shorter_than_warm_up_counts_no_requests() {
        let request = BlockRequest { time_ns: 0, kind: BlockKind::Flush, first_byte: 0, bytes: 0 };
        for requests in [0, 9, 10, 11] {
            let source = Source::generated(std::iter::repeat_n(request, requests), 10);
            assert_eq!(counted(source), Some(requests.saturating_sub(10)), "of {requests}");
        }
        assert_eq!(counted(Source::innodb(InnodbConfig::default(), 1, 100, 1000)), Some(0));
    }

    #[test]
    fn warm_up_ends_after_the_given_operations() {
        let mut source = Source::innodb(InnodbConfig::default(), 1, 3000, 1000);
        let (mut chunk, mut counted, mut warming) = (Vec::new(), 0, 0);
        let mut is_warm = false;
        loop {
            let after = source.fill(&mut chunk).expect("a generator does not fail");
            *if is_warm { &mut counted } else { &mut warming } += chunk.len();
            is_warm |= after == After::Warm;
            if after == After::End {
                break;
            }
        }
        assert!(warming > 100 && counted > warming, "{warming} and {counted}");
    }
}
