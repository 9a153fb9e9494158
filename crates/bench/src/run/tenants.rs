//! What was counted of each tenant of a trace.
//!
//! A worker that meets the first request with a tenant opens a ledger, and from then on posts what it counted to it after
//! each request: the difference to what it had counted before. So a run without tenants pays for nothing, and
//! whoever reads the ledger finds what was counted up to the same moment between two requests, of all tenants and
//! in sum: what is left out as warm-up is so of both.

use std::sync::Arc;

use workload::Tenant;

use super::counts::{Counts, ratio};
use crate::tenants::{ByTenant, Sums};

/// What was counted of one tenant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TenantCounts {
    /// Requests of the workload that were done.
    pub ops: u64,
    /// Gets.
    pub gets: u64,
    /// Gets that found their key in DRAM.
    pub get_hits_dram: u64,
    /// Gets that found their key on flash.
    pub get_hits_flash: u64,
    /// Sets tried, those after a missed get included.
    pub sets: u64,
    /// Deletes.
    pub deletes: u64,
    /// What went to and fro.
    pub bytes: Bytes,
}

/// Bytes of values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bytes {
    /// Of all gets: what was found, or else what the trace says of the value's length.
    pub asked: u64,
    /// Of gets that found their key.
    pub got: u64,
    /// Of sets whose value is there now.
    pub stored: u64,
}

impl Bytes {
    /// A get that found so many bytes, or nothing where the trace says that the value has `said`.
    #[inline]
    pub(super) fn get(&mut self, found: Option<u64>, said: u64) {
        self.asked = self.asked.saturating_add(found.unwrap_or(said));
        self.got = self.got.saturating_add(found.unwrap_or(0));
    }

    fn add(&mut self, other: &Self) {
        // A trace may say anything of a length.
        self.asked = self.asked.saturating_add(other.asked);
        self.got = self.got.saturating_add(other.got);
        self.stored = self.stored.saturating_add(other.stored);
    }
}

impl TenantCounts {
    /// What `counts` has of it.
    pub(crate) fn of(counts: &Counts, bytes: Bytes) -> Self {
        Self {
            ops: counts.ops,
            gets: counts.gets,
            get_hits_dram: counts.get_hits_dram,
            get_hits_flash: counts.get_hits_flash,
            sets: counts.sets,
            deletes: counts.deletes,
            bytes,
        }
    }

    fn since(&self, earlier: &Self) -> Self {
        Self {
            ops: self.ops - earlier.ops,
            gets: self.gets - earlier.gets,
            get_hits_dram: self.get_hits_dram - earlier.get_hits_dram,
            get_hits_flash: self.get_hits_flash - earlier.get_hits_flash,
            sets: self.sets - earlier.sets,
            deletes: self.deletes - earlier.deletes,
            bytes: Bytes {
                asked: self.bytes.asked - earlier.bytes.asked,
                got: self.bytes.got - earlier.bytes.got,
                stored: self.bytes.stored - earlier.bytes.stored,
            },
        }
    }

    /// Gets that found their key.
    #[must_use]
    pub fn hits(&self) -> u64 {
        self.get_hits_dram + self.get_hits_flash
    }

    /// Hits over gets; `None` without a get.
    #[must_use]
    pub fn hit_ratio(&self) -> Option<f64> {
        ratio(self.hits(), self.gets)
    }

    /// Bytes got over bytes asked for; `None` where none were.
    #[must_use]
    pub fn byte_hit_ratio(&self) -> Option<f64> {
        ratio(self.bytes.got, self.bytes.asked)
    }
}

impl Sums for TenantCounts {
    fn requests(&self) -> u64 {
        self.ops
    }

    fn add(&mut self, other: &Self) {
        self.ops += other.ops;
        self.gets += other.gets;
        self.get_hits_dram += other.get_hits_dram;
        self.get_hits_flash += other.get_hits_flash;
        self.sets += other.sets;
        self.deletes += other.deletes;
        self.bytes.add(&other.bytes);
    }
}

/// The tenants of one worker, or of all.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    /// Those without a tenant, then tenants by index; empty until the first tenant is met.
    rows: Vec<TenantCounts>,
    /// What was counted when the last request was posted, or when the ledger was opened.
    posted: Counts,
}

impl Ledger {
    /// Whether a tenant was met.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !self.rows.is_empty()
    }

    /// Begins: what was `counted` so far was nobody's.
    pub(super) fn open(&mut self, counted: Counts) {
        self.rows.push(TenantCounts::of(&counted, Bytes::default()));
        self.posted = counted;
    }

    /// A request of `tenant` ended.
    pub(super) fn post(&mut self, tenant: Option<Tenant>, counted: Counts, bytes: Bytes) {
        let place = tenant.map_or(0, |tenant| tenant.index() + 1);
        if place >= self.rows.len() {
            self.rows.resize(place + 1, TenantCounts::default());
        }
        self.rows[place].add(&TenantCounts::of(&counted.since(&self.posted), bytes));
        self.posted = counted;
    }

    /// Adds what another worker of the same run, which has counted `counted` in all, knows. Answers what it had counted
    /// when its ledger was last written to.
    pub(super) fn merge(&mut self, other: &Self, counted: Counts) -> Counts {
        if !other.is_open() {
            self.add_row(0, &TenantCounts::of(&counted, Bytes::default()));
            return counted;
        }
        other.rows.iter().enumerate().for_each(|(place, row)| self.add_row(place, row));
        other.posted
    }

    fn add_row(&mut self, place: usize, row: &TenantCounts) {
        if place >= self.rows.len() {
            self.rows.resize(place + 1, TenantCounts::default());
        }
        self.rows[place].add(row);
    }

    /// What was posted since `earlier`, a former state.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        let before = |place: usize| earlier.rows.get(place).copied().unwrap_or_default();
        let rows = self.rows.iter().enumerate().map(|(place, row)| row.since(&before(place)));
        Self { rows: rows.collect(), posted: self.posted }
    }

    /// The tenants by name; `None` where nobody has one.
    pub(super) fn told(&self, names: &[Arc<str>]) -> Option<Tenants> {
        Tenants::of(&self.rows, names)
    }
}

/// The tenants of a run.
pub type Tenants = ByTenant<TenantCounts>;
