//! Merges warnings with the same text about several keys or instances.

use super::findings::Diagnostic;

/// Keys of one section whose warnings have the same message, and the instances whose config has them.
struct Group {
    message: String,
    section: String,
    keys: Vec<String>,
    instances: Vec<usize>,
}

/// Merges the warnings with the same text: `[0].cache_config.a`, `[0].cache_config.b`, `[1].cache_config.a` and
/// `[1].cache_config.b` become `cache_config.a, b (instances 0, 1)`. The order is that of the first warning of each group.
#[must_use]
pub fn grouped(warnings: &[Diagnostic]) -> Vec<Diagnostic> {
    let mut by_key: Vec<Group> = Vec::new();
    for warning in warnings {
        let (instance, section, key) = split(&warning.at);
        let known = by_key
            .iter_mut()
            .find(|it| it.message == warning.message && it.section == section && it.keys[0] == key);
        match known {
            Some(group) => group.instances.extend(instance),
            None => by_key.push(Group {
                message: warning.message.clone(),
                section: section.to_owned(),
                keys: vec![key.to_owned()],
                instances: instance.into_iter().collect(),
            }),
        }
    }
    let mut groups: Vec<Group> = Vec::new();
    for mut group in by_key {
        let alike = groups.iter_mut().find(|it| {
            it.message == group.message && it.section == group.section && it.instances == group.instances
        });
        match alike {
            Some(known) => known.keys.append(&mut group.keys),
            None => groups.push(group),
        }
    }
    groups.into_iter().map(Group::into_diagnostic).collect()
}

/// Splits `[1].cache_config.cacheSizeMB` into instance, section and key.
fn split(at: &str) -> (Option<usize>, &str, &str) {
    let indexed = at.strip_prefix('[').and_then(|rest| rest.split_once("]."));
    let indexed = indexed.and_then(|(index, path)| Some((index.parse::<usize>().ok()?, path)));
    let (instance, path) = indexed.map_or((None, at), |(index, path)| (Some(index), path));
    let (section, key) = path.rsplit_once('.').unwrap_or(("", path));
    (instance, section, key)
}

impl Group {
    fn into_diagnostic(self) -> Diagnostic {
        let keys = self.keys.join(", ");
        let path = if self.section.is_empty() { keys } else { format!("{}.{keys}", self.section) };
        let at = match self.instances[..] {
            [] => path,
            [one] => format!("[{one}].{path}"),
            _ => {
                let numbers: Vec<String> = self.instances.iter().map(ToString::to_string).collect();
                format!("{path} (instances {})", numbers.join(", "))
            }
        };
        Diagnostic { at, message: self.message }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(warnings: &[(&str, &str)]) -> Vec<String> {
        let diagnostic = |(at, message): &(&str, &str)| Diagnostic {
            at: (*at).to_owned(),
            message: (*message).to_owned(),
        };
        grouped(&warnings.iter().map(diagnostic).collect::<Vec<_>>())
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn grouped_same_text_of_several_keys_is_one_warning() {
        let warnings =
            [("cache_config.a", "no effect"), ("cache_config.b", "ignored"), ("cache_config.c", "no effect")];
        assert_eq!(lines(&warnings), ["cache_config.a, c: no effect", "cache_config.b: ignored"]);
    }

    #[test]
    fn grouped_same_keys_in_several_instances_lists_instances() {
        let warnings = [
            ("[0].cache_config.a", "no effect"),
            ("[0].cache_config.b", "no effect"),
            ("[1].cache_config.a", "no effect"),
            ("[1].cache_config.b", "no effect"),
            ("[1].test_config.t", "no effect"),
        ];
        let expected = ["cache_config.a, b (instances 0, 1): no effect", "[1].test_config.t: no effect"];
        assert_eq!(lines(&warnings), expected);
    }
}
