//! Encodes rows into blocks.

use hashbrown::HashMap;
use xxhash_rust::xxh3::xxh3_64;

use super::block::{
    BLOCK_ROWS, COLUMNS, DESCRIPTOR_BYTES, Descriptor, FIRST, FOLLOWING, HEAD_BYTES, KEY, MOST_NAME_BYTES,
    NAME, NUMBERED, REPEAT, STORED, TENANT, TIME, TIMED, TTL, VALUE, VOLUME, WHAT,
};
use super::{BLOCK_HEAD_BYTES, header};
use crate::trace::TenantNames;
use crate::trace::rows::{Object, Row};
use crate::{RequestKind, Tenant};

/// Common divisors of timestamps and similar values, the largest first.
const STEPS: [u32; 4] = [1_000_000_000, 1_000_000, 1000, 1];

/// Encodes rows as the bytes of a file.
#[derive(Default)]
pub(in crate::trace) struct Encoder {
    columns: [Vec<u64>; COLUMNS],
    /// The tenants' names, each after its length.
    tenants: Vec<u8>,
    tenant_numbers: HashMap<Tenant, u64>,
    names: Vec<u8>,
    /// Rows in the finished blocks.
    rows: u64,
    begun: bool,
}

impl Encoder {
    /// Adds a row and appends to `out` each block that it completes; `name` is the name of a named object. Returns false and adds nothing
    /// if the name is too long for the format.
    pub(in crate::trace) fn push(
        &mut self,
        row: &Row,
        name: &[u8],
        tenants: &TenantNames,
        out: &mut Vec<u8>,
    ) -> bool {
        if name.len() as u64 > MOST_NAME_BYTES {
            return false;
        }
        let mut numbers = [0; COLUMNS];
        numbers[WHAT] = RequestKind::ALL.iter().position(|kind| *kind == row.kind).unwrap_or(0) as u64;
        if let Some(time_ns) = row.time_ns {
            numbers[WHAT] |= TIMED;
            numbers[TIME] = time_ns;
        } else if let Some(last) = self.columns[TIME].last() {
            // Unused; a value far from the others would widen the whole column.
            numbers[TIME] = *last;
        }
        match row.object {
            Object::Named(_) => self.push_name(name, &mut numbers),
            Object::Numbered { volume, first, count } => {
                numbers[WHAT] |= NUMBERED;
                (numbers[VOLUME], numbers[FIRST], numbers[FOLLOWING]) = (volume, first, count.max(1) - 1);
            }
            Object::Items(_) => unreachable!("ranges are not split here"),
        }
        numbers[VALUE] = row.value_bytes;
        numbers[KEY] = row.key_bytes.into();
        numbers[TTL] = row.ttl_seconds.unwrap_or(0).into();
        numbers[REPEAT] = u64::from(row.repeat.max(1) - 1);
        numbers[TENANT] = row.tenant.map_or(0, |tenant| self.tenant_number(tenant, tenants));
        for (column, number) in self.columns.iter_mut().zip(numbers) {
            column.push(number);
        }
        if self.columns[WHAT].len() == BLOCK_ROWS {
            self.end_block(out);
        }
        true
    }

    /// CacheBench pads keys with zeros: these are counted, not stored.
    fn push_name(&mut self, name: &[u8], numbers: &mut [u64; COLUMNS]) {
        let kept = name.iter().rposition(|byte| *byte != b'0').map_or(1, |last| last + 1).min(name.len());
        self.names.extend_from_slice(&name[..kept]);
        (numbers[NAME], numbers[STORED]) = (name.len() as u64, kept as u64);
    }

    /// 0 if the tenant has no name.
    fn tenant_number(&mut self, tenant: Tenant, names: &TenantNames) -> u64 {
        if let Some(number) = self.tenant_numbers.get(&tenant) {
            return *number;
        }
        let Some(name) = names.of(tenant) else { return 0 };
        self.tenants.extend_from_slice(&(name.len() as u16).to_le_bytes());
        self.tenants.extend_from_slice(name.as_bytes());
        let number = self.tenant_numbers.len() as u64 + 1;
        self.tenant_numbers.insert(tenant, number);
        number
    }

    /// Appends the end of the file.
    pub(in crate::trace) fn finish(mut self, out: &mut Vec<u8>) {
        self.end_block(out);
        let rows = self.rows;
        block(0, out, |payload| payload.extend_from_slice(&rows.to_le_bytes()));
    }

    fn end_block(&mut self, out: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.begun, true) {
            out.extend_from_slice(&header());
        }
        let rows = self.columns[WHAT].len();
        if rows == 0 {
            return;
        }
        block(rows as u32, out, |payload| self.payload(payload));
        self.rows += rows as u64;
        self.columns.iter_mut().for_each(Vec::clear);
        self.tenants.clear();
        self.tenant_numbers.clear();
        self.names.clear();
    }

    fn payload(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; HEAD_BYTES]);
        let descriptors = self.columns.each_ref().map(|numbers| descriptor(numbers));
        let mut present = 0_u32;
        for (column, descriptor) in descriptors.iter().enumerate() {
            if let Some(descriptor) = descriptor {
                present |= 1 << column;
                out.extend_from_slice(&descriptor.encode());
            }
        }
        debug_assert_eq!(out.len() - start, HEAD_BYTES + present.count_ones() as usize * DESCRIPTOR_BYTES);
        for (numbers, descriptor) in self.columns.iter().zip(descriptors) {
            let Some(Descriptor { base, step, width }) = descriptor else { continue };
            for number in numbers {
                out.extend_from_slice(&((number - base) / u64::from(step)).to_le_bytes()[..width]);
            }
        }
        out[start..start + 4].copy_from_slice(&present.to_le_bytes());
        out[start + 4..start + HEAD_BYTES].copy_from_slice(&(self.tenant_numbers.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.tenants);
        out.extend_from_slice(&self.names);
    }
}

/// Appends a block whose payload `fill` writes.
fn block(rows: u32, out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&rows.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    fill(out);
    let payload_bytes = (out.len() - start - BLOCK_HEAD_BYTES) as u32;
    out[start + 4..start + BLOCK_HEAD_BYTES].copy_from_slice(&payload_bytes.to_le_bytes());
    let check = xxh3_64(&out[start..]);
    out.extend_from_slice(&check.to_le_bytes());
}

/// The encoding that takes the fewest bytes; `None` if all values are 0.
fn descriptor(numbers: &[u64]) -> Option<Descriptor> {
    let (base, most) = (*numbers.iter().min()?, *numbers.iter().max()?);
    if most == 0 {
        return None;
    }
    let fits = |step: &u32| numbers.iter().all(|number| (number - base).is_multiple_of((*step).into()));
    let step = if most == base { 1 } else { STEPS.into_iter().find(fits)? };
    let width = match (most - base) / u64::from(step) {
        0 => 0,
        1..=0xff => 1,
        0x100..=0xffff => 2,
        0x1_0000..=0xffff_ffff => 4,
        _ => 8,
    };
    Some(Descriptor { base, step, width })
}
