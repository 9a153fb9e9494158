//! Detects sequential streams: requests that each begin where another ended. A disk serves them well without a cache, and in a cache
//! they evict blocks that profit more.
//!
//! Requests are matched with the ends of the last [`ESTABLISHED`] streams and of the last [`NEWCOMERS`] requests that continued no
//! stream. The two lists are separate, so that random requests do not evict the streams.
//! Flashcache's single list of 32 forgets a stream after 32 random requests.

/// Streams remembered: they have been continued at least once.
pub const ESTABLISHED: usize = 32;
/// Requests remembered that nothing has continued yet.
pub const NEWCOMERS: usize = 32;

/// What is known of the streams of one volume.
pub struct Streams {
    /// The longest unused first.
    established: Vec<Stream>,
    newcomers: [Stream; NEWCOMERS],
    /// The newcomer to be forgotten next.
    eldest: usize,
}

#[derive(Debug, Clone, Copy)]
struct Stream {
    /// The byte of disk that its next request begins at.
    next: u64,
    bytes: u64,
}

/// No request begins here.
const NOWHERE: Stream = Stream { next: u64::MAX, bytes: 0 };

impl Default for Streams {
    fn default() -> Self {
        Self::new()
    }
}

impl Streams {
    /// No request seen yet.
    #[must_use]
    pub fn new() -> Self {
        Self { established: Vec::with_capacity(ESTABLISHED), newcomers: [NOWHERE; NEWCOMERS], eldest: 0 }
    }

    /// Notes a request; the length of the stream it belongs to, the request included, in bytes.
    pub fn see(&mut self, first_byte: u64, bytes: u64) -> u64 {
        let next = first_byte.saturating_add(bytes);
        if let Some(place) = self.established.iter().rposition(|stream| stream.next == first_byte) {
            let bytes = self.established[place].bytes.saturating_add(bytes);
            self.established[place..].rotate_left(1);
            *self.established.last_mut().expect("holds the stream just found") = Stream { next, bytes };
            return bytes;
        }
        if let Some(place) = self.newcomers.iter().position(|stream| stream.next == first_byte) {
            let begun = std::mem::replace(&mut self.newcomers[place], NOWHERE);
            let bytes = begun.bytes.saturating_add(bytes);
            self.establish(Stream { next, bytes });
            return bytes;
        }
        self.newcomers[self.eldest] = Stream { next, bytes };
        self.eldest = (self.eldest + 1) % NEWCOMERS;
        bytes
    }

    fn establish(&mut self, stream: Stream) {
        if self.established.len() == ESTABLISHED {
            self.established.remove(0);
        }
        self.established.push(stream);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_grows_with_each_request_that_continues_it() {
        let mut streams = Streams::new();
        assert_eq!(streams.see(1000, 10), 10);
        assert_eq!(streams.see(1010, 20), 30);
        assert_eq!(streams.see(1030, 5), 35);
        assert_eq!(streams.see(1010, 20), 20, "the same place again continues nothing");
    }

    #[test]
    fn interleaved_streams_are_detected_separately() {
        let mut streams = Streams::new();
        for request in 0..100 {
            for stream in 0..ESTABLISHED as u64 {
                assert_eq!(streams.see(stream << 32 | (request * 8), 8), (request + 1) * 8);
            }
        }
    }

    #[test]
    fn random_requests_do_not_drive_out_a_stream() {
        let mut streams = Streams::new();
        streams.see(0, 8);
        streams.see(8, 8);
        for random in 0..10_000 {
            streams.see((1 << 40) + random * 1000, 8);
        }
        assert_eq!(streams.see(16, 8), 24);
    }
}
