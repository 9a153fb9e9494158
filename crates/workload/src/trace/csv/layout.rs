//! The positions of the fields in one file.

use super::cells::Cells;
use super::columns::{Column, CsvColumns};
use super::fields::{FIELDS, KEY, SEPARATORS, TENANT};
use super::header;
use crate::trace::columns::bare;
use crate::trace::row_error::RowError;

/// Positions of the fields in a file.
pub(super) struct Layout {
    pub(super) separator: u8,
    /// Column and field, by column.
    pub(super) places: Vec<(usize, usize)>,
    /// The present fields.
    pub(super) has: [bool; FIELDS],
    /// The unit of the times, if the header gives it.
    pub(super) time_units_per_second: Option<u64>,
}

impl Layout {
    /// The fields of a row; missing ones are empty.
    #[inline]
    pub(super) fn split<'a>(&self, line: &'a [u8]) -> [&'a [u8]; FIELDS] {
        let mut found: [&[u8]; FIELDS] = [&[]; FIELDS];
        let mut expected = self.places.iter().peekable();
        for (place, cell) in Cells::new(self.separator, line).enumerate() {
            while let Some((_, field)) = expected.next_if(|(at, _)| *at == place) {
                found[*field] = bare(cell);
            }
            if expected.peek().is_none() {
                break;
            }
        }
        found
    }

    /// The cells of the line.
    pub(super) fn cells<'a>(&self, line: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        Cells::new(self.separator, line).map(bare)
    }

    /// The used cells of the line: column, field and cell.
    pub(super) fn used<'a>(&self, line: &'a [u8]) -> impl Iterator<Item = (usize, usize, &'a [u8])> {
        let cells: Vec<&[u8]> = self.cells(line).collect();
        self.places
            .iter()
            .map(move |&(place, field)| (place, field, cells.get(place).copied().unwrap_or(&[])))
    }

    /// Whether every used field of the line is a word, as column names are.
    pub(super) fn are_words(&self, line: &[u8]) -> bool {
        self.used(line).all(|(_, _, cell)| header::is_word(cell))
    }

    /// Whether all unused columns have names known from published traces.
    pub(super) fn has_only_known_unused_columns(&self, line: &[u8]) -> bool {
        let is_used = |place| self.places.iter().any(|(at, _)| *at == place);
        let mut cells = self.cells(line).enumerate();
        cells.all(|(place, cell)| {
            is_used(place)
                || cell.is_empty()
                || header::field_called(cell).is_some()
                || header::is_unused(cell)
        })
    }

    /// Whether every used field of the line is a usual name.
    pub(super) fn are_names(&self, line: &[u8]) -> bool {
        self.used(line).all(|(_, _, cell)| header::field_called(cell).is_some())
    }
}

impl CsvColumns {
    /// The fields' positions in a file whose first line is `line`.
    pub(super) fn layout(&self, line: &[u8]) -> Result<Layout, RowError> {
        // A table of one column contains no separator.
        let found = SEPARATORS.into_iter().filter(|separator| line.contains(separator));
        let mut failure = None;
        for separator in found.chain([SEPARATORS[0]]) {
            match self.layout_between(separator, line) {
                Ok(layout) => return Ok(layout),
                Err(reason) => failure = failure.or(Some(reason)),
            }
        }
        Err(failure.expect("at least one separator is tried"))
    }

    fn layout_between(&self, separator: u8, line: &[u8]) -> Result<Layout, RowError> {
        let cells: Vec<&[u8]> = Cells::new(separator, line).map(bare).collect();
        let called = |name: &str| {
            let exactly = cells.iter().position(|cell| cell.eq_ignore_ascii_case(name.as_bytes()));
            exactly.or_else(|| cells.iter().position(|cell| header::is_called(cell, name)))
        };
        let mut places: Vec<(usize, usize)> = match self.fields.as_slice() {
            [] => header::places(&cells),
            fields => fields
                .iter()
                .map(|(field, column)| {
                    let (place, text) = match column {
                        Column::At(place) => {
                            (Some(*place).filter(|place| *place < cells.len()), (place + 1).to_string())
                        }
                        Column::Named(name) => (called(name), name.clone()),
                    };
                    place
                        .map(|place| (place, *field))
                        .ok_or_else(|| RowError::NoColumn { nearest: nearest(&text, &cells), column: text })
                })
                .collect::<Result<_, _>>()?,
        };
        if !places.iter().any(|(_, field)| *field == KEY) {
            return Err(RowError::NoKeyColumn);
        }
        if let Some(name) = &self.tenant {
            places.retain(|(_, field)| *field != TENANT);
            let is_used = |place: &usize| places.iter().any(|(used, _)| used == place);
            let place = called(name).filter(|place| !is_used(place));
            places.push((place.ok_or_else(|| RowError::Chosen(name.clone()))?, TENANT));
        }
        places.sort_unstable();
        let has = std::array::from_fn(|field| places.iter().any(|(_, known)| *known == field));
        Ok(Layout { separator, places, has, time_units_per_second: None })
    }
}

/// The cell of a header that is most similar to a column's name; `None` if none is similar.
fn nearest(name: &str, header: &[&[u8]]) -> Option<String> {
    let cells = header.iter().map(|cell| String::from_utf8_lossy(cell));
    let distant = cells.map(|cell| {
        (strsim::damerau_levenshtein(&cell.to_lowercase(), &name.to_lowercase()), cell.into_owned())
    });
    let (distance, cell) = distant.min()?;
    (2 * distance <= name.chars().count()).then_some(cell)
}
