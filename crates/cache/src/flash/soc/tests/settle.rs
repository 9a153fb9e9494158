//! Settling: waiting until pending items are written.

use super::*;

#[test]
fn item_added_while_its_bucket_is_written_is_settled_by_the_next_write() {
    let device = gate();
    let soc = soc_on(&device, SocConfig { writes_per_step: 1, ..config(1) });
    put(&soc, "first", "value");
    device.close(RequestKind::Write);
    let mut step = Box::pin(soc.step(Waiting::Task, NOW));
    assert!(poll(&mut step).is_none());
    put(&soc, "second", "value");
    let mut settled = Box::pin(soc.settle());
    assert!(poll(&mut settled).is_none() && !soc.wants_step(), "all there is to do is being done");
    device.open();
    assert!(poll(&mut step).is_some() && poll(&mut settled).is_none());
    assert!(soc.wants_step(), "somebody waits for the second");
    block_on(soc.step(Waiting::Task, NOW));
    assert!(poll(&mut settled).is_some() && !soc.wants_step());
}

#[test]
fn settled_bucket_is_written_before_fuller_ones() {
    let one_at_a_time = SocConfig { max_write_bytes: 4096, writes_per_step: 1, ..config(64) };
    let soc = soc_on(&memory(), one_at_a_time);
    put(&soc, "alone in its bucket", "value");
    let mut settled = Box::pin(soc.settle());
    assert!(poll(&mut settled).is_none());
    (0..200).for_each(|number| put(&soc, &format!("later {number}"), "value"));
    block_on(soc.step(Waiting::Task, NOW));
    assert!(poll(&mut settled).is_some(), "one write was enough");
    assert!(soc.stats().pending_entries > 100);
}

#[test]
fn dropped_settle_leaves_no_work() {
    let soc = soc_on(&memory(), config(64));
    put(&soc, "key", "value");
    let mut settled = Box::pin(soc.settle());
    assert!(poll(&mut settled).is_none() && soc.wants_step());
    drop(settled);
    assert!(!soc.wants_step());
}
