//! Logs of a drive's write counters, from other tools or from our own commands.
//!
//! Accepted are the outputs of `nvme fdp stats`, and of `nvme smart-log` with `nvme ocp smart-add-log`, as text or JSON
//! of nvme-cli 1 and 2, any number of them in one file, with or without dates between them; and CSV files with host and
//! media bytes: those of `ssd wear --csv` and `ssd run --csv`, or with several series and a column `series`.

use crate::chart::{Chart, Line};

/// The counters at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogSample {
    /// Bytes that hosts have written.
    pub host_bytes: u64,
    /// Bytes that the drive has programmed.
    pub media_bytes: u64,
}

/// The samples of one drive, relative to the first one.
#[derive(Debug, Clone, PartialEq)]
pub struct DriveLog {
    /// In the order of the log; the first has zeros.
    pub samples: Vec<LogSample>,
    /// Problems that do not prevent reading.
    pub warnings: Vec<String>,
}

/// SMART counts units of 1000 sectors of 512 bytes.
const SMART_UNIT_BYTES: u64 = 512_000;

/// Keys of nvme-cli's outputs, in lower case, with the counter and its unit.
const KEYS: [(&str, Counter, u64); 8] = [
    ("(hbmw)", Counter::Host, 1),
    ("\"hbmw\"", Counter::Host, 1),
    ("(mbmw)", Counter::Media, 1),
    ("\"mbmw\"", Counter::Media, 1),
    ("data_units_written", Counter::Host, SMART_UNIT_BYTES),
    ("data units written", Counter::Host, SMART_UNIT_BYTES),
    ("physical media units written", Counter::Media, 1),
    ("physical_media_units_written", Counter::Media, 1),
];

#[derive(Clone, Copy, PartialEq)]
enum Counter {
    Host,
    Media,
}

impl DriveLog {
    /// Parses a log. `series` selects a series of a CSV that has several.
    ///
    /// # Errors
    /// The reason, which names what was expected.
    pub fn parse(text: &str, series: Option<&str>) -> Result<Self, String> {
        let header = text.lines().next().unwrap_or("");
        let samples = match CsvColumns::of(header) {
            Some(columns) => columns.samples(text, series)?,
            None if series.is_some() => {
                return Err("--series: the log is not a CSV with a column `series`".into());
            }
            None => nvme_cli_samples(text)?,
        };
        Self::from_counters(&samples)
    }

    /// Makes the counters relative. If a counter decreases, as after a format of the drive, the log starts again there.
    fn from_counters(counters: &[LogSample]) -> Result<Self, String> {
        let mut warnings = Vec::new();
        let went_back = |pair: &[LogSample]| {
            pair[1].host_bytes < pair[0].host_bytes || pair[1].media_bytes < pair[0].media_bytes
        };
        let reset = counters.windows(2).rposition(went_back);
        let used = reset.map_or(counters, |at| &counters[at + 1..]);
        if let Some(at) = reset {
            warnings
                .push(format!("a counter decreases at sample {}; samples before it are not used", at + 2));
        }
        let [first, _, ..] = used else {
            return Err(format!("the log has {} sample(s); at least two are needed", used.len()));
        };
        let samples: Vec<LogSample> = used
            .iter()
            .map(|it| LogSample {
                host_bytes: it.host_bytes - first.host_bytes,
                media_bytes: it.media_bytes - first.media_bytes,
            })
            .collect();
        if samples.last().is_some_and(|last| last.host_bytes == 0) {
            return Err("the host wrote nothing between the first and the last sample".into());
        }
        Ok(Self { samples, warnings })
    }

    /// Media bytes when the host had written `host_bytes`, interpolated.
    #[must_use]
    pub fn media_at(&self, host_bytes: f64) -> f64 {
        let at = self.samples.partition_point(|sample| (sample.host_bytes as f64) < host_bytes);
        match (at.checked_sub(1).and_then(|before| self.samples.get(before)), self.samples.get(at)) {
            (Some(before), Some(after)) => {
                let span = (after.host_bytes - before.host_bytes) as f64;
                let part = (host_bytes - before.host_bytes as f64) / span.max(1.0);
                before.media_bytes as f64 + part * (after.media_bytes - before.media_bytes) as f64
            }
            (Some(last), None) => last.media_bytes as f64,
            _ => 0.0,
        }
    }

    /// Write amplification between two amounts of host writes.
    #[must_use]
    pub fn dlwa_between(&self, from: f64, to: f64) -> f64 {
        (self.media_at(to) - self.media_at(from)) / (to - from)
    }

    /// Write amplification over host writes as SVG: between samples, and since the first.
    ///
    /// # Errors
    /// The drawing library's error.
    pub fn svg(&self, title: &str) -> Result<String, Box<dyn std::error::Error>> {
        let terabytes = |sample: &LogSample| sample.host_bytes as f64 / 1e12;
        let pairs = self.samples.windows(2).filter(|pair| pair[1].host_bytes > pair[0].host_bytes);
        let between = pairs.map(|pair| {
            let host = (pair[1].host_bytes - pair[0].host_bytes) as f64;
            (terabytes(&pair[1]), (pair[1].media_bytes - pair[0].media_bytes) as f64 / host)
        });
        let since_start = self.samples.iter().filter(|sample| sample.host_bytes > 0);
        let since_start = since_start
            .map(|sample| (terabytes(sample), sample.media_bytes as f64 / sample.host_bytes as f64));
        let lines = vec![Line::new("between samples", between), Line::new("since the start", since_start)];
        Chart { title: title.to_owned(), x: "host writes, TB", y: "write amplification", lines }.svg()
    }

    /// Total bytes that the host wrote.
    #[must_use]
    pub fn host_bytes(&self) -> u64 {
        self.samples.last().map_or(0, |last| last.host_bytes)
    }

    /// The log up to an amount of host writes.
    #[must_use]
    pub fn until(&self, host_bytes: u64) -> Self {
        let samples = self.samples.iter().copied().filter(|sample| sample.host_bytes <= host_bytes).collect();
        Self { samples, warnings: Vec::new() }
    }
}

/// Columns of a CSV.
struct CsvColumns {
    host: usize,
    media: usize,
    series: Option<usize>,
}

impl CsvColumns {
    fn of(header: &str) -> Option<Self> {
        let names: Vec<&str> = header.split(',').map(str::trim).collect();
        let find = |wanted: [&str; 2]| names.iter().position(|name| wanted.contains(name));
        Some(Self {
            host: find(["host_bytes", "host_written_bytes"])?,
            media: find(["media_bytes", "media_written_bytes"])?,
            series: names.iter().position(|name| *name == "series"),
        })
    }

    fn samples(&self, text: &str, series: Option<&str>) -> Result<Vec<LogSample>, String> {
        let (mut samples, mut names) = (Vec::new(), Vec::<&str>::new());
        for (number, line) in text.lines().enumerate().skip(1).filter(|(_, line)| !line.trim().is_empty()) {
            let cells: Vec<&str> = line.split(',').map(str::trim).collect();
            let name = self.series.and_then(|at| cells.get(at).copied()).unwrap_or("");
            if !names.contains(&name) {
                names.push(name);
            }
            if series.is_some_and(|series| series != name) {
                continue;
            }
            let cell = |at: usize| {
                let text = cells.get(at).copied().unwrap_or("");
                text.parse::<u64>()
                    .map_err(|_| format!("line {}: {text:?} is not a number of bytes", number + 1))
            };
            samples.push(LogSample { host_bytes: cell(self.host)?, media_bytes: cell(self.media)? });
        }
        match series {
            Some(series) if samples.is_empty() => {
                let hint = device::names::hint(series, names.iter().copied());
                Err(format!("--series: {series:?} is not in the file; {hint}it has {}", names.join(", ")))
            }
            None if names.len() > 1 => {
                Err(format!("the file has several series; choose one with --series: {}", names.join(", ")))
            }
            _ => Ok(samples),
        }
    }
}

/// A sample is complete when both counters were found after the previous sample.
fn nvme_cli_samples(text: &str) -> Result<Vec<LogSample>, String> {
    let (mut host, mut media, mut samples) = (None, None, Vec::new());
    let mut has_host = false;
    for (counter, value) in counters(text) {
        match counter {
            Counter::Host => host = Some(value),
            Counter::Media => media = Some(value),
        }
        has_host |= host.is_some();
        if let (Some(host_bytes), Some(media_bytes)) = (host, media) {
            samples.push(LogSample { host_bytes, media_bytes });
            (host, media) = (None, None);
        }
    }
    match (samples.is_empty(), has_host) {
        (false, _) => Ok(samples),
        (true, true) => Err("the log has host writes and no media writes: append the output of `nvme ocp smart-add-log` or `nvme fdp stats` as well".into()),
        (true, false) => Err("no write counters found; expected the output of `nvme fdp stats`, of `nvme smart-log` and `nvme ocp smart-add-log`, or a CSV with the columns host_bytes and media_bytes".into()),
    }
}

/// All counters of a text, in its order.
fn counters(text: &str) -> impl Iterator<Item = (Counter, u64)> {
    let lower = text.to_ascii_lowercase();
    let mut found: Vec<(usize, Counter, u64)> = Vec::new();
    for (key, counter, unit) in KEYS {
        for (at, _) in lower.match_indices(key) {
            if let Some(value) = value_after(&lower[at + key.len()..]) {
                found.push((at, counter, value.saturating_mul(unit)));
            }
        }
    }
    found.sort_by_key(|it| it.0);
    found.into_iter().map(|(_, counter, value)| (counter, value))
}

/// The first number of a text, without the commas between groups of digits, and the text behind it.
fn digits_of(text: &str) -> Option<(String, &str)> {
    let begin = text.find(|letter: char| letter.is_ascii_digit())?;
    // The value is on the key's line.
    if text[..begin].contains('\n') {
        return None;
    }
    let number = &text[begin..];
    let bytes = number.as_bytes();
    let mut end = 0;
    while end < bytes.len() {
        let is_group = bytes[end] == b',' && bytes.get(end + 1).is_some_and(u8::is_ascii_digit);
        if !bytes[end].is_ascii_digit() && !is_group {
            break;
        }
        end += 1;
    }
    Some((number[..end].replace(',', ""), &number[end..]))
}

/// The number behind a key: `: 1,234`, `- 0 1234` (high and low half), `": "1234"`, or `": {"hi":0,"lo":1234}`.
fn value_after(text: &str) -> Option<u64> {
    let is_object = text.trim_start_matches(['"', ' ', ':', '\n', '\t']).starts_with('{');
    if is_object {
        let low = text.find("\"lo\"")?;
        return digits_of(&text[low + 4..])?.0.parse().ok();
    }
    let (first, rest) = digits_of(text)?;
    // nvme-cli 1 prints 128-bit counters as a high and a low half.
    let second = rest.strip_prefix(' ').filter(|rest| rest.starts_with(|it: char| it.is_ascii_digit()));
    match (first.as_str(), second) {
        ("0", Some(rest)) => digits_of(rest)?.0.parse().ok(),
        _ => first.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<(u64, u64)> {
        let log = DriveLog::parse(text, None).unwrap();
        log.samples.iter().map(|it| (it.host_bytes, it.media_bytes)).collect()
    }

    #[test]
    fn fdp_statistics_are_read_as_text_with_dates_and_as_json() {
        let text = "Fri Oct  4 03:13:15 AM UTC 2024\nHost Bytes with Metadata Written (HBMW): 1000\nMedia Bytes with Metadata Written (MBMW): 1100\nMedia Bytes Erased (MBE): 0\nFri Oct  4 03:14:15\nHost Bytes with Metadata Written (HBMW): 3000\nMedia Bytes with Metadata Written (MBMW): 3600\nMedia Bytes Erased (MBE): 7\n";
        assert_eq!(pairs(text), [(0, 0), (2000, 2500)]);
        let json = "{\"hbmw\":1000,\"mbmw\":1100,\"mbe\":0}\n{\n  \"hbmw\" : \"3000\",\n  \"mbmw\" : \"3600\",\n  \"mbe\" : 7\n}\n";
        assert_eq!(pairs(json), [(0, 0), (2000, 2500)]);
    }

    #[test]
    fn smart_and_ocp_logs_are_read_in_all_their_forms() {
        let version_1 =
            "data_units_written                  : 1,234\nPhysical media units written -  \t\t0 1000\n";
        let next =
            "data_units_written                  : 1,236\nPhysical media units written -  \t\t0 3048000\n";
        let version_2 =
            "Data Units Written\t\t\t: 1236 (632.83 MB)\nPhysical media units written\t: 3048000\n";
        let as_json =
            "{\"data_units_written\":1236}\n{\"Physical media units written\":{\"hi\":0,\"lo\":3048000}}\n";
        for later in [next, version_2, as_json] {
            assert_eq!(pairs(&format!("{version_1}{later}")), [(0, 0), (2 * 512_000, 3_047_000)], "{later}");
        }
    }

    #[test]
    fn csv_files_are_read_by_their_columns_and_series_are_chosen() {
        assert_eq!(
            pairs("unix_seconds,host_written_bytes,media_written_bytes\n1,5,5\n2,9,11\n"),
            [(0, 0), (4, 6)]
        );
        let several = "series,host_bytes,media_bytes\na,0,0\na,1,1\nb,0,0\nb,2,3\n";
        assert_eq!(DriveLog::parse(several, Some("b")).unwrap().samples[1].media_bytes, 3);
        let error = DriveLog::parse(several, None).unwrap_err();
        assert!(error.contains("choose one with --series: a, b"), "{error}");
        assert!(DriveLog::parse(several, Some("c")).unwrap_err().contains("is not in the file"));
        assert!(
            DriveLog::parse("host_bytes,media_bytes\n0,x\n", None).unwrap_err().contains("line 2: \"x\"")
        );
    }

    #[test]
    fn logs_without_media_writes_or_with_one_sample_are_refused() {
        let error = |text: &str| DriveLog::parse(text, None).unwrap_err();
        assert!(error("data_units_written : 5\n").contains("append the output of `nvme ocp smart-add-log`"));
        assert!(error("hello").contains("no write counters found"));
        assert!(error("\"hbmw\":1,\"mbmw\":1").contains("has 1 sample(s)"));
        assert!(error("\"hbmw\":1,\"mbmw\":1 \"hbmw\":1,\"mbmw\":1").contains("the host wrote nothing"));
    }

    #[test]
    fn decreasing_counters_restart_the_log() {
        let log = DriveLog::parse("host_bytes,media_bytes\n50,60\n0,0\n4,4\n8,10\n", None).unwrap();
        assert_eq!((log.samples.len(), log.host_bytes()), (3, 8));
        assert!(log.warnings[0].contains("decreases at sample 2"));
    }

    #[test]
    fn media_bytes_are_interpolated_between_samples() {
        let log = DriveLog::parse("host_bytes,media_bytes\n0,0\n100,100\n200,300\n", None).unwrap();
        assert_eq!((log.media_at(50.0), log.media_at(150.0)), (50.0, 200.0));
        assert_eq!(log.dlwa_between(100.0, 200.0), 2.0);
    }
}
