//! Polling futures by hand, while a gate holds device requests.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// Polls a future once; returns its output if it is complete.
pub fn poll<F: Future>(future: &mut Pin<Box<F>>) -> Option<F::Output> {
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// A future that is pending after its first poll.
pub fn waiting<F: Future>(future: F) -> Pin<Box<F>> {
    let mut future = Box::pin(future);
    assert!(poll(&mut future).is_none(), "the future must be pending");
    future
}
