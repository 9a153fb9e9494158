//! A region store without data, which gives the hit ratio and the bytes written of a region policy.
//!
//! It calls the same policy in the same order, with object numbers instead of entries, so a request costs tens of nanoseconds. The
//! store's background work runs immediately after each request.

use std::collections::VecDeque;

use ::policy::simulate::{Access, Counts, Simulator};

use super::config::{RegionConfig, RegionConfigError};
use super::entry::{HEADER_BYTES, MAX_HITS};
use super::index::MAX_WIDE_HITS;
use super::layout::{Layout, RegionId, SizeHint};
use super::policy::{Needs, Placing, PolicyCounts, Rank, RegionPolicy, Resident, build};
use super::reclaim::ReinsertionBudget;
use super::{InsertionPoint, table};
use crate::KeyHash;

/// See the module.
pub struct DryStore {
    policy: Box<dyn RegionPolicy>,
    needs: Needs,
    layout: Layout,
    packing: Packing,
    /// Regions to keep clean.
    clean_target: usize,
    /// The state of each object, by its number.
    index: Vec<Option<Held>>,
    regions: Vec<Region>,
    open: Vec<Option<RegionId>>,
    clean: VecDeque<RegionId>,
    sealed: VecDeque<RegionId>,
    next_sequence: u64,
    fruitless: u32,
    since_new: u32,
    counts: Counts,
    /// Regions in the order in which they were written, if recorded.
    written: Option<Vec<RegionId>>,
}

/// How much of a region an object occupies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// The object's bytes.
    Bare,
    /// The object's bytes; an object may cross the end of a region into the next one. For scaled-down regions: photos leave almost
    /// nothing of 64 MiB unused, but a tenth of 256 KiB.
    Seamless,
    /// As in the store: header, rounding to units, and a record in the region's table. The object's bytes are key and value.
    Entries,
}

/// The location of an object.
#[derive(Clone, Copy)]
struct Held {
    region: RegionId,
    slot: u32,
    units: u32,
    hits: u8,
    rank: Rank,
    bytes: u32,
}

#[derive(Default)]
struct Region {
    objects: Vec<u32>,
    units: u32,
    /// Units at the start that belong to an object of the previous region.
    overhang_units: u32,
    sequence: u64,
    point: u8,
}

impl DryStore {
    /// An empty store. It takes the configuration of a real store and ignores the settings that concern the device's blocks.
    ///
    /// # Errors
    /// As [`RegionStore::create`](super::RegionStore::create).
    pub fn new(config: &RegionConfig, packing: Packing) -> Result<Self, RegionConfigError> {
        let checked = RegionConfig { max_write_bytes: config.region_bytes, ..config.clone() };
        let geometry = device::Geometry {
            capacity_bytes: config.offset_bytes + config.capacity_bytes,
            block_bytes: 1,
            max_io_bytes: config.region_bytes,
            indirection_bytes: 1,
            placement_handles: 0,
            buffered: false,
        };
        let mut layout = checked.check(&geometry)?;
        if packing != Packing::Entries {
            layout.unit_bytes = 1;
        }
        let policy = build(config, &layout);
        Ok(Self {
            needs: policy.needs(),
            policy,
            packing,
            clean_target: config.clean_regions as usize + super::store::reserve(config),
            index: Vec::new(),
            regions: (0..layout.region_count).map(|_| Region::default()).collect(),
            open: vec![None; config.points()],
            clean: (0..layout.region_count).map(RegionId).collect(),
            sealed: VecDeque::new(),
            next_sequence: 1,
            fruitless: 0,
            since_new: 0,
            counts: Counts::default(),
            written: None,
            layout,
        })
    }

    /// Requests an object and inserts it on a miss. Returns whether it was a hit.
    pub fn request(&mut self, object: u32, bytes: u32) -> bool {
        self.counts.requests += 1;
        self.counts.weight += u64::from(bytes);
        let hit = self.read(object);
        if hit {
            self.counts.hits += 1;
            self.counts.hit_weight += u64::from(bytes);
        } else {
            self.insert(object, bytes);
        }
        hit
    }

    /// Reads an object. Returns whether it was a hit.
    pub fn read(&mut self, object: u32) -> bool {
        let most_hits = if self.needs.items { MAX_WIDE_HITS } else { MAX_HITS };
        let Some(held) = self.index.get_mut(object as usize).and_then(Option::as_mut) else { return false };
        held.hits = held.hits.saturating_add(1).min(most_hits);
        if self.needs.hits {
            let item = held.resident();
            if let Some(raise) = self.policy.hit(&item) {
                held.rank = raise.rank;
                self.policy.raised(&item, raise);
            }
        }
        true
    }

    /// Removes an object.
    pub fn remove(&mut self, object: u32) {
        if let Some(held) = self.index.get_mut(object as usize).and_then(Option::take)
            && self.needs.items
        {
            self.policy.left(&held.resident());
        }
    }

    /// Inserts an object. An object larger than a region is ignored.
    pub fn insert(&mut self, object: u32, bytes: u32) {
        let units = self.units(bytes);
        if !self.fits(&Region::default(), units) {
            return;
        }
        if object as usize >= self.index.len() {
            self.index.resize(object as usize + 1, None);
        }
        let placing = if self.needs.items { self.policy.arrival(hinted(units)) } else { Placing::LOWEST };
        let point = self.point(placing);
        let region = self.room_at(point, units).expect("regions are clean between requests");
        self.since_new = 0;
        self.counts.inserts += 1;
        self.counts.insert_weight += u64::from(bytes);
        let new = Held { region, slot: 0, units, hits: 0, rank: Rank::NONE, bytes };
        self.put(object, placing, new);
        self.settle();
    }

    fn put(&mut self, object: u32, placing: Placing, mut new: Held) {
        let region = &mut self.regions[new.region.0 as usize];
        new.slot = u32::try_from(region.objects.len()).expect("a region has less than 2^32 entries");
        region.objects.push(object);
        region.units += new.units;
        self.counts.written_weight += u64::from(new.bytes);
        if self.needs.items {
            new.rank =
                self.policy.enter(new.region, InsertionPoint(region.point), placing, hinted(new.units));
        }
        if let Some(before) = self.index[object as usize].replace(new)
            && self.needs.items
        {
            self.policy.left(&before.resident());
        }
    }

    /// The open region of an insertion point, if the units fit; otherwise closes it and opens a clean one.
    fn room_at(&mut self, point: u8, units: u32) -> Option<RegionId> {
        let at = usize::from(point);
        let mut overhang_units = 0;
        if let Some(region) = self.open[at] {
            if self.fits(&self.regions[region.0 as usize], units) {
                return Some(region);
            }
            overhang_units = self.overhang(&self.regions[region.0 as usize]);
            self.sealed.push_back(region);
            self.open[at] = None;
        }
        let region = self.clean.pop_front()?;
        self.regions[region.0 as usize] =
            Region { overhang_units, sequence: self.next_sequence, point, ..Region::default() };
        self.next_sequence += 1;
        self.open[at] = Some(region);
        Some(region)
    }

    /// The store's background work: flushes full regions and reclaims others.
    fn settle(&mut self) {
        self.flush();
        while self.clean.len() < self.clean_target
            && let Some(region) = self.policy.victim()
        {
            self.reclaim(region);
            self.flush();
        }
    }

    fn flush(&mut self) {
        while let Some(region) = self.sealed.pop_front() {
            let point = self.regions[region.0 as usize].point;
            if let Some(written) = &mut self.written {
                written.push(region);
            }
            self.policy.written(region, InsertionPoint(point));
        }
    }

    fn reclaim(&mut self, region: RegionId) {
        let Region { objects, sequence, .. } = std::mem::take(&mut self.regions[region.0 as usize]);
        let mut room = ReinsertionBudget::after(self.layout, self.needs, self.fruitless, self.since_new);
        self.since_new += 1;
        let mut kept = Vec::new();
        for (&object, slot) in objects.iter().zip(0_u32..) {
            let Some(held) = self.index[object as usize].filter(|held| held.is_at(region, slot)) else {
                continue;
            };
            let hash = KeyHash::of(&object.to_le_bytes());
            let keep = self.policy.survives(&held.resident(), hash, sequence.rotate_left(32));
            match keep.filter(|_| room.take(held.units)) {
                Some(placing) => kept.push((object, slot, placing)),
                None => self.remove(object),
            }
        }
        self.fruitless = if room.is_fruitless() { self.fruitless + 1 } else { 0 };
        for (object, slot, placing) in kept {
            self.again(object, placing, region, slot);
        }
        self.clean.push_back(region);
    }

    fn again(&mut self, object: u32, placing: Placing, region: RegionId, slot: u32) {
        let held = self.index[object as usize].filter(|held| held.is_at(region, slot));
        let held = held.expect("nothing happens during a reclaim");
        let point = self.point(placing);
        let room = self.room_at(point, held.units).or_else(|| {
            self.flush();
            self.room_beside(held.units)
        });
        match room {
            Some(region) => {
                let hits = if self.needs.items { held.hits } else { 0 };
                self.put(object, placing, Held { region, hits, rank: Rank::NONE, ..held });
            }
            None => self.remove(object),
        }
    }

    /// Units of a region that extend past its end; 0 unless the packing is seamless.
    fn overhang(&self, region: &Region) -> u32 {
        let region_units = self.layout.region_bytes / self.layout.unit_bytes;
        (region.units + region.overhang_units).saturating_sub(region_units)
    }

    fn room_beside(&self, units: u32) -> Option<RegionId> {
        let has_room = |region: &RegionId| self.fits(&self.regions[region.0 as usize], units);
        self.open.iter().flatten().copied().find(has_room)
    }

    fn point(&self, placing: Placing) -> u8 {
        placing.level.min(u8::try_from(self.open.len() - 1).expect("few points"))
    }

    fn units(&self, bytes: u32) -> u32 {
        match self.packing {
            Packing::Bare | Packing::Seamless => bytes,
            Packing::Entries => self.layout.units(HEADER_BYTES + bytes as usize),
        }
    }

    fn fits(&self, region: &Region, units: u32) -> bool {
        if self.packing == Packing::Seamless {
            // A unit is a byte. The part past the end occupies the start of the next region.
            let region_bytes = self.layout.region_bytes;
            return units <= region_bytes && region.units + region.overhang_units < region_bytes;
        }
        let end = (u64::from(region.units) + u64::from(units)) * u64::from(self.layout.unit_bytes);
        let table_bytes = match self.packing {
            Packing::Bare | Packing::Seamless => 0,
            Packing::Entries => table::table_bytes(region.objects.len() + 1) as u64,
        };
        end + table_bytes <= u64::from(self.layout.region_bytes)
    }

    /// The regions written since the last call, in order, as a drive would receive them. The first call starts the recording.
    pub fn take_written(&mut self) -> Vec<RegionId> {
        self.written.replace(Vec::new()).unwrap_or_default()
    }

    /// Counters of the policy.
    #[must_use]
    pub fn policy_counts(&self) -> PolicyCounts {
        self.policy.policy_counts()
    }
}

impl Held {
    fn resident(&self) -> Resident {
        Resident { region: self.region, rank: self.rank, hits: self.hits, units: hinted(self.units) }
    }

    fn is_at(&self, region: RegionId, slot: u32) -> bool {
        self.region == region && self.slot == slot
    }
}

/// The units as the store's index records them, rounded up.
fn hinted(units: u32) -> u32 {
    SizeHint::of_units(units).units()
}

impl Simulator for DryStore {
    fn run(&mut self, accesses: &[Access], _next_uses: &[u64]) {
        for access in accesses {
            if access.is_removal {
                self.remove(access.object);
            } else {
                self.request(access.object, access.weight);
            }
        }
    }

    fn counts(&self) -> Counts {
        self.counts
    }

    fn holds(&self, object: u32) -> bool {
        self.index.get(object as usize).is_some_and(Option::is_some)
    }

    fn expire(&mut self, object: u32) {
        self.remove(object);
    }
}
