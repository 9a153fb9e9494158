//! The curve of a run as a picture.

use super::curve::Interval;
use crate::chart::{Chart, Line};

/// Write amplification over host writes, in drive capacities, as SVG.
///
/// # Errors
/// The drawing library's error.
pub fn svg(
    title: &str,
    intervals: &[Interval],
    capacity_bytes: u64,
) -> Result<String, Box<dyn std::error::Error>> {
    let capacities = |bytes: u64| bytes as f64 / capacity_bytes.max(1) as f64;
    let of_interval = intervals.iter().filter_map(|it| Some((capacities(it.host_bytes), it.dlwa()?)));
    let since_start = intervals.iter().filter(|it| it.host_bytes > 0);
    let since_start =
        since_start.map(|it| (capacities(it.host_bytes), it.media_bytes as f64 / it.host_bytes as f64));
    let lines = vec![Line::new("of each interval", of_interval), Line::new("since the start", since_start)];
    Chart { title: title.to_owned(), x: "host writes in drive capacities", y: "write amplification", lines }
        .svg()
}
