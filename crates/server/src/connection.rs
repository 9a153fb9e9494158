//! One connection: reads requests, executes them in order, sends the replies.
//!
//! Requests that arrive together are executed together, and their replies are sent together. While a client does not
//! read its replies, no further requests are read from it. Large values are received into their items ([`large_value`]).

mod large_value;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use cache::Refusal;

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
use crate::shared::{BUDGET_UNIT_BYTES, Shared};
use crate::store::Value;

/// Bytes of input that a connection may hold without a share of the common budget. A client that sends a longer request must send as many
/// within its time limit.
const FREE_BYTES: usize = 16 << 10;

/// What follows after a request.
#[derive(Debug)]
enum NextAction {
    /// The next request.
    Continue,
    /// The next request has not arrived as a whole, and has as many bytes as far as it has been parsed.
    Receive(usize),
    /// The value of a request is received into its item.
    ReceiveValue {
        /// The line, without its end.
        line: Box<[u8]>,
        /// Its length, with its end.
        bytes: usize,
    },
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
    /// Whether the value of the next request is buffered, because the drafts of its pool take as much memory as they may.
    buffers_next: bool,
    /// Whether the client must still authenticate.
    is_unauthenticated: bool,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Connection<R, W> {
    /// Creates an accepted connection.
    pub fn new(shared: Arc<Shared>, socket: R, to_client: W) -> Self {
        let output = Output::new(to_client, shared.options.client_timeout);
        let is_unauthenticated = shared.options.credentials.is_some();
        let (input, tally) = (Input::default(), Tally::default());
        Self { shared, socket, input, output, tally, share: None, buffers_next: false, is_unauthenticated }
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
            let mut next = NextAction::Continue;
            while let NextAction::Continue = next {
                next = self.next_request().await?;
            }
            self.output.send().await?;
            self.tally.add(Counter::bytes_written, self.output.take_sent_bytes());
            self.shared.counters.merge(&mut self.tally);
            let is_connected = match next {
                _ if *stop.borrow() => false,
                NextAction::Continue => true,
                NextAction::Receive(bytes) => self.receive(bytes, stop).await?,
                NextAction::ReceiveValue { line, bytes } => {
                    self.receive_large_value(&line, bytes, stop).await?
                }
                NextAction::Close => false,
            };
            if !is_connected {
                return Ok(());
            }
        }
    }

    /// Executes the next request, if it has arrived.
    async fn next_request(&mut self) -> io::Result<NextAction> {
        let Self { shared, input, output, tally, is_unauthenticated, buffers_next, .. } = self;
        let max_value_bytes = if *is_unauthenticated { MAX_TOKEN_BYTES } else { shared.max_value_bytes };
        let max_buffered_bytes = if *buffers_next { usize::MAX } else { FREE_BYTES };
        let mut executor = Executor { shared, output, tally };
        let (bytes, discard_bytes) = match input.next(max_value_bytes, max_buffered_bytes) {
            Next::Incomplete { bytes } => return Ok(NextAction::Receive(bytes)),
            Next::Request { request: Request::Quit, .. } => return Ok(NextAction::Close),
            Next::Request { request, value, bytes } => {
                match shared.options.credentials.as_ref().filter(|_| *is_unauthenticated) {
                    None if is_refused(shared, &request) => refuse_command(&mut executor, &request),
                    None => execute(&mut executor, request, Value::Bytes(value), 0).await?,
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
            Next::TooLarge { request, bytes, value_bytes }
            | Next::Large { request, bytes, value_bytes, .. }
                if is_refused(shared, &request) =>
            {
                refuse_command(&mut executor, &request);
                (bytes, value_bytes + 2)
            }
            Next::TooLarge { request, bytes, value_bytes } => {
                let refusal = Refusal::TooLarge { bytes: value_bytes, max_bytes: max_value_bytes };
                executor.refuse_value(&request, refusal).await;
                (bytes, value_bytes + 2)
            }
            Next::Large { line, bytes, .. } => {
                return Ok(NextAction::ReceiveValue { line: line.into(), bytes });
            }
            Next::LineTooLong => {
                executor.line(reply::LINE_TOO_LONG, false);
                return Ok(NextAction::Close);
            }
            Next::Binary([opcode, opaque @ ..]) => {
                refuse_binary(&mut output.buffer, opcode, opaque);
                return Ok(NextAction::Close);
            }
        };
        output.send_if_full().await?;
        input.consume(bytes, discard_bytes);
        *buffers_next = false;
        Ok(NextAction::Continue)
    }

    /// Receives a part of a request of `bytes`. Returns whether the client is still connected.
    async fn receive(&mut self, bytes: usize, stop: &mut watch::Receiver<bool>) -> io::Result<bool> {
        let is_idle = self.input.is_empty();
        if is_idle || bytes <= FREE_BYTES {
            self.share = None;
        } else {
            self.take_share(bytes).await?;
        }
        let options = &self.shared.options;
        let limit = if is_idle { options.idle_timeout } else { Some(options.client_timeout) };
        let room = self.input.room(bytes.max(FREE_BYTES));
        let missing_bytes = bytes.saturating_sub(room.len());
        let wanted_bytes = if self.share.is_some() { missing_bytes.clamp(1, FREE_BYTES) } else { 1 };
        let socket = &mut self.socket;
        let read = async {
            let mut received = 0;
            while received < wanted_bytes {
                match socket.read_buf(room).await? {
                    0 => return Ok(0),
                    bytes => received += bytes,
                }
            }
            Ok(received)
        };
        let received = within(limit, read, stop).await;
        self.tally_received(&received);
        received.map(|bytes| bytes > 0)
    }

    /// Waits for memory for a large request of `bytes`, beside the memory that it has.
    async fn take_share(&mut self, bytes: usize) -> io::Result<()> {
        let Shared { budget, options, .. } = &*self.shared;
        let taken = self.share.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let units = bytes.div_ceil(BUDGET_UNIT_BYTES).saturating_sub(taken);
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        let share = timeout(options.client_timeout, Arc::clone(budget).acquire_many_owned(units)).await;
        let share = share.map_err(|_| io::ErrorKind::TimedOut)?.map_err(|_| io::ErrorKind::BrokenPipe)?;
        match &mut self.share {
            Some(taken) => taken.merge(share),
            None => self.share = Some(share),
        }
        Ok(())
    }

    fn tally_received(&mut self, received: &io::Result<usize>) {
        match received {
            Ok(bytes) => self.tally.add(Counter::bytes_read, *bytes as u64),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => self.tally.count(Counter::idle_kicks),
            Err(_) => {}
        }
    }
}

/// Waits for received bytes: 0 if the client has disconnected or the server stops.
async fn within(
    limit: Option<Duration>,
    read: impl Future<Output = io::Result<usize>>,
    stop: &mut watch::Receiver<bool>,
) -> io::Result<usize> {
    let received = async {
        match limit {
            Some(limit) => timeout(limit, read).await.map_err(|_| io::ErrorKind::TimedOut)?,
            None => read.await,
        }
    };
    tokio::select! {
        biased;
        received = received => received,
        _ = stop.wait_for(|stop| *stop) => Ok(0),
    }
}

/// Whether the server refuses the command.
fn is_refused(shared: &Shared, request: &Request<'_>) -> bool {
    shared.options.allowed_commands.as_ref().is_some_and(|allowed| !allowed.allows(request))
}

fn refuse_command<W: AsyncWrite + Unpin>(executor: &mut Executor<'_, W>, request: &Request<'_>) {
    executor.line(&format!("CLIENT_ERROR {} not allowed", request.command()), request.noreply());
}

/// Executes a request, and measures the time if the server does. `spent_ns` is the time that the request has taken before.
async fn execute<W: AsyncWrite + Unpin>(
    executor: &mut Executor<'_, W>,
    request: Request<'_>,
    value: Value<'_>,
    spent_ns: u64,
) -> io::Result<()> {
    let Shared { options, store, latency, .. } = executor.shared;
    if !options.measure_latency {
        return executor.execute(request, value).await;
    }
    let (kind, started_ns) = (Kind::of(&request), store.now_ns());
    let executed = executor.execute(request, value).await;
    latency.record(kind, spent_ns + store.now_ns().saturating_sub(started_ns));
    executed
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
