//! Detects sequential streams: requests that each begin where another ended. A disk serves them well without a cache, and in a cache
//! they evict blocks that profit more.
//!
//! Requests are matched with the ends of the last [`ESTABLISHED`] streams and of the last [`SINGLE_REQUESTS`] requests that continued no
//! stream. The two lists are separate, so that random requests do not evict the streams.
//! Flashcache's single list of 32 forgets a stream after 32 random requests.

/// Maximum of remembered streams, which have at least two requests.
pub const ESTABLISHED: usize = 32;
/// Maximum of remembered requests that no other has continued.
pub const SINGLE_REQUESTS: usize = 32;

/// The sequential streams of one volume.
pub struct Streams {
    /// Least recently used first.
    established: Vec<Stream>,
    singles: [Stream; SINGLE_REQUESTS],
    /// Index of the next entry to overwrite.
    next_overwritten: usize,
}

#[derive(Debug, Clone, Copy)]
struct Stream {
    /// Byte of the disk where the next request begins.
    next: u64,
    bytes: u64,
}

/// An empty entry, which no request continues.
const NO_STREAM: Stream = Stream { next: u64::MAX, bytes: 0 };

impl Default for Streams {
    fn default() -> Self {
        Self::new()
    }
}

impl Streams {
    /// A detector without streams.
    #[must_use]
    pub fn new() -> Self {
        Self {
            established: Vec::with_capacity(ESTABLISHED),
            singles: [NO_STREAM; SINGLE_REQUESTS],
            next_overwritten: 0,
        }
    }

    /// Records a request. Returns the length in bytes of its stream, including the request.
    pub fn record(&mut self, first_byte: u64, bytes: u64) -> u64 {
        let next = first_byte.saturating_add(bytes);
        if let Some(place) = self.established.iter().rposition(|stream| stream.next == first_byte) {
            let bytes = self.established[place].bytes.saturating_add(bytes);
            self.established[place..].rotate_left(1);
            *self.established.last_mut().expect("holds the stream just found") = Stream { next, bytes };
            return bytes;
        }
        if let Some(place) = self.singles.iter().position(|stream| stream.next == first_byte) {
            let begun = std::mem::replace(&mut self.singles[place], NO_STREAM);
            let bytes = begun.bytes.saturating_add(bytes);
            self.establish(Stream { next, bytes });
            return bytes;
        }
        self.singles[self.next_overwritten] = Stream { next, bytes };
        self.next_overwritten = (self.next_overwritten + 1) % SINGLE_REQUESTS;
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
    fn stream_grows_with_each_continuing_request() {
        let mut streams = Streams::new();
        assert_eq!(streams.record(1000, 10), 10);
        assert_eq!(streams.record(1010, 20), 30);
        assert_eq!(streams.record(1030, 5), 35);
        assert_eq!(streams.record(1010, 20), 20, "a repeated request does not continue a stream");
    }

    #[test]
    fn interleaved_streams_are_detected_separately() {
        let mut streams = Streams::new();
        for request in 0..100 {
            for stream in 0..ESTABLISHED as u64 {
                assert_eq!(streams.record(stream << 32 | (request * 8), 8), (request + 1) * 8);
            }
        }
    }

    #[test]
    fn random_requests_do_not_evict_a_stream() {
        let mut streams = Streams::new();
        streams.record(0, 8);
        streams.record(8, 8);
        for random in 0..10_000 {
            streams.record((1 << 40) + random * 1000, 8);
        }
        assert_eq!(streams.record(16, 8), 24);
    }
}
