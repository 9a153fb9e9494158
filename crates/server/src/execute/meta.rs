//! Executes the meta commands.

use std::io;

use tokio::io::AsyncWrite;

use super::{Executor, refusal_reply};
use crate::counters::Counter;
use crate::prefixes::Access;
use crate::protocol::meta::{MetaCommand, encode_key};
use crate::protocol::{Meta, Ttl, reply};
use crate::store::{Arithmetic, ArithmeticOutcome, MetaHit, StoreOutcome, Value, Write};

impl<W: AsyncWrite + Unpin> Executor<'_, W> {
    /// Executes a meta command with a key.
    pub(super) async fn meta(&mut self, meta: &Meta<'_>, value: Value<'_>) -> io::Result<()> {
        self.tally.count(Counter::cmd_meta);
        match meta.command {
            MetaCommand::Get => return self.meta_get(meta).await,
            MetaCommand::Set { mode, .. } => {
                let flags = &meta.flags;
                let write = Write {
                    mode,
                    key: &meta.key,
                    flags: flags.client_flags,
                    exptime: flags.ttl.unwrap_or_default(),
                    cas: flags.cas.unwrap_or(0),
                    new_cas: flags.new_cas,
                    invalidates: flags.invalidates,
                    has_binary_key: flags.has_binary_key,
                };
                let outcome = self.write(&write, value).await;
                self.status(meta, outcome);
            }
            MetaCommand::Delete => {
                let outcome = self.shared.store.meta_delete(meta).await;
                self.shared.record(&meta.key, Access::Delete);
                let is_hit = matches!(outcome, StoreOutcome::Stored(_));
                self.tally.count_hit(is_hit, Counter::delete_hits, Counter::delete_misses);
                self.status(meta, outcome);
            }
            MetaCommand::Arithmetic { is_decrement } => self.meta_arithmetic(meta, is_decrement).await,
        }
        self.output.send_if_full().await
    }

    /// The reply of `ms` and `md`: a code, and the flags `O`, `k`, `c`.
    fn status(&mut self, meta: &Meta<'_>, outcome: StoreOutcome) {
        let (code, cas) = match outcome {
            StoreOutcome::Stored(cas) => ("HD", cas),
            StoreOutcome::NotStored => ("NS", 0),
            StoreOutcome::Exists => ("EX", 0),
            StoreOutcome::NotFound => ("NF", 0),
            StoreOutcome::Refused(refusal) => return self.line(refusal_reply(refusal), false),
        };
        if meta.flags.is_quiet && code == "HD" {
            return;
        }
        let is_set = matches!(meta.command, MetaCommand::Set { .. });
        let out = &mut self.output.buffer;
        out.extend_from_slice(code.as_bytes());
        for word in meta.words {
            match word[0] {
                b'c' if is_set => flag(out, b'c', cas),
                _ => identity(out, meta, word, meta.flags.has_binary_key),
            }
        }
        self.line("", false);
    }

    /// A reply of a code, and the flags `O` and `k`.
    fn code(&mut self, meta: &Meta<'_>, code: &str) {
        self.output.buffer.extend_from_slice(code.as_bytes());
        meta.words.for_each(|word| identity(&mut self.output.buffer, meta, word, meta.flags.has_binary_key));
        self.line("", false);
    }

    async fn meta_get(&mut self, meta: &Meta<'_>) -> io::Result<()> {
        let touches = meta.flags.ttl.is_some();
        self.tally.count(if touches { Counter::cmd_touch } else { Counter::cmd_get });
        let found = self.shared.store.meta_get(meta).await;
        let is_hit = matches!(found, Ok(Some(_)));
        self.shared.record(&meta.key, Access::Get { is_hit });
        match touches {
            true => self.tally.count_hit(is_hit, Counter::touch_hits, Counter::touch_misses),
            false => self.tally.count_hit(is_hit, Counter::get_hits, Counter::get_misses),
        }
        match found {
            Ok(Some(hit)) => return self.meta_hit(meta, &hit).await,
            Ok(None) if meta.flags.is_quiet => {}
            Ok(None) => self.code(meta, "EN"),
            Err(refusal) => self.line(refusal_reply(refusal), false),
        }
        self.output.send_if_full().await
    }

    async fn meta_hit(&mut self, meta: &Meta<'_>, hit: &MetaHit<'_>) -> io::Result<()> {
        let (header, value) = (&hit.found.header, hit.found.value());
        let out = &mut self.output.buffer;
        if meta.flags.wants_value {
            out.extend_from_slice(b"VA ");
            reply::number(out, value.len());
        } else {
            out.extend_from_slice(b"HD");
        }
        let mut ttl = hit.old_ttl;
        for word in meta.words {
            match word[0] {
                // As in memcached, `t` shows the new time if it follows the flag that sets it.
                b'T' | b'N' => ttl = hit.ttl,
                b's' => flag(out, b's', value.len()),
                b't' => flag(out, b't', ttl.as_number()),
                b'c' => flag(out, b'c', header.cas),
                b'f' => flag(out, b'f', header.flags),
                b'l' => flag(out, b'l', hit.idle_seconds),
                b'h' => flag(out, b'h', u8::from(hit.was_read)),
                // As in memcached, a key is encoded if it was when the item was stored.
                _ => identity(out, meta, word, header.marks.has_binary_key),
            }
        }
        for (flag, is_set) in
            [(b" Z", header.marks.has_winner), (b" X", header.marks.is_stale), (b" W", hit.is_winner)]
        {
            out.extend_from_slice(if is_set { flag } else { b"" });
        }
        out.extend_from_slice(b"\r\n");
        if meta.flags.wants_value {
            return self.output.value(value, &[]).await;
        }
        self.output.send_if_full().await
    }

    async fn meta_arithmetic(&mut self, meta: &Meta<'_>, is_decrement: bool) {
        let flags = &meta.flags;
        let change = Arithmetic {
            key: &meta.key,
            delta: flags.delta.unwrap_or(1),
            is_decrement,
            cas: flags.cas.unwrap_or(0),
            new_cas: flags.new_cas,
            vivify: flags.vivify.map(|exptime| (flags.initial, exptime)),
            ttl: flags.ttl,
            has_binary_key: flags.has_binary_key,
        };
        match self.change_number(&change).await {
            ArithmeticOutcome::Stored { .. } if flags.is_quiet => {}
            ArithmeticOutcome::Stored { number, cas, old_ttl, ttl } => {
                self.number(meta, number, cas, [old_ttl, ttl]);
            }
            ArithmeticOutcome::NotFound => self.code(meta, "NF"),
            ArithmeticOutcome::Exists => self.code(meta, "EX"),
            ArithmeticOutcome::NonNumeric => self.line(reply::NON_NUMERIC, false),
            ArithmeticOutcome::Refused(refusal) => self.line(refusal_reply(refusal), false),
        }
    }

    fn number(&mut self, meta: &Meta<'_>, number: u64, cas: u64, [old_ttl, new_ttl]: [Ttl; 2]) {
        let text = number.to_string();
        let out = &mut self.output.buffer;
        if meta.flags.wants_value {
            out.extend_from_slice(b"VA ");
            reply::number(out, text.len());
        } else {
            out.extend_from_slice(b"HD");
        }
        let mut ttl = old_ttl;
        for word in meta.words {
            match word[0] {
                b'T' | b'N' => ttl = new_ttl,
                b't' => flag(out, b't', ttl.as_number()),
                b'c' => flag(out, b'c', cas),
                _ => identity(out, meta, word, meta.flags.has_binary_key),
            }
        }
        out.extend_from_slice(b"\r\n");
        if meta.flags.wants_value {
            self.line(&text, false);
        }
    }

    /// `me`: the item's properties in words.
    pub(super) async fn meta_debug(&mut self, meta: &Meta<'_>) {
        self.tally.count(Counter::cmd_meta);
        let Some(hit) = self.shared.store.meta_debug(meta).await else { return self.line("EN", false) };
        let header = &hit.found.header;
        let out = &mut self.output.buffer;
        out.extend_from_slice(b"ME ");
        encode_key(out, &meta.key, header.marks.has_binary_key);
        let message = format!(
            " exp={} la={} cas={} fetch={} cls=1 size={}",
            hit.ttl.as_number(),
            hit.idle_seconds,
            header.cas,
            if hit.was_read { "yes" } else { "no" },
            meta.key.len() + hit.found.value().len() + crate::item::HEADER_BYTES,
        );
        self.line(&message, false);
    }
}

/// Appends a flag with a number.
fn flag(out: &mut Vec<u8>, flag: u8, value: impl itoa::Integer) {
    out.extend_from_slice(&[b' ', flag]);
    reply::number(out, value);
}

/// Appends the flags `O` and `k`, by which a client assigns the reply to its request.
fn identity(out: &mut Vec<u8>, meta: &Meta<'_>, word: &[u8], is_encoded: bool) {
    match word[0] {
        b'O' => {
            out.push(b' ');
            out.extend_from_slice(word);
        }
        b'k' => {
            out.extend_from_slice(b" k");
            encode_key(out, &meta.key, is_encoded);
            out.extend_from_slice(if is_encoded { b" b" } else { b"" });
        }
        _ => {}
    }
}
