//! The replies of a connection that are not sent yet.

use std::io::{self, IoSlice};
use std::time::Duration;

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

/// Replies are sent when they reach this many bytes, and at the latest when no complete request remains.
pub const SEND_BYTES: usize = 32 << 10;

/// Values from this length on are sent from the cache's memory, without a copy.
const UNCOPIED_BYTES: usize = 16 << 10;

/// Replies that are not sent yet, and their socket.
pub struct Output<W> {
    socket: W,
    /// Replies not sent yet.
    pub buffer: Vec<u8>,
    /// Time limit for the client to accept a part of a reply.
    limit: Duration,
    sent_bytes: u64,
}

impl<W: AsyncWrite + Unpin> Output<W> {
    /// An empty output to `socket`.
    pub fn new(socket: W, limit: Duration) -> Self {
        Self { socket, buffer: Vec::with_capacity(2048), limit, sent_bytes: 0 }
    }

    /// Appends a value, its line end, and `end`.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn value(&mut self, value: &[u8], end: &[u8]) -> io::Result<()> {
        if value.len() >= UNCOPIED_BYTES {
            return self.send_value(value, end).await;
        }
        self.buffer.extend_from_slice(value);
        self.buffer.extend_from_slice(b"\r\n");
        self.buffer.extend_from_slice(end);
        self.send_if_full().await
    }

    /// Sends the replies so far, a value, its line end, and `end` together.
    async fn send_value(&mut self, value: &[u8], end: &[u8]) -> io::Result<()> {
        let bytes_before = self.buffer.len();
        self.buffer.extend_from_slice(b"\r\n");
        self.buffer.extend_from_slice(end);
        let (before, behind) = self.buffer.split_at(bytes_before);
        let mut parts = [before, value, behind].map(IoSlice::new);
        send(&mut self.socket, &mut parts, self.limit).await?;
        self.sent_bytes += (self.buffer.len() + value.len()) as u64;
        self.clear();
        Ok(())
    }

    /// Sends the replies if there are many bytes.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn send_if_full(&mut self) -> io::Result<()> {
        if self.buffer.len() >= SEND_BYTES { self.send().await } else { Ok(()) }
    }

    /// Sends the replies.
    ///
    /// # Errors
    /// If the connection is broken, or the client accepts nothing within the time limit.
    pub async fn send(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        send(&mut self.socket, &mut [IoSlice::new(&self.buffer)], self.limit).await?;
        self.sent_bytes += self.buffer.len() as u64;
        self.clear();
        Ok(())
    }

    fn clear(&mut self) {
        self.buffer.clear();
        if self.buffer.capacity() > 4 * SEND_BYTES {
            self.buffer.shrink_to(SEND_BYTES);
        }
    }

    /// Ends the stream in order, so that the client can detect truncation. Errors of a disconnected client are ignored.
    pub async fn close(&mut self) {
        let _ = timeout(self.limit, self.socket.shutdown()).await;
    }

    /// Bytes sent since the last call.
    pub fn take_sent_bytes(&mut self) -> u64 {
        std::mem::take(&mut self.sent_bytes)
    }
}

/// Writes all bytes of all parts. The time limit is for each write that the client accepts.
async fn send(
    socket: &mut (impl AsyncWrite + Unpin),
    mut parts: &mut [IoSlice<'_>],
    limit: Duration,
) -> io::Result<()> {
    // Removes empty parts.
    IoSlice::advance_slices(&mut parts, 0);
    while !parts.is_empty() {
        let write = async {
            match &*parts {
                [part] => socket.write(part).await,
                parts => socket.write_vectored(parts).await,
            }
        };
        let written = timeout(limit, write).await.map_err(|_| io::ErrorKind::TimedOut)??;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        IoSlice::advance_slices(&mut parts, written);
    }
    timeout(limit, socket.flush()).await.map_err(|_| io::ErrorKind::TimedOut)?
}
