//! Twins that look at every entry to find the victim.

use flashwright_policy::eviction::gdsf::Cost;
use flashwright_policy::{Entry, Eviction, HitRule, Slot};

struct Ranked {
    slot: Slot,
    weight: u32,
    frequency: u32,
    priority: f64,
    event: u64,
}

pub struct Gdsf {
    cost: Cost,
    inflation: f64,
    events: u64,
    entries: Vec<Ranked>,
}

impl Gdsf {
    pub fn new(cost: Cost) -> Self {
        Self { cost, inflation: 0.0, events: 0, entries: Vec::new() }
    }

    fn place(&self, slot: Slot) -> usize {
        self.entries.iter().position(|entry| entry.slot == slot).unwrap()
    }

    fn lowest(&self) -> Option<&Ranked> {
        let order = |a: &&Ranked, b: &&Ranked| a.priority.total_cmp(&b.priority).then(a.event.cmp(&b.event));
        self.entries.iter().min_by(order)
    }
}

impl Eviction for Gdsf {
    fn insert(&mut self, slot: Slot, Entry { weight, .. }: Entry, now_seconds: u32) {
        self.entries.push(Ranked { slot, weight, frequency: 0, priority: 0.0, event: 0 });
        self.hit(slot, now_seconds);
    }
    fn hit(&mut self, slot: Slot, _: u32) {
        self.events += 1;
        let place = self.place(slot);
        let entry = &mut self.entries[place];
        entry.frequency += 1;
        entry.event = self.events;
        entry.priority = match self.cost {
            Cost::Equal => self.inflation + f64::from(entry.frequency) * 1e6 / f64::from(entry.weight),
            Cost::Size => self.inflation + f64::from(entry.frequency),
        };
    }
    fn evict(&mut self, _: u32) -> Option<Slot> {
        let &Ranked { slot, priority, .. } = self.lowest()?;
        self.inflation = priority;
        self.remove(slot);
        Some(slot)
    }
    fn remove(&mut self, slot: Slot) {
        self.entries.remove(self.place(slot));
    }
    fn restore(&mut self, slot: Slot, entry: Entry, now_seconds: u32) {
        self.insert(slot, entry, now_seconds);
        self.hit(slot, now_seconds);
    }
    fn len(&self) -> usize {
        self.entries.len()
    }
    fn oldest(&self) -> Option<Slot> {
        self.lowest().map(|entry| entry.slot)
    }
    fn hit_rule(&self) -> HitRule {
        HitRule::Every
    }
    fn reweigh(&mut self, slot: Slot, weight: u32) {
        let place = self.place(slot);
        self.entries[place].weight = weight;
    }
}
