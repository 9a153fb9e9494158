//! RIPQ: a priority queue on flash that is only ever written in whole blocks. Newcomers are appended to the open block of the
//! nearest of K insertion points. A hit writes nothing: it notes a higher place for the object, a virtual block, and
//! the object is moved there when the block that holds it is overwritten.
//!
//! Tang, Huang, Lloyd, Kumar, Li: "RIPQ: advanced photo caching on flash for Facebook", FAST'15, section 4; Zhou et al.: "The
//! Evolution of Advanced Caching in the Facebook CDN", Facebook Research, 2016, part III.
//!
//! The queue is K sections, each with an open block and an open virtual block at its head. A section that is over its
//! share of a K-th lets its last block fall to the head of the next one below, right behind that one's open blocks; the lowest has
//! what is left. With absolute priorities ([`OnTop::Gdsf`]) the sections also take blocks from below when they have too
//! few, so that each is a K-th of the queue. A block counts by what it is filled with, an open one too: the rests at the ends of
//! blocks of 64 MiB are nothing, and a model with smaller ones should not suffer from them.

use std::collections::VecDeque;

use super::blocks::{Block, Blocks};
use super::{FlashCache, Newcomer};

/// The caching policy on top of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnTop {
    /// Everything goes to the head.
    Lru,
    /// Segmented LRU of so many segments: newcomers come in at `1/segments`, a hit lifts by one segment.
    Slru(u8),
    /// Greedy-Dual-Size-Frequency: absolute priorities, mapped to places in the queue by what blocks hold.
    Gdsf,
}

/// A hit in GDSF is worth so much, over the weight: as in [`Gdsf`](crate::eviction::Gdsf).
const GDSF_COST: f64 = 1.0e6;
/// What GDSF knows of the queue are the means of few objects each, which vary: how much the latest counts where a section ends,
/// and at the tail, whose priority all newcomers begin with. A tail that only ever rose would be as high as the luckiest block.
const PASSING_COUNTS: f64 = 0.6;
const EVICTED_COUNT: f64 = 1.0 / 32.0;
/// No virtual block.
const NONE: u32 = u32::MAX;

/// The queue and what is on top of it.
pub struct Ripq {
    on_top: OnTop,
    capacity_weight: u64,
    blocks: Blocks,
    /// The lowest first.
    sections: Vec<Section>,
    /// Of each block and virtual block.
    places: Vec<Place>,
    virtual_places: Vec<Place>,
    free_virtual: Vec<u32>,
    objects: Vec<Standing>,
    /// Weight of all that is in blocks, live or not.
    physical_weight: u64,
    written_weight: u64,
    /// GDSF's L: the priority of what is evicted.
    inflation: f64,
    left: Vec<(u32, u32)>,
}

struct Section {
    open: Block,
    open_virtual: u32,
    /// The newest at the front.
    sealed: VecDeque<Stage>,
    /// Weight of all objects whose place is here.
    weight: u64,
    /// The absolute priority at its end: of the blocks that passed there, the latest counting most.
    least_priority: Option<f64>,
}

/// A block in the queue.
#[derive(Clone, Copy)]
enum Stage {
    Real(Block),
    Virtual(u32),
}

/// Where a block is in the queue.
#[derive(Clone, Copy, Default)]
struct Place {
    section: u8,
    /// Weight of the objects whose place this is: not of those that have a virtual block elsewhere.
    weight: u64,
    /// Of their absolute priorities: the sum over what came in, and how many those were.
    priorities: f64,
    count: u32,
}

/// An object in the queue.
#[derive(Clone, Copy)]
struct Standing {
    virtual_block: u32,
    weight: u32,
    frequency: u32,
    priority: f64,
}

const ABSENT: Standing = Standing { virtual_block: NONE, weight: 0, frequency: 0, priority: 0.0 };

impl Ripq {
    /// A queue with so many insertion points over blocks of this weight.
    ///
    /// # Panics
    /// If there are no insertion points.
    #[must_use]
    pub fn new(capacity_weight: u64, block_weight: u64, insertion_points: u8, on_top: OnTop) -> Self {
        assert!(insertion_points > 0, "a queue needs an insertion point");
        let mut queue = Self {
            on_top,
            capacity_weight,
            blocks: Blocks::new(block_weight.clamp(1, capacity_weight.max(1))),
            sections: Vec::new(),
            places: Vec::new(),
            virtual_places: Vec::new(),
            free_virtual: Vec::new(),
            objects: Vec::new(),
            physical_weight: 0,
            written_weight: 0,
            inflation: 0.0,
            left: Vec::new(),
        };
        for section in 0..insertion_points {
            let (open, open_virtual) = (queue.open_block(section), queue.open_virtual(section));
            queue.sections.push(Section {
                open,
                open_virtual,
                sealed: VecDeque::new(),
                weight: 0,
                least_priority: None,
            });
        }
        queue
    }

    fn top(&self) -> u8 {
        self.sections.len() as u8 - 1
    }

    /// The section at whose head something of relative priority `numerator / denominator` comes in: the lowest whose
    /// own priority is not below.
    fn section_at(&self, numerator: usize, denominator: usize) -> u8 {
        ((numerator * self.sections.len()).div_ceil(denominator) - 1) as u8
    }

    /// The section that an object is in, by its virtual block if it has one.
    fn section_of(&self, object: u32) -> u8 {
        self.place_of(object).section
    }

    fn place_of(&self, object: u32) -> &Place {
        match self.objects[object as usize].virtual_block {
            NONE => &self.places[self.blocks.home(object).expect("it is held") as usize],
            virtual_block => &self.virtual_places[virtual_block as usize],
        }
    }

    /// Takes an object's weight out of its place, and its virtual block from it.
    fn leave_place(&mut self, object: u32) {
        let Standing { virtual_block, weight, .. } = self.objects[object as usize];
        let home = self.blocks.home(object).expect("it is held");
        let place = match virtual_block {
            NONE => &mut self.places[home as usize],
            virtual_block => &mut self.virtual_places[virtual_block as usize],
        };
        place.weight -= u64::from(weight);
        self.sections[usize::from(place.section)].weight -= u64::from(weight);
        self.objects[object as usize].virtual_block = NONE;
    }

    /// Appends an object to a section's open block.
    fn append(&mut self, section: u8, object: u32) {
        let Standing { weight, priority, .. } = self.objects[object as usize];
        if !self.blocks.has_room(self.sections[usize::from(section)].open, weight) {
            self.seal(section);
        }
        let open = self.sections[usize::from(section)].open;
        self.blocks.append(open, object, weight);
        self.physical_weight += u64::from(weight);
        self.places[open as usize].add(weight, priority);
        self.sections[usize::from(section)].weight += u64::from(weight);
    }

    /// Notes a higher place for a held object. A place that is not higher, and the head of the section where it is already
    /// in an open block, change nothing.
    fn increase(&mut self, object: u32, section: u8) {
        let now = self.section_of(object);
        if section < now || (section == now && self.is_at_head(object, now)) {
            return;
        }
        self.leave_place(object);
        let Standing { weight, priority, .. } = self.objects[object as usize];
        let target = &mut self.sections[usize::from(section)];
        target.weight += u64::from(weight);
        let virtual_block = target.open_virtual;
        self.objects[object as usize].virtual_block = virtual_block;
        self.virtual_places[virtual_block as usize].add(weight, priority);
        if self.virtual_places[virtual_block as usize].weight >= self.blocks.block_weight {
            let next = self.open_virtual(section);
            let target = &mut self.sections[usize::from(section)];
            target.open_virtual = next;
            target.sealed.push_front(Stage::Virtual(virtual_block));
        }
        self.balance();
    }

    fn is_at_head(&self, object: u32, section: u8) -> bool {
        let Section { open, open_virtual, .. } = self.sections[usize::from(section)];
        match self.objects[object as usize].virtual_block {
            NONE => self.blocks.home(object) == Some(open),
            virtual_block => virtual_block == open_virtual,
        }
    }

    /// Writes a section's open block and opens another.
    fn seal(&mut self, section: u8) {
        let open = self.sections[usize::from(section)].open;
        self.written_weight += self.blocks.filled_weight(open);
        let next = self.open_block(section);
        let sealing = &mut self.sections[usize::from(section)];
        sealing.open = next;
        sealing.sealed.push_front(Stage::Real(open));
        self.balance();
    }

    /// Sections over their share let their last block fall; with absolute priorities those under it take one from below.
    fn balance(&mut self) {
        let all: u64 = self.sections.iter().map(|section| section.weight).sum();
        let is_absolute = self.on_top == OnTop::Gdsf;
        let count = self.sections.len() as u64;
        let share = if is_absolute { all / count } else { self.capacity_weight / count };
        for section in (1..=self.top()).rev() {
            let at = usize::from(section);
            while self.sections[at].weight > share
                && let Some(last) = self.sections[at].sealed.pop_back()
            {
                self.pass(last, at);
                self.move_to(last, section, section - 1);
                self.sections[at - 1].sealed.push_front(last);
            }
            while is_absolute
                && let Some(&first) = self.sections[at - 1].sealed.front()
                && self.sections[at].weight + self.place(first).weight <= share
            {
                self.sections[at - 1].sealed.pop_front();
                self.pass(first, at);
                self.move_to(first, section - 1, section);
                self.sections[at].sealed.push_back(first);
            }
        }
    }

    /// A block passes the end of a section.
    fn pass(&mut self, stage: Stage, section: usize) {
        if let Some(mean) = self.place(stage).mean_priority() {
            let least = &mut self.sections[section].least_priority;
            *least = Some(least.map_or(mean, |least| least + PASSING_COUNTS * (mean - least)));
        }
    }

    fn place(&self, stage: Stage) -> &Place {
        match stage {
            Stage::Real(block) => &self.places[block as usize],
            Stage::Virtual(block) => &self.virtual_places[block as usize],
        }
    }

    fn move_to(&mut self, stage: Stage, from: u8, to: u8) {
        let place = match stage {
            Stage::Real(block) => &mut self.places[block as usize],
            Stage::Virtual(block) => &mut self.virtual_places[block as usize],
        };
        place.section = to;
        let weight = place.weight;
        self.sections[usize::from(from)].weight -= weight;
        self.sections[usize::from(to)].weight += weight;
    }

    /// Delete-min: overwrites blocks from the tail until all fit.
    fn make_room(&mut self) {
        while self.physical_weight > self.capacity_weight {
            match self.last_block() {
                Some(block) => self.overwrite(block),
                None => self.seal_lowest(),
            }
        }
    }

    /// Takes the block nearest to the tail out of the queue. Virtual blocks on the way that nothing has its place in any more
    /// are dropped; most are like that, since what is behind them was overwritten before.
    fn last_block(&mut self) -> Option<Block> {
        for section in &mut self.sections {
            while let Some(Stage::Virtual(block)) = section.sealed.back().copied()
                && self.virtual_places[block as usize].weight == 0
            {
                section.sealed.pop_back();
                self.free_virtual.push(block);
            }
            let last = section.sealed.iter().rposition(|stage| matches!(stage, Stage::Real(_)));
            if let Some(Stage::Real(block)) = last.and_then(|last| section.sealed.remove(last)) {
                return Some(block);
            }
        }
        None
    }

    /// All blocks are open, and together more than fits: the lowest that holds something must go next.
    fn seal_lowest(&mut self) {
        let filled = |section: &Section| self.blocks.filled_weight(section.open) > 0;
        let lowest = self.sections.iter().position(filled).expect("more than nothing is held");
        self.seal(lowest as u8);
    }

    /// What is left in the block leaves, except what has a higher place: that is appended there.
    fn overwrite(&mut self, block: Block) {
        let mut left = std::mem::take(&mut self.left);
        self.physical_weight -= self.blocks.filled_weight(block);
        self.blocks.erase(block, &mut left);
        let (mut evicted, mut priorities) = (0_u32, 0.0);
        // All places are left before any is taken: the block itself may be opened again.
        left.retain_mut(|(object, weight_then_section)| {
            let standing = &mut self.objects[*object as usize];
            let (virtual_block, weight) = (standing.virtual_block, u64::from(*weight_then_section));
            let place = match virtual_block {
                NONE => &mut self.places[block as usize],
                virtual_block => &mut self.virtual_places[virtual_block as usize],
            };
            place.weight -= weight;
            self.sections[usize::from(place.section)].weight -= weight;
            standing.virtual_block = NONE;
            *weight_then_section = place.section.into();
            if virtual_block == NONE {
                evicted += 1;
                priorities += standing.priority;
                *standing = ABSENT;
            }
            virtual_block != NONE
        });
        left.iter().for_each(|&(object, section)| self.append(section as u8, object));
        self.left = left;
        if evicted > 0 {
            self.inflation += EVICTED_COUNT * (priorities / f64::from(evicted) - self.inflation);
        }
    }

    fn open_block(&mut self, section: u8) -> Block {
        let block = self.blocks.open();
        if block as usize >= self.places.len() {
            self.places.resize(block as usize + 1, Place::default());
        }
        self.places[block as usize] = Place { section, ..Place::default() };
        block
    }

    fn open_virtual(&mut self, section: u8) -> u32 {
        let block = self.free_virtual.pop().unwrap_or_else(|| {
            self.virtual_places.push(Place::default());
            self.virtual_places.len() as u32 - 1
        });
        self.virtual_places[block as usize] = Place { section, ..Place::default() };
        block
    }

    /// Notes the absolute priority of an object that was asked for once more; the section it belongs in by that.
    fn section_by_value(&mut self, object: u32) -> u8 {
        let standing = &mut self.objects[object as usize];
        standing.priority =
            self.inflation + f64::from(standing.frequency) * GDSF_COST / f64::from(standing.weight.max(1));
        let priority = standing.priority;
        let is_above = |section: &u8| {
            self.sections[usize::from(*section)].least_priority.is_some_and(|least| priority >= least)
        };
        (1..=self.top()).take_while(is_above).last().unwrap_or(0)
    }
}

impl Place {
    fn add(&mut self, weight: u32, priority: f64) {
        self.weight += u64::from(weight);
        self.priorities += priority;
        self.count += 1;
    }

    fn mean_priority(&self) -> Option<f64> {
        (self.count > 0).then(|| self.priorities / f64::from(self.count))
    }
}

impl FlashCache for Ripq {
    fn holds(&self, object: u32) -> bool {
        self.blocks.home(object).is_some()
    }

    fn hit(&mut self, object: u32) {
        self.objects[object as usize].frequency += 1;
        let section = match self.on_top {
            OnTop::Lru => self.top(),
            OnTop::Slru(segments) => {
                // Its segment by where it is, the priority of its section being that of its head.
                let (segments, sections) = (usize::from(segments), self.sections.len());
                let segment = ((usize::from(self.section_of(object)) + 1) * segments).div_ceil(sections);
                self.section_at((segment + 1).min(segments), segments)
            }
            OnTop::Gdsf => self.section_by_value(object),
        };
        self.increase(object, section);
    }

    fn insert(&mut self, newcomers: &[Newcomer]) {
        for &Newcomer { object, weight } in newcomers {
            if object as usize >= self.objects.len() {
                self.objects.resize(object as usize + 1, ABSENT);
            }
            self.objects[object as usize] = Standing { weight, frequency: 1, ..ABSENT };
            let section = match self.on_top {
                OnTop::Lru => self.top(),
                OnTop::Slru(segments) => self.section_at(1, segments.into()),
                OnTop::Gdsf => self.section_by_value(object),
            };
            self.append(section, object);
            self.make_room();
        }
    }

    fn remove(&mut self, object: u32) {
        self.leave_place(object);
        self.blocks.forget(object);
        self.objects[object as usize] = ABSENT;
    }

    fn written_weight(&self) -> u64 {
        self.written_weight
    }

    fn weight_at_most(&self) -> u64 {
        self.blocks.block_weight
    }
}

#[cfg(test)]
impl Ripq {
    /// Every weight that is kept as a sum, from scratch.
    pub(super) fn check(&self, held: &std::collections::BTreeMap<u32, u32>) {
        let mut sections = vec![0; self.sections.len()];
        for (&object, &weight) in held {
            assert!(self.holds(object), "object {object} is lost");
            assert_eq!(self.objects[object as usize].weight, weight);
            sections[usize::from(self.section_of(object))] += u64::from(weight);
        }
        let known: Vec<u64> = self.sections.iter().map(|section| section.weight).collect();
        assert_eq!(known, sections);
        let mut physical = 0;
        for (number, section) in self.sections.iter().enumerate() {
            physical += self.blocks.filled_weight(section.open);
            for stage in &section.sealed {
                assert_eq!(usize::from(self.place(*stage).section), number, "a block knows where it is");
                physical += match stage {
                    Stage::Real(block) => self.blocks.filled_weight(*block),
                    Stage::Virtual(_) => 0,
                };
            }
        }
        assert_eq!(self.physical_weight, physical);
        assert!(physical <= self.capacity_weight, "{physical} of {}", self.capacity_weight);
    }

    /// The section that a held object is in.
    pub(super) fn section(&self, object: u32) -> u8 {
        self.section_of(object)
    }
}
