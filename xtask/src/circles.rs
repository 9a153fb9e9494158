//! The rule on circles: files of a crate that use each other, directly or through others, cannot be read or changed one at a time.
//!
//! A file uses another one if it names an item of it, in a `use` or by a path from `crate`, `super` or `self`. An item that a module
//! re-exports belongs to the file that declares it. Tests and visibilities do not count.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use regex_lite::Regex;

/// Circles of this many files are not counted.
const SMALL: usize = 3;

/// The path of a module in its crate, and that of an item.
type Names = Vec<String>;

/// Lists the circles of each crate.
pub fn check(root: &Path, files: &[PathBuf]) -> Result<Vec<String>, String> {
    let mut crates: BTreeMap<String, BTreeMap<Names, String>> = BTreeMap::new();
    for file in files {
        let Ok(path) = file.strip_prefix(root.join("crates")) else { continue };
        let path = path.with_extension("");
        let mut names = path.iter().map(|name| name.to_string_lossy().into_owned());
        let (Some(room), Some("src")) = (names.next(), names.next().as_deref()) else { continue };
        let mut names: Names = names.collect();
        if names.iter().any(|name| ["tests", "fuzzing"].contains(&&**name)) {
            continue;
        }
        names.pop_if(|last| ["mod", "lib", "main"].contains(&&**last));
        let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        crates.entry(room).or_default().insert(names, text);
    }
    Ok(crates.iter().flat_map(|(room, modules)| breaches(room, &circles(modules))).collect())
}

fn breaches(room: &str, circles: &[Vec<Names>]) -> Vec<String> {
    let listed =
        |circle: &Vec<Names>| circle.iter().map(|names| names.join("/")).collect::<Vec<_>>().join(" ");
    let breach =
        |circle| format!("crates/{room} has a circle of more than {SMALL} files: {}", listed(circle));
    circles.iter().map(breach).collect()
}

/// The circles of more than [`SMALL`] modules: each module of one reaches all others of it.
fn circles(modules: &BTreeMap<Names, String>) -> Vec<Vec<Names>> {
    let used = used(modules);
    let reached: BTreeMap<&Names, HashSet<&Names>> = modules
        .keys()
        .map(|from| {
            let (mut reached, mut open) = (HashSet::new(), vec![from]);
            while let Some(next) = open.pop() {
                open.extend(used[next].iter().filter(|&to| reached.insert(to)));
            }
            (from, reached)
        })
        .collect();
    let circle = |from: &&Names| -> Vec<Names> {
        reached[*from].iter().filter(|&&to| reached[to].contains(*from)).map(|&to| to.clone()).collect()
    };
    let mut circles: Vec<Vec<Names>> =
        modules.keys().map(|from| circle(&from)).filter(|circle| circle.len() > SMALL).collect();
    circles.iter_mut().for_each(|circle| circle.sort());
    circles.sort();
    circles.dedup();
    circles
}

/// The modules that each module uses.
fn used(modules: &BTreeMap<Names, String>) -> HashMap<&Names, HashSet<Names>> {
    let re = |pattern| Regex::new(pattern).expect("the pattern is constant");
    let (import, path) =
        (re(r"(?m)^\s*(pub(?:\([^)]*\))? )?use ([^;]+);"), re(r"\b(?:crate|super|self)(?:::\w+)+"));
    let ignored = re(r"(?s)\n#\[cfg\(test\)\]\nmod \w+ \{.*|//[^\n]*| as \w+|\(in [^)]*\)");
    let (mut uses, mut declared) = (Vec::new(), HashMap::new());
    for (from, text) in modules {
        let text = ignored.replace_all(text, "");
        for found in import.captures_iter(&text) {
            for names in expanded(&found[2]) {
                let Some((to, item)) = resolved(modules, from, &names) else { continue };
                match found.get(1) {
                    Some(_) if to != *from => _ = item.map(|item| declared.insert((from.clone(), item), to)),
                    Some(_) => {}
                    None => uses.push((from, to, item)),
                }
            }
        }
        let rest = import.replace_all(&text, "");
        let paths = path.find_iter(&rest).flat_map(|found| expanded(found.as_str()));
        uses.extend(
            paths.filter_map(|names| resolved(modules, from, &names)).map(|(to, item)| (from, to, item)),
        );
    }
    let mut used: HashMap<&Names, HashSet<Names>> =
        modules.keys().map(|from| (from, HashSet::new())).collect();
    for (from, mut to, item) in uses {
        while let Some(next) = item.clone().and_then(|item| declared.get(&(to.clone(), item))) {
            to = next.clone();
        }
        if to != *from {
            used.entry(from).or_default().insert(to);
        }
    }
    used
}

/// The module that a path leads to, and the item named in it. `None` for another crate.
fn resolved(
    modules: &BTreeMap<Names, String>,
    from: &Names,
    names: &[String],
) -> Option<(Names, Option<String>)> {
    let mut module = if names[0] == "crate" { Names::new() } else { from.clone() };
    let above = names.iter().take_while(|name| *name == "super").count();
    module.truncate(module.len().saturating_sub(above));
    let from_root = above.max(usize::from(names[0] == "crate" || names[0] == "self"));
    let is_ours = |module: &Names, name: &String| {
        modules.contains_key(&[&**module, std::slice::from_ref(name)].concat())
    };
    if from_root == 0 && !is_ours(&module, &names[0]) {
        return None;
    }
    for name in &names[from_root..] {
        if !is_ours(&module, name) {
            return Some((module, Some(name.clone())));
        }
        module.push(name.clone());
    }
    Some((module, None))
}

/// The paths of a `use`, whose braces are expanded.
fn expanded(tree: &str) -> Vec<Names> {
    let tree: String = tree.split_whitespace().collect();
    let Some((prefix, group)) = tree.split_once('{') else {
        return vec![tree.split("::").map(str::to_owned).collect()];
    };
    let (mut depth, mut parts) = (0, vec![String::new()]);
    for letter in group.trim_end_matches('}').chars() {
        depth += i32::from(letter == '{') - i32::from(letter == '}');
        match letter {
            ',' if depth == 0 => parts.push(String::new()),
            _ => parts.last_mut().expect("one part at least").push(letter),
        }
    }
    parts
        .iter()
        .filter(|part| !part.is_empty())
        .flat_map(|part| expanded(&format!("{prefix}{part}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modules(files: &[(&str, &str)]) -> BTreeMap<Names, String> {
        let names = |path: &str| path.split('/').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        files.iter().map(|(path, text)| (names(path), (*text).to_owned())).collect()
    }

    #[test]
    fn circle_through_imports_paths_and_re_exports_is_found() {
        let four = [
            ("", "mod a;\npub use a::Shared;"),
            ("a", "use crate::b::{self, c::{D, E}};"),
            ("b", "mod c;\npub use c::D;"),
            ("b/c", "fn f() { super::super::e::g() }"),
            ("e", "use crate::f::X as Y;"),
            ("f", "use crate::Shared;"),
        ];
        let found = circles(&modules(&four));
        let names: Vec<String> = found.concat().iter().map(|names| names.join("/")).collect();
        assert_eq!((found.len(), names), (1, ["a", "b/c", "e", "f"].map(str::to_owned).to_vec()));
    }

    #[test]
    fn circle_of_three_and_uses_in_tests_and_comments_are_allowed() {
        let three = [
            ("a", "use crate::b::B;"),
            ("b", "use crate::c::C;"),
            ("c", "use crate::a::A; // use crate::d::D;\nuse std::fmt;\npub(in crate::d) fn f() {}"),
            ("d", "use crate::a::A;"),
            ("e", "struct E;\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}"),
        ];
        assert!(circles(&modules(&three)).is_empty());
    }

    #[test]
    fn circle_is_reported_with_its_files() {
        let circle = vec![["a", "b", "c", "d"].map(|name| vec![name.to_owned()]).to_vec()];
        assert_eq!(breaches("x", &circle), ["crates/x has a circle of more than 3 files: a b c d"]);
        assert!(breaches("x", &[]).is_empty());
    }
}
