//! Completion times: dies and channels as queues, the write buffer, and the pacing of collection.
//!
//! * **Units are stripes.** A reclaim unit spans the dies in chunks of one program operation (all planes, all pages of a word line). A
//!   chunk is programmed when its last page arrives.
//! * **A die executes one operation at a time.** Programs, erases and collection's reads queue in order. A host read goes first: it
//!   suspends the running operation, which costs `suspend_ns` and delays everything behind it. On a die that cannot suspend, the read
//!   waits for all operations queued before it.
//! * **Channels and the host link** (per direction) have a bandwidth. A transfer takes its share from the moment of its request, so a
//!   transfer that becomes ready late does not delay one that is ready early.
//! * **The write buffer** acknowledges a write when its pages are in; a page leaves it when its chunk is programmed. When the buffer is
//!   full, writes wait for chunks. The buffer is volatile: a flush waits for all chunks in progress, and for one more program if the host
//!   has begun a chunk since its last flush. Buffered data is read from the buffer.
//! * **Collection is paced.** The mapping empties a victim in one step; its reads, programs and erases are backlog that is executed in equal
//!   parts with each page that the host writes into the next unit, and faster while the dies are idle. Real drives do the same;
//!   otherwise some writes would stall for seconds. A write that meets collection waits because dies are busy, not because of a rule.
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use crate::card::Card;
use crate::geometry::{PhysicalPage, Shape, UnitId};
use crate::mapping::Divisor;
use crate::medium::{Cause, Medium};

/// The parts of a drive that take time, each with the time until which it is busy.
pub struct Timing {
    figures: Figures,
    dies: Box<[Die]>,
    channel_free_ns: Box<[u64]>,
    link_in_free_ns: u64,
    link_out_free_ns: u64,
    read_commands_free_ns: u64,
    write_commands_free_ns: u64,
    buffer: Buffer,
    backlog: CollectionBacklog,
    /// The next pages of chunks that were incomplete at the last flush and unchanged since.
    flushed: Vec<PhysicalPage>,
    /// Time when the incomplete chunks of earlier flushes are programmed.
    flushed_ns: u64,
    /// Current time within the processing of a request.
    at_ns: u64,
    /// The request time without waiting for buffer space. The transfer is requested then, so a waiting write does not hold the link.
    requested_ns: u64,
}

/// A card's figures in the units of the calculation.
struct Figures {
    chunk_pages: u32,
    chunk_of: Divisor,
    /// Mapping pages per flash page, as a power of two.
    nand_page_shift: u32,
    /// Bytes of a unit, and bytes that one erase operation covers.
    unit_bytes: u64,
    erase_bytes: u64,
    unit_pages: u32,
    /// Time to sense all planes of a die together, and bytes of a mapping page, which may exceed the bytes of one sense operation.
    read_ns: u64,
    page_read_ns: u64,
    program_ns: u64,
    erase_ns: u64,
    suspend_ns: u64,
    command_ns: u64,
    chunk_transfer_ns: u64,
    /// Planes of a die; collection reads them together.
    planes: u64,
    /// Flash pages per mapping page; 1 if a mapping page is smaller than a flash page.
    nand_pages_per_page: u64,
    planes_transfer_ns: u64,
    page_transfer_ns: u64,
    link_bytes_per_second: u64,
    read_ceiling: Option<Ceiling>,
    write_ceiling: Option<Ceiling>,
}

/// The data sheet's rates for one direction.
#[derive(Clone, Copy)]
struct Ceiling {
    bytes_per_second: u64,
    commands_per_second: u64,
}

impl Ceiling {
    /// Time that a command of `bytes` takes at these rates.
    fn takes_ns(self, bytes: u64) -> u64 {
        (bytes * SECOND_NS / self.bytes_per_second).max(SECOND_NS / self.commands_per_second)
    }
}

#[derive(Clone, Copy, Default)]
struct Die {
    /// Time at which the die's queued programs, erases and collection reads end.
    busy_until_ns: u64,
    /// Time at which the die's queued host reads end.
    reading_until_ns: u64,
}

/// Pages that are not yet programmed.
struct Buffer {
    capacity_pages: u64,
    used_pages: u64,
    /// Chunks being programmed, ordered by completion time.
    programming: BinaryHeap<Reverse<(u64, u32)>>,
    ends_ns: HashMap<u32, u64>,
    /// Time when the most recently assigned buffer space became free: later requests get none before it.
    free_ns: u64,
}

/// Outstanding work of collection, and the part that is due with each page of the host.
#[derive(Default)]
struct CollectionBacklog {
    reads: Work,
    programs: Work,
    erases: Work,
    last_nand_page: u32,
    next_die: usize,
}

#[derive(Default)]
struct Work {
    left: u64,
    parts: u64,
    per_page: f64,
    due: f64,
}

const SECOND_NS: u64 = 1_000_000_000;

impl Timing {
    /// A drive at rest, with the flash of `card` under the units of `shape`.
    #[must_use]
    pub fn new(card: &Card, shape: &Shape) -> Self {
        let figures = Figures::new(card, shape);
        let capacity_pages = (card.controller.write_buffer_bytes / u64::from(shape.page_bytes)).max(1);
        Self {
            figures,
            dies: vec![Die::default(); card.nand.dies as usize].into(),
            channel_free_ns: vec![0; card.nand.channels as usize].into(),
            link_in_free_ns: 0,
            link_out_free_ns: 0,
            read_commands_free_ns: 0,
            write_commands_free_ns: 0,
            buffer: Buffer {
                capacity_pages,
                used_pages: 0,
                programming: BinaryHeap::new(),
                ends_ns: HashMap::new(),
                free_ns: 0,
            },
            backlog: CollectionBacklog::default(),
            flushed: Vec::new(),
            flushed_ns: 0,
            at_ns: 0,
            requested_ns: 0,
        }
    }

    /// A request arrives at `now_ns`. Requests arrive in the order of time.
    pub(crate) fn arrive(&mut self, now_ns: u64) {
        self.execute_while_idle(now_ns);
        self.at_ns = now_ns + self.figures.command_ns;
        self.requested_ns = self.at_ns;
    }

    /// Transfers `bytes` of the request from the host.
    pub(crate) fn receive(&mut self, bytes: u64) {
        let takes_ns = self.link_ns(bytes);
        self.at_ns = carry(&mut self.link_in_free_ns, self.at_ns, self.at_ns, takes_ns);
        if let Some(ceiling) = self.figures.write_ceiling {
            let takes_ns = ceiling.takes_ns(bytes);
            self.at_ns = carry(&mut self.write_commands_free_ns, self.at_ns, self.at_ns, takes_ns);
        }
        self.requested_ns = self.at_ns;
    }

    fn link_ns(&self, bytes: u64) -> u64 {
        bytes * SECOND_NS / self.figures.link_bytes_per_second
    }

    /// When the last request completes.
    pub(crate) fn ends_ns(&self) -> u64 {
        self.at_ns
    }

    /// Reads `bytes` for the host from these locations. Runs within a page of the flash are read together. `is_buffered` returns the chunks
    /// whose last page has not arrived.
    pub(crate) fn read_for_host(
        &mut self,
        bytes: u64,
        places: impl Iterator<Item = PhysicalPage>,
        is_buffered: impl Fn(&Self, PhysicalPage) -> bool,
    ) {
        let begin_ns = self.at_ns;
        let mut end_ns = begin_ns;
        let mut before = None;
        for place in places {
            let nand_page = place.0 >> self.figures.nand_page_shift;
            let is_same = before.replace(nand_page) == Some(nand_page);
            if is_buffered(self, place) || self.is_under_way(place, begin_ns) {
                continue;
            }
            let die = self.die_of(place);
            let sensed_ns = if is_same { self.dies[die].reading_until_ns } else { self.sense(die, begin_ns) };
            end_ns = end_ns.max(self.transfer(die, begin_ns, sensed_ns, self.figures.page_transfer_ns));
        }
        let takes_ns = self.link_ns(bytes);
        self.at_ns = carry(&mut self.link_out_free_ns, begin_ns, end_ns, takes_ns);
        if let Some(ceiling) = self.figures.read_ceiling {
            let takes_ns = ceiling.takes_ns(bytes);
            self.at_ns = carry(&mut self.read_commands_free_ns, begin_ns, self.at_ns, takes_ns);
        }
    }

    /// Waits until all written data is programmed. `begun` are the next pages of the host's incomplete chunks.
    pub(crate) fn flush(&mut self, begun: Vec<PhysicalPage>) {
        let last = self.buffer.programming.iter().map(|Reverse((end_ns, _))| *end_ns).max();
        // Chunks whose buffer space was assigned before their completion, and chunks begun by an earlier flush, are in progress as well.
        let others = self.buffer.free_ns.max(self.flushed_ns);
        self.at_ns = self.at_ns.max(last.unwrap_or(0)).max(others);
        let is_news = begun.iter().any(|next| !self.flushed.contains(next));
        self.flushed = begun;
        if is_news {
            self.at_ns += self.figures.chunk_transfer_ns + self.figures.program_ns;
            self.flushed_ns = self.at_ns;
        }
    }

    /// The chunk that a page belongs to.
    pub(crate) fn chunk_of(&self, page: PhysicalPage) -> u32 {
        self.figures.chunk_of.divide(page.0)
    }

    fn die_of(&self, page: PhysicalPage) -> usize {
        self.chunk_of(page) as usize % self.dies.len()
    }

    fn is_under_way(&self, page: PhysicalPage, now_ns: u64) -> bool {
        self.buffer.ends_ns.get(&self.chunk_of(page)).is_some_and(|&end_ns| end_ns > now_ns)
    }

    /// Reads a page of the flash before all queued work of the die.
    fn sense(&mut self, die: usize, now_ns: u64) -> u64 {
        let Figures { page_read_ns: read_ns, suspend_ns, .. } = self.figures;
        let die = &mut self.dies[die];
        let free_ns = now_ns.max(die.reading_until_ns);
        if die.busy_until_ns <= free_ns {
            die.reading_until_ns = free_ns + read_ns;
        } else if suspend_ns == 0 {
            die.reading_until_ns = die.busy_until_ns + read_ns;
        } else {
            // The first of several reads suspends the operation; the others find it suspended.
            let is_suspended = die.reading_until_ns > now_ns;
            let takes_ns = read_ns + if is_suspended { 0 } else { suspend_ns };
            die.reading_until_ns = free_ns + takes_ns;
            die.busy_until_ns += takes_ns;
        }
        die.reading_until_ns
    }

    /// Occupies the die for `takes_ns`, after its queued work.
    fn occupy(&mut self, die: usize, from_ns: u64, takes_ns: u64) -> u64 {
        let die = &mut self.dies[die];
        die.busy_until_ns = die.busy_until_ns.max(die.reading_until_ns).max(from_ns) + takes_ns;
        die.busy_until_ns
    }

    fn transfer(&mut self, die: usize, requested_ns: u64, ready_ns: u64, takes_ns: u64) -> u64 {
        let channel = die % self.channel_free_ns.len();
        carry(&mut self.channel_free_ns[channel], requested_ns, ready_ns, takes_ns)
    }

    fn program_chunk(&mut self, chunk: u32) {
        let die = chunk as usize % self.dies.len();
        let sent_ns = self.transfer(die, self.requested_ns, self.at_ns, self.figures.chunk_transfer_ns);
        let end_ns = self.occupy(die, sent_ns, self.figures.program_ns);
        self.buffer.programming.push(Reverse((end_ns, chunk)));
        self.buffer.ends_ns.insert(chunk, end_ns);
    }

    /// Adds `pages` to the buffer as soon as it has space.
    #[inline]
    fn enter_buffer(&mut self, pages: u32) {
        self.buffer.used_pages += u64::from(pages);
        while self.buffer.used_pages > self.buffer.capacity_pages {
            // If no chunk is being programmed, only incomplete chunks are in the buffer, and they must be programmed to
            // free space.
            let Some(end_ns) = self.buffer.take_earliest(self.figures.chunk_pages) else { break };
            self.buffer.free_ns = self.buffer.free_ns.max(end_ns);
        }
        self.at_ns = self.at_ns.max(self.buffer.free_ns);
    }

    /// Executes the work that is due with `pages` pages of the host.
    #[inline]
    fn execute_due(&mut self, pages: u32) {
        if self.backlog.is_clear() {
            return;
        }
        let (requested_ns, now_ns) = (self.requested_ns, self.at_ns);
        for _ in 0..self.backlog.reads.take_due(pages) {
            self.collect_read(requested_ns, now_ns);
        }
        for _ in 0..self.backlog.programs.take_due(pages) {
            self.collect_program(requested_ns, now_ns);
        }
        for _ in 0..self.backlog.erases.take_due(pages) {
            self.collect_erase(now_ns);
        }
    }

    /// Executes outstanding work in the time for which the dies have been idle.
    fn execute_while_idle(&mut self, now_ns: u64) {
        while !self.backlog.is_clear() {
            let die = self.backlog.next_die;
            let free_ns = self.dies[die].busy_until_ns.max(self.dies[die].reading_until_ns);
            if free_ns + IDLE_NS >= now_ns {
                return;
            }
            // After a short idle time, so that the next request of a burst is not delayed.
            let from_ns = free_ns + IDLE_NS;
            if self.backlog.reads.take_one() {
                self.collect_read(from_ns, from_ns);
            } else if self.backlog.programs.take_one() {
                self.collect_program(from_ns, from_ns);
            } else if self.backlog.erases.take_one() {
                self.collect_erase(from_ns);
            }
        }
    }

    fn collect_read(&mut self, requested_ns: u64, now_ns: u64) {
        let die = self.backlog.advance_die(self.dies.len());
        let sensed_ns = self.occupy(die, now_ns, self.figures.read_ns);
        self.transfer(die, requested_ns, sensed_ns, self.figures.planes_transfer_ns);
    }

    fn collect_program(&mut self, requested_ns: u64, now_ns: u64) {
        let die = self.backlog.advance_die(self.dies.len());
        let sent_ns = self.transfer(die, requested_ns, now_ns, self.figures.chunk_transfer_ns);
        self.occupy(die, sent_ns, self.figures.program_ns);
    }

    fn collect_erase(&mut self, now_ns: u64) {
        let die = self.backlog.advance_die(self.dies.len());
        self.occupy(die, now_ns, self.figures.erase_ns);
    }
}

/// Occupies a link for `takes_ns` from `requested_ns` on, and returns when a transfer that is ready at `ready_ns` completes.
fn carry(free_ns: &mut u64, requested_ns: u64, ready_ns: u64, takes_ns: u64) -> u64 {
    *free_ns = requested_ns.max(*free_ns) + takes_ns;
    (*free_ns).max(ready_ns + takes_ns)
}

/// Idle time of a die after which collection uses it ahead of schedule.
const IDLE_NS: u64 = 1_000_000;

impl Medium for Timing {
    #[inline]
    fn program(&mut self, first: PhysicalPage, count: u32, cause: Cause) {
        let chunk_pages = self.figures.chunk_pages;
        if !self.flushed.is_empty() {
            self.flushed.retain(|next| *next != first);
        }
        if cause == Cause::Collection {
            let chunks = self.figures.chunk_of.divide(first.0 + count) - self.chunk_of(first);
            self.backlog.programs.add(u64::from(chunks), self.figures.unit_pages);
            return;
        }
        self.execute_due(count);
        let (mut page, end) = (first.0, first.0 + count);
        while page < end {
            let chunk = self.figures.chunk_of.divide(page);
            let chunk_end = (chunk + 1) * chunk_pages;
            let until = end.min(chunk_end);
            self.enter_buffer(until - page);
            if until == chunk_end {
                self.program_chunk(chunk);
            }
            page = until;
        }
    }

    #[inline]
    fn read(&mut self, page: PhysicalPage, cause: Cause) {
        if cause == Cause::Host {
            // The rest of a partly written page is read. The write is acknowledged earlier, but the die is busy.
            let die = self.die_of(page);
            let sensed_ns = self.sense(die, self.at_ns);
            self.transfer(die, self.requested_ns, sensed_ns, self.figures.page_transfer_ns);
            return;
        }
        let nand_page = page.0 >> self.figures.nand_page_shift;
        if nand_page != self.backlog.last_nand_page {
            self.backlog.last_nand_page = nand_page;
            self.backlog.reads.add_parts(self.figures.nand_pages_per_page, self.figures.planes);
        }
    }

    fn erase(&mut self, _: UnitId) {
        // A scaled drive has smaller units and unchanged erase blocks, so several units share one erase.
        let Figures { unit_pages, unit_bytes, erase_bytes, .. } = self.figures;
        self.backlog.reads.spread_over(unit_pages);
        self.backlog.erases.add_parts(unit_bytes, erase_bytes);
        self.backlog.erases.spread_over(unit_pages);
    }
}

impl Buffer {
    /// Frees the chunk that completes first.
    fn take_earliest(&mut self, chunk_pages: u32) -> Option<u64> {
        let Reverse((end_ns, chunk)) = self.programming.pop()?;
        self.used_pages = self.used_pages.saturating_sub(u64::from(chunk_pages));
        // The chunk may have been erased and programmed again since; then only the later completion counts.
        if self.ends_ns.get(&chunk) == Some(&end_ns) {
            self.ends_ns.remove(&chunk);
        }
        Some(end_ns)
    }
}

impl CollectionBacklog {
    #[inline]
    fn is_clear(&self) -> bool {
        self.reads.left + self.programs.left + self.erases.left == 0
    }

    /// The next die to work. Work is spread evenly over the dies, because units are stripes.
    fn advance_die(&mut self, dies: usize) -> usize {
        let die = self.next_die;
        self.next_die = if die + 1 == dies { 0 } else { die + 1 };
        die
    }
}

impl Work {
    /// Adds work that is due by the time when the host has written `pages` pages.
    fn add(&mut self, work: u64, pages: u32) {
        self.left += work;
        self.spread_over(pages);
    }

    /// Adds fractions of a unit of work; `parts_per_unit` of them make one.
    #[inline]
    fn add_parts(&mut self, parts: u64, parts_per_unit: u64) {
        self.parts += parts;
        while self.parts >= parts_per_unit {
            self.parts -= parts_per_unit;
            self.left += 1;
        }
    }

    fn spread_over(&mut self, pages: u32) {
        self.per_page = self.left as f64 / f64::from(pages);
    }

    /// Removes and counts the units of work that are due with `pages` pages.
    #[inline]
    fn take_due(&mut self, pages: u32) -> u64 {
        self.due += self.per_page * f64::from(pages);
        let pieces = (self.due as u64).min(self.left);
        self.left -= pieces;
        // Work done before it was due is subtracted from the work that is due next.
        self.due = if self.left > 0 { self.due - pieces as f64 } else { 0.0 };
        pieces
    }

    fn take_one(&mut self) -> bool {
        let is_there = self.left > 0;
        self.left -= u64::from(is_there);
        is_there
    }
}

impl Figures {
    fn new(card: &Card, shape: &Shape) -> Self {
        let nand = &card.nand;
        let page_bytes = u64::from(shape.page_bytes);
        let whole = (nand.program_bytes() / page_bytes).max(1);
        // A unit of a scaled drive may not divide into chunks of this size; smaller ones then take less time.
        let chunk_pages = (1..=whole.min(u64::from(shape.unit_pages)))
            .rev()
            .find(|pages| u64::from(shape.unit_pages).is_multiple_of(*pages))
            .unwrap_or(1)
            .max(2) as u32;
        let channel = nand.channel_bytes_per_second;
        let nand_page_bytes = u64::from(nand.page_bytes);
        let nand_pages_per_page = (page_bytes / nand_page_bytes).max(1);
        // A mapping page larger than one program or sense operation takes several operations.
        let chunk_bytes = u64::from(chunk_pages) * page_bytes;
        let page_reads = nand_pages_per_page.div_ceil(u64::from(nand.planes));
        let ceiling =
            |bytes_per_second, commands_per_second| Ceiling { bytes_per_second, commands_per_second };
        Self {
            read_ceiling: card
                .ceilings
                .as_ref()
                .map(|it| ceiling(it.sequential_read_bytes_per_second, it.random_read_iops)),
            write_ceiling: card
                .ceilings
                .as_ref()
                .map(|it| ceiling(it.sequential_write_bytes_per_second, it.random_write_iops)),
            chunk_pages,
            chunk_of: Divisor::new(chunk_pages),
            nand_page_shift: (nand_page_bytes / page_bytes).max(1).ilog2(),
            unit_bytes: u64::from(shape.unit_pages) * page_bytes,
            erase_bytes: u64::from(nand.planes) * nand.block_bytes,
            unit_pages: shape.unit_pages,
            read_ns: nand.read_ns,
            page_read_ns: nand.read_ns * page_reads,
            program_ns: (nand.program_ns * chunk_bytes / nand.program_bytes()).max(1),
            erase_ns: nand.erase_ns,
            suspend_ns: nand.suspend_ns,
            command_ns: card.controller.command_ns,
            chunk_transfer_ns: chunk_bytes * SECOND_NS / channel,
            planes: u64::from(nand.planes),
            nand_pages_per_page,
            planes_transfer_ns: u64::from(nand.planes) * nand_page_bytes * SECOND_NS / channel,
            page_transfer_ns: page_bytes * SECOND_NS / channel,
            link_bytes_per_second: card.controller.host_bytes_per_second,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches a regression: work done by idle dies is not subtracted from the work that is due, so the work of the
    /// next unit comes in one burst.
    #[test]
    fn work_done_while_idle_is_not_due_again() {
        let mut work = Work::default();
        work.add(100, 100);
        while work.take_one() {}
        assert_eq!((0..100).map(|_| work.take_due(1)).sum::<u64>(), 0, "nothing is left");
        work.add(100, 100);
        let due: Vec<u64> = (0..100).map(|_| work.take_due(1)).collect();
        assert_eq!((due.iter().max(), due.iter().sum()), (Some(&1), 100_u64));
    }
}
