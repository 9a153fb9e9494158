//! A drive as JSON. Names are stable; unknown values are `null`.

use serde_json::{Map, Value, json};

use device::nvme::Wear;
use device::nvme::fdp::{Configuration, Isolation};

use super::info::{Info, NvmeInfo, PlacementInfo};
use super::precondition::Outcome;
use super::wear::Sample;

/// All properties of a device.
#[must_use]
pub fn info(info: &Info) -> Value {
    let unknown: Map<String, Value> =
        info.unknown.iter().map(|(what, why)| (what.clone(), why.clone().into())).collect();
    json!({
        "kind": info.kind,
        "capacity_bytes": info.capacity_bytes,
        "block_bytes": info.block_bytes,
        "in_use": info.in_use,
        "model": info.model,
        "nvme": info.nvme.as_ref().map(nvme),
        "unknown": unknown,
    })
}

fn nvme(nvme: &NvmeInfo) -> Value {
    let controller = nvme.controller.as_ref();
    let namespace = nvme.namespace.as_ref();
    json!({
        "serial": controller.map(|it| &it.serial),
        "firmware": controller.map(|it| &it.firmware),
        "subsystem_nqn": controller.map(|it| &it.subsystem_nqn),
        "version": controller.and_then(|it| it.version).map(|(a, b, c)| format!("{a}.{b}.{c}")),
        "namespace_id": nvme.namespace_id,
        "used_blocks": namespace.map(|it| it.used_blocks),
        "metadata_bytes": namespace.map(|it| it.metadata_bytes),
        "preferred_write_bytes": namespace.and_then(|it| it.preferred_write_bytes),
        "trim": controller.map(|it| it.dataset_management),
        "block_path": nvme.block_path.display().to_string(),
        "generic_path": nvme.generic_path.display().to_string(),
        "write_streams": nvme.write_streams,
        "max_passthrough_bytes": nvme.max_passthrough_bytes,
        "placement": placement(&nvme.placement),
        "wear": wear(&nvme.wear),
    })
}

fn placement(placement: &PlacementInfo) -> Value {
    let handle = |it: &device::nvme::fdp::PlacementStatus| {
        json!({
            "placement_id": it.placement_id,
            "reclaim_unit_handle": it.handle,
            "blocks_left": it.blocks_left,
            "time_left_seconds": it.time_left_seconds,
        })
    };
    json!({
        "state": placement.state,
        "missing": placement.missing,
        "endurance_group": placement.endurance_group,
        "configuration": placement.configuration.as_ref().map(configuration),
        "handles": placement.handles.iter().map(handle).collect::<Vec<_>>(),
    })
}

fn configuration(configuration: &Configuration) -> Value {
    let isolation = |it: &Isolation| match it {
        Isolation::Initially => "initially".to_owned(),
        Isolation::Persistently => "persistently".to_owned(),
        Isolation::Other(kind) => format!("type {kind}"),
    };
    json!({
        "reclaim_unit_bytes": configuration.reclaim_unit_bytes,
        "reclaim_groups": configuration.reclaim_groups,
        "max_placement_ids": configuration.max_placement_ids,
        "isolation": configuration.handles.iter().map(isolation).collect::<Vec<_>>(),
    })
}

/// A drive's counters.
#[must_use]
pub fn wear(wear: &Wear) -> Value {
    let unreported: Map<String, Value> =
        wear.unreported.iter().map(|(what, why)| ((*what).to_owned(), why.clone().into())).collect();
    json!({
        "source": wear.written.map(|it| it.source.to_string()),
        "host_written_bytes": number(wear.written.and_then(|it| it.host_bytes)),
        "media_written_bytes": number(wear.written.and_then(|it| it.media_bytes)),
        "media_erased_bytes": number(wear.media_erased_bytes),
        "dlwa": wear.written.and_then(|it| it.write_amplification()),
        "life_used_percent": wear.life_used_percent,
        "endurance_estimate_bytes": number(wear.endurance_estimate_bytes),
        "temperature_celsius": wear.temperature_celsius,
        "power_on_hours": number(wear.power_on_hours),
        "unknown": unreported,
    })
}

/// Samples of a drive's counters.
#[must_use]
pub fn samples(samples: &[Sample]) -> Value {
    let each = |sample: &Sample| {
        let mut fields = wear(&sample.wear);
        fields["unix_seconds"] = sample.unix_seconds.into();
        fields["dlwa_since_last"] = sample.amplification_since_last.into();
        fields["dlwa_since_first"] = sample.amplification_since_first.into();
        fields
    };
    json!({ "samples": samples.iter().map(each).collect::<Vec<_>>() })
}

/// The result of preconditioning.
#[must_use]
pub fn outcome(outcome: &Outcome) -> Value {
    let round = |it: &super::precondition::Round| {
        json!({
            "sequential": it.sequential,
            "written_bytes": it.written_bytes,
            "bytes_per_second": it.rate,
            "dlwa": it.write_amplification,
        })
    };
    json!({
        "steady": outcome.steady,
        "rounds": outcome.rounds.iter().map(round).collect::<Vec<_>>(),
    })
}

/// JSON numbers have at most 64 bits; larger counters are written as text.
fn number(value: Option<u128>) -> Value {
    match value.map(u64::try_from) {
        None => Value::Null,
        Some(Ok(fits)) => fits.into(),
        Some(Err(_)) => value.map(|it| it.to_string()).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_counters_are_null() {
        let unknown_wear = wear(&Wear::default());
        for name in ["host_written_bytes", "media_written_bytes", "dlwa", "life_used_percent"] {
            assert!(unknown_wear[name].is_null(), "{name}");
        }
        assert_eq!(number(Some(1 << 100)), "1267650600228229401496703205376");
        assert_eq!(number(Some(7)), 7);
    }
}
