//! The queue of blocks, divided into sections.

use std::collections::VecDeque;

use super::super::RegionId;
use super::super::policy::Rank;
use super::blocks::{Block, Counted, SavedBlock, Stage};

/// A block identified by its kind and number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum BlockId {
    Region(RegionId),
    Virtual(Rank),
}

/// A section of the queue.
#[derive(Debug)]
struct Section {
    /// Queued blocks, the nearest to the end first.
    line: VecDeque<BlockId>,
    /// Weight of the blocks, including those being filled.
    units: u64,
    /// The virtual block at the head, if there is one.
    active: Rank,
}

impl Section {
    fn new() -> Self {
        Self { line: VecDeque::new(), units: 0, active: Rank::NONE }
    }
}

/// See the module.
pub(super) struct Queue {
    /// The lowest section first.
    sections: Vec<Section>,
    regions: Vec<Block>,
    /// Indexed by rank; entry 0, for no rank, is unused.
    virtuals: Vec<Block>,
    /// Ranks that were used and are free.
    free: Vec<Rank>,
    most_ranks: usize,
    /// Queued virtual blocks to which no item refers.
    idle: usize,
    region_units: u32,
    /// Units that fill a virtual block.
    virtual_units: u64,
    /// Number of queued regions.
    len: usize,
    /// A logical clock: advances with each virtual block begun and each deferral. Starts at 1, because a `since` of 0 means never deferred.
    begun: u64,
    /// Whether priorities are absolute: blocks are then ordered by priority and also move towards the head.
    is_absolute: bool,
    #[cfg(test)]
    pub sweeps: usize,
}

/// Limits of virtual blocks: per region, and in addition. They begin as large as regions and shrink as their items are raised further;
/// the limit bounds the state that a restart needs.
const RANKS_PER_REGION: usize = 16;
const RANKS_BESIDE: usize = 16;

/// Full virtual blocks of all regions, at most; with more regions, virtual blocks are larger. Half the number of ranks: if no rank were
/// left, the last block would take all raised items, and none would age.
const MOST_FULL_VIRTUALS: u64 = 1 << 15;

/// A virtual block that holds at least this fraction (1/8) of its capacity is closed early when a region is written next to it.
const LEAST_SHARE: u64 = 8;

impl Queue {
    pub fn new(sections: u8, regions: usize, region_units: u32, is_absolute: bool) -> Self {
        Self {
            sections: (0..sections).map(|_| Section::new()).collect(),
            regions: vec![Block::default(); regions],
            virtuals: vec![Block::default()],
            free: Vec::new(),
            most_ranks: (RANKS_PER_REGION * regions + RANKS_BESIDE).min(usize::from(u16::MAX)),
            idle: 0,
            region_units,
            virtual_units: u64::from(region_units)
                .max(regions as u64 * u64::from(region_units) / MOST_FULL_VIRTUALS),
            len: 0,
            begun: 1,
            is_absolute,
            #[cfg(test)]
            sweeps: 0,
        }
    }

    /// Number of queued regions.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn region(&self, region: RegionId) -> &Block {
        &self.regions[region.0 as usize]
    }

    fn block(&self, id: BlockId) -> &Block {
        match id {
            BlockId::Region(region) => &self.regions[region.0 as usize],
            BlockId::Virtual(rank) => &self.virtuals[usize::from(rank.0)],
        }
    }

    /// The weight of a block in its section.
    fn weight(&self, id: BlockId) -> u64 {
        match id {
            BlockId::Region(_) => self.block(id).region_weight(self.region_units),
            BlockId::Virtual(_) => self.block(id).virtual_weight(),
        }
    }

    /// Changes a block and updates the weight of its section.
    fn change<T>(&mut self, id: BlockId, change: impl FnOnce(&mut Block) -> T) -> T {
        let (before, section_before) = (self.weight(id), self.block(id).section);
        let was_idle = self.is_idle(id);
        let block = match id {
            BlockId::Region(region) => &mut self.regions[region.0 as usize],
            BlockId::Virtual(rank) => &mut self.virtuals[usize::from(rank.0)],
        };
        let answer = change(block);
        let section = block.section;
        self.sections[usize::from(section_before)].units -= before;
        self.sections[usize::from(section)].units += self.weight(id);
        self.idle = self.idle + usize::from(self.is_idle(id)) - usize::from(was_idle);
        answer
    }

    /// Whether a block is a queued virtual one to which no item refers.
    fn is_idle(&self, id: BlockId) -> bool {
        matches!(id, BlockId::Virtual(_)) && self.block(id).stage == Stage::Queued && self.block(id).own == 0
    }

    /// The block that determines an item's position in the queue: its virtual block, or the region that holds it.
    fn place(&self, region: RegionId, rank: Rank) -> BlockId {
        if rank.is_none() || self.is_stale(region, rank) {
            BlockId::Region(region)
        } else {
            BlockId::Virtual(rank)
        }
    }

    /// Whether the region was deferred since the item got its rank.
    fn is_stale(&self, region: RegionId, rank: Rank) -> bool {
        let deferred = self.region(region).since;
        deferred > 0 && self.block(BlockId::Virtual(rank)).since <= deferred
    }

    /// Starts to fill a clean region for this section. A region that is lost before its write may be filled again for another section.
    pub fn begin(&mut self, region: RegionId, section: u8) {
        self.change(BlockId::Region(region), |block| {
            let is_empty = block.stage == Stage::Open && block.own == 0 && block.moved == 0;
            if matches!(block.stage, Stage::Absent | Stage::Gone) || is_empty {
                *block = Block::open(section, 0);
            }
        });
    }

    /// Adds an item of `region` to its block. A virtual block that is full moves into the queue.
    pub fn add(&mut self, region: RegionId, rank: Rank, item: Counted) {
        self.count(region, rank, item.units);
        let place = self.place(region, rank);
        self.change(place, |block| block.note(item));
        if rank.is_none() {
            return;
        }
        let Block { own, section, .. } = *self.block(BlockId::Virtual(rank));
        let block = &mut self.regions[region.0 as usize];
        block.raised_levels += u32::from(section);
        block.raises += 1;
        if own >= self.virtual_units {
            self.seal(rank);
            self.balance();
        }
    }

    fn count(&mut self, region: RegionId, rank: Rank, units: u32) {
        let is_stale = !rank.is_none() && self.is_stale(region, rank);
        if rank.is_none() || is_stale {
            self.change(BlockId::Region(region), |block| block.own += u64::from(units));
        } else {
            self.change(BlockId::Region(region), |block| block.moved += units);
        }
        if !rank.is_none() {
            self.change(BlockId::Virtual(rank), |block| block.own += u64::from(units));
        }
    }

    /// Removes an item of `region` from its block.
    pub fn take(&mut self, region: RegionId, rank: Rank, units: u32) {
        match self.place(region, rank) {
            BlockId::Region(_) => {
                self.change(BlockId::Region(region), |block| block.own -= u64::from(units));
            }
            BlockId::Virtual(_) => self.change(BlockId::Region(region), |block| block.moved -= units),
        }
        if rank.is_none() {
            return;
        }
        let id = BlockId::Virtual(rank);
        self.change(id, |block| block.own -= u64::from(units));
        if self.block(id).own == 0 && self.block(id).stage == Stage::Gone {
            self.release(rank);
        }
    }

    /// The section of an item's block. 0 if the block has left the queue.
    pub fn section_of(&self, region: RegionId, rank: Rank) -> u8 {
        let block = self.block(self.place(region, rank));
        if block.counts() { block.section } else { 0 }
    }

    /// Whether an item's block is at the head of its section.
    pub fn is_at_head(&self, region: RegionId, rank: Rank) -> bool {
        self.block(self.place(region, rank)).stage == Stage::Open
    }

    /// Section and priority of an item's virtual block, if it has one that is in the queue.
    pub fn virtual_place(&self, region: RegionId, rank: Rank) -> Option<(u8, f64)> {
        let place = self.place(region, rank);
        let block = self.block(place);
        (matches!(place, BlockId::Virtual(_)) && block.counts()).then(|| (block.section, block.worth()))
    }

    /// The virtual block at the head of a section. Without a free rank, [`Rank::NONE`].
    pub fn active(&mut self, section: u8) -> Rank {
        let at = usize::from(section);
        if self.sections[at].active.is_none()
            && let Some(rank) = self.free_rank()
        {
            self.begun += 1;
            self.virtuals[usize::from(rank.0)] = Block::open(section, self.begun);
            self.sections[at].active = rank;
        }
        self.sections[at].active
    }

    fn free_rank(&mut self) -> Option<Rank> {
        if self.free.is_empty() && self.virtuals.len() > self.most_ranks {
            self.sweep();
        }
        self.free.pop().or_else(|| {
            let rank = u16::try_from(self.virtuals.len()).ok().map(Rank)?;
            (self.virtuals.len() <= self.most_ranks).then(|| self.virtuals.push(Block::default()))?;
            Some(rank)
        })
    }

    /// Removes virtual blocks to which no item refers from the queue. They have no weight, so this is done only when ranks run short, and
    /// only if there are any, since it visits the whole queue.
    fn sweep(&mut self) {
        if self.idle == 0 {
            return;
        }
        #[cfg(test)]
        {
            self.sweeps += 1;
        }
        self.idle = 0;
        for section in &mut self.sections {
            section.line.retain(|&id| match id {
                BlockId::Virtual(rank) if self.virtuals[usize::from(rank.0)].own == 0 => {
                    self.virtuals[usize::from(rank.0)] = Block::default();
                    self.free.push(rank);
                    false
                }
                _ => true,
            });
        }
    }

    fn release(&mut self, rank: Rank) {
        self.virtuals[usize::from(rank.0)] = Block::default();
        self.free.push(rank);
    }

    /// Moves the virtual block into the queue; the next raise begins another one.
    fn seal(&mut self, rank: Rank) {
        if self.free.is_empty() && self.virtuals.len() > self.most_ranks {
            self.sweep();
        }
        // The last rank continues to take raised items.
        let is_last = self.free.is_empty() && self.virtuals.len() > self.most_ranks;
        let id = BlockId::Virtual(rank);
        if self.block(id).stage != Stage::Open || is_last {
            return;
        }
        self.change(id, |block| block.stage = Stage::Queued);
        let at = usize::from(self.block(id).section);
        self.sections[at].active = Rank::NONE;
        self.line_up(id);
    }

    /// Inserts a block into its section: at the head, or with absolute priorities behind the blocks of higher mean. At the head, its
    /// items would lie above all others of the section, half a section too high on average. That is worst in the lowest section, where
    /// the least valuable items would stay until the whole section is evicted.
    fn line_up(&mut self, id: BlockId) {
        let section = usize::from(self.block(id).section);
        let worth = self.block(id).worth();
        let is_above = |other: BlockId| self.is_absolute && self.block(other).worth() > worth;
        let line = &self.sections[section].line;
        let above = line.iter().rev().take_while(|&&other| is_above(other)).count();
        let at = line.len() - above;
        self.sections[section].line.insert(at, id);
    }

    /// Moves the virtual block at the head of a section into the queue, unless it has no items. No item refers to the entry of
    /// [`Rank::NONE`].
    fn seal_active(&mut self, section: usize) {
        let active = self.sections[section].active;
        if self.block(BlockId::Virtual(active)).own > 0 {
            self.seal(active);
        }
    }

    /// Adds a written region at the head of a section.
    pub fn join(&mut self, region: RegionId, section: u8) {
        self.begin(region, section);
        // Items raised to this section before are older than those raised from now on.
        let active = self.sections[usize::from(section)].active;
        if self.block(BlockId::Virtual(active)).own >= self.virtual_units / LEAST_SHARE {
            self.seal_active(usize::from(section));
        }
        self.enter_section(region, usize::from(section));
        self.line_up(BlockId::Region(region));
        self.balance();
    }

    /// The region nearest to the end. Virtual blocks between it and the end are removed: their items have the lowest priority of all.
    pub fn last_region(&mut self) -> Option<RegionId> {
        for section in 0..self.sections.len() {
            while let Some(&first) = self.sections[section].line.front() {
                match first {
                    BlockId::Region(region) => return Some(region),
                    BlockId::Virtual(rank) => self.drop_virtual(section, rank),
                }
            }
        }
        None
    }

    fn drop_virtual(&mut self, section: usize, rank: Rank) {
        self.sections[section].line.pop_front();
        self.change(BlockId::Virtual(rank), |block| block.stage = Stage::Gone);
        if self.virtuals[usize::from(rank.0)].own == 0 {
            self.release(rank);
        }
    }

    /// Up to `most` regions, starting at the end of the queue.
    pub fn last_regions(&self, most: usize) -> impl Iterator<Item = RegionId> {
        let region = |id: &BlockId| match *id {
            BlockId::Region(region) => Some(region),
            BlockId::Virtual(_) => None,
        };
        self.sections.iter().flat_map(|section| &section.line).filter_map(region).take(most)
    }

    /// The queued region with the most dead units, and their number.
    pub fn deadest(&self) -> Option<(u64, RegionId)> {
        let dead = |region: RegionId| {
            let block = self.region(region);
            u64::from(self.region_units).saturating_sub(block.own + u64::from(block.moved))
        };
        self.last_regions(usize::MAX).map(|region| (dead(region), region)).max()
    }

    /// Removes a region from the queue for its reclaim. Its items keep their places until they are removed.
    pub fn leave(&mut self, region: RegionId) {
        self.unlink(region);
        self.balance();
    }

    fn unlink(&mut self, region: RegionId) {
        let id = BlockId::Region(region);
        let line = &mut self.sections[usize::from(self.regions[region.0 as usize].section)].line;
        let at = line.iter().position(|&other| other == id);
        line.remove(at.expect("a region in line is in its section"));
        self.change(id, |block| block.stage = Stage::Gone);
        self.len -= 1;
    }

    fn link(&mut self, region: RegionId, section: usize, push: fn(&mut VecDeque<BlockId>, BlockId)) {
        self.enter_section(region, section);
        push(&mut self.sections[section].line, BlockId::Region(region));
    }

    /// Assigns a region to a section, before it is inserted into the section's queue.
    fn enter_section(&mut self, region: RegionId, section: usize) {
        self.change(BlockId::Region(region), |block| {
            block.section = u8::try_from(section).expect("at most 16 sections");
            block.stage = Stage::Queued;
        });
        self.len += 1;
    }

    /// Moves a region, with all its items, to the head of the section that its items were raised to on average. Only items that are read
    /// later get other places.
    pub fn defer(&mut self, region: RegionId) {
        for section in 0..self.sections.len() {
            self.seal_active(section);
        }
        self.unlink(region);
        let begun = self.begun;
        let block = &mut self.regions[region.0 as usize];
        block.own += u64::from(std::mem::take(&mut block.moved));
        block.since = begun;
        let levels = std::mem::take(&mut block.raised_levels);
        let section = levels / std::mem::take(&mut block.raises).max(1);
        // Empty virtual blocks were not sealed; items raised to them from now on count as newer than the deferral.
        for section in &self.sections {
            if !section.active.is_none() {
                self.virtuals[usize::from(section.active.0)].since = begun + 1;
            }
        }
        self.begun += 1;
        self.link(region, section as usize, VecDeque::push_back);
        self.balance();
    }

    /// Returns a removed region to the end of the queue.
    pub fn return_to_end(&mut self, region: RegionId) {
        self.link(region, 0, VecDeque::push_front);
    }

    /// Moves blocks between sections so that no section exceeds its share by more than a block, and, if blocks also move up, no section
    /// is below its share by more.
    fn balance(&mut self) {
        let all = self.sections.iter().map(|section| section.units).sum();
        for section in (1..self.sections.len()).rev() {
            let share = self.share(section, all);
            while let Some(&first) = self.sections[section].line.front()
                && self.sections[section].units - self.weight(first) >= share
            {
                self.sections[section].line.pop_front();
                self.hand_over(first, section - 1);
                self.sections[section - 1].line.push_back(first);
            }
            if self.is_absolute {
                self.fill_up(section, share);
            }
        }
    }

    /// Units of `all` for a section. With absolute priorities lower sections are smaller: evictions are decided near the end, and an item
    /// placed one section too high stays too long by that whole section.
    fn share(&self, section: usize, all: u64) -> u64 {
        let sections = self.sections.len() as u64;
        if !self.is_absolute {
            return all / sections;
        }
        // The n-th from the end has n parts.
        let parts = sections * (sections + 1) / 2;
        all * (section as u64 + 1) / parts
    }

    fn fill_up(&mut self, section: usize, share: u64) {
        loop {
            let below = (0..section).rev().find(|&below| !self.sections[below].line.is_empty());
            let Some(below) = below else { return };
            let &last = self.sections[below].line.back().expect("not empty");
            if self.sections[section].units + self.weight(last) > share {
                return;
            }
            self.sections[below].line.pop_back();
            self.hand_over(last, section);
            self.sections[section].line.push_front(last);
        }
    }

    fn hand_over(&mut self, id: BlockId, to: usize) {
        self.change(id, |block| block.section = u8::try_from(to).expect("at most 16 sections"));
    }

    /// The highest section whose lower boundary is below an absolute priority. A boundary lies between the means of the two adjacent
    /// blocks.
    pub fn level_of_worth(&self, worth: f64) -> u8 {
        let mut below = 0.0;
        let mut level = 0;
        for (section, at) in self.sections.iter().zip(0_u8..) {
            if let Some(&first) = section.line.front() {
                let first = self.block(first).worth();
                if at > 0 && worth < f64::midpoint(below, first) {
                    break;
                }
                level = at;
            }
            if let Some(&last) = section.line.back() {
                below = self.block(last).worth();
            }
        }
        level
    }

    /// All queued regions with their sections, starting at the end.
    pub fn regions_in_order(&self) -> Vec<(RegionId, u8)> {
        let with_section = |region: RegionId| (region, self.region(region).section);
        self.last_regions(usize::MAX).map(with_section).collect()
    }

    /// Blocks of each section, starting at the end; the active virtual block last.
    pub fn blocks_in_order(&self) -> impl Iterator<Item = Vec<(BlockId, SavedBlock)>> {
        self.sections.iter().map(|section| {
            let active = (!section.active.is_none()).then_some(BlockId::Virtual(section.active));
            let with_memo = |id: BlockId| (id, self.block(id).memo());
            section.line.iter().copied().chain(active).map(with_memo).collect()
        })
    }

    /// The logical clock, for a snapshot.
    pub fn begun(&self) -> u64 {
        self.begun
    }

    /// Number of sections and of regions.
    pub fn shape(&self) -> (usize, usize) {
        (self.sections.len(), self.regions.len())
    }

    /// Restores the queue. [`reenter`](Self::reenter) then adds its blocks.
    pub fn recall(&mut self, begun: u64, sections: &[Vec<(BlockId, SavedBlock)>]) {
        self.begun = begun;
        for (at, blocks) in sections.iter().enumerate() {
            for &(id, memo) in blocks {
                if let BlockId::Virtual(rank) = id {
                    let needed = usize::from(rank.0) + 1;
                    self.virtuals.resize(self.virtuals.len().max(needed), Block::default());
                }
                let section = u8::try_from(at).expect("at most 16 sections");
                self.change(id, |block| *block = Block::recalled(section, memo));
                self.sections[at].line.push_back(id);
                self.len += usize::from(matches!(id, BlockId::Region(_)));
            }
        }
        let unused = |at: &usize| self.virtuals[*at].stage == Stage::Absent;
        self.free = (1..self.virtuals.len()).rev().filter(unused).map(|at| Rank(at as u16)).collect();
    }

    /// Adds an item again; its virtual block may have left the queue before the restart.
    pub fn reenter(&mut self, region: RegionId, rank: Rank, units: u32) -> Rank {
        let is_there = self.virtuals.get(usize::from(rank.0)).is_some_and(Block::counts);
        let rank = if is_there { rank } else { Rank::NONE };
        self.count(region, rank, units);
        rank
    }

    /// Restores the recovered regions. Regions that the saved queue lacks are added.
    pub fn restore(&mut self, regions: &[(RegionId, u8)]) {
        let mut there = vec![false; self.regions.len()];
        regions.iter().for_each(|(region, _)| there[region.0 as usize] = true);
        let lost = |region: &RegionId| !there[region.0 as usize];
        for region in self.last_regions(usize::MAX).filter(lost).collect::<Vec<_>>() {
            self.unlink(region);
        }
        let highest = self.sections.len() - 1;
        for &(region, level) in regions {
            if self.region(region).stage != Stage::Queued {
                self.link(region, usize::from(level).min(highest), VecDeque::push_back);
            }
        }
        self.balance();
    }

    /// Weight of the blocks of a section.
    #[cfg(test)]
    pub fn section_units(&self, section: usize) -> u64 {
        self.sections[section].units
    }

    /// Units of the fullest virtual block.
    #[cfg(test)]
    pub fn largest_virtual(&self) -> u64 {
        self.virtuals.iter().map(|block| block.own).max().unwrap_or(0)
    }

    pub fn memory_bytes(&self) -> usize {
        let blocks = self.regions.capacity() + self.virtuals.capacity();
        let line: usize = self.sections.iter().map(|section| section.line.capacity()).sum();
        blocks * size_of::<Block>() + line * size_of::<BlockId>() + self.free.capacity() * size_of::<Rank>()
    }
}
