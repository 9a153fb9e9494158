//! Power cuts: a pair of devices with volatile buffers, a volume over them, and for every sector the set of bytes that it
//! may hold afterwards.

mod history;
mod ledger;
mod long;
mod short;
mod stage;
