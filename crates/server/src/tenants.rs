//! Tenants: keys with one prefix, which have counts of their own and, if they have a share, their own part of DRAM.

use std::str::FromStr;

use crate::prefixes::{Access, Counts, PrefixCounts};

/// Largest number of tenants, which is that of the cache's pools.
const MAX_TENANTS: usize = 200;

/// The name of the pool for all other keys.
const OTHERS: &str = "others";

/// A tenant.
#[derive(Debug, Clone, PartialEq)]
pub struct Tenant {
    /// Its name in figures.
    pub name: String,
    /// The prefix of its keys. If several match a key, the longest does.
    pub prefix: String,
    /// Its share of DRAM, above 0 and below 1; `None` shares DRAM with all other keys.
    pub share: Option<f64>,
}

/// A tenant is written `NAME=PREFIX` or `NAME=PREFIX:SHARE%`.
impl FromStr for Tenant {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || format!("{text:?} is not a tenant: write NAME=PREFIX or NAME=PREFIX:SHARE%");
        let (name, rest) = text.split_once('=').ok_or_else(form)?;
        let (prefix, share) = match rest.rsplit_once(':') {
            Some((prefix, share)) if share.ends_with('%') => (prefix, Some(&share[..share.len() - 1])),
            _ => (rest, None),
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || !name.chars().all(is_name) || name == OTHERS {
            return Err(format!(
                "{text:?}: a tenant's name has letters, digits, `-`, `_` and `.`, and is not `{OTHERS}`"
            ));
        }
        if prefix.is_empty() || prefix.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            return Err(format!("{text:?}: a prefix is one or more characters of keys"));
        }
        let share = share.map(|share| match share.parse::<f64>() {
            Ok(percent) if percent > 0.0 && percent < 100.0 => Ok(percent / 100.0),
            _ => Err(format!("{text:?}: a share is above 0% and below 100%")),
        });
        Ok(Self { name: name.into(), prefix: prefix.into(), share: share.transpose()? })
    }
}

/// The tenants of a server, with their counts.
#[derive(Debug, Default)]
pub struct Tenants {
    /// By descending length of the prefix, so that the first match is the longest.
    all: Vec<Counted>,
}

#[derive(Debug)]
struct Counted {
    tenant: Tenant,
    pool: u8,
    counts: Counts,
}

/// The figures of a tenant.
#[derive(Debug)]
pub struct TenantFigures<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its own pool of DRAM, if it has a share.
    pub pool: Option<u8>,
    /// Requests for its keys.
    pub counts: PrefixCounts,
}

impl Tenants {
    /// Checks tenants together, and numbers their pools: 0 is for all other keys.
    ///
    /// # Errors
    /// Two have one name or prefix, there are too many, or their shares leave nothing to other keys.
    pub fn new(tenants: &[Tenant]) -> Result<Self, String> {
        if tenants.len() > MAX_TENANTS {
            return Err(format!("{} tenants: at most {MAX_TENANTS} are possible", tenants.len()));
        }
        for (at, tenant) in tenants.iter().enumerate() {
            for earlier in &tenants[..at] {
                if earlier.name == tenant.name || earlier.prefix == tenant.prefix {
                    let Tenant { name, prefix, .. } = earlier;
                    return Err(format!(
                        "tenant {} has the name or the prefix of {name}={prefix}",
                        tenant.name
                    ));
                }
            }
        }
        let shared: f64 = tenants.iter().filter_map(|tenant| tenant.share).sum();
        if shared > 0.999 {
            return Err(format!(
                "the shares of tenants are {:.1}% together, which leaves nothing to other keys",
                100.0 * shared
            ));
        }
        let mut next_pool = 0;
        let mut all: Vec<Counted> = tenants
            .iter()
            .map(|tenant| {
                let pool = tenant.share.map_or(0, |_| {
                    next_pool += 1;
                    next_pool
                });
                Counted { tenant: tenant.clone(), pool, counts: Counts::default() }
            })
            .collect();
        all.sort_by_key(|it| std::cmp::Reverse(it.tenant.prefix.len()));
        Ok(Self { all })
    }

    /// The pools of DRAM, for [`Builder::pools`](cache::Builder::pools).
    #[must_use]
    pub fn pools(&self) -> Vec<(String, f64)> {
        let mut own: Vec<&Counted> = self.all.iter().filter(|it| it.pool > 0).collect();
        own.sort_by_key(|it| it.pool);
        let own = own.iter().filter_map(|it| Some((it.tenant.name.clone(), it.tenant.share?)));
        let own: Vec<(String, f64)> = own.collect();
        let rest = 1.0 - own.iter().map(|(_, share)| share).sum::<f64>();
        std::iter::once((OTHERS.to_owned(), rest)).chain(own).collect()
    }

    /// The pool of a key.
    #[inline]
    pub(crate) fn pool_of(&self, key: &[u8]) -> u8 {
        self.of(key).map_or(0, |it| it.pool)
    }

    /// Counts a request for a key.
    #[inline]
    pub(crate) fn record(&self, key: &[u8], access: Access) {
        if let Some(it) = self.of(key) {
            it.counts.add(access);
        }
    }

    /// The figures of all tenants, by name.
    pub(crate) fn figures(&self) -> Vec<TenantFigures<'_>> {
        let own_pool = |it: &Counted| (it.pool > 0).then_some(it.pool);
        let mut all: Vec<TenantFigures<'_>> = self
            .all
            .iter()
            .map(|it| TenantFigures { name: &it.tenant.name, pool: own_pool(it), counts: it.counts.read() })
            .collect();
        all.sort_by_key(|it| it.name);
        all
    }

    /// Sets all counts to 0.
    pub(crate) fn reset(&self) {
        self.all.iter().for_each(|it| it.counts.reset());
    }

    #[inline]
    fn of(&self, key: &[u8]) -> Option<&Counted> {
        self.all.iter().find(|it| key.starts_with(it.tenant.prefix.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    fn tenants(texts: &[&str]) -> Result<Tenants, String> {
        let parsed: Result<Vec<Tenant>, String> = texts.iter().map(|text| text.parse()).collect();
        Tenants::new(&parsed?)
    }

    #[test]
    fn longest_prefix_decides_pool_and_counts() {
        let tenants = tenants(&["a=user:", "b=user:vip::25%", "c=img/:50%"]).unwrap();
        assert_eq!(tenants.pools(), [("others".to_owned(), 0.25), ("b".into(), 0.25), ("c".into(), 0.5)]);
        for (key, pool) in [("user:1", 0), ("user:vip:1", 1), ("img/1", 2), ("other", 0)] {
            assert_eq!(tenants.pool_of(key.as_bytes()), pool, "{key}");
            tenants.record(key.as_bytes(), Access::Get { is_hit: pool > 0 });
        }
        let figures: Vec<_> =
            tenants.figures().iter().map(|it| (it.name, it.pool, it.counts.gets, it.counts.hits)).collect();
        let expected = [("a", None, 1, 0), ("b", Some(1), 1, 1), ("c", Some(2), 1, 1)];
        assert_eq!(figures, expected);
        tenants.reset();
        assert!(tenants.figures().iter().all(|it| it.counts == PrefixCounts::default()));
    }

    #[test]
    fn wrong_tenants_are_refused_with_the_reason() {
        for (texts, message) in [
            (&["a"][..], "write NAME=PREFIX or NAME=PREFIX:SHARE%"),
            (&["=x"], "a tenant's name has letters"),
            (&["others=x"], "is not `others`"),
            (&["a="], "a prefix is one or more characters"),
            (&["a=x y"], "a prefix is one or more characters"),
            (&["a=x:0%"], "a share is above 0% and below 100%"),
            (&["a=x:q%"], "a share is above 0% and below 100%"),
            (&["a=x", "a=y"], "tenant a has the name or the prefix of a=x"),
            (&["a=x", "b=x"], "tenant b has the name or the prefix of a=x"),
            (&["a=x:60%", "b=y:40%"], "100.0% together, which leaves nothing to other keys"),
        ] {
            let error = tenants(texts).unwrap_err();
            assert!(error.contains(message), "{texts:?}: {error}");
        }
    }
}
