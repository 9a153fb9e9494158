//! Figures by tenant of a trace, whatever is counted: those with the most requests by name, the others in one sum.

use std::sync::Arc;

use serde_json::{Value, json};

/// What is counted of a tenant.
pub trait Sums: Clone + Default {
    /// Requests: who made more comes first, and who made none is not told.
    fn requests(&self) -> u64;
    /// Adds all of `other`.
    fn add(&mut self, other: &Self);
}

/// The tenants of a trace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ByTenant<T> {
    /// By name, those with the most requests first.
    pub named: Vec<(Arc<str>, T)>,
    /// Of requests that tell no tenant.
    pub nobody: T,
    /// Of tenants that were met when as many were known as are told apart.
    pub untold: T,
}

impl<T: Sums> ByTenant<T> {
    /// From rows as they are counted: requests without a tenant, those of tenants that are not told apart, then each by its
    /// [index](workload::Tenant::index). `None` where nobody has one.
    #[must_use]
    pub fn of(rows: &[T], names: &[Arc<str>]) -> Option<Self> {
        let [nobody, untold, rows @ ..] = rows else { return None };
        let named = names.iter().cloned().zip(rows.iter().cloned()).filter(|(_, row)| row.requests() > 0);
        let mut all = Self { named: named.collect(), nobody: nobody.clone(), untold: untold.clone() };
        all.sort();
        Some(all)
    }

    fn sort(&mut self) {
        self.named.sort_by(|(a, x), (b, y)| y.requests().cmp(&x.requests()).then_with(|| a.cmp(b)));
    }

    /// Adds those of another run; the same name is the same tenant.
    pub fn merge(&mut self, other: &Self) {
        self.nobody.add(&other.nobody);
        self.untold.add(&other.untold);
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

    /// All together.
    #[must_use]
    pub fn sum(&self) -> T {
        let (_, mut sum) = self.others(0);
        sum.add(&self.nobody);
        sum
    }

    /// All but the first `shown` by name: how many they are that are told apart, and what they come to.
    #[must_use]
    pub fn others(&self, shown: usize) -> (usize, T) {
        let rest = self.named.get(shown..).unwrap_or(&[]);
        let mut sum = self.untold.clone();
        rest.iter().for_each(|(_, row)| sum.add(row));
        (rest.len(), sum)
    }

    /// As result files have them, `shown` by name. `figures` makes an object of what was counted.
    #[must_use]
    pub fn json(&self, shown: usize, figures: impl Fn(&T) -> Value) -> Value {
        let with = |name: &str, value: Value, counts: &T| {
            let mut row = figures(counts);
            row[name] = value;
            row
        };
        let largest = self.named.iter().take(shown);
        let (told_apart, others) = self.others(shown);
        json!({
            "told_apart": self.named.len(),
            "largest": largest.map(|(name, counts)| with("tenant", json!(**name), counts)).collect::<Vec<_>>(),
            "others": with("told_apart", json!(told_apart), &others),
            "without_tenant": figures(&self.nobody),
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
    fn those_with_the_most_come_first_and_all_of_them_are_all() {
        let all = ByTenant::of(&[5, 7, 2, 9, 0, 2], &names(&["d", "c", "b", "a"])).unwrap();
        let told: Vec<_> = all.named.iter().map(|(name, row)| (&**name, *row)).collect();
        assert_eq!(told, [("c", 9), ("a", 2), ("d", 2)], "who asked for nothing is not told");
        assert_eq!((all.sum(), all.others(1), all.others(9)), (25, (2, 11), (0, 7)));
        assert_eq!(ByTenant::<u64>::of(&[5], &[]), None);
    }

    #[test]
    fn the_same_name_is_the_same_tenant() {
        let mut sum = ByTenant::of(&[1, 2, 10, 4], &names(&["a", "b"])).unwrap();
        sum.merge(&ByTenant::of(&[1, 2, 8, 8], &names(&["b", "c"])).unwrap());
        let told: Vec<_> = sum.named.iter().map(|(name, row)| (&**name, *row)).collect();
        assert_eq!((told, sum.nobody, sum.untold), (vec![("b", 12), ("a", 10), ("c", 8)], 2, 4));
    }
}
