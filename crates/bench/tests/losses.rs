//! Remarks of a report about items that were not stored.

use flashwright_bench::run::InstanceReport;
use flashwright_bench::run::target::{FlashCounts, OutcomeCount, Snapshot};

mod made;

fn remarks(snapshot: Snapshot) -> Vec<String> {
    made::report(InstanceReport { snapshot, ..made::instance(1.0) }).remarks()
}

fn of_flash(put_ends: Vec<OutcomeCount>, has_regions: bool) -> Vec<String> {
    let flash = FlashCounts {
        put_ends,
        has_regions: Some(has_regions),
        max_item_bytes: Some(1),
        ..FlashCounts::default()
    };
    remarks(Snapshot { flash: Some(flash), ..Snapshot::default() })
}

#[test]
fn large_share_of_lost_flash_items_is_remarked_on() {
    let ends = |stored, clean, lost| {
        vec![
            ("stored", stored),
            ("clean", clean),
            ("rejected_admission", 900),
            ("rejected_short_lived", 500),
            ("rejected_too_large", lost),
        ]
    };
    let expected = "700 of 2,100 items on their way to flash (33.3 %) were dropped as too large for flash (at most 1 byte, chained \
                    items included): flash has no large-object engine: lower navyBigHashSizePct below 100 to add one";
    assert_eq!(of_flash(ends(0, 5_000, 700), false), [expected]);
    assert!(of_flash(ends(0, 5_000, 700), true)[0].contains("raise navyRegionSizeMB"));
    assert!(of_flash(ends(600, 0, 20), true).is_empty(), "1 % is not reported");
    let failed = of_flash(vec![("stored", 9), ("dropped_write_failed", 1)], true);
    assert!(
        failed[0].starts_with("1 of 10 items on their way to flash (10.0 %) was dropped because"),
        "{failed:?}"
    );
}

#[test]
fn refused_inserts_and_chained_items_are_remarked_on_with_reason() {
    let dram = remarks(Snapshot {
        insert_ends: vec![("stored", 90), ("present", 500), ("rejected_all_pinned", 10)],
        ..Snapshot::default()
    });
    assert!(
        dram[0].starts_with("10 of 100 inserts into DRAM (10.0 %) were refused because all items"),
        "{dram:?}"
    );
    let chains = remarks(Snapshot {
        chain_ends: vec![("stored", 0), ("rejected_no_parent", 1), ("rejected_all_pinned", 1)],
        ..Snapshot::default()
    });
    assert!(
        chains.len() == 2 && chains[0].starts_with("1 of 2 additions to chains (50.0 %) was"),
        "{chains:?}"
    );
}
