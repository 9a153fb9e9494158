//! The model drive of a simulated run. Each instance gets a namespace of it.

use std::sync::Arc;

use device::Device;
use device::sim::World;
use ssd::{Assignment, Card, Isolation, Namespace, Payload, Shape, SsdDevice, Stats};

use super::devices::DeviceSource;
use super::error::OpenError;
use crate::config::plan::{CachePlan, FlashPlan};

/// A model drive divided into namespaces, which are handed out in order.
#[derive(Clone)]
pub struct ModelDrive {
    namespaces: Vec<Arc<SsdDevice>>,
    next: usize,
    card: Card,
}

impl ModelDrive {
    /// Creates the drive of `card`, with its sizes divided by `scale`, and a namespace for each of `caches` that has flash. With
    /// placement, each namespace has the default handle and an equal share of the others.
    ///
    /// # Errors
    /// The card is missing or invalid, the caches need more space than the drive has, or they need placement and the card has no
    /// handles.
    pub fn new<'a>(
        world: &World,
        card: &str,
        scale: u32,
        caches: impl IntoIterator<Item = &'a CachePlan>,
        seed: u64,
    ) -> Result<Self, OpenError> {
        let plans: Vec<&FlashPlan> = caches.into_iter().filter_map(|it| it.flash.as_ref()).collect();
        let (card_in_use, shape) = fitting(card, scale, &plans)?;
        let handles = match &shape.isolation {
            Isolation::Handles(kinds) => kinds.len() as u16,
            Isolation::Conventional { .. } => 1,
        };
        let namespaces = namespaces(&plans, u64::from(shape.page_bytes), handles);
        let upkeep = card_in_use.upkeep(seed);
        let devices = SsdDevice::namespaces_in_world(
            world.clone(),
            &card_in_use,
            &shape,
            upkeep,
            Payload::Kept,
            &namespaces,
        )
        .map_err(|error| card_error(card, &error))?;
        Ok(Self { namespaces: devices.into_iter().map(Arc::new).collect(), next: 0, card: card_in_use })
    }

    /// Checks whether [`new`](Self::new) would succeed, without allocating the drive's memory.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn check<'a>(
        card: &str,
        scale: u32,
        caches: impl IntoIterator<Item = &'a CachePlan>,
    ) -> Result<(), OpenError> {
        let plans: Vec<&FlashPlan> = caches.into_iter().filter_map(|it| it.flash.as_ref()).collect();
        fitting(card, scale, &plans).map(|_| ())
    }

    /// The block size and the page size of the drive of `card`.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn block_and_page_bytes(card: &str, scale: u32, placing: bool) -> Result<(u32, u64), OpenError> {
        let loaded = Card::load(card).and_then(|card| card.scaled(scale));
        let shape = loaded.map_err(|error| card_error(card, &error))?.shape(placing);
        Ok((shape.block_bytes, u64::from(shape.page_bytes)))
    }

    /// The scaled card.
    #[must_use]
    pub fn card(&self) -> &Card {
        &self.card
    }

    /// The drive's counters.
    #[must_use]
    pub fn stats(&self) -> Option<Stats> {
        self.namespaces.first().map(|it| it.stats())
    }

    /// The placement handle of each consumer, by namespace.
    #[must_use]
    pub fn assignments(&self) -> Vec<Vec<Assignment>> {
        self.namespaces.iter().map(|it| it.assignments()).collect()
    }
}

impl DeviceSource for ModelDrive {
    fn open(&mut self, _plan: &FlashPlan) -> Result<Arc<dyn Device>, OpenError> {
        let namespace = Arc::clone(&self.namespaces[self.next]);
        self.next += 1;
        Ok(namespace)
    }
}

/// Shrinks scaled caches that fit the whole drive of `card` but, due to rounding, not the scaled one: a scaled drive has whole
/// mapping pages and whole reclaim units, so it can have less than its share of the bytes. `full_bytes` are the sizes before scaling.
/// Caches that fit, or that do not fit the whole drive either, are left unchanged.
pub fn round_to_scaled_card(card: &str, scale: u32, full_bytes: &[u64], mut plans: Vec<&mut FlashPlan>) {
    let Ok(full) = Card::load(card) else { return };
    let Ok(scaled) = full.scaled(scale) else { return };
    let (full_usable, usable) = (full.space.usable_bytes, scaled.space.usable_bytes);
    let wanted: u64 = plans.iter().map(|plan| plan.bytes_per_device).sum();
    let fits_full = full_bytes.iter().fold(0_u64, |sum, bytes| sum.saturating_add(*bytes)) <= full_usable;
    if wanted <= usable || !fits_full {
        return;
    }
    let unit_bytes = u64::from(scaled.space.page_bytes.max(scaled.space.block_bytes));
    for (plan, full_bytes) in plans.iter_mut().zip(full_bytes) {
        let share = u128::from(usable) * u128::from(*full_bytes) / u128::from(full_usable.max(1));
        let share = u64::try_from(share).unwrap_or(usable) / unit_bytes * unit_bytes;
        plan.bytes_per_device = plan.bytes_per_device.min(share);
    }
}

/// Loads and scales the card, and checks that `plans` fit its drive. Returns the card and the shape of the drive.
fn fitting(card: &str, scale: u32, plans: &[&FlashPlan]) -> Result<(Card, Shape), OpenError> {
    let loaded = Card::load(card).map_err(|error| card_error(card, &error))?;
    let card_in_use = loaded.scaled(scale).map_err(|error| card_error(card, &error))?;
    let placement = plans.iter().any(|it| it.placement);
    if placement && card_in_use.placement.is_none() {
        return Err(card_error(card, &"deviceEnableFDP: the card has no placement handles"));
    }
    let shape = card_in_use.shape(placement);
    let wanted: u64 = plans.iter().map(|it| it.bytes_per_device).sum();
    let usable = u64::from(shape.logical_pages) * u64::from(shape.page_bytes);
    if wanted > usable {
        let at = if scale > 1 { format!(" at 1/{scale}") } else { String::new() };
        let message = format!("nvmCacheSizeMB: needs {wanted} bytes{at}, and the drive has {usable}");
        return Err(card_error(card, &message));
    }
    Ok((card_in_use, shape))
}

fn card_error(card: &str, reason: &dyn std::fmt::Display) -> OpenError {
    OpenError::Config(format!("--device sim:{card}: {reason}"))
}

/// Handle 0 is shared by all namespaces. The others are divided evenly among the namespaces with placement.
fn namespaces(plans: &[&FlashPlan], page_bytes: u64, handles: u16) -> Vec<Namespace> {
    let placing = plans.iter().filter(|plan| plan.placement).count();
    let each = handles.saturating_sub(1) / (placing.max(1) as u16);
    let mut first = 1;
    let mut of = |plan: &FlashPlan| {
        let count = if plan.placement { each } else { 0 };
        let own = first..first + count;
        first += count;
        std::iter::once(0).chain(own).collect()
    };
    plans
        .iter()
        .map(|plan| Namespace { bytes: plan.bytes_per_device / page_bytes * page_bytes, handles: of(plan) })
        .collect()
}
