//! A ghost queue: remembers which keys left lately, not what they held.
//!
//! An entry is 4 bytes: a fingerprint of 20 bits and the time it came in, in 12. Time is the weight that has come in
//! since the beginning, in ticks of 1/1024 of the window, so an entry expires by itself when a window's weight has
//! come in after it: the queue of "FIFO queues are all you need for cache eviction" (SOSP'23, section 4.2) without a
//! queue. Sixteen entries share a cache line, and a key is looked for in its line alone. A full line gives up its
//! oldest entry early; a stranger is taken for a member with probability 16 / 2^20.

const LINE: usize = 16;
const FINGERPRINT_BITS: u32 = 20;
const STAMP_BITS: u32 = 32 - FINGERPRINT_BITS;
const STAMP_MASK: u32 = (1 << STAMP_BITS) - 1;
/// Ticks in a window. Stamps go round after four windows; sweeping visits every line once in a window, so
/// none lives long enough to look young again.
const TICKS: u64 = 1024;
/// Never smaller: 64 lines are 4 KiB.
const LINES_AT_LEAST: usize = 64;
const EMPTY: u32 = 0;

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([u32; LINE]);

/// Keys that left within the last `window` of weight.
pub struct Ghost {
    lines: Vec<Line>,
    window: u64,
    tick_weight: u64,
    /// Ticks so far, and the weight that came in since the last.
    tick: u32,
    since_tick: u64,
    sweep_next: usize,
}

impl Ghost {
    /// Remembers the last `window_weight` that came in.
    #[must_use]
    pub fn new(window_weight: u64) -> Self {
        let lines = vec![Line([EMPTY; LINE]); LINES_AT_LEAST];
        let mut ghost = Self { lines, window: 0, tick_weight: 1, tick: 0, since_tick: 0, sweep_next: 0 };
        ghost.set_window(window_weight);
        ghost
    }

    /// Changes the window. What is remembered keeps its place in it.
    pub fn set_window(&mut self, window_weight: u64) {
        self.window = window_weight;
        self.tick_weight = window_weight.div_ceil(TICKS).max(1);
    }

    /// Makes the table large enough for this many entries: 16 places for every 12. Memory is at most twice that.
    pub fn reserve(&mut self, entries: usize) {
        while self.lines.len() * (LINE * 3 / 4) < entries {
            // One more bit of the hash now chooses the line, and no entry tells it: each goes to both of its
            // candidates. The wrong copy matches nobody and expires.
            self.lines.extend_from_within(..);
        }
    }

    /// A key left.
    #[inline]
    pub fn insert(&mut self, hash: u64, weight: u32) {
        self.since_tick += u64::from(weight);
        if self.since_tick >= self.tick_weight {
            self.advance();
        }
        let entry = fingerprint(hash) << STAMP_BITS | self.tick & STAMP_MASK;
        let tick = self.tick;
        let line = self.line_of(hash);
        let oldest = self.lines[line].0.iter_mut().max_by_key(|place| match **place {
            EMPTY => u32::MAX,
            entry => age(entry, tick),
        });
        *oldest.expect("a line has places") = entry;
    }

    /// Whether the key left lately; if so it is forgotten, for it is back.
    #[inline]
    pub fn take(&mut self, hash: u64) -> bool {
        let (tick, window_ticks) = (self.tick, self.window_ticks());
        let fingerprint = fingerprint(hash);
        let line = self.line_of(hash);
        let found = self.lines[line].0.iter_mut().find(|place| **place >> STAMP_BITS == fingerprint);
        found.is_some_and(|place| age(std::mem::take(place), tick) < window_ticks)
    }

    /// Bytes of memory.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.lines.len() * size_of::<Line>()
    }

    fn window_ticks(&self) -> u32 {
        self.window.div_ceil(self.tick_weight) as u32
    }

    fn line_of(&self, hash: u64) -> usize {
        hash as usize & (self.lines.len() - 1)
    }

    /// Moves the clock, and empties what expired: as many lines a tick as make a round in a window.
    fn advance(&mut self) {
        let ticks = self.since_tick / self.tick_weight;
        self.since_tick %= self.tick_weight;
        self.tick = self.tick.wrapping_add(ticks as u32);
        if ticks >= TICKS {
            return self.lines.fill(Line([EMPTY; LINE]));
        }
        let (tick, window_ticks) = (self.tick, self.window_ticks());
        let lines = ticks as usize * self.lines.len().div_ceil(TICKS as usize);
        for _ in 0..lines.min(self.lines.len()) {
            let line = self.sweep_next & (self.lines.len() - 1);
            self.sweep_next = line + 1;
            for place in &mut self.lines[line].0 {
                if age(*place, tick) >= window_ticks {
                    *place = EMPTY;
                }
            }
        }
    }
}

/// Never 0, so that no entry equals [`EMPTY`].
fn fingerprint(hash: u64) -> u32 {
    ((hash >> (64 - FINGERPRINT_BITS)) as u32).max(1)
}

/// Ticks since the entry came in.
fn age(entry: u32, tick: u32) -> u32 {
    tick.wrapping_sub(entry) & STAMP_MASK
}
