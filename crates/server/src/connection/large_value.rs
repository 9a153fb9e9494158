//! Receives a large value into the memory of its item, so that it is in memory once.
//!
//! The item is allocated when its line has arrived, and inserted when its value has. Until then the present item remains, also if the client
//! disconnects or sends another length. As the client of a buffered request, the client has a share of the common budget, and must
//! send [`FREE_BYTES`] within its time limit; otherwise the item is discarded.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::sync::watch;

use super::{Connection, FREE_BYTES, execute, within};
use crate::execute::Executor;
use crate::input::{bad_data_chunk, value_bytes};
use crate::protocol::{Request, parse};
use crate::store::Value;

/// The end of a value.
const LINE_END: &[u8; 2] = b"\r\n";

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Connection<R, W> {
    /// Receives the value of the request at the beginning of the input, and executes the request. `line` is its line, which is
    /// `line_bytes` long with its end. Returns whether the client is still connected.
    pub(super) async fn receive_large_value(
        &mut self,
        line: &[u8],
        line_bytes: usize,
        stop: &mut watch::Receiver<bool>,
    ) -> io::Result<bool> {
        let Ok(request) = parse(line) else { return Ok(false) };
        let (key, exptime) = match &request {
            Request::Store(store) => (store.key, store.exptime),
            Request::Meta(meta) => (&*meta.key, meta.flags.ttl.unwrap_or_default()),
            _ => return Ok(false),
        };
        let value_bytes = value_bytes(&request).unwrap_or(0);
        let bytes = line_bytes + value_bytes + LINE_END.len();
        let shared = Arc::clone(&self.shared);
        self.take_share(bytes).await?;
        let now_ns = || if shared.options.measure_latency { shared.store.now_ns() } else { 0 };
        let started_ns = now_ns();
        let mut draft = match shared.store.draft(key, value_bytes, exptime).await {
            Ok(Some(draft)) => draft,
            Ok(None) => {
                self.buffers_next = true;
                return self.receive(bytes, stop).await;
            }
            Err(refusal) => {
                let mut executor =
                    Executor { shared: &shared, output: &mut self.output, tally: &mut self.tally };
                executor.refuse_value(&request, refusal).await;
                self.input.consume(line_bytes, value_bytes + LINE_END.len());
                self.share = None;
                return Ok(true);
            }
        };
        let spent_ns = now_ns() - started_ns;
        self.input.consume(line_bytes, 0);
        if !self.fill(draft.value_mut(), stop).await? || !self.receive_line_end(stop).await? {
            return Ok(false);
        }
        let is_ended = self.input.first() == Some(LINE_END);
        let mut executor = Executor { shared: &shared, output: &mut self.output, tally: &mut self.tally };
        if is_ended {
            execute(&mut executor, request, Value::Draft(draft), spent_ns).await?;
        } else {
            let invalid = bad_data_chunk(&request);
            executor.line(invalid.reply, invalid.noreply);
        }
        self.input.consume(LINE_END.len(), 0);
        self.share = None;
        Ok(true)
    }

    /// Receives a whole value. Returns whether the client is still connected.
    async fn fill(&mut self, value: &mut [u8], stop: &mut watch::Receiver<bool>) -> io::Result<bool> {
        let mut filled_bytes = self.input.move_to(value);
        while filled_bytes < value.len() {
            let socket = &mut self.socket;
            let missing = &mut value[filled_bytes..];
            let part_bytes = missing.len().min(FREE_BYTES);
            let read = async {
                let mut received = 0;
                while received < part_bytes {
                    match socket.read(&mut missing[received..]).await? {
                        0 => return Ok(0),
                        bytes => received += bytes,
                    }
                }
                Ok(received)
            };
            let received = within(Some(self.shared.options.client_timeout), read, stop).await;
            self.tally_received(&received);
            match received? {
                0 => return Ok(false),
                bytes => filled_bytes += bytes,
            }
        }
        Ok(true)
    }

    /// Receives the end of a value. Returns whether the client is still connected.
    async fn receive_line_end(&mut self, stop: &mut watch::Receiver<bool>) -> io::Result<bool> {
        while self.input.first::<{ LINE_END.len() }>().is_none() {
            let room = self.input.room(FREE_BYTES);
            let read = self.socket.read_buf(room);
            let received = within(Some(self.shared.options.client_timeout), read, stop).await;
            self.tally_received(&received);
            if received? == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
