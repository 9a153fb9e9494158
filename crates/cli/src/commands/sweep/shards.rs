//! Rows of `simulate` for shards of the objects, summed to the rows of the whole.

use serde_json::{Map, Value};

/// Counts and sizes, which add up.
const SUMS: [&str; 9] = [
    "size_bytes",
    "size_objects",
    "requests",
    "hits",
    "requested_bytes",
    "hit_bytes",
    "inserts",
    "inserted_bytes",
    "written_bytes",
];
/// Ratios: name, numerator and denominator.
const RATIOS: [(&str, &str, &str); 3] = [
    ("object_hit_ratio", "hits", "requests"),
    ("byte_hit_ratio", "hit_bytes", "requested_bytes"),
    ("write_amplification", "written_bytes", "inserted_bytes"),
];

/// The sums of the shards' rows, which are in the same order in each. The rows of a single shard are unchanged.
pub fn merged(mut parts: Vec<Vec<Value>>) -> Vec<Value> {
    if parts.len() < 2 {
        return parts.pop().unwrap_or_default();
    }
    let rows = parts.iter().map(Vec::len).min().unwrap_or(0);
    (0..rows).map(|row| sum(&parts.iter().map(|part| &part[row]).collect::<Vec<_>>())).collect()
}

fn sum(rows: &[&Value]) -> Value {
    let mut whole = rows[0].as_object().cloned().unwrap_or_default();
    for name in SUMS {
        let counts: Option<Vec<u64>> = rows.iter().map(|row| row[name].as_u64()).collect();
        whole.insert(name.to_owned(), counts.map_or(Value::Null, |counts| counts.iter().sum::<u64>().into()));
    }
    for (name, part, all) in RATIOS {
        let count = |name: &str, whole: &Map<String, Value>| whole[name].as_f64();
        let ratio = count(part, &whole).zip(count(all, &whole)).filter(|(_, all)| *all > 0.0);
        whole.insert(name.to_owned(), ratio.map_or(Value::Null, |(part, all)| (part / all).into()));
    }
    for name in ["interval", "doubt"] {
        whole.insert(name.to_owned(), Value::Null);
    }
    whole.insert("shards".to_owned(), rows.len().into());
    Value::Object(whole)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn counts_of_shards_are_summed_and_ratios_are_computed_from_the_sums() {
        let row = |requests: u64, hits: u64| {
            json!({ "policy": "lru", "size_bytes": 10, "size_objects": null, "requests": requests, "hits": hits,
                "object_hit_ratio": hits as f64 / requests as f64, "byte_hit_ratio": 0.5, "requested_bytes": 100, "hit_bytes": 50,
                "inserts": 3, "inserted_bytes": 30, "written_bytes": null, "write_amplification": null })
        };
        let whole = merged(vec![vec![row(100, 10)], vec![row(300, 90)]]);
        assert_eq!(
            (&whole[0]["requests"], &whole[0]["hits"], &whole[0]["size_bytes"]),
            (&400.into(), &100.into(), &20.into())
        );
        assert_eq!((&whole[0]["object_hit_ratio"], &whole[0]["byte_hit_ratio"]), (&0.25.into(), &0.5.into()));
        assert_eq!((&whole[0]["written_bytes"], &whole[0]["shards"]), (&Value::Null, &2.into()));
        assert_eq!(merged(vec![vec![row(100, 10)]]), [row(100, 10)]);
    }
}
