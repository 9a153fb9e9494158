//! `stats`: the server's figures in the text protocol.

use std::fmt::{Display, Write as _};

use tokio::io::AsyncWrite;

use crate::counters::Counter;
use crate::execute::Executor;
use crate::prefixes::PrefixCounts;
use crate::protocol::reply;
use crate::shared::Shared;
use crate::tenants::TenantFigures;

/// Lines of `stats`.
struct Lines<'a>(&'a mut Vec<u8>);

impl Lines<'_> {
    fn stat(&mut self, name: &str, value: impl Display) {
        let mut line = String::new();
        // Writing to a string does not fail.
        let _ = write!(line, "STAT {name} {value}\r\n");
        self.0.extend_from_slice(line.as_bytes());
    }
}

impl<W: AsyncWrite + Unpin> Executor<'_, W> {
    /// `stats`, of one kind.
    pub(crate) fn stats(&mut self, kind: Option<&[u8]>, argument: Option<&[u8]>) {
        let shared = self.shared;
        shared.counters.merge(self.tally);
        let mut lines = Lines(&mut self.output.buffer);
        match kind {
            None => general(shared, &mut lines),
            Some(b"settings") => settings(shared, &mut lines),
            Some(b"items") => items(shared, &mut lines),
            Some(b"slabs") => slabs(shared, &mut lines),
            // Sizes are not tracked; memcached says so by this line.
            Some(b"sizes") => lines.stat("sizes_status", "disabled"),
            Some(b"tenants") => tenants(shared, &mut lines),
            Some(b"conns") => {}
            Some(b"detail") => return self.detail(argument),
            Some(b"reset") => {
                shared.counters.reset();
                shared.prefixes.reset();
                shared.store.tenants().reset();
                return self.line("RESET", false);
            }
            Some(b"cachedump") => return self.line("CLIENT_ERROR stats cachedump not allowed", false),
            Some(_) => return self.line("ERROR", false),
        }
        self.line("END", false);
    }

    /// `stats detail`: counts of each key prefix.
    fn detail(&mut self, argument: Option<&[u8]>) {
        let prefixes = &self.shared.prefixes;
        match argument {
            Some(b"on") => prefixes.enable(true),
            Some(b"off") => prefixes.enable(false),
            Some(b"dump") => {
                for (prefix, counts) in prefixes.counts() {
                    let PrefixCounts { gets, hits, sets, deletes } = counts;
                    self.output.buffer.extend_from_slice(b"PREFIX ");
                    self.output.buffer.extend_from_slice(&prefix);
                    self.line(&format!(" get {gets} hit {hits} set {sets} del {deletes}"), false);
                }
                return self.line("END", false);
            }
            _ => return self.line(reply::DETAIL_USAGE, false),
        }
        self.line("OK", false);
    }
}

fn general(shared: &Shared, lines: &mut Lines<'_>) {
    let stats = shared.store.cache().stats();
    let now_seconds = shared.store.now_seconds();
    lines.stat("pid", std::process::id());
    lines.stat("uptime", now_seconds.saturating_sub(shared.started_seconds));
    lines.stat("time", now_seconds);
    lines.stat("version", version!());
    lines.stat("pointer_size", usize::BITS);
    lines.stat("max_connections", shared.options.max_connections);
    lines.stat("curr_connections", shared.open_connections());
    lines.stat("threads", shared.options.threads);
    for &counter in Counter::ALL {
        lines.stat(counter.name(), shared.counters.get(counter));
    }
    let evictions: u64 = stats.pools.iter().map(|pool| pool.total().evictions).sum();
    lines.stat("limit_maxbytes", stats.dram_memory.arena_bytes);
    lines.stat("curr_items", shared.store.cache().len());
    lines.stat("total_items", stats.inserts.stored);
    lines.stat("evictions", evictions);
    lines.stat("get_hits_dram", stats.gets.hits_dram);
    lines.stat("get_hits_flash", stats.gets.hits_flash);
    if let Some(flash) = &stats.flash {
        lines.stat("get_extstore", stats.gets.hits_flash);
        lines.stat("extstore_objects_written", flash.puts.stored);
        lines.stat("extstore_bytes_written", flash.device.written_bytes);
        lines.stat("extstore_bytes_used", flash.soc_room.used_bytes + flash.regions_room.used_bytes);
        lines.stat("extstore_limit_maxbytes", flash.soc_room.bytes + flash.regions_room.bytes);
    }
}

fn settings(shared: &Shared, lines: &mut Lines<'_>) {
    let options = &shared.options;
    lines.stat("maxbytes", shared.store.cache().stats().dram_memory.arena_bytes);
    lines.stat("maxconns", options.max_connections);
    for address in &options.listen {
        lines.stat("inter", address);
    }
    lines.stat("num_threads", options.threads);
    lines.stat("item_size_max", shared.max_value_bytes);
    lines.stat("idle_timeout", options.idle_timeout.map_or(0, |limit| limit.as_secs()));
    lines.stat("maxconns_fast", "yes");
    lines.stat("cas_enabled", "yes");
    lines.stat("flush_enabled", "yes");
    lines.stat("detail_enabled", if shared.prefixes.is_enabled() { "yes" } else { "no" });
    lines.stat("binding_protocol", "ascii");
    lines.stat("auth_enabled_ascii", if options.credentials.is_some() { "yes" } else { "no" });
}

fn tenants(shared: &Shared, lines: &mut Lines<'_>) {
    let cache = shared.store.cache();
    let (pools, pairs) = (cache.stats().pools, cache.pair_stats());
    for TenantFigures { name, pool, flash_pair, counts } in shared.store.tenants().figures() {
        let PrefixCounts { gets, hits, sets, deletes } = counts;
        let mut stat = |figure: &str, value: u64| lines.stat(&format!("{name}:{figure}"), value);
        stat("cmd_get", gets);
        stat("get_hits", hits);
        stat("cmd_set", sets);
        stat("cmd_delete", deletes);
        if let Some(pool) = pool.and_then(|pool| pools.get(usize::from(pool))) {
            let dram = pool.total();
            stat("dram_items", dram.items);
            stat("dram_bytes", dram.allocated_bytes);
            stat("dram_limit_bytes", u64::from(pool.quota_slabs) * u64::from(pool.slab_bytes));
            stat("dram_evictions", dram.evictions);
        }
        if let Some(flash) = flash_pair.and_then(|pair| pairs.get(pair)) {
            stat("flash_items", flash.items);
            stat("flash_bytes", flash.used_bytes);
            stat("flash_limit_bytes", flash.bytes);
            stat("flash_written_bytes", flash.written_bytes);
            stat("flash_evictions", flash.evictions);
        }
    }
}

/// Reports DRAM as a whole as class 1: memcached's classes of items do not correspond to the cache's.
fn items(shared: &Shared, lines: &mut Lines<'_>) {
    lines.stat("items:1:number", shared.store.cache().len());
}

fn slabs(shared: &Shared, lines: &mut Lines<'_>) {
    let memory = shared.store.cache().stats().dram_memory;
    lines.stat("1:used_chunks", shared.store.cache().len());
    lines.stat("active_slabs", 1);
    lines.stat("total_malloced", memory.used_slab_bytes);
}
