//! The volume in virtual time: compared with a plain model, its number of flushes, and its refusals.

#![allow(clippy::unwrap_used, reason = "in a test, what cannot be unwrapped is the finding")]

mod bad_pages;
mod cleaning;
mod closing;
mod counts;
mod failed_disk;
mod failed_flash;
mod faulty;
mod flushes;
mod format;
mod full_journal;
mod given_up;
mod given_up_tables;
mod holes;
mod lost_journal;
mod ordered;
mod pace;
mod pairing;
mod partial;
mod read_misses;
mod recency;
mod recovered_often;
mod refusals;
mod settings;
mod short_requests;
mod slot_queue;
mod stale_notes;
mod threads;
mod twin;
mod unflushed;
mod unreadable;
mod world;
