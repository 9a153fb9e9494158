//! The events of a block-layer recording that count as requests.
//!
//! blktrace records a request several times: when it enters the queue (Q), is issued to the driver (D), and completes (C). Exactly one of
//! the three counts. Queue events are the programs' requests; the others follow the kernel's splitting and merging. A recording made with a
//! filter (`blktrace -a issue`) can lack some of them.

use super::{BlockFormat, Decoder, Found};
use crate::trace::framing::comment_text;

/// The events that count as requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Events {
    /// Requests that enter the queue (Q).
    #[default]
    Queue,
    /// Requests that are issued to the driver (D).
    Issue,
    /// Requests that are completed (C).
    Complete,
}

impl Events {
    /// All events, the preferred first.
    pub const ALL: [Self; 3] = [Self::Queue, Self::Issue, Self::Complete];

    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Issue => "issue",
            Self::Complete => "complete",
        }
    }

    /// The events called `name`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|events| events.name() == name)
    }

    /// Keeps `found` if it is at this event; otherwise returns [`Found::Other`].
    pub(super) fn select(self, found: Found) -> Found {
        match found {
            Found::Event(event) if self == Self::Queue => Found::Event(event),
            Found::Later(events, event) if self == events => Found::Event(event),
            _ => Found::Other,
        }
    }
}

/// Number of requests of each kind of event in a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::trace) struct EventCounts([u64; 3]);

/// Queue events are used unless the others outnumber them by this factor: then the few queue events are stray. The factor is
/// large because one queued request may be split and issued many times.
const STRAY_FACTOR: u64 = 100;

impl EventCounts {
    /// Counts the events in the first bytes of a file.
    pub(in crate::trace) fn of(format: &BlockFormat, head: &[u8], is_whole: bool) -> Self {
        let mut counts = Self::default();
        match format.decoder {
            Decoder::Lines(make) => {
                let mut decoder = make();
                let end = if is_whole { None } else { head.iter().rposition(|byte| *byte == b'\n') };
                let lines = head[..end.unwrap_or(head.len())].split(|byte| *byte == b'\n');
                let lines =
                    lines.filter(|line| !line.trim_ascii().is_empty() && comment_text(line).is_none());
                lines
                    .filter_map(|line| decoder.line(line.trim_ascii_end()).ok())
                    .for_each(|found| counts.add(&found));
            }
            Decoder::Records(make) => {
                let (mut decoder, mut input) = (make(), head);
                while let Ok(Some(Ok(found))) = decoder.record(&mut input) {
                    counts.add(&found);
                }
            }
        }
        counts
    }

    pub(super) fn add(&mut self, found: &Found) {
        match found {
            Found::Event(_) => self.0[0] += 1,
            Found::Later(events, _) => self.0[*events as usize] += 1,
            Found::Other => {}
        }
    }

    /// Adds the counts of another file.
    pub(in crate::trace) fn merge(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(mine, theirs)| *mine += theirs);
    }

    /// The events to use, and a note if they are not the queue events.
    pub(in crate::trace) fn choose(self) -> (Events, Option<String>) {
        let [queue, issue, complete] = self.0;
        if queue.saturating_mul(STRAY_FACTOR) >= issue.max(complete) {
            return (Events::Queue, None);
        }
        let (used, name) =
            if issue > 0 { (Events::Issue, "issue (D)") } else { (Events::Complete, "completion (C)") };
        let lacking = match queue {
            0 => "no queue (Q) events".to_owned(),
            1 => "only 1 queue (Q) event".to_owned(),
            _ => format!("only {queue} queue (Q) events"),
        };
        (used, Some(format!("the recording begins with {lacking}: {name} events are used")))
    }
}
