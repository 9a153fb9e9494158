//! One connection: reads requests, executes them in order, sends the replies.
//!
//! Requests that arrive together are executed together, and their replies are sent together. While a client does not
//! read its replies, no further requests are read from it.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::timeout;

use crate::auth::{Credentials, MAX_TOKEN_BYTES};
use crate::counters::{Counter, Tally};
use crate::execute::Executor;
use crate::input::{Input, Next};
use crate::latency::Kind;
use crate::output::Output;
use crate::protocol::{Request, reply};
use crate::server::Shared;

/// Bytes of input that a connection may hold without a share of the common budget.
const FREE_BYTES: usize = 16 << 10;

/// Unit of the budget for input.
pub const BUDGET_UNIT_BYTES: usize = 1 << 10;

/// Whether to continue or close a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextAction {
    Continue,
    Close,
}

/// A connection.
pub struct Connection<R, W> {
    shared: Arc<Shared>,
    socket: R,
    input: Input,
    output: Output<W>,
    tally: Tally,
    /// The share of the budget for the request that is being received.
    share: Option<OwnedSemaphorePermit>,
    /// Whether the client must still authenticate.
    is_unauthenticated: bool,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Connection<R, W> {
    /// Creates an accepted connection.
    pub fn new(shared: Arc<Shared>, socket: R, to_client: W) -> Self {
        let output = Output::new(to_client, shared.options.client_timeout);
        let is_unauthenticated = shared.options.credentials.is_some();
        let (input, tally) = (Input::default(), Tally::default());
        Self { shared, socket, input, output, tally, share: None, is_unauthenticated }
    }

    /// Serves the client until it disconnects, exceeds a limit, or the server stops.
    pub async fn serve(&mut self, mut stop: watch::Receiver<bool>) {
        // The connection is broken or was closed at a limit, so no error can be sent to the client.
        let _ = self.exchange(&mut stop).await;
        self.output.close().await;
        self.shared.counters.merge(&mut self.tally);
    }

    async fn exchange(&mut self, stop: &mut watch::Receiver<bool>) -> io::Result<()> {
        loop {
            let mut missing_bytes = 0;
            let mut then = NextAction::Continue;
            while missing_bytes == 0 && then == NextAction::Continue {
                (then, missing_bytes) = self.next_request().await?;
            }
            self.output.send().await?;
            self.tally.add(Counter::bytes_written, self.output.take_sent_bytes());
            self.shared.counters.merge(&mut self.tally);
            if then == NextAction::Close || *stop.borrow() || !self.receive(missing_bytes, stop).await? {
                return Ok(());
            }
        }
    }

    /// Executes the next request. Also returns the length of a request that has not arrived entirely, 0 if one was executed.
    async fn next_request(&mut self) -> io::Result<(NextAction, usize)> {
        let Self { shared, input, output, tally, is_unauthenticated, .. } = self;
        let max_value_bytes = if *is_unauthenticated { MAX_TOKEN_BYTES } else { shared.max_value_bytes };
        let mut executor = Executor { shared, output, tally };
        let (bytes, discard_bytes) = match input.next(max_value_bytes) {
            Next::Incomplete { bytes } => return Ok((NextAction::Continue, bytes)),
            Next::Request { request: Request::Quit, .. } => return Ok((NextAction::Close, 0)),
            Next::Request { request, value, bytes } => {
                match shared.options.credentials.as_ref().filter(|_| *is_unauthenticated) {
                    None if is_refused(shared, &request) => refuse_command(&mut executor, &request),
                    None => execute(&mut executor, request, value).await?,
                    Some(credentials) => {
                        *is_unauthenticated = !authenticate(&mut executor, credentials, &request, value);
                    }
                }
                (bytes, 0)
            }
            Next::Invalid { invalid, bytes } => {
                executor.line(invalid.reply, invalid.noreply);
                (bytes, invalid.discard_bytes)
            }
            Next::TooLarge { bytes, value_bytes, .. } if *is_unauthenticated => {
                executor.line("CLIENT_ERROR unauthenticated", false);
                (bytes, value_bytes + 2)
            }
            Next::TooLarge { request, bytes, value_bytes } if is_refused(shared, &request) => {
                refuse_command(&mut executor, &request);
                (bytes, value_bytes + 2)
            }
            Next::TooLarge { request, bytes, value_bytes } => {
                executor.refuse_too_large(&request).await;
                (bytes, value_bytes + 2)
            }
            Next::LineTooLong => {
                executor.line(reply::LINE_TOO_LONG, false);
                return Ok((NextAction::Close, 0));
            }
            Next::Binary([opcode, opaque @ ..]) => {
                refuse_binary(&mut output.buffer, opcode, opaque);
                return Ok((NextAction::Close, 0));
            }
        };
        output.send_if_full().await?;
        input.consume(bytes, discard_bytes);
        Ok((NextAction::Continue, 0))
    }

    /// Receives a part of a request of `bytes`. Returns whether the client is still connected.
    async fn receive(&mut self, bytes: usize, stop: &mut watch::Receiver<bool>) -> io::Result<bool> {
        let is_idle = self.input.is_empty();
        if is_idle || bytes <= FREE_BYTES {
            self.share = None;
        } else if self.share.is_none() {
            self.share = Some(take_share(&self.shared, bytes).await?);
        }
        let room = self.input.room(bytes.max(FREE_BYTES));
        let read = self.socket.read_buf(room);
        let options = &self.shared.options;
        let limit = if is_idle { options.idle_timeout } else { Some(options.client_timeout) };
        let received = async {
            match limit {
                Some(limit) => timeout(limit, read).await.map_err(|_| io::ErrorKind::TimedOut)?,
                None => read.await,
            }
        };
        let received = tokio::select! {
            biased;
            received = received => received,
            _ = stop.wait_for(|stop| *stop) => Ok(0),
        };
        match received {
            Ok(bytes) => self.tally.add(Counter::bytes_read, bytes as u64),
            Err(ref error) if error.kind() == io::ErrorKind::TimedOut => {
                self.tally.count(Counter::idle_kicks);
            }
            Err(_) => {}
        }
        received.map(|bytes| bytes > 0)
    }
}

/// Whether the server refuses the command.
fn is_refused(shared: &Shared, request: &Request<'_>) -> bool {
    shared.options.allowed_commands.as_ref().is_some_and(|allowed| !allowed.allows(request))
}

fn refuse_command<W: AsyncWrite + Unpin>(executor: &mut Executor<'_, W>, request: &Request<'_>) {
    executor.line(&format!("CLIENT_ERROR {} not allowed", request.command()), request.noreply());
}

/// Executes a request, and measures the time if the server does.
async fn execute<W: AsyncWrite + Unpin>(
    executor: &mut Executor<'_, W>,
    request: Request<'_>,
    value: &[u8],
) -> io::Result<()> {
    let Shared { options, store, latency, .. } = executor.shared;
    if !options.measure_latency {
        return executor.execute(request, value).await;
    }
    let (kind, started_ns) = (Kind::of(&request), store.now_ns());
    let executed = executor.execute(request, value).await;
    latency.record(kind, store.now_ns().saturating_sub(started_ns));
    executed
}

/// Waits for memory for a large request.
async fn take_share(shared: &Shared, bytes: usize) -> io::Result<OwnedSemaphorePermit> {
    let units = u32::try_from(bytes.div_ceil(BUDGET_UNIT_BYTES)).unwrap_or(u32::MAX);
    let share = Arc::clone(&shared.budget).acquire_many_owned(units);
    let share = timeout(shared.options.client_timeout, share).await;
    share.map_err(|_| io::ErrorKind::TimedOut)?.map_err(|_| io::ErrorKind::BrokenPipe.into())
}

/// Executes a request of an unauthenticated client. Returns whether the client is authenticated now.
fn authenticate<W: AsyncWrite + Unpin>(
    executor: &mut Executor<'_, W>,
    credentials: &Credentials,
    request: &Request<'_>,
    value: &[u8],
) -> bool {
    let Request::Store(_) = request else {
        executor.line("CLIENT_ERROR unauthenticated", false);
        return false;
    };
    executor.tally.count(Counter::auth_cmds);
    let permits = credentials.permits(value);
    if !permits {
        executor.tally.count(Counter::auth_errors);
    }
    executor.line(if permits { "STORED" } else { "CLIENT_ERROR authentication failure" }, false);
    permits
}

/// Refuses a request in the binary protocol in the same protocol, so that the client can show the reason.
fn refuse_binary(out: &mut Vec<u8>, opcode: u8, opaque: [u8; 4]) {
    const UNKNOWN_COMMAND: u8 = 0x81;
    let reason = b"the binary protocol is not supported: use the text protocol";
    out.extend_from_slice(&[0x81, opcode, 0, 0, 0, 0, 0, UNKNOWN_COMMAND, 0, 0, 0, reason.len() as u8]);
    out.extend_from_slice(&opaque);
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(reason);
}
