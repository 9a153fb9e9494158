//! Tables of counters. [`counters!`](crate::counters!) declares a struct of counters once; the declaration gives its sum, its difference
//! to an earlier reading, and the name, kind and description of each counter for reports, Prometheus and documents.

/// How the value of a counter changes over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows: two readings can be subtracted.
    Sum,
    /// A current value: two readings are not subtracted.
    State,
}

/// The declaration of a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counter {
    /// Whether it is a sum or a state.
    pub kind: Kind,
    /// Its description.
    pub help: &'static str,
    /// Its name in CacheBench's list of counters, if it is in that list.
    pub listed_as: Option<&'static str>,
}

/// The value of a counter at one time.
#[derive(Debug, Clone)]
pub struct Reading<'a> {
    /// Its name: those of the tables around it, and its own, joined by `_`. A unit is the last word: `_bytes`, `_seconds`.
    pub name: &'a str,
    /// The places in lists of tables: `[("pool", 0), ("class", 3)]`.
    pub labels: &'a [(&'static str, usize)],
    /// Its declaration.
    pub counter: &'static Counter,
    /// Its value; `None` if it is unknown, or if the tables are listed without values.
    pub value: Option<u64>,
}

/// The names and labels of the tables around a counter.
#[derive(Debug, Clone, Default)]
pub struct Path {
    name: String,
    labels: Vec<(&'static str, usize)>,
}

impl Path {
    /// The path of a counter or table in this one.
    #[must_use]
    pub fn join(&self, name: &str) -> Self {
        let separator = if self.name.is_empty() { "" } else { "_" };
        Self { name: format!("{}{separator}{name}", self.name), labels: self.labels.clone() }
    }

    fn at(&self, label: &'static str, place: usize) -> Self {
        let mut inner = self.clone();
        inner.labels.push((label, place));
        inner
    }

    /// A reading at this path.
    #[must_use]
    pub fn reading(&self, counter: &'static Counter, value: Option<u64>) -> Reading<'_> {
        Reading { name: &self.name, labels: &self.labels, counter, value }
    }
}

/// A struct of counters, or of other such structs.
pub trait CounterTable: Clone {
    /// The name of the label that numbers the tables of this type in a list.
    const LABEL: &'static str = "index";

    /// Adds each counter of `other`: the sum over two caches.
    fn add(&mut self, other: &Self);

    /// The difference to `earlier`, a previous reading. States keep their value.
    #[must_use]
    fn since(&self, earlier: &Self) -> Self;

    /// Calls `visit` for each counter, in the order of the declarations. Without `table`, readings have no values.
    fn visit(table: Option<&Self>, path: &Path, visit: &mut dyn FnMut(Reading<'_>));

    /// The sum of both.
    #[must_use]
    fn plus(mut self, other: &Self) -> Self {
        self.add(other);
        self
    }

    /// The names and values of all known counters.
    fn named(&self) -> Vec<(String, u64)> {
        let mut named = Vec::new();
        self.for_each(|it| named.extend(it.value.map(|value| (it.name.to_owned(), value))));
        named
    }

    /// Calls `visit` for each counter.
    fn for_each(&self, mut visit: impl FnMut(Reading<'_>)) {
        Self::visit(Some(self), &Path::default(), &mut visit);
    }
}

/// A table that does not exist counts nothing.
impl<T: CounterTable> CounterTable for Option<T> {
    fn add(&mut self, other: &Self) {
        match (self, other) {
            (Some(mine), Some(theirs)) => mine.add(theirs),
            (mine @ None, theirs) => mine.clone_from(theirs),
            (Some(_), None) => {}
        }
    }

    fn since(&self, earlier: &Self) -> Self {
        match (self, earlier) {
            (Some(now), Some(before)) => Some(now.since(before)),
            (now, _) => now.clone(),
        }
    }

    fn visit(table: Option<&Self>, path: &Path, visit: &mut dyn FnMut(Reading<'_>)) {
        if let Some(None) = table {
            return;
        }
        T::visit(table.and_then(Option::as_ref), path, visit);
    }
}

/// The sum of two lists adds the tables at equal places.
impl<T: CounterTable> CounterTable for Vec<T> {
    fn add(&mut self, other: &Self) {
        self.iter_mut().zip(other).for_each(|(mine, theirs)| mine.add(theirs));
        self.extend(other.iter().skip(self.len()).cloned());
    }

    fn since(&self, earlier: &Self) -> Self {
        let since =
            |(place, now): (usize, &T)| earlier.get(place).map_or(now.clone(), |then| now.since(then));
        self.iter().enumerate().map(since).collect()
    }

    fn visit(table: Option<&Self>, path: &Path, visit: &mut dyn FnMut(Reading<'_>)) {
        let Some(tables) = table else { return T::visit(None, path, visit) };
        for (place, table) in tables.iter().enumerate() {
            T::visit(Some(table), &path.at(T::LABEL, place), visit);
        }
    }
}

/// The type of a counter.
pub trait Amount: Copy {
    /// Adds `other`.
    fn add(&mut self, other: Self);

    /// The growth since `earlier`, at least 0.
    #[must_use]
    fn since(self, earlier: Self) -> Self;

    /// The value for reports.
    fn value(self) -> Option<u64>;
}

macro_rules! amounts {
    ($($integer:ty)*) => { $(
        impl Amount for $integer {
            fn add(&mut self, other: Self) {
                *self += other;
            }

            fn since(self, earlier: Self) -> Self {
                self.saturating_sub(earlier)
            }

            fn value(self) -> Option<u64> {
                Some(u64::try_from(self).unwrap_or(0))
            }
        }
    )* };
}

amounts!(u32 u64 i64);

/// A counter that may be unknown. Its sum or difference is unknown if either value is.
impl Amount for Option<u64> {
    fn add(&mut self, other: Self) {
        *self = self.zip(other).map(|(mine, theirs)| mine + theirs);
    }

    fn since(self, earlier: Self) -> Self {
        self.zip(earlier).map(|(now, then)| now.saturating_sub(then))
    }

    fn value(self) -> Option<u64> {
        self
    }
}

/// Declares a [`CounterTable`]: `name: kind Type` for each field, with its description as a documentation comment. The kinds are
///
/// * `sum`: only grows. `[listed_as "name"]` after the type adds it to CacheBench's list of counters.
/// * `maybe`: a sum that may be unknown.
/// * `state`: a current value; likewise.
/// * `part`: another table.
/// * `other`: not a counter. `[|mine, theirs| …]` after the type is the value for the sum of two tables.
///
/// `struct Stats, atomics Counters` also declares `Counters`, with an [`AtomicU64`](std::sync::atomic::AtomicU64) for each `sum`,
/// and `Counters::read`.
#[macro_export]
macro_rules! counters {
    (
        $(#[$meta:meta])*
        pub struct $table:ident $(, atomics $visible:vis $atomics:ident)? $(, label $label:literal)? {
            $($(#[doc = $help:literal])+ $name:ident: $kind:ident $type:ty $([$($option:tt)+])?,)+
        }
    ) => {
        $(#[$meta])*
        pub struct $table { $($(#[doc = $help])+ pub $name: $type,)+ }

        impl $crate::counters::CounterTable for $table {
            $(const LABEL: &'static str = $label;)?

            fn add(&mut self, other: &Self) {
                $($crate::counters!(@add $kind self other $name $([$($option)+])?);)+
            }

            fn since(&self, earlier: &Self) -> Self {
                Self { $($name: $crate::counters!(@since $kind self earlier $name),)+ }
            }

            fn visit(
                table: Option<&Self>,
                path: &$crate::counters::Path,
                visit: &mut dyn FnMut($crate::counters::Reading<'_>),
            ) {
                $($crate::counters!(@visit $kind table path visit $name $type [$($help)+] $([$($option)+])?);)+
            }
        }

        $crate::counters!(@atomics [$($visible $atomics)?] $table $([$name $kind])+);
    };

    (@add sum $mine:ident $theirs:ident $name:ident $([$($option:tt)+])?) => {
        $crate::counters::Amount::add(&mut $mine.$name, $theirs.$name)
    };
    (@add maybe $mine:ident $theirs:ident $name:ident) => {
        $crate::counters::Amount::add(&mut $mine.$name, $theirs.$name)
    };
    (@add state $mine:ident $theirs:ident $name:ident $([$($option:tt)+])?) => {
        $crate::counters::Amount::add(&mut $mine.$name, $theirs.$name)
    };
    (@add part $mine:ident $theirs:ident $name:ident) => {
        $crate::counters::CounterTable::add(&mut $mine.$name, &$theirs.$name)
    };
    (@add other $mine:ident $theirs:ident $name:ident [|$a:ident, $b:ident| $sum:expr]) => {{
        let ($a, $b) = (&$mine.$name, &$theirs.$name);
        $mine.$name = $sum;
    }};

    (@since sum $now:ident $then:ident $name:ident) => {
        $crate::counters::Amount::since($now.$name, $then.$name)
    };
    (@since maybe $now:ident $then:ident $name:ident) => {
        $crate::counters::Amount::since($now.$name, $then.$name)
    };
    (@since part $now:ident $then:ident $name:ident) => {
        $crate::counters::CounterTable::since(&$now.$name, &$then.$name)
    };
    (@since $kind:ident $now:ident $then:ident $name:ident) => { $now.$name.clone() };

    (@visit part $table:ident $path:ident $visit:ident $name:ident $type:ty [$($help:literal)+]) => {
        <$type as $crate::counters::CounterTable>::visit(
            $table.map(|table| &table.$name),
            &$path.join(stringify!($name)),
            $visit,
        )
    };
    (@visit other $($rest:tt)*) => {};
    (@visit $kind:ident $table:ident $path:ident $visit:ident $name:ident $type:ty [$($help:literal)+]
        $([listed_as $listed:literal])?) => {{
        const COUNTER: $crate::counters::Counter = $crate::counters::Counter {
            kind: $crate::counters!(@kind $kind),
            help: concat!($($help),+).trim_ascii(),
            listed_as: $crate::counters!(@listed $($listed)?),
        };
        let value = $table.and_then(|table| $crate::counters::Amount::value(table.$name));
        $visit($path.join(stringify!($name)).reading(&COUNTER, value));
    }};
    (@kind sum) => { $crate::counters::Kind::Sum };
    (@kind maybe) => { $crate::counters::Kind::Sum };
    (@kind state) => { $crate::counters::Kind::State };
    (@listed) => { None };
    (@listed $name:literal) => { Some($name) };

    (@atomics [] $($rest:tt)*) => {};
    (@atomics [$visible:vis $atomics:ident] $table:ident $([$name:ident $kind:ident])+) => {
        /// Atomic counters to which threads add. Each is exact; together they are not a consistent snapshot.
        #[derive(Debug, Default)]
        $visible struct $atomics { $($visible $name: $crate::counters!(@atomic $kind),)+ }

        impl $atomics {
            /// The current values.
            $visible fn read(&self) -> $table {
                let Self { $($name,)+ } = self;
                $table { $($name: $crate::counters!(@load $kind $name),)+ }
            }
        }
    };
    (@atomic sum) => { ::std::sync::atomic::AtomicU64 };
    (@atomic $kind:ident) => { () };
    (@load sum $name:ident) => { $name.load(::std::sync::atomic::Ordering::Relaxed) };
    (@load $kind:ident $name:ident) => {{
        let () = $name;
        Default::default()
    }};
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::counters! {
        /// Requests by result.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct Requests, atomics pub Counting {
            /// Found.
            hits: sum u64 [listed_as "succ_lookups"],
            /// Waiting now.
            waiting: state u32,
        }
    }

    crate::counters! {
        /// All.
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        pub struct All {
            /// Of each shard.
            shards: part Vec<Requests>,
            /// Of the
            /// whole.
            whole: part Option<Requests>,
            /// Written by the medium.
            media_bytes: maybe Option<u64>,
            /// The first failure.
            failure: other Option<&'static str> [|mine, theirs| mine.or(*theirs)],
        }
    }

    fn all(hits: u64, waiting: u32, media_bytes: Option<u64>, failure: Option<&'static str>) -> All {
        let requests = Requests { hits, waiting };
        All { shards: vec![requests], whole: Some(requests), media_bytes, failure }
    }

    #[test]
    fn since_subtracts_sums_and_keeps_states() {
        let part = all(9, 5, Some(7), Some("b")).since(&all(4, 8, Some(2), None));
        assert_eq!(part, all(5, 5, Some(5), Some("b")));
        assert_eq!(
            all(9, 5, Some(7), None).since(&All::default()).whole,
            Some(Requests { hits: 9, waiting: 5 })
        );
    }

    #[test]
    fn plus_adds_all_counters_and_unknown_stays_unknown() {
        let both = all(9, 5, Some(7), None).plus(&all(1, 2, Some(1), Some("b")));
        assert_eq!((both.whole, both.media_bytes), (Some(Requests { hits: 10, waiting: 7 }), Some(8)));
        assert_eq!((both.shards, both.failure), (vec![Requests { hits: 10, waiting: 7 }], Some("b")));
        assert_eq!(all(1, 1, None, None).plus(&all(1, 1, Some(1), None)).media_bytes, None);
    }

    #[test]
    fn visit_names_each_counter_with_its_labels() {
        let mut seen = Vec::new();
        all(9, 5, Some(7), None).for_each(|it| seen.push((it.name.to_owned(), it.labels.to_vec(), it.value)));
        let shard = vec![("index", 0)];
        let expected = [
            ("shards_hits", shard.clone(), 9),
            ("shards_waiting", shard, 5),
            ("whole_hits", vec![], 9),
            ("whole_waiting", vec![], 5),
            ("media_bytes", vec![], 7),
        ];
        assert_eq!(seen, expected.map(|(name, labels, value)| (name.to_owned(), labels, Some(value))));
        let mut declared = Vec::new();
        All::visit(None, &Path::default(), &mut |it| {
            declared.push((it.name.to_owned(), *it.counter, it.value));
        });
        assert_eq!(declared.len(), 5);
        let hits = Counter { kind: Kind::Sum, help: "Found.", listed_as: Some("succ_lookups") };
        assert_eq!(declared[0], ("shards_hits".to_owned(), hits, None));
    }

    #[test]
    fn read_of_atomic_counters_returns_sums_and_zero_for_states() {
        let counting = Counting::default();
        counting.hits.fetch_add(3, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(counting.read(), Requests { hits: 3, waiting: 0 });
    }
}
