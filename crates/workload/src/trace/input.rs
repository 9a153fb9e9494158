//! The bytes of a trace: a file or standard input, decompressed according to its first bytes.
//!
//! A separate thread decompresses a few blocks ahead: it takes about as much time as parsing.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use flate2::bufread::GzDecoder;

use super::parquet;

const BUFFER_BYTES: usize = 1 << 20;
/// Blocks that the thread can be ahead.
const BLOCKS_AHEAD: usize = 3;

pub(super) const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
pub(super) const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// After a first byte of 0x50 to 0x5f: a skippable frame, with which pzstd begins its files.
const ZSTD_SKIPPABLE: [u8; 3] = [0x2a, 0x4d, 0x18];
pub(super) const XZ_MAGIC: [u8; 6] = [0xfd, b'7', b'z', b'X', b'Z', 0];

/// The largest window of `zstd --long`: 2 GiB. The decoder allocates the window that the data declares.
const LARGEST_ZSTD_WINDOW_LOG: u32 = 31;

/// The path of standard input.
pub(super) const STANDARD_INPUT: &str = "-";

/// The decompressed bytes of `path`.
pub(super) fn open(path: &Path) -> io::Result<Box<dyn Read + Send>> {
    if path == Path::new(STANDARD_INPUT) {
        return decompressed(Box::new(io::stdin()));
    }
    let file = File::open(path)?;
    if is_parquet(&file) { table(file, None) } else { decompressed(Box::new(file)) }
}

/// Like [`open`], and adds the (compressed) bytes read from the file to `taken`.
pub(super) fn open_counting(path: &Path, taken: Arc<AtomicU64>) -> io::Result<Box<dyn Read + Send>> {
    if path == Path::new(STANDARD_INPUT) {
        return open(path);
    }
    let file = File::open(path)?;
    if is_parquet(&file) {
        return table(file, Some(taken));
    }
    decompressed(Box::new(Counting { file, taken }))
}

/// The text of a Parquet file.
fn table(file: File, taken: Option<Arc<AtomicU64>>) -> io::Result<Box<dyn Read + Send>> {
    Ahead::start("Parquet", parquet::open(file, taken)?)
}

/// Whether the file is in the Parquet format, which is read at any place. A pipe is not.
pub(super) fn is_parquet(file: &File) -> bool {
    let mut magic = [0; parquet::MAGIC.len()];
    file.read_exact_at(&mut magic, 0).is_ok() && magic == parquet::MAGIC
}

/// A file that counts the bytes read from it.
struct Counting {
    file: File,
    taken: Arc<AtomicU64>,
}

impl Read for Counting {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.taken.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// Reads until some bytes arrive or the input ends.
pub(super) fn read_some(reader: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match reader.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

fn decompressed(mut file: Box<dyn Read + Send>) -> io::Result<Box<dyn Read + Send>> {
    let mut magic = [0; 6];
    let mut known = 0;
    while known < magic.len() {
        match read_some(&mut file, &mut magic[known..])? {
            0 => break,
            read => known += read,
        }
    }
    let whole = Cursor::new(magic).take(known as u64).chain(file);
    let buffered = |whole| BufReader::with_capacity(BUFFER_BYTES, RetryInterrupted(whole));
    if magic[..known].starts_with(&GZIP_MAGIC) {
        return Ahead::start("gzip", Box::new(GzipMembers::new(buffered(whole))));
    }
    let is_skippable = magic[0] >> 4 == 5 && magic[1..].starts_with(&ZSTD_SKIPPABLE);
    if magic[..known].starts_with(&ZSTD_MAGIC) || is_skippable {
        let mut decoder = zstd::Decoder::with_buffer(buffered(whole))?;
        decoder.window_log_max(LARGEST_ZSTD_WINDOW_LOG)?;
        return Ahead::start("zstd", Box::new(decoder));
    }
    if magic[..known].starts_with(&XZ_MAGIC) {
        return Ahead::start("xz", Box::new(liblzma::bufread::XzDecoder::new_multi_decoder(buffered(whole))));
    }
    // Callers have a large buffer: another one would add a copy.
    Ok(Box::new(whole))
}

/// A reader that retries after a signal: decoders cannot continue after an error.
struct RetryInterrupted<R>(R);

impl<R: Read> Read for RetryInterrupted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        read_some(&mut self.0, buffer)
    }
}

/// Concatenated gzip members are one text: log rotation and pigz write such files. Zero bytes after the last member, with which `dd` and
/// tapes fill blocks, are ignored as in gzip(1); any other bytes are an error, where gzip(1) only warns.
struct GzipMembers<R> {
    /// `None` at the end.
    member: Option<GzDecoder<R>>,
}

impl<R: BufRead> GzipMembers<R> {
    fn new(reader: R) -> Self {
        Self { member: Some(GzDecoder::new(reader)) }
    }
}

impl<R: BufRead> Read for GzipMembers<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let read = member.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            let mut reader = self.member.take().expect("the member was just used").into_inner();
            let zeros = skip_zeros(&mut reader)?;
            match (reader.fill_buf()?.is_empty(), zeros) {
                (true, _) => {}
                (false, 0) => self.member = Some(GzDecoder::new(reader)),
                (false, _) => {
                    let why = format!("{zeros} zero bytes and then something else after a member");
                    return Err(io::Error::new(io::ErrorKind::InvalidData, why));
                }
            }
        }
        Ok(0)
    }
}

/// Skips zero bytes and returns their number.
fn skip_zeros(reader: &mut impl BufRead) -> io::Result<u64> {
    let mut skipped = 0;
    loop {
        let bytes = reader.fill_buf()?;
        let zeros = bytes.iter().take_while(|&&byte| byte == 0).count();
        let is_over = bytes.is_empty() || zeros < bytes.len();
        reader.consume(zeros);
        skipped += zeros as u64;
        if is_over {
            return Ok(skipped);
        }
    }
}

/// Receives blocks decompressed by a thread, and returns them for reuse.
struct Ahead {
    filled: Receiver<io::Result<Vec<u8>>>,
    empty: Sender<Vec<u8>>,
    block: Vec<u8>,
    read: usize,
    ended: bool,
}

impl Ahead {
    fn start(compression: &'static str, decoder: Box<dyn Read + Send>) -> io::Result<Box<dyn Read + Send>> {
        let (to_reader, filled) = sync_channel(BLOCKS_AHEAD);
        let (empty, from_reader) = channel();
        std::thread::Builder::new()
            .name("trace-decompress".to_owned())
            .spawn(move || decompress(compression, decoder, &to_reader, &from_reader))?;
        Ok(Box::new(Self { filled, empty, block: Vec::new(), read: 0, ended: false }))
    }
}

impl Read for Ahead {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.read == self.block.len() {
            if self.ended {
                return Ok(0);
            }
            let next = self.filled.recv().unwrap_or_else(|_| Err(io::Error::other("decompressing panicked")));
            self.ended = !matches!(&next, Ok(block) if !block.is_empty());
            let used = std::mem::replace(&mut self.block, next?);
            self.read = 0;
            // The thread needs no blocks after it has ended.
            let _ = self.empty.send(used);
        }
        let length = buffer.len().min(self.block.len() - self.read);
        buffer[..length].copy_from_slice(&self.block[self.read..self.read + length]);
        self.read += length;
        Ok(length)
    }
}

/// Sends blocks until an empty one marks the end, an error occurs, or the receiver is dropped.
fn decompress(
    compression: &str,
    mut decoder: Box<dyn Read + Send>,
    to_reader: &SyncSender<io::Result<Vec<u8>>>,
    from_reader: &Receiver<Vec<u8>>,
) {
    loop {
        let mut block = from_reader.try_recv().unwrap_or_default();
        block.resize(BUFFER_BYTES, 0);
        let (length, failure) = fill(decoder.as_mut(), &mut block);
        block.truncate(length);
        let is_last = block.is_empty();
        if (!is_last || failure.is_none()) && (to_reader.send(Ok(block)).is_err() || is_last) {
            return;
        }
        if let Some(error) = failure {
            let message =
                io::Error::new(error.kind(), format!("cannot read its {compression} data: {error}"));
            // The error is lost only if the receiver is dropped.
            let _ = to_reader.send(Err(message));
            return;
        }
    }
}

/// Fills the block up to the end of the data; bytes before an error are valid.
fn fill(decoder: &mut dyn Read, block: &mut [u8]) -> (usize, Option<io::Error>) {
    let mut length = 0;
    while length < block.len() {
        match read_some(decoder, &mut block[length..]) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) => return (length, Some(error)),
        }
    }
    (length, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn read(bytes: &[u8]) -> (Vec<u8>, Option<String>) {
        let mut found = Vec::new();
        let outcome = decompressed(Box::new(Cursor::new(bytes.to_vec())))
            .and_then(|mut reader| reader.read_to_end(&mut found));
        (found, outcome.err().map(|error| error.to_string()))
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn xz(bytes: &[u8]) -> Vec<u8> {
        liblzma::encode_all(bytes, 0).unwrap()
    }

    fn text() -> Vec<u8> {
        (0..300_000u64).flat_map(|i| format!("{i},key{}\n", i * 7919 % 1000).into_bytes()).collect()
    }

    #[test]
    fn compressed_data_reads_like_plain_data() {
        let text = text();
        let (front, back) = text.split_at(text.len() / 3);
        let zstd = |bytes| zstd::encode_all(bytes, 1).unwrap();
        let archives = [
            text.clone(),
            [gzip(front), gzip(back)].concat(),
            [zstd(front), zstd(back)].concat(),
            [b"\x50\x2a\x4d\x18\x04\0\0\0size".to_vec(), zstd(front), zstd(back)].concat(),
            [xz(front), xz(back)].concat(),
        ];
        for archive in archives {
            let (found, error) = read(&archive);
            assert_eq!(error, None);
            assert!(found == text, "{:?}", &archive[..6]);
        }
        assert_eq!(read(b""), (Vec::new(), None));
        assert_eq!(read(b"x"), (b"x".to_vec(), None));
    }

    #[test]
    fn zstd_data_with_a_long_window_is_read() {
        let text = text();
        let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
        encoder.window_log(30).unwrap();
        encoder.include_contentsize(false).unwrap();
        encoder.write_all(&text).unwrap();
        let (found, error) = read(&encoder.finish().unwrap());
        assert_eq!(error, None);
        assert!(found == text);
    }

    /// Catches a regression: the zeros are taken for another member's header.
    #[test]
    fn zeros_after_the_last_gzip_member_are_ignored_and_other_bytes_rejected() {
        let text = text();
        let (front, back) = text.split_at(text.len() / 3);
        let whole = [gzip(front), gzip(back)].concat();
        // Also more zeros than a buffer holds.
        for zeros in [1, 7, 511, BUFFER_BYTES * 2 + 3] {
            let (found, error) = read(&[whole.clone(), vec![0; zeros]].concat());
            assert_eq!(error, None, "{zeros} zeros");
            assert!(found == text, "{zeros} zeros");
        }
        let garbage: [(&[u8], &str); 4] = [
            (b"x", "unexpected end of file"),
            (b"not zeros, not gzip", "invalid gzip header"),
            (b"\0\0\0x", "3 zero bytes and then something else after a member"),
            (
                &[&[0; 512][..], &gzip(b"more")].concat(),
                "512 zero bytes and then something else after a member",
            ),
        ];
        for (bytes, expected) in garbage {
            let (found, error) = read(&[&whole, bytes].concat());
            assert!(found == text, "the data before the error is valid");
            assert_eq!(error.unwrap(), format!("cannot read its gzip data: {expected}"));
        }
    }

    #[test]
    fn cut_archive_is_an_error_after_the_complete_part() {
        let text = text();
        let archives =
            [("gzip", gzip(&text)), ("zstd", zstd::encode_all(&text[..], 1).unwrap()), ("xz", xz(&text))];
        for (name, whole) in archives {
            for cut in [10, whole.len() / 2, whole.len() - 1] {
                let (found, error) = read(&whole[..cut]);
                let error = error.unwrap_or_else(|| panic!("{name} cut at {cut} read without an error"));
                assert!(error.starts_with(&format!("cannot read its {name} data: ")), "{error}");
                assert!(text.starts_with(&found), "{name} cut at {cut}");
            }
            let (found, _) = read(&whole[..whole.len() / 2]);
            assert!(found.len() > text.len() / 4, "{name}: only {} bytes before the cut", found.len());
        }
    }
}
