//! Tenants: keys with one prefix, which have counts of their own and, if they have shares, their own parts of DRAM and of flash.

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
    /// Its share of flash, above 0 and below 1; `None` shares flash with all other keys.
    pub flash_share: Option<f64>,
}

/// How a tenant is written.
const FORM: &str = "NAME=PREFIX, NAME=PREFIX:DRAM%, NAME=PREFIX:DRAM%/FLASH% or NAME=PREFIX:/FLASH%";

/// A tenant is written `NAME=PREFIX`, followed by its shares if it has any: `:DRAM%`, `:DRAM%/FLASH%` or `:/FLASH%`.
impl FromStr for Tenant {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || format!("{text:?} is not a tenant: write {FORM}");
        let (name, rest) = text.split_once('=').ok_or_else(form)?;
        let (prefix, shares) = match rest.rsplit_once(':') {
            Some((prefix, shares)) if shares.ends_with('%') => (prefix, shares),
            _ => (rest, ""),
        };
        let (share, flash_share) = shares.split_once('/').unwrap_or((shares, ""));
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || !name.chars().all(is_name) || name == OTHERS {
            return Err(format!(
                "{text:?}: a tenant's name has letters, digits, `-`, `_` and `.`, and is not `{OTHERS}`"
            ));
        }
        if prefix.is_empty() || prefix.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            return Err(format!("{text:?}: a prefix is one or more characters of keys"));
        }
        let parsed = |share: &str| match share.strip_suffix('%').map(str::parse::<f64>) {
            None if share.is_empty() => Ok(None),
            Some(Ok(percent)) if percent > 0.0 && percent < 100.0 => Ok(Some(percent / 100.0)),
            _ => Err(format!("{text:?}: a share is above 0% and below 100%")),
        };
        let (share, flash_share) = (parsed(share)?, parsed(flash_share)?);
        Ok(Self { name: name.into(), prefix: prefix.into(), share, flash_share })
    }
}

impl Tenant {
    /// A remark on a prefix that ends in what may be meant as a share: `a=user:10` has the prefix `user:10`.
    #[must_use]
    pub fn remark(&self) -> Option<String> {
        let Self { name, prefix, .. } = self;
        let (_, end) = prefix.rsplit_once(':')?;
        let share = |part: &str| match part.parse::<f64>() {
            _ if part.is_empty() => Some(String::new()),
            number => number.ok().map(|_| format!("{part}%")),
        };
        let shares: Vec<String> = end.split('/').map(share).collect::<Option<_>>()?;
        let shares = shares.join("/");
        shares.contains('%').then(|| {
            format!(
                "{name}={prefix}: {end:?} is part of the prefix; write {name}=PREFIX:{shares} for a share"
            )
        })
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
    flash_pair: Option<usize>,
    counts: Counts,
}

/// The figures of a tenant.
#[derive(Debug)]
pub struct TenantFigures<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its own pool of DRAM, if it has a share.
    pub pool: Option<u8>,
    /// The [pair](cache::Cache::pair_stats) of its part of flash, if it has a share.
    pub flash_pair: Option<usize>,
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
        for (of, sum) in [
            ("DRAM", tenants.iter().filter_map(|it| it.share).sum::<f64>()),
            ("flash", tenants.iter().filter_map(|it| it.flash_share).sum()),
        ] {
            if sum > 0.999 {
                let percent = 100.0 * sum;
                return Err(format!(
                    "the shares of tenants are {percent:.1}% of {of} together, which leaves nothing to other keys"
                ));
            }
        }
        let (mut next_pool, mut next_pair) = (0, 0);
        let mut all: Vec<Counted> = tenants
            .iter()
            .map(|tenant| {
                let pool = tenant.share.map_or(0, |_| {
                    next_pool += 1;
                    next_pool
                });
                let flash_pair = tenant.flash_share.map(|_| {
                    next_pair += 1;
                    next_pair
                });
                Counted { tenant: tenant.clone(), pool, flash_pair, counts: Counts::default() }
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

    /// The prefixes with a part of flash and their shares, for [`Builder::flash_partition`](cache::Builder::flash_partition), in the
    /// order in which figures number them.
    #[must_use]
    pub fn flash_partitions(&self) -> Vec<(&str, f64)> {
        let mut own: Vec<&Counted> = self.all.iter().filter(|it| it.flash_pair.is_some()).collect();
        own.sort_by_key(|it| it.flash_pair);
        own.iter().filter_map(|it| Some((it.tenant.prefix.as_str(), it.tenant.flash_share?))).collect()
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
            .map(|it| TenantFigures {
                name: &it.tenant.name,
                pool: own_pool(it),
                flash_pair: it.flash_pair,
                counts: it.counts.read(),
            })
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
        let tenants = tenants(&["a=user::/10%", "b=user:vip::25%", "c=img/:50%/30%"]).unwrap();
        assert_eq!(tenants.pools(), [("others".to_owned(), 0.25), ("b".into(), 0.25), ("c".into(), 0.5)]);
        for (key, pool) in [("user:1", 0), ("user:vip:1", 1), ("img/1", 2), ("other", 0)] {
            assert_eq!(tenants.pool_of(key.as_bytes()), pool, "{key}");
            tenants.record(key.as_bytes(), Access::Get { is_hit: pool > 0 });
        }
        let figures: Vec<_> =
            tenants.figures().iter().map(|it| (it.name, it.pool, it.counts.gets, it.counts.hits)).collect();
        let expected = [("a", None, 1, 0), ("b", Some(1), 1, 1), ("c", Some(2), 1, 1)];
        assert_eq!(figures, expected);
        assert_eq!(tenants.flash_partitions(), [("user:", 0.1), ("img/", 0.3)]);
        let pairs: Vec<_> = tenants.figures().iter().map(|it| it.flash_pair).collect();
        assert_eq!(pairs, [Some(1), None, Some(2)]);
        tenants.reset();
        assert!(tenants.figures().iter().all(|it| it.counts == PrefixCounts::default()));
    }

    #[test]
    fn tenant_prefix_that_looks_like_shares_has_a_remark() {
        for (text, meant) in
            [("a=user:10", "a=PREFIX:10%"), ("a=user:10/5", "a=PREFIX:10%/5%"), ("a=user:/5", "a=PREFIX:/5%")]
        {
            let tenant: Tenant = text.parse().unwrap();
            assert!(
                tenant.remark().is_some_and(|remark| remark.contains(meant)),
                "{text}: {:?}",
                tenant.remark()
            );
        }
        for text in ["a=user:", "a=user::10%", "a=user:x1", "a=7", "a=user:/"] {
            let tenant: Tenant = text.parse().unwrap();
            assert_eq!(tenant.remark(), None, "{text}");
        }
    }

    #[test]
    fn wrong_tenants_are_refused_with_the_reason() {
        for (texts, message) in [
            (&["a"][..], "write NAME=PREFIX, NAME=PREFIX:DRAM%, "),
            (&["=x"], "a tenant's name has letters"),
            (&["others=x"], "is not `others`"),
            (&["a="], "a prefix is one or more characters"),
            (&["a=x y"], "a prefix is one or more characters"),
            (&["a=x:0%"], "a share is above 0% and below 100%"),
            (&["a=x:q%"], "a share is above 0% and below 100%"),
            (&["a=x:10/5%"], "a share is above 0% and below 100%"),
            (&["a=x:10%/100%"], "a share is above 0% and below 100%"),
            (&["a=x:/60%", "b=y:/40%"], "100.0% of flash together, which leaves nothing to other keys"),
            (&["a=x", "a=y"], "tenant a has the name or the prefix of a=x"),
            (&["a=x", "b=x"], "tenant b has the name or the prefix of a=x"),
            (&["a=x:60%", "b=y:40%"], "100.0% of DRAM together, which leaves nothing to other keys"),
        ] {
            let error = tenants(texts).unwrap_err();
            assert!(error.contains(message), "{texts:?}: {error}");
        }
    }
}
