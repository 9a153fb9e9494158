//! Remarks of a report about items that were not stored.

use crate::made;
use cache::stats::{ChainStats, FlashStats, InsertStats, PutStats, RegionStats};
use flashwright_bench::run::InstanceReport;
use flashwright_bench::run::target::{FlashDevice, Snapshot};

fn remarks(snapshot: Snapshot) -> Vec<String> {
    made::report(InstanceReport { snapshot, ..made::instance(1.0) }).remarks()
}

fn of_flash(puts: PutStats, regions: Option<RegionStats>) -> Vec<String> {
    let flash = FlashStats { puts, regions, max_item_bytes: 1, ..FlashStats::default() };
    remarks(made::with_flash(flash, FlashDevice::default()))
}

#[test]
fn large_share_of_lost_flash_items_is_remarked_on() {
    let puts = |stored, clean, lost| PutStats {
        stored,
        clean,
        rejected_admission: 900,
        rejected_short_lived: 500,
        rejected_too_large: lost,
        ..PutStats::default()
    };
    let regions = Some(RegionStats::default());
    let expected = "700 of 2,100 items on their way to flash (33.3 %) were dropped as too large for flash (at most 1 byte, chained \
                    items included): flash has no large-object engine: lower navyBigHashSizePct below 100 to add one";
    assert_eq!(of_flash(puts(0, 5_000, 700), None), [expected]);
    assert!(of_flash(puts(0, 5_000, 700), regions)[0].contains("raise navyRegionSizeMB"));
    assert!(of_flash(puts(600, 0, 20), regions).is_empty(), "1 % is not reported");
    let unwritten = RegionStats { unwritten_items: 1, ..RegionStats::default() };
    let failed = of_flash(PutStats { stored: 10, ..PutStats::default() }, Some(unwritten));
    assert!(
        failed[0].starts_with("1 of 10 items on their way to flash (10.0 %) was dropped because"),
        "{failed:?}"
    );
}

#[test]
fn refused_inserts_and_chained_items_are_remarked_on_with_reason() {
    let of = |stats| remarks(Snapshot { stats, ..Snapshot::default() });
    let inserts = InsertStats { stored: 90, present: 500, rejected_all_pinned: 10, ..InsertStats::default() };
    let dram = of(cache::Stats { inserts, ..cache::Stats::default() });
    assert!(
        dram[0].starts_with("10 of 100 inserts into DRAM (10.0 %) were refused because all items"),
        "{dram:?}"
    );
    let chained = ChainStats { rejected_no_parent: 1, rejected_all_pinned: 1, ..ChainStats::default() };
    let chains = of(cache::Stats { chained, ..cache::Stats::default() });
    assert!(
        chains.len() == 2 && chains[0].starts_with("1 of 2 additions to chains (50.0 %) was"),
        "{chains:?}"
    );
}
