//! The links of the documents: every relative link names an existing file, and every anchor an existing heading.

use std::collections::HashMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// The folders with documents, relative to the root of the repository.
const FOLDERS: &[&str] = &["", "docs"];

/// A link: its place in the text, and its destination.
pub struct Link {
    pub range: Range<usize>,
    pub destination: String,
}

/// The Markdown files in [`FOLDERS`] of `root`, sorted.
pub fn documents(root: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    for folder in FOLDERS {
        let folder = root.join(folder);
        let entries = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let paths = entries.flatten().map(|entry| entry.path());
        found.extend(paths.filter(|path| path.extension().is_some_and(|it| it == "md")));
    }
    found.sort();
    Ok(found)
}

/// The links and pictures of a document, in order.
pub fn links(text: &str) -> Vec<Link> {
    let events = Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter();
    let link = |(event, range)| match event {
        Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
            Some(Link { range, destination: dest_url.into_string() })
        }
        _ => None,
    };
    events.filter_map(link).collect()
}

/// Whether a destination is on another site.
pub fn is_external(destination: &str) -> bool {
    destination.contains("://") || destination.starts_with("mailto:")
}

/// Checks all documents under `root`. Returns one line for each broken link.
pub fn check(root: &Path) -> Result<Vec<String>, String> {
    let mut headings = HashMap::new();
    let mut breaches = Vec::new();
    for document in documents(root)? {
        let text = read(&document)?;
        let name = document.strip_prefix(root).unwrap_or(&document).display().to_string();
        for link in links(&text).iter().filter(|link| !is_external(&link.destination)) {
            let line = text[..link.range.start].matches('\n').count() + 1;
            if let Some(reason) = broken(&document, &link.destination, &mut headings)? {
                breaches.push(format!("{name}:{line}: the link {:?} {reason}", link.destination));
            }
        }
    }
    breaches.extend(unlisted(root)?);
    Ok(breaches)
}

/// The table of contents of the documentation site.
const CONTENTS: &str = "docs/SUMMARY.md";

/// One line for each page of `docs/` that the table of contents omits: mdBook builds listed pages only.
fn unlisted(root: &Path) -> Result<Vec<String>, String> {
    let contents = root.join(CONTENTS);
    let listed: Vec<String> = links(&read(&contents)?).into_iter().map(|link| link.destination).collect();
    let pages =
        documents(root)?.into_iter().filter(|page| page.parent() == contents.parent() && *page != contents);
    let names = pages.filter_map(|page| Some(page.file_name()?.to_str()?.to_owned()));
    let missing = names.filter(|name| !listed.contains(name));
    Ok(missing.map(|name| format!("docs/{name} is not listed in {CONTENTS}: add a line")).collect())
}

/// Why a link of `document` leads nowhere.
fn broken(
    document: &Path,
    destination: &str,
    headings: &mut HashMap<PathBuf, Vec<String>>,
) -> Result<Option<String>, String> {
    let (file, anchor) = destination.split_once('#').unwrap_or((destination, ""));
    let target = match file {
        "" => document.to_path_buf(),
        file => document.parent().unwrap_or(document).join(file),
    };
    if !target.exists() {
        return Ok(Some("names no file".into()));
    }
    if anchor.is_empty() || target.extension().is_none_or(|extension| extension != "md") {
        return Ok(None);
    }
    if !headings.contains_key(&target) {
        headings.insert(target.clone(), anchors(&read(&target)?));
    }
    let known = &headings[&target];
    Ok((!known.iter().any(|known| known == anchor)).then(|| format!("names no heading of {file:?}")))
}

/// The anchors of a document's headings, as GitHub and mdBook make them.
fn anchors(text: &str) -> Vec<String> {
    let mut anchors: Vec<String> = Vec::new();
    let mut heading: Option<String> = None;
    for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
        match (event, &mut heading) {
            (Event::Start(Tag::Heading { .. }), _) => heading = Some(String::new()),
            (Event::Text(text) | Event::Code(text), Some(heading)) => heading.push_str(&text),
            (Event::End(TagEnd::Heading(_)), _) => {
                let base = anchor(&heading.take().unwrap_or_default());
                let repeated = anchors.iter().filter(|known| **known == base).count();
                anchors.push(if repeated == 0 { base } else { format!("{base}-{repeated}") });
            }
            _ => {}
        }
    }
    anchors
}

fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
    kept.flat_map(char::to_lowercase).map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchors_of_headings_match_github() {
        let text =
            "# Keys of `cache_config`\n## What's new?\n## A  b\n## Twice\n## Twice\n```\n# code\n```\n";
        assert_eq!(anchors(text), ["keys-of-cache_config", "whats-new", "a--b", "twice", "twice-1"]);
    }

    #[test]
    fn links_skip_code() {
        let text = "[a](x.md) `[b](y.md)` ![c](z.svg)\n\n    [d](w.md)\n\n| [e](v.md#h) |\n|---|\n";
        let found: Vec<String> = links(text).into_iter().map(|link| link.destination).collect();
        assert_eq!(found, ["x.md", "z.svg", "v.md#h"]);
    }

    #[test]
    fn check_names_broken_links_and_unlisted_pages() {
        let root = std::env::temp_dir().join(format!("flashwright-links-{}", std::process::id()));
        fs::create_dir_all(root.join("docs")).unwrap();
        fs::write(root.join("A.md"), "# Top\n\n[ok](docs/b.md#one) [ok](#top)\n[x](docs/c.md)\n").unwrap();
        fs::write(root.join("docs/SUMMARY.md"), "- [B](b.md)\n").unwrap();
        fs::write(root.join("docs/unlisted.md"), "text\n").unwrap();
        fs::write(root.join("docs/b.md"), "# One\n[y](../A.md#none) [z](https://example.org/none)\n")
            .unwrap();
        let breaches = check(&root).unwrap();
        fs::remove_dir_all(&root).unwrap();
        let expected = [
            "A.md:4: the link \"docs/c.md\" names no file",
            "docs/b.md:2: the link \"../A.md#none\" names no heading of \"../A.md\"",
            "docs/unlisted.md is not listed in docs/SUMMARY.md: add a line",
        ];
        assert_eq!(breaches, expected);
    }
}
