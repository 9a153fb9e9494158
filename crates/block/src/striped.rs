//! Flash that consists of several devices: a stripe whose members record their positions.
//!
//! In another order, or with a wrong device, the superblock might still be found although most pages are wrong. So each member begins
//! with a label, which takes one unit of the stripe:
//!
//! ```text
//!   0   8  magic, "FWSTRIPE"
//!   8   4  version, 1
//!  12   4  position of this member, from 0
//!  16   4  number of members
//!  20   4  unit size in bytes
//!  24  16  the stripe's UUID
//! 508   4  CRC-32C of the preceding bytes
//! ```
//!
//! Numbers are little-endian.

use std::sync::Arc;

use device::checksum::crc32c;
use device::open::STRIPE_UNIT_BYTES;
use device::{Device, ErrorKind, IoBuffer, IoError, IoSlice, Request, SliceDevice, StripeDevice};

const MAGIC: &[u8; 8] = b"FWSTRIPE";
const VERSION: u32 = 1;
const VERSION_AT: usize = 8;
const PLACE_AT: usize = VERSION_AT + 4;
const MEMBERS_AT: usize = PLACE_AT + 4;
const UNIT_AT: usize = MEMBERS_AT + 4;
const UUID_AT: usize = UNIT_AT + 4;
const CRC_AT: usize = LABEL_BYTES - 4;
const LABEL_BYTES: usize = 512;

/// A device and the name by which the user gave it.
pub type Member = (String, Arc<dyn Device>);

/// The label of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label {
    /// Position, from 0.
    pub place: u32,
    /// Number of members.
    pub members: u32,
    /// UUID of the stripe.
    pub uuid: u128,
}

impl Label {
    fn encode(&self) -> [u8; LABEL_BYTES] {
        let mut bytes = [0; LABEL_BYTES];
        bytes[..VERSION_AT].copy_from_slice(MAGIC);
        let unit_bytes = STRIPE_UNIT_BYTES as u32;
        for (at, word) in
            [(VERSION_AT, VERSION), (PLACE_AT, self.place), (MEMBERS_AT, self.members), (UNIT_AT, unit_bytes)]
        {
            bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        bytes[UUID_AT..UUID_AT + 16].copy_from_slice(&self.uuid.to_le_bytes());
        let crc = crc32c(&bytes[..CRC_AT]);
        bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Decodes a label; `None` if there is none.
    ///
    /// # Errors
    /// If the label is damaged or has another version.
    fn decode(bytes: &[u8]) -> Result<Option<Self>, &'static str> {
        let Some(bytes) = bytes.get(..LABEL_BYTES).filter(|bytes| bytes.starts_with(MAGIC)) else {
            return Ok(None);
        };
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        if crc32c(&bytes[..CRC_AT]) != word(CRC_AT) {
            return Err("its label as a member of a stripe is damaged");
        }
        if word(VERSION_AT) != VERSION || u64::from(word(UNIT_AT)) != STRIPE_UNIT_BYTES {
            return Err("it is a member of a stripe that a newer version made");
        }
        let uuid = u128::from_le_bytes(bytes[UUID_AT..UUID_AT + 16].try_into().expect("sixteen bytes"));
        Ok(Some(Self { place: word(PLACE_AT), members: word(MEMBERS_AT), uuid }))
    }

    /// Reads the label of a device, if it has one.
    ///
    /// # Errors
    /// If it cannot be read or decoded.
    pub fn of(member: &dyn Device) -> Result<Option<Self>, IoError> {
        Self::decode(&first_block(member)?).map_err(|why| invalid(why.into()))
    }
}

/// Opens the stripe with these members, after checking that they are complete and in order.
///
/// # Errors
/// Names the first wrong member and the reason.
pub fn join(members: &[Member]) -> Result<Arc<dyn Device>, IoError> {
    let mut stripe = None;
    for (place, (name, member)) in (0..).zip(members) {
        let label = Label::of(&**member).map_err(|error| invalid(format!("{name}: {error}")))?;
        let Some(label) = label else {
            return Err(invalid(format!("{name}: is not a member of a stripe of flash")));
        };
        let first = *stripe.get_or_insert(label);
        let why = if label.uuid != first.uuid {
            "belongs to another stripe than the first one".to_owned()
        } else if label.members as usize != members.len() {
            format!("belongs to a stripe of {} members, but {} are given", label.members, members.len())
        } else if label.place != place {
            let labelled = u64::from(label.place) + 1;
            format!("is given as member {} of its stripe, but is member {labelled}", place + 1)
        } else {
            continue;
        };
        return Err(invalid(format!("{name}: {why}")));
    }
    join_unlabelled(members)
}

/// The stripe that `members` form after they are [labelled](label).
///
/// # Errors
/// If a device is too small.
pub fn join_unlabelled(members: &[Member]) -> Result<Arc<dyn Device>, IoError> {
    let rest = |(name, member): &Member| {
        let capacity = member.geometry().capacity_bytes;
        if capacity < 2 * STRIPE_UNIT_BYTES {
            return Err(invalid(format!("{name}: {capacity} bytes are too few for a member of a stripe")));
        }
        let rest = SliceDevice::new(Arc::clone(member), STRIPE_UNIT_BYTES..capacity)?;
        Ok(Arc::new(rest) as Arc<dyn Device>)
    };
    let rests = members.iter().map(rest).collect::<Result<Vec<_>, IoError>>()?;
    Ok(Arc::new(StripeDevice::new(rests, STRIPE_UNIT_BYTES)?))
}

/// Labels `members` as a new stripe, in order.
///
/// # Errors
/// If a device fails. The previous contents are restored as far as possible.
pub fn label(members: &[Member], uuid: u128) -> Result<Labelled, IoError> {
    let count = members.len() as u32;
    let mut labelled = Labelled(Vec::new());
    for (place, (_, member)) in (0..).zip(members) {
        // Unreadable contents are not restored.
        let nothing = || IoBuffer::zeroed(label_block(&**member)).into();
        labelled.0.push((Arc::clone(member), first_block(&**member).unwrap_or_else(|_| nothing())));
        if let Err(error) = write(&**member, &Label { place, members: count, uuid }.encode()) {
            // Only the first error is reported.
            let _ = labelled.restore();
            return Err(error);
        }
    }
    Ok(labelled)
}

/// Labelled members and their previous contents.
pub struct Labelled(Vec<(Arc<dyn Device>, IoSlice)>);

impl Labelled {
    /// Restores the previous contents.
    ///
    /// # Errors
    /// The first device that fails; the others are restored.
    pub fn restore(self) -> Result<(), IoError> {
        let restore = |(member, before): (Arc<dyn Device>, IoSlice)| write(&*member, &before);
        let failed: Vec<IoError> = self.0.into_iter().filter_map(|held| restore(held).err()).collect();
        failed.into_iter().next().map_or(Ok(()), Err)
    }
}

/// Overwrites the labels.
///
/// # Errors
/// If a device fails.
pub fn unlabel(members: &[Member]) -> Result<(), IoError> {
    members.iter().try_for_each(|(_, member)| write(&**member, &[0; LABEL_BYTES]))
}

fn first_block(member: &dyn Device) -> Result<IoSlice, IoError> {
    let read = member.read(0, label_block(member)).wait()?;
    Ok(read.into())
}

fn write(member: &dyn Device, label: &[u8]) -> Result<(), IoError> {
    let mut block = IoBuffer::zeroed(label_block(member));
    block[..label.len()].copy_from_slice(label);
    member.write(0, block).wait()?;
    member.start(Request::Flush).wait().map(drop)
}

fn label_block(member: &dyn Device) -> usize {
    (member.geometry().block_bytes as usize).max(LABEL_BYTES)
}

fn invalid(context: String) -> IoError {
    IoError::new(ErrorKind::Invalid, context)
}

#[cfg(test)]
mod tests {
    use device::MemoryDevice;
    use device::wrap::{FaultDevice, Faults};

    use super::*;

    fn members(count: usize) -> Vec<Member> {
        let member = |number| (format!("m{number}"), Arc::new(MemoryDevice::new(1 << 20)) as Arc<dyn Device>);
        (0..count).map(member).collect()
    }

    fn refused(members: &[&Member]) -> String {
        let members: Vec<Member> = members.iter().map(|&member| member.clone()).collect();
        join(&members).err().unwrap().to_string()
    }

    #[test]
    fn join_accepts_members_only_in_order() {
        let (ours, theirs) = (members(3), members(3));
        assert!(refused(&[&ours[0], &ours[1]]).contains("m0: is not a member of a stripe of flash"));
        label(&ours, 7).unwrap();
        label(&theirs, 8).unwrap();
        assert_eq!(join(&ours).unwrap().geometry().capacity_bytes, 9 << 18);
        let [a, b, c] = &ours[..] else { unreachable!() };
        assert!(refused(&[a, c, b]).contains("m2: is given as member 2 of its stripe, but is member 3"));
        assert!(refused(&[a, b]).contains("belongs to a stripe of 3 members, but 2 are given"));
        assert!(refused(&[a, &theirs[1], c]).contains("m1: belongs to another stripe"));
        unlabel(&ours).unwrap();
        assert!(join(&ours).is_err());
    }

    #[test]
    fn label_with_the_largest_place_is_refused() {
        let ours = members(1);
        label(&ours, 7).unwrap();
        write(&*ours[0].1, &Label { place: u32::MAX, members: 1, uuid: 7 }.encode()).unwrap();
        assert!(
            refused(&[&ours[0]]).contains("is given as member 1 of its stripe, but is member 4294967296")
        );
    }

    /// The other members must not keep labels of a stripe that was not created.
    #[test]
    fn failed_label_restores_the_other_members() {
        let mut ours = members(3);
        label(&ours[..2], 7).unwrap();
        let faulty = Arc::new(FaultDevice::new(Arc::clone(&ours[2].1), 1, Faults::default()));
        ours[2].1 = Arc::clone(&faulty) as _;
        faulty.set_faults(Faults { failed_writes: 1.0, ..Faults::default() });
        let [a, b, c] = &ours[..] else { unreachable!() };
        assert!(label(&[b.clone(), a.clone(), c.clone()], 8).is_err());
        assert!(join(&ours[..2]).is_ok(), "they still form their previous stripe");
        faulty.set_faults(Faults::default());
        assert_eq!(Label::of(&*c.1).unwrap(), None);
        let labelled = label(&ours, 9).unwrap();
        assert!(join(&ours).is_ok());
        labelled.restore().unwrap();
        assert!(join(&ours[..2]).is_ok() && Label::of(&*c.1).unwrap().is_none());
    }

    #[test]
    fn changed_label_is_detected_and_encoding_is_fixed() {
        let label = Label { place: 1, members: 3, uuid: 0x1122_3344_5566_7788_99aa_bbcc_ddee_ff00 };
        let bytes = label.encode();
        assert_eq!(Label::decode(&bytes), Ok(Some(label)));
        let golden = b"FWSTRIPE\x01\0\0\0\x01\0\0\0\x03\0\0\0\0\0\x04\0\0\xff\xee\xdd\xcc\xbb\xaa\x99\x88\x77\x66\x55\x44\x33\x22\x11";
        assert_eq!(&bytes[..UUID_AT + 16], golden);
        for at in MAGIC.len()..LABEL_BYTES {
            let mut touched = bytes;
            touched[at] ^= 1;
            assert!(Label::decode(&touched).is_err(), "byte {at}");
        }
        assert_eq!(Label::decode(&[0; LABEL_BYTES]), Ok(None));
        assert_eq!(Label::decode(&bytes[..100]), Ok(None));
    }
}
