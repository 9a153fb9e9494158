//! `cargo xtask docs`: the documents as a site with search, by mdBook, in `target/book`.
//!
//! `docs/SUMMARY.md` is its table of contents. mdBook reads pages from one folder, so they are copied into one, and their links are
//! rewritten to it. mdBook is Debian's package; without it the links are checked and the site is SKIPPED.

use std::fs;
use std::path::Path;

use crate::links;
use crate::packages::{Packages, Unavailable};

const CONFIGURATION: &str = "[book]\ntitle = \"Flashwright\"\nlanguage = \"en\"\nsrc = \"src\"\n\
                             [build]\nbuild-dir = \"html\"\n[output.html]\nno-section-label = true\n";

/// The Debian suite that mdBook is installed from: older ones have an mdBook that does not render the pages.
const SUITE: &str = "trixie";

/// Checks the links of all documents and builds the site.
pub fn build() -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace");
    let breaches = links::check(root)?;
    if !breaches.is_empty() {
        return Err(breaches.join("\n  "));
    }
    let book = root.join("target/book");
    collect(root, &book).map_err(|error| format!("{}: {error}", book.display()))?;
    let packages = Packages::open(&root.join("target/vm"));
    let tree = packages.and_then(|packages| packages.install(SUITE, "mdbook", &["mdbook"]));
    let tree = match tree {
        Ok(tree) => tree,
        Err(Unavailable(reason)) => {
            println!("docs: SKIPPED, the site was not built: {reason}");
            return Ok(());
        }
    };
    crate::run(Packages::program(&tree, "usr/bin/mdbook", "").arg("build").arg(&book))?;
    println!("docs: {}", book.join("html/index.html").display());
    Ok(())
}

/// Copies pages and pictures into the book's source folder.
fn collect(root: &Path, book: &Path) -> std::io::Result<()> {
    if book.exists() {
        fs::remove_dir_all(book)?;
    }
    let source = book.join("src");
    fs::create_dir_all(source.join("pictures"))?;
    fs::write(book.join("book.toml"), CONFIGURATION)?;
    for picture in fs::read_dir(root.join("docs/pictures"))? {
        let picture = picture?;
        fs::copy(picture.path(), source.join("pictures").join(picture.file_name()))?;
    }
    for document in links::documents(root).map_err(std::io::Error::other)? {
        let name = document.file_name().unwrap_or_default();
        fs::write(source.join(name), relinked(&fs::read_to_string(&document)?))?;
    }
    Ok(())
}

/// The text with links to `docs/` and to the root rewritten to one folder. A link to a file outside the book keeps only its label.
fn relinked(text: &str) -> String {
    let mut output = text.to_owned();
    for link in links::links(text).iter().rev().filter(|link| !links::is_external(&link.destination)) {
        let destination = link.destination.trim_start_matches("../").trim_start_matches("docs/");
        let path = destination.split('#').next().unwrap_or("");
        let in_book = path.is_empty()
            || path.starts_with("pictures/")
            || (path.ends_with(".md") && !path.contains('/'));
        let span = &text[link.range.clone()];
        let replacement = if in_book {
            span.replace(&format!("]({}", link.destination), &format!("]({destination}"))
        } else {
            label(span).to_owned()
        };
        output.replace_range(link.range.clone(), &replacement);
    }
    output
}

/// The label of `[label](destination)`.
fn label(span: &str) -> &str {
    span.rsplit_once("](").map_or(span, |(label, _)| label.trim_start_matches('['))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relinked_text_links_within_one_folder() {
        let text = "[a](docs/x.md#y) [b](../README.md) ![c](docs/pictures/p.svg) [d](#here) [e](https://e.org/docs/x.md)";
        let expected =
            "[a](x.md#y) [b](README.md) ![c](pictures/p.svg) [d](#here) [e](https://e.org/docs/x.md)";
        assert_eq!(relinked(text), expected);
    }

    #[test]
    fn link_to_a_file_outside_the_book_keeps_its_label() {
        assert_eq!(relinked("see [`hybrid.json`](../examples/hybrid.json)."), "see `hybrid.json`.");
    }
}
