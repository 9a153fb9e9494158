//! Heat map of the disk work by set and time.

use block::sets::Sets;
use plotters::prelude::*;

use super::replay::Summary;
use crate::chart::{self, Chart, Line};
use crate::palette::FONT;

/// Rows of the map; each covers several sets.
const ROWS: usize = 64;
/// Maximum number of columns; beyond it, columns are merged in pairs.
const COLUMNS: usize = 96;
/// Initial number of requests in a column.
const REQUESTS: usize = 256;
const SIZE: (u32, u32) = (820, 480);

/// Blocks missed and cleaned, by set and request number.
pub struct HeatMap {
    sets: usize,
    /// Work of each row up to the last column.
    before: Vec<u64>,
    columns: Vec<Vec<u64>>,
    requests_per_column: usize,
    in_column: usize,
}

impl HeatMap {
    /// Creates an empty map for `sets`.
    #[must_use]
    pub fn new(sets: &Sets) -> Self {
        let mut map = Self {
            sets: sets.geometry().sets as usize,
            before: Vec::new(),
            columns: Vec::new(),
            requests_per_column: REQUESTS,
            in_column: 0,
        };
        map.before = map.rows(sets);
        map
    }

    /// Requests until the column is full, at least one.
    #[must_use]
    pub fn until_next_column(&self) -> usize {
        (self.requests_per_column - self.in_column).max(1)
    }

    /// Records that `requests` requests were made.
    pub fn note(&mut self, sets: &Sets, requests: usize) {
        self.in_column += requests;
        if self.in_column < self.requests_per_column {
            return;
        }
        self.in_column = 0;
        let now = self.rows(sets);
        self.columns.push(now.iter().zip(&self.before).map(|(now, before)| now - before).collect());
        self.before = now;
        if self.columns.len() == COLUMNS {
            self.halve();
        }
    }

    fn halve(&mut self) {
        let sum = |pair: &[Vec<u64>]| pair[0].iter().zip(&pair[1]).map(|(a, b)| a + b).collect();
        self.columns = self.columns.chunks_exact(2).map(sum).collect();
        self.requests_per_column *= 2;
    }

    fn rows(&self, sets: &Sets) -> Vec<u64> {
        let mut rows = vec![0; ROWS.min(self.sets)];
        let count = rows.len();
        for set in 0..self.sets {
            let operations = sets.set(set as u32).operations;
            let work = [operations.read_misses, operations.write_misses, operations.cleaned];
            rows[set * count / self.sets] += work.iter().sum::<u64>();
        }
        rows
    }

    /// Draws the map as the text of an SVG file: time to the right, sets upwards, darker for more work.
    ///
    /// # Errors
    /// The drawing library failed.
    pub fn svg(&self, title: &str) -> Result<String, Box<dyn std::error::Error>> {
        chart::svg(SIZE, |root| {
            let rows = ROWS.min(self.sets);
            let requests = (self.columns.len().max(1) * self.requests_per_column) as f64;
            let mut axes = ChartBuilder::on(root)
                .caption(title, (FONT, 18))
                .margin(16)
                .x_label_area_size(44)
                .y_label_area_size(56)
                .build_cartesian_2d(0.0..requests, 0.0..self.sets as f64)?;
            axes.configure_mesh()
                .x_desc("requests")
                .y_desc("sets")
                .label_style((FONT, 13))
                .disable_mesh()
                .draw()?;
            let most = self.columns.iter().flatten().copied().max().unwrap_or(0).max(1) as f64;
            let width = self.requests_per_column as f64;
            let height = self.sets as f64 / rows as f64;
            let cells = self.columns.iter().enumerate().flat_map(|(column, works)| {
                works.iter().enumerate().filter(|(_, work)| **work > 0).map(move |(row, work)| {
                    let (x, y) = (column as f64 * width, row as f64 * height);
                    // The square root makes sets with little work visible.
                    let share = (*work as f64 / most).sqrt();
                    Rectangle::new([(x, y), (x + width, y + height)], shade(share).filled())
                })
            });
            axes.draw_series(cells)?;
            Ok(())
        })
    }
}

/// Colour from white to dark red.
fn shade(share: f64) -> RGBColor {
    let part = |from: f64, to: f64| (from + (to - from) * share) as u8;
    RGBColor(part(255.0, 140.0), part(245.0, 20.0), part(235.0, 10.0))
}

/// Chart of the share of the disk's work over the share of the sets, the busiest first.
#[must_use]
pub fn distribution<'a>(named: impl IntoIterator<Item = (&'a str, &'a Summary)>) -> Chart {
    let lines = named.into_iter().map(|(name, summary)| {
        let mut work: Vec<u64> = summary.by_set.iter().map(|&(missed, cleaned)| missed + cleaned).collect();
        work.sort_unstable_by(|a, b| b.cmp(a));
        let all = work.iter().sum::<u64>().max(1) as f64;
        let mut sum = 0;
        let step = work.len().div_ceil(200);
        let count = work.len() as f64;
        let mut points = vec![(0.0, 0.0)];
        for (number, part) in work.iter().enumerate() {
            sum += part;
            if (number + 1) % step == 0 || number + 1 == work.len() {
                points.push(((number + 1) as f64 / count * 100.0, sum as f64 / all * 100.0));
            }
        }
        Line::new(name, points)
    });
    Chart {
        title: "Share of the disk's work over share of the sets".to_owned(),
        x: "sets, the busiest first, %",
        y: "blocks missed and cleaned, %",
        lines: lines.collect(),
    }
}

#[cfg(test)]
mod tests {
    use block::sets::{Admit, Preset};

    use super::*;

    #[test]
    fn heat_map_columns_keep_all_work_when_merged() {
        let mut sets = Sets::new(Preset::V2.config(128 << 20)).expect("a preset");
        let mut map = HeatMap::new(&sets);
        for block in 0..100_000_u64 {
            sets.read(block * 7919, Admit::Yes);
            map.note(&sets, 1);
        }
        let noted: u64 = map.columns.iter().flatten().sum();
        let rest = map.in_column as u64;
        assert_eq!(noted + rest, 100_000);
        assert!(map.columns.len() < COLUMNS && map.requests_per_column > REQUESTS);
        assert!(map.svg("heat").expect("a picture").contains("<rect"));
    }
}
