//! Blocks of the queue: the state of a region or of a virtual block.

/// An item that is added to a block.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counted {
    pub units: u32,
    /// Absolute priority of the item, if the policy uses one.
    pub worth: f64,
}

/// A region or a virtual block.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Block {
    /// Units of live items whose place is this block. A virtual block counts all items whose records name it, until they are raised again
    /// or removed, including items of regions deferred since.
    pub own: u64,
    /// Regions only: units of live items whose place is a virtual block.
    pub moved: u32,
    /// A time of the queue's logical clock. Virtual block: when it began. Region: when it was last deferred, 0 for never; the place of its
    /// items with older ranks is then the region again.
    pub since: u64,
    /// The block's section.
    pub section: u8,
    pub stage: Stage,
    /// Regions only: sum of the levels that items were raised to since the region was written or deferred, and the number of raises.
    pub raised_levels: u32,
    pub raises: u32,
    worth_sum: f64,
    worth_units: f64,
}

/// The state of a block that a restart needs in addition to its items.
#[derive(Debug, Clone, Copy)]
pub(super) struct SavedBlock {
    pub worth: f64,
    pub since: u64,
    pub raised_levels: u32,
    pub raises: u32,
}

/// The stage of a block in the queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Stage {
    /// A clean region, or a virtual block to which no item refers.
    #[default]
    Absent,
    /// At the head of its section: being filled.
    Open,
    /// In the queue of its section.
    Queued,
    /// Out of the queue: a region that is being reclaimed, or a virtual block that reached the end while items named it.
    Gone,
}

impl Block {
    /// A block that is being filled.
    pub fn open(section: u8, since: u64) -> Self {
        Self { section, since, stage: Stage::Open, ..Self::default() }
    }

    /// Whether the block counts towards the weight of its section.
    pub fn counts(&self) -> bool {
        matches!(self.stage, Stage::Open | Stage::Queued)
    }

    /// The weight of a virtual block in its section: the units of its items.
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

    /// Adds an item's priority to the mean.
    pub fn note(&mut self, item: Counted) {
        self.worth_sum += item.worth * f64::from(item.units);
        self.worth_units += f64::from(item.units);
    }

    /// The mean priority, by units, of all items ever placed here.
    pub fn worth(&self) -> f64 {
        if self.worth_units > 0.0 { self.worth_sum / self.worth_units } else { 0.0 }
    }

    /// The state that a restart needs in addition to the items.
    pub fn memo(&self) -> SavedBlock {
        SavedBlock {
            worth: self.worth(),
            since: self.since,
            raised_levels: self.raised_levels,
            raises: self.raises,
        }
    }

    /// A block restored in the queue; its items are added later.
    pub fn recalled(section: u8, memo: SavedBlock) -> Self {
        let SavedBlock { worth, since, raised_levels, raises } = memo;
        let mut block = Self { stage: Stage::Queued, raised_levels, raises, ..Self::open(section, since) };
        block.set_worth(worth);
        block
    }

    fn set_worth(&mut self, worth: f64) {
        (self.worth_sum, self.worth_units) = (worth, 1.0);
    }
}
