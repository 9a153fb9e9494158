//! Blocks of the queue: the state of a region or of a virtual block.

/// An item on its way into a block.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counted {
    pub units: u32,
    /// Its absolute priority, where there is one.
    pub worth: f64,
}

/// A region or a virtual block.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Block {
    /// Units of live items whose place is here. A virtual block counts all whose records name it until they are raised again
    /// or leave, also those of regions that were deferred since.
    pub own: u64,
    /// Of a region: units of its live items whose place is a virtual block.
    pub moved: u32,
    /// Of a virtual block: when it began. Of a region: when it was last deferred; what its items' virtual blocks of before
    /// say does not count any more, their place is the region again. Counts virtual blocks.
    pub since: u64,
    /// Section that it belongs to.
    pub section: u8,
    pub stage: Stage,
    /// Of a region: levels that its items were raised to since it was written or deferred, and how often.
    pub raised_levels: u32,
    pub raises: u32,
    worth_sum: f64,
    worth_units: f64,
}

/// What a restart must know of a block beside its items.
#[derive(Debug, Clone, Copy)]
pub(super) struct Memo {
    pub worth: f64,
    pub since: u64,
    pub raised_levels: u32,
    pub raises: u32,
}

/// Where a block is in its life.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Stage {
    /// A clean region, or a virtual block to which no item refers.
    #[default]
    Absent,
    /// At the head of its section: being filled.
    Open,
    /// In line.
    Queued,
    /// At its end: a region that is being reclaimed, or a virtual block that fell off while items named it.
    Gone,
}

impl Block {
    /// A block that begins to be filled.
    pub fn open(section: u8, since: u64) -> Self {
        Self { section, since, stage: Stage::Open, ..Self::default() }
    }

    /// Whether it counts for its section.
    pub fn counts(&self) -> bool {
        matches!(self.stage, Stage::Open | Stage::Queued)
    }

    /// Units that a virtual block counts for in its section: those of its items.
    pub fn virtual_weight(&self) -> u64 {
        if self.counts() { self.own } else { 0 }
    }

    /// The weight of a region in its section in units: once it is written, all units but those of items that are placed elsewhere. Dead
    /// items count, since only a reclaim frees their space: otherwise regions of dead items would stay in an upper section permanently.
    pub fn region_weight(&self, region_units: u32) -> u64 {
        match self.stage {
            Stage::Open => self.own,
            Stage::Queued => u64::from(region_units.saturating_sub(self.moved)),
            Stage::Absent | Stage::Gone => 0,
        }
    }

    /// Takes note of the priority of an item that is given a place here.
    pub fn note(&mut self, item: Counted) {
        self.worth_sum += item.worth * f64::from(item.units);
        self.worth_units += f64::from(item.units);
    }

    /// The mean priority, by units, of all items that were given a place here.
    pub fn worth(&self) -> f64 {
        if self.worth_units > 0.0 { self.worth_sum / self.worth_units } else { 0.0 }
    }

    /// What a restart must know of it beside its items.
    pub fn memo(&self) -> Memo {
        Memo {
            worth: self.worth(),
            since: self.since,
            raised_levels: self.raised_levels,
            raises: self.raises,
        }
    }

    /// In line after a restart, before its items are back.
    pub fn recalled(section: u8, memo: Memo) -> Self {
        let Memo { worth, since, raised_levels, raises } = memo;
        let mut block = Self { stage: Stage::Queued, raised_levels, raises, ..Self::open(section, since) };
        block.set_worth(worth);
        block
    }

    fn set_worth(&mut self, worth: f64) {
        (self.worth_sum, self.worth_units) = (worth, 1.0);
    }
}
