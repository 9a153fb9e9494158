//! Figures by tenant of a trace: those with the most requests by name, the others as a sum.

use std::sync::Arc;

use serde_json::{Value, json};

/// Counters of a tenant.
pub trait Sums: Clone + Default {
    /// Number of requests, for sorting. A tenant without requests is not reported.
    fn requests(&self) -> u64;
    /// Adds the counters of `other`.
    fn add(&mut self, other: &Self);
}

/// Counters of the tenants of a trace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ByTenant<T> {
    /// Tenants by name, those with the most requests first.
    pub named: Vec<(Arc<str>, T)>,
    /// Requests without a tenant.
    pub without_tenant: T,
    /// Tenants beyond the maximum number that can be distinguished.
    pub not_distinguished: T,
}

impl<T: Sums> ByTenant<T> {
    /// Builds the table from rows: requests without a tenant, tenants that are not distinguished, then each tenant by its
    /// [index](workload::Tenant::index). `None` if there are no tenants.
    #[must_use]
    pub fn of(rows: &[T], names: &[Arc<str>]) -> Option<Self> {
        let [without_tenant, not_distinguished, rows @ ..] = rows else { return None };
        let named = names.iter().cloned().zip(rows.iter().cloned()).filter(|(_, row)| row.requests() > 0);
        let mut all = Self {
            named: named.collect(),
            without_tenant: without_tenant.clone(),
            not_distinguished: not_distinguished.clone(),
        };
        all.sort();
        Some(all)
    }

    fn sort(&mut self) {
        self.named.sort_by(|(a, x), (b, y)| y.requests().cmp(&x.requests()).then_with(|| a.cmp(b)));
    }

    /// Adds the counters of another run; equal names are the same tenant.
    pub fn merge(&mut self, other: &Self) {
        self.without_tenant.add(&other.without_tenant);
        self.not_distinguished.add(&other.not_distinguished);
        self.named.extend(other.named.iter().cloned());
        self.named.sort_by(|(a, _), (b, _)| a.cmp(b));
        self.named.dedup_by(|(name, row), (kept, sum)| {
            let is_same = name == kept;
            if is_same {
                sum.add(row);
            }
            is_same
        });
        self.sort();
    }

    /// Sum of all counters.
    #[must_use]
    pub fn sum(&self) -> T {
        let (_, mut sum) = self.others(0);
        sum.add(&self.without_tenant);
        sum
    }

    /// All tenants but the first `shown`: their number, without those that are not distinguished, and the sum of their counters.
    #[must_use]
    pub fn others(&self, shown: usize) -> (usize, T) {
        let rest = self.named.get(shown..).unwrap_or(&[]);
        let mut sum = self.not_distinguished.clone();
        rest.iter().for_each(|(_, row)| sum.add(row));
        (rest.len(), sum)
    }

    /// The table for result files, with `shown` tenants by name. `figures` converts counters to an object.
    #[must_use]
    pub fn json(&self, shown: usize, figures: impl Fn(&T) -> Value) -> Value {
        let with = |name: &str, value: Value, counts: &T| {
            let mut row = figures(counts);
            row[name] = value;
            row
        };
        let largest = self.named.iter().take(shown);
        let (distinguished, others) = self.others(shown);
        json!({
            "distinguished": self.named.len(),
            "largest": largest.map(|(name, counts)| with("tenant", json!(**name), counts)).collect::<Vec<_>>(),
            "others": with("distinguished", json!(distinguished), &others),
            "without_tenant": figures(&self.without_tenant),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Sums for u64 {
        fn requests(&self) -> u64 {
            *self
        }

        fn add(&mut self, other: &Self) {
            *self += other;
        }
    }

    fn names(names: &[&str]) -> Vec<Arc<str>> {
        names.iter().map(|name| (*name).into()).collect()
    }

    #[test]
    fn tenants_are_sorted_by_requests_and_sum_includes_all() {
        let all = ByTenant::of(&[5, 7, 2, 9, 0, 2], &names(&["d", "c", "b", "a"])).unwrap();
        let named: Vec<_> = all.named.iter().map(|(name, row)| (&**name, *row)).collect();
        assert_eq!(named, [("c", 9), ("a", 2), ("d", 2)], "a tenant without requests is not reported");
        assert_eq!((all.sum(), all.others(1), all.others(9)), (25, (2, 11), (0, 7)));
        assert_eq!(ByTenant::<u64>::of(&[5], &[]), None);
    }

    #[test]
    fn merge_adds_tenants_with_equal_names() {
        let mut sum = ByTenant::of(&[1, 2, 10, 4], &names(&["a", "b"])).unwrap();
        sum.merge(&ByTenant::of(&[1, 2, 8, 8], &names(&["b", "c"])).unwrap());
        let named: Vec<_> = sum.named.iter().map(|(name, row)| (&**name, *row)).collect();
        assert_eq!(
            (named, sum.without_tenant, sum.not_distinguished),
            (vec![("b", 12), ("a", 10), ("c", 8)], 2, 4)
        );
    }
}
