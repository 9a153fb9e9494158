//! Copies rows unchanged to a format that can store all their fields. Invalid rows are handled as for accesses.

use super::{BATCH_ACCESSES, Reader};
use crate::trace::copy::CopyError;
use crate::trace::rows::Object;
use crate::trace::write::Writer;

impl Reader {
    /// Prepares the reader for [`copy_rows`](Self::copy_rows).
    pub(in crate::trace) fn for_rows(mut self) -> Self {
        self.keeps_rows = true;
        self
    }

    /// Copies the rows of some records. Returns false at the end.
    pub(in crate::trace) fn copy_rows(&mut self, to: &mut Writer) -> Result<bool, CopyError> {
        for _ in 0..BATCH_ACCESSES {
            for index in 0..self.rows.len() {
                self.begin_row()?;
                self.next_row = index + 1;
                if !self.copy_row(index, to)? {
                    return Ok(false);
                }
            }
            self.rows.clear();
            self.next_row = 0;
            if !self.read_record()? {
                return self.without_requests().map_or(Ok(false), |failure| Err(failure.into()));
            }
        }
        Ok(true)
    }

    /// Copies the current row unless it is skipped; returns false if the limit is reached. If a row's repetitions exceed the limit, fewer
    /// are copied; a range that does not fit even once is not copied.
    fn copy_row(&mut self, index: usize, to: &mut Writer) -> Result<bool, CopyError> {
        let expected = std::mem::take(&mut self.row.left);
        if expected == 0 {
            return Ok(true);
        }
        let mut row = self.rows.row(index).clone();
        let room = self.options.limit.unwrap_or(u64::MAX) - self.report.accesses;
        if expected > room {
            row.repeat = (room / self.row.count) as u32;
        }
        // Other objects keep their recorded size.
        row.value_bytes =
            row.value_bytes.max(self.row.access.size_bytes.saturating_sub(row.key_bytes.into()));
        if row.repeat > 0 {
            let name = match &row.object {
                Object::Named(range) => self.rows.named(range),
                Object::Numbered { .. } => &[],
                Object::Items(_) => unreachable!("ranges are not split here"),
            };
            to.write_row(&row, name)?;
            self.report.accesses += self.row.count.saturating_mul(row.repeat.into());
        }
        Ok(expected < room)
    }
}
