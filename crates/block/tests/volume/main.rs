//! The volume in virtual time: compared with a simple model, its number of flushes, and its refusals.

#![allow(clippy::unwrap_used, reason = "in a test, a failed unwrap fails the test")]

mod bad_pages;
mod cleaning;
mod closing;
mod counts;
mod dropped_requests;
mod dropped_tables;
mod failed_disk;
mod failed_flash;
mod faulty;
mod flushes;
mod format;
mod full_journal;
mod holes;
mod interrupted_recoveries;
mod lost_journal;
mod model;
mod ordered;
mod pace;
mod pairing;
mod partial;
mod read_misses;
mod recency;
mod refusals;
mod sequential;
mod settings;
mod short_requests;
mod slot_queue;
mod stale_log_entries;
mod threads;
mod uncommitted;
mod unflushed;
mod unreadable;
mod wear;
mod world;
