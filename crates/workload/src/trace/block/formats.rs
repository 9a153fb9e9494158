//! The formats of block traces, each for replays of requests and for simulations of accesses.

use super::rows::{Lines, Records};
use super::{
    BlockFormat, Decoder, alibaba, blkparse, blktrace, cloudphysics, fio, fiu, msr, plain, simulators, spc,
    systor, tencent, vscsi,
};
use crate::trace::format::{FileOrder, Format, Pages, TimeUnits};
use crate::trace::head::Head;
use crate::trace::rows::{ReaderOptions, RowReader};

const PAGE_BYTES: u64 = 4096;

/// A format as accesses, whose `plausible` and `reader` are those of its decoder.
const fn of_accesses(
    name: &'static str,
    about: &'static str,
    plausible: fn(&Head<'_>) -> bool,
    reader: fn(&ReaderOptions) -> Box<dyn RowReader>,
) -> Format {
    Format {
        name,
        about,
        extensions: &[],
        pages: Pages::Of(PAGE_BYTES),
        time_units: TimeUnits::Fixed(1_000_000_000),
        files: FileOrder::ByTime,
        plausible,
        reader,
    }
}

/// Declares the formats: name, description, detection by the first bytes, and decoder. `several events` marks a format with several events
/// of each request; [`Events`](super::Events) selects one kind. The last part has fields of [`Format`] that differ from the usual ones.
macro_rules! formats {
    (@has_events) => { false };
    (@has_events several events) => { true };
    ($(
        $(#[$doc:meta])*
        $format:ident: $name:literal, $about:literal, $matches:path, $kind:ident($decoder:expr)
            $(, $several:ident $events:ident)? $(, { $($field:ident: $value:expr),* })?;
    )*) => {
        /// The readable formats. The first whose `matches_head` accepts a file is used.
        pub static BLOCK_FORMATS: &[BlockFormat] = &[$(BlockFormat {
            name: $name,
            about: $about,
            matches_head: $matches,
            decoder: Decoder::$kind(|| Box::new($decoder)),
            has_events: formats!(@has_events $($several $events)?),
        },)*];

        $(
            $(#[$doc])*
            pub(in crate::trace) static $format: Format = Format {
                $($($field: $value,)*)?
                ..of_accesses(
                    $name,
                    $about,
                    |head| $matches(head.bytes),
                    |options| $kind::reader(|| $decoder, options),
                )
            };
        )*
    };
}

formats! {
    BLKTRACE: "blktrace", "binary blktrace, version 7, of either byte order", blktrace::matches_head,
        Records(blktrace::Blktrace::default()), several events;
    BLKPARSE: "blkparse", "blkparse's default text output", blkparse::matches_head,
        Lines(blkparse::Blkparse::default()), several events;
    FIO_IOLOG: "fio-iolog", "fio's iolog, versions 2 and 3", fio::matches_head, Lines(fio::Iolog::default());
    MSR: "msr", "MSR Cambridge's block CSV: Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime",
        msr::matches_head, Lines(msr::Msr);
    SYSTOR: "systor", "SYSTOR '17 block CSV: Timestamp,Response,IOType,LUN,Offset,Size", systor::matches_head,
        Lines(systor::Systor);
    ALIBABA: "alibaba", "Alibaba's block CSV: device_id,opcode,offset,length,timestamp", alibaba::matches_head,
        Lines(alibaba::Alibaba);
    TENCENT: "tencent", "Tencent CBS's block CSV: Timestamp,Offset,Size,IOType,VolumeID", tencent::matches_head,
        Lines(tencent::Tencent);
    CLOUDPHYSICS: "cloudphysics-csv", "CloudPhysics block CSV: version,time,op,size,lbn; times in seconds",
        cloudphysics::matches_head, Lines(cloudphysics::CloudPhysics);
    /// A request is one object, identified by its start, unless pages are requested, as in the published miss ratios for such traces.
    VSCSI: "vscsi", "VMware's binary block traces (CloudPhysics), versions 1 and 2", vscsi::matches_head,
        Records(vscsi::Vscsi::default()),
        { extensions: &["vscsi", "vscsi1", "vscsi2", "vscsitrace"], pages: Pages::IfSet };
    CSV: "block-csv", "block CSV with a header: time_us (or _ns, _ms, _s), op, offset and bytes, in any order",
        plain::matches_head, Lines(plain::Plain::default());
    SPC: "spc", "SPC's block CSV: ASU,LBA,Size,Opcode,Timestamp", spc::matches_head, Lines(spc::Spc), {
        extensions: &["spc"],
        plausible: |head| spc::matches_head(head.bytes) || (head.ends_like(&SPC) && spc::reads(head.bytes))
    };
    DISKSIM: "disksim", "DiskSim's ASCII block traces: time (ms) device sector sectors flags",
        simulators::knows_disksim, Lines(simulators::DiskSim);
    MQSIM: "mqsim", "MQSim's ASCII block traces: time (ns) device sector sectors type", simulators::knows_mqsim,
        Lines(simulators::MqSim);
    FIU: "fiu", "FIU's block traces: time (ns) pid process sector sectors W|R major minor md5", fiu::matches_head,
        Lines(fiu::Fiu);
}
