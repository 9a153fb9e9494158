//! Text formats with one line per access.

use std::io::Write;
use std::sync::Arc;

use crate::trace::access::{Access, AccessKind};
use crate::trace::columns::bare;
use crate::trace::write::Written;

#[derive(Debug, Clone, Copy)]
pub(super) enum TextFormat {
    Plain { ttl: bool, tenant: bool },
    Webcachesim,
}

impl TextFormat {
    pub(super) fn header(self) -> &'static [u8] {
        match self {
            Self::Plain { ttl: false, tenant: false } => b"ts,key,op,size\n",
            Self::Plain { ttl: true, tenant: false } => b"ts,key,op,size,ttl\n",
            Self::Plain { ttl: false, tenant: true } => b"ts,key,op,size,tenant\n",
            Self::Plain { ttl: true, tenant: true } => b"ts,key,op,size,ttl,tenant\n",
            Self::Webcachesim => b"",
        }
    }

    /// Appends the line of an access. Returns false if the format cannot store it.
    pub(super) fn encode(
        self,
        access: &Access,
        tenants: &[Arc<str>],
        line: &mut Vec<u8>,
        written: &mut Written,
    ) -> bool {
        let Access { time_ns, key, size_bytes, ttl_seconds, tenant, kind } = *access;
        let result = match self {
            Self::Plain { ttl, tenant: with_tenant } => {
                push_seconds(time_ns, line);
                let mut result = write!(line, ",{key},{},{size_bytes}", operation(kind));
                written.ttls_left_out += u64::from(ttl_seconds.is_some() && !ttl);
                if ttl {
                    result = result.and_then(|()| write!(line, ",{}", ttl_seconds.unwrap_or(0)));
                }
                let name = tenant
                    .and_then(|it| tenants.get(it.index().checked_sub(1)?))
                    .filter(|name| with_tenant && reads_back(name.as_bytes()));
                written.tenants_left_out += u64::from(tenant.is_some() && name.is_none());
                if with_tenant {
                    result = result.and_then(|()| write!(line, ",{}", name.map_or("", |name| name)));
                }
                result
            }
            Self::Webcachesim if kind == AccessKind::Delete => {
                written.deletes_left_out += 1;
                return false;
            }
            Self::Webcachesim => {
                written.sets_as_gets += u64::from(kind == AccessKind::Set);
                written.ttls_left_out += u64::from(ttl_seconds.is_some());
                written.tenants_left_out += u64::from(tenant.is_some());
                written.times_cut += u64::from(!time_ns.is_multiple_of(SECOND_NS));
                write!(line, "{} {key} {size_bytes}", time_ns / SECOND_NS)
            }
        };
        result.expect("writing to memory cannot fail");
        line.push(b'\n');
        true
    }
}

/// Whether a name at the end of a row reads back unchanged. Rows cannot quote commas.
fn reads_back(name: &[u8]) -> bool {
    !name.iter().any(|byte| b",\r\n".contains(byte)) && bare(name) == name
}

const SECOND_NS: u64 = 1_000_000_000;

fn operation(kind: AccessKind) -> &'static str {
    match kind {
        AccessKind::Get => "GET",
        AccessKind::Set => "SET",
        AccessKind::Delete => "DELETE",
    }
}

/// Seconds with as many decimals as needed.
fn push_seconds(time_ns: u64, line: &mut Vec<u8>) {
    let (seconds, below) = (time_ns / SECOND_NS, time_ns % SECOND_NS);
    let result = if below == 0 { write!(line, "{seconds}") } else { write!(line, "{seconds}.{below:09}") };
    result.expect("writing to memory cannot fail");
    if below > 0 {
        let end = line.iter().rposition(|digit| *digit != b'0').map_or(0, |last| last + 1);
        line.truncate(end);
    }
}
