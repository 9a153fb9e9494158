//! Futures that are polled by hand, for what waits behind a gate.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// Lets a future go on as far as it can.
pub fn poll<F: Future>(future: &mut Pin<Box<F>>) -> Option<F::Output> {
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// A future that has to wait.
pub fn waiting<F: Future>(future: F) -> Pin<Box<F>> {
    let mut future = Box::pin(future);
    assert!(poll(&mut future).is_none(), "it was to wait");
    future
}
