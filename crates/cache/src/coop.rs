//! A cooperative budget: a task whose operations are all ready still lets other tasks run from time to time.
//!
//! A future that is always ready never returns to its executor: a loop of hits would block a runtime's thread, and all its other tasks, for
//! as long as the loop lasts. So each thread counts its operations, and when the budget is spent, the next operation returns pending once,
//! with its task woken.

use std::cell::Cell;
use std::future::poll_fn;
use std::task::Poll;

/// Operations between two yields: about 20 us of hits in DRAM.
const BUDGET: u32 = 128;

thread_local! {
    /// Operations since this thread last yielded.
    static SPENT: Cell<u32> = const { Cell::new(0) };
}

/// Counts an operation, and yields if the budget is spent.
#[inline]
pub(crate) async fn spend() {
    let spent = SPENT.get() + 1;
    SPENT.set(spent);
    if spent >= BUDGET {
        yield_now().await;
    }
}

/// Returns pending once, with the task woken.
#[cold]
pub(crate) async fn yield_now() {
    SPENT.set(0);
    let mut has_yielded = false;
    poll_fn(|context| {
        if has_yielded {
            return Poll::Ready(());
        }
        has_yielded = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
