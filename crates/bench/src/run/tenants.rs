//! Counters per tenant of a trace.
//!
//! A worker creates its ledger at the first request with a tenant. From then on it adds, after each request, the growth of its counters
//! to the tenant's row. So a run without tenants has no cost. A reader of the ledger sees the rows of all tenants and their sum as of
//! the same instant between two requests, so that a warm-up is excluded from both alike.

use std::sync::Arc;

use workload::Tenant;

use super::counts::{CounterTable, Counts, ratio};
use crate::tenants::{ByTenant, Sums};

/// Counters of one tenant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TenantCounts {
    /// Completed requests of the workload.
    pub ops: u64,
    /// Gets.
    pub gets: u64,
    /// Gets that hit in DRAM.
    pub get_hits_dram: u64,
    /// Gets that hit on flash.
    pub get_hits_flash: u64,
    /// Attempted sets, including those after a miss.
    pub sets: u64,
    /// Deletes.
    pub deletes: u64,
    /// Bytes of values.
    pub bytes: Bytes,
}

/// Bytes of values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bytes {
    /// Bytes requested by gets: the size of the found value, or after a miss the size according to the trace.
    pub requested: u64,
    /// Bytes found by gets.
    pub found: u64,
    /// Bytes stored by sets.
    pub stored: u64,
}

impl Bytes {
    /// Adds a get that found a value of `found` bytes, or missed a value that has `expected` bytes according to the trace.
    #[inline]
    pub(super) fn get(&mut self, found: Option<u64>, expected: u64) {
        self.requested = self.requested.saturating_add(found.unwrap_or(expected));
        self.found = self.found.saturating_add(found.unwrap_or(0));
    }

    fn add(&mut self, other: &Self) {
        // Lengths in a trace may be arbitrarily large.
        self.requested = self.requested.saturating_add(other.requested);
        self.found = self.found.saturating_add(other.found);
        self.stored = self.stored.saturating_add(other.stored);
    }
}

impl TenantCounts {
    /// Extracts the counters that are kept per tenant.
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
                requested: self.bytes.requested - earlier.bytes.requested,
                found: self.bytes.found - earlier.bytes.found,
                stored: self.bytes.stored - earlier.bytes.stored,
            },
        }
    }

    /// Gets that hit.
    #[must_use]
    pub fn hits(&self) -> u64 {
        self.get_hits_dram + self.get_hits_flash
    }

    /// Hits over gets; `None` without gets.
    #[must_use]
    pub fn hit_ratio(&self) -> Option<f64> {
        ratio(self.hits(), self.gets)
    }

    /// Bytes found over bytes requested; `None` if none were requested.
    #[must_use]
    pub fn byte_hit_ratio(&self) -> Option<f64> {
        ratio(self.bytes.found, self.bytes.requested)
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

/// Counters per tenant, of one worker or of all.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    /// First the requests without a tenant, then one row per tenant by index; empty until the first tenant appears.
    rows: Vec<TenantCounts>,
    /// The worker's counters at the last update.
    counted: Counts,
}

impl Ledger {
    /// Whether a tenant has appeared.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !self.rows.is_empty()
    }

    /// Starts the ledger. Everything `counted` so far belongs to requests without a tenant.
    pub(super) fn open(&mut self, counted: Counts) {
        self.rows.push(TenantCounts::of(&counted, Bytes::default()));
        self.counted = counted;
    }

    /// Adds a completed request of `tenant`; `counted` are the worker's counters after it.
    pub(super) fn add_request(&mut self, tenant: Option<Tenant>, counted: Counts, bytes: Bytes) {
        let row = tenant.map_or(0, |tenant| tenant.index() + 1);
        if row >= self.rows.len() {
            self.rows.resize(row + 1, TenantCounts::default());
        }
        self.rows[row].add(&TenantCounts::of(&counted.since(&self.counted), bytes));
        self.counted = counted;
    }

    /// Adds the ledger of another worker of the same run, whose current counters are `counted`. Returns that worker's counters as of
    /// its ledger's last update.
    pub(super) fn merge(&mut self, other: &Self, counted: Counts) -> Counts {
        if !other.is_open() {
            self.add_row(0, &TenantCounts::of(&counted, Bytes::default()));
            return counted;
        }
        other.rows.iter().enumerate().for_each(|(place, row)| self.add_row(place, row));
        other.counted
    }

    fn add_row(&mut self, place: usize, row: &TenantCounts) {
        if place >= self.rows.len() {
            self.rows.resize(place + 1, TenantCounts::default());
        }
        self.rows[place].add(row);
    }

    /// The difference to `earlier`, a previous state.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        let before = |place: usize| earlier.rows.get(place).copied().unwrap_or_default();
        let rows = self.rows.iter().enumerate().map(|(place, row)| row.since(&before(place)));
        Self { rows: rows.collect(), counted: self.counted }
    }

    /// The counters by name of the tenant; `None` if there are no tenants.
    pub(super) fn by_name(&self, names: &[Arc<str>]) -> Option<Tenants> {
        Tenants::of(&self.rows, names)
    }
}

/// The counters of all tenants of a run.
pub type Tenants = ByTenant<TenantCounts>;
