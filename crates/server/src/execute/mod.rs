//! Requests to replies: the classic commands.

mod meta;

use std::io;

use cache::Refusal;
use futures_util::stream::{FuturesOrdered, StreamExt};
use tokio::io::AsyncWrite;

use crate::counters::{Counter, Tally};
use crate::output::Output;
use crate::prefixes::Access;
use crate::protocol::tokens::Tokens;
use crate::protocol::{Exptime, Request, Store as StoreRequest, StoreMode, reply};
use crate::shared::Shared;
use crate::store::{Arithmetic, ArithmeticOutcome, Found, Store, StoreOutcome, Value, Write};

/// The end of the reply to a `get`.
const END: &[u8] = b"END\r\n";

/// Keys of one `get` that are read from flash concurrently.
const CONCURRENT_READS: usize = 64;

/// Executes the requests of a connection.
pub struct Executor<'a, W> {
    /// The server.
    pub shared: &'a Shared,
    /// Where replies go.
    pub output: &'a mut Output<W>,
    /// Counters of the connection.
    pub tally: &'a mut Tally,
}

impl<W: AsyncWrite + Unpin> Executor<'_, W> {
    /// Executes a request. `value` is the value of a request that stores one.
    ///
    /// # Errors
    /// If the reply cannot be sent.
    pub async fn execute(&mut self, request: Request<'_>, value: Value<'_>) -> io::Result<()> {
        let store = &self.shared.store;
        match request {
            Request::Get { keys, with_cas, touch: None } => return self.get(keys, with_cas).await,
            Request::Get { keys, with_cas, touch: Some(exptime) } => {
                return self.get_and_touch(keys, with_cas, exptime).await;
            }
            Request::Meta(meta) => return self.meta(&meta, value).await,
            Request::MetaDebug(meta) => self.meta_debug(&meta).await,
            Request::MetaNoop => {
                self.line("MN", false);
                return self.output.send().await;
            }
            Request::Store(request) => self.store(request, value).await,
            Request::Arithmetic { key, delta, is_decrement, noreply } => {
                self.arithmetic(key, delta, is_decrement, noreply).await;
            }
            Request::Delete { key, noreply } => {
                let found = store.delete(key).await;
                self.shared.record(key, Access::Delete);
                self.tally.count_hit(found, Counter::delete_hits, Counter::delete_misses);
                self.line(if found { "DELETED" } else { "NOT_FOUND" }, noreply);
            }
            Request::Touch { key, exptime, noreply } => {
                self.tally.count(Counter::cmd_touch);
                let touched = store.touch(key, exptime).await;
                self.tally.count_hit(touched == Ok(true), Counter::touch_hits, Counter::touch_misses);
                let reply = match touched {
                    Ok(true) => "TOUCHED",
                    Ok(false) => "NOT_FOUND",
                    Err(refusal) => refusal_reply(refusal),
                };
                self.line(reply, noreply);
            }
            Request::FlushAll { delay, noreply } => {
                self.tally.count(Counter::cmd_flush);
                match store.flush_all(delay).await {
                    Ok(()) => self.line("OK", noreply),
                    Err(error) => self.line(&format!("SERVER_ERROR {error}"), noreply),
                }
            }
            Request::Stats { kind, argument } => self.stats(kind, argument),
            Request::Slabs => self.line(reply::NO_SLABS, false),
            Request::Version => self.line(concat!("VERSION ", version!()), false),
            Request::Verbosity { noreply } => self.line("OK", noreply),
            Request::Shutdown => self.line(reply::NO_SHUTDOWN, false),
            // The connection closes itself.
            Request::Quit => {}
        }
        self.output.send_if_full().await
    }

    /// Replies that the cache does not store the value of a request, which is discarded. A `set` removes the old item.
    pub async fn refuse_value(&mut self, request: &Request<'_>, refusal: Refusal) {
        self.count_refusal(refusal);
        let (replaced, noreply) = match request {
            Request::Store(store) if store.mode == StoreMode::Set => (Some(store.key), store.noreply),
            Request::Store(store) => (None, store.noreply),
            Request::Meta(meta) => (Some(&*meta.key), false),
            _ => (None, false),
        };
        if let Some(key) = replaced {
            self.shared.store.drop_replaced(key).await;
        }
        self.line(refusal_reply(refusal), noreply);
    }

    fn count_refusal(&mut self, refusal: Refusal) {
        self.tally.count(match refusal {
            Refusal::TooLarge { .. } => Counter::store_too_large,
            _ => Counter::store_no_memory,
        });
    }

    /// Appends a reply line, unless it is left out.
    pub fn line(&mut self, message: &str, noreply: bool) {
        if !noreply {
            reply::line(&mut self.output.buffer, message);
        }
    }

    async fn get(&mut self, keys: Tokens<'_>, with_cas: bool) -> io::Result<()> {
        let store: &Store = &self.shared.store;
        let mut others = keys;
        let first = others.next();
        if let (Some(key), None) = (first, others.next()) {
            let found = store.get(key).await;
            return self.found(key, found.as_ref(), with_cas, END).await;
        }
        self.get_several(keys, with_cas).await?;
        self.output.buffer.extend_from_slice(END);
        self.output.send_if_full().await
    }

    /// Reads several keys concurrently, and replies in their order.
    async fn get_several(&mut self, mut keys: Tokens<'_>, with_cas: bool) -> io::Result<()> {
        let mut reads = FuturesOrdered::new();
        loop {
            while reads.len() < CONCURRENT_READS
                && let Some(key) = keys.next()
            {
                reads.push_back(read(&self.shared.store, key));
            }
            let Some((key, found)) = reads.next().await else { return Ok(()) };
            self.found(key, found.as_ref(), with_cas, &[]).await?;
        }
    }

    /// Appends the reply for one key, followed by `end`.
    async fn found(
        &mut self,
        key: &[u8],
        found: Option<&Found<'_>>,
        with_cas: bool,
        end: &[u8],
    ) -> io::Result<()> {
        self.tally.count(Counter::cmd_get);
        self.tally.count_hit(found.is_some(), Counter::get_hits, Counter::get_misses);
        self.shared.record(key, Access::Get { is_hit: found.is_some() });
        let Some(found) = found else {
            self.output.buffer.extend_from_slice(end);
            return self.output.send_if_full().await;
        };
        let (header, value) = (&found.header, found.value());
        let cas = with_cas.then_some(header.cas);
        reply::value_line(&mut self.output.buffer, key, header.flags, value.len(), cas);
        self.output.value(value, end).await
    }

    async fn get_and_touch(&mut self, keys: Tokens<'_>, with_cas: bool, exptime: Exptime) -> io::Result<()> {
        for key in keys {
            self.tally.count(Counter::cmd_touch);
            // An item that cannot be touched is not returned: its reader expects it to live longer.
            let found = self.shared.store.get_and_touch(key, exptime).await.ok().flatten();
            self.tally.count_hit(found.is_some(), Counter::touch_hits, Counter::touch_misses);
            self.found(key, found.as_ref(), with_cas, &[]).await?;
        }
        self.output.buffer.extend_from_slice(END);
        self.output.send_if_full().await
    }

    async fn store(&mut self, request: StoreRequest<'_>, value: Value<'_>) {
        let StoreRequest { mode, key, flags, exptime, cas, noreply, .. } = request;
        let write = Write {
            mode,
            key,
            flags,
            exptime,
            cas,
            new_cas: None,
            invalidates: false,
            has_binary_key: false,
        };
        let outcome = self.write(&write, value).await;
        let reply = match outcome {
            StoreOutcome::Stored(_) => "STORED",
            StoreOutcome::NotStored => "NOT_STORED",
            StoreOutcome::Exists => "EXISTS",
            StoreOutcome::NotFound => "NOT_FOUND",
            StoreOutcome::Refused(refusal) => refusal_reply(refusal),
        };
        self.line(reply, noreply);
    }

    async fn write(&mut self, write: &Write<'_>, value: Value<'_>) -> StoreOutcome {
        let outcome = self.shared.store.write(write, value).await;
        self.shared.record(write.key, Access::Set);
        self.tally.count(Counter::cmd_set);
        let counter = match outcome {
            StoreOutcome::Refused(refusal) => {
                self.count_refusal(refusal);
                None
            }
            _ if write.mode != StoreMode::Cas => None,
            StoreOutcome::Stored(_) => Some(Counter::cas_hits),
            StoreOutcome::Exists => Some(Counter::cas_badval),
            StoreOutcome::NotFound => Some(Counter::cas_misses),
            StoreOutcome::NotStored => None,
        };
        counter.into_iter().for_each(|counter| self.tally.count(counter));
        outcome
    }

    async fn arithmetic(&mut self, key: &[u8], delta: u64, is_decrement: bool, noreply: bool) {
        let change = Arithmetic {
            key,
            delta,
            is_decrement,
            cas: 0,
            new_cas: None,
            vivify: None,
            ttl: None,
            has_binary_key: false,
        };
        match self.change_number(&change).await {
            ArithmeticOutcome::Stored { number, .. } => {
                if !noreply {
                    reply::number(&mut self.output.buffer, number);
                    self.line("", false);
                }
            }
            ArithmeticOutcome::NotFound => self.line("NOT_FOUND", noreply),
            ArithmeticOutcome::Exists => self.line("EXISTS", noreply),
            ArithmeticOutcome::NonNumeric => self.line(reply::NON_NUMERIC, noreply),
            ArithmeticOutcome::Refused(refusal) => self.line(refusal_reply(refusal), noreply),
        }
    }

    async fn change_number(&mut self, change: &Arithmetic<'_>) -> ArithmeticOutcome {
        let outcome = self.shared.store.arithmetic(change).await;
        let (hit, miss) = match change.is_decrement {
            true => (Counter::decr_hits, Counter::decr_misses),
            false => (Counter::incr_hits, Counter::incr_misses),
        };
        match outcome {
            ArithmeticOutcome::Stored { .. } => self.tally.count(hit),
            ArithmeticOutcome::NotFound => self.tally.count(miss),
            _ => {}
        }
        outcome
    }
}

async fn read<'a>(store: &'a Store, key: &'a [u8]) -> (&'a [u8], Option<Found<'a>>) {
    (key, store.get(key).await)
}

/// The reply to an item that the cache refuses.
pub(crate) fn refusal_reply(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::TooLarge { .. } => reply::TOO_LARGE,
        Refusal::Closed => reply::CLOSING,
        _ => reply::NO_MEMORY,
    }
}
