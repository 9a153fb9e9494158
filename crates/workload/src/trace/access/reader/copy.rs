//! Rows as they are, for a form that holds them whole. What is wrong with them is judged as for accesses.

use super::{BATCH_ACCESSES, Reader};
use crate::trace::access::CopyError;
use crate::trace::rows::Object;
use crate::trace::write::Writer;

impl Reader {
    /// The same for [`copy_rows`](Self::copy_rows).
    pub(in crate::trace::access) fn of_rows(mut self) -> Self {
        self.keeps_rows = true;
        self
    }

    /// Copies the rows of some records. False at the end.
    pub(in crate::trace::access) fn copy_rows(&mut self, to: &mut Writer) -> Result<bool, CopyError> {
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

    /// Copies the row that was begun, if it was not left out; false where the limit is reached. A row that goes beyond it is made
    /// fewer times; a range of which not even once is left is not made at all.
    fn copy_row(&mut self, index: usize, to: &mut Writer) -> Result<bool, CopyError> {
        let wanted = std::mem::take(&mut self.row.left);
        if wanted == 0 {
            return Ok(true);
        }
        let mut row = self.rows.row(index).clone();
        let room = self.options.limit.unwrap_or(u64::MAX) - self.report.accesses;
        if wanted > room {
            row.repeat = (room / self.row.count) as u32;
        }
        // Nothing else takes another size than it has.
        row.value_bytes =
            row.value_bytes.max(self.row.access.size_bytes.saturating_sub(row.key_bytes.into()));
        if row.repeat > 0 {
            let name = match &row.object {
                Object::Named(range) => self.rows.named(range),
                Object::Numbered { .. } => &[],
                Object::Items(_) => unreachable!("nobody asked for a cut"),
            };
            to.write_row(&row, name)?;
            self.report.accesses += self.row.count.saturating_mul(row.repeat.into());
        }
        Ok(wanted < room)
    }
}
