//! HTML as it is written here: whatever comes from a file goes in as text, and only what stands in this program is markup.

use std::fmt::Write as _;

/// A piece of a page.
#[derive(Debug, Default)]
pub struct Html(String);

impl Html {
    /// Markup that stands in the program.
    pub fn markup(&mut self, markup: &'static str) -> &mut Self {
        self.0 += markup;
        self
    }

    /// Words, from wherever.
    pub fn text(&mut self, words: &str) -> &mut Self {
        self.0 += &escape(words);
        self
    }

    /// An element with words in it.
    pub fn element(&mut self, tag: &'static str, words: &str) -> &mut Self {
        let _ = write!(self.0, "<{tag}>{}</{tag}>", escape(words));
        self
    }

    /// An element with words in it and more words for who points at it.
    pub fn explained(&mut self, tag: &'static str, words: &str, explanation: &str) -> &mut Self {
        let _ = write!(self.0, "<{tag} title=\"{}\">{}</{tag}>", escape(explanation), escape(words));
        self
    }

    /// A drawing of ours, whose words the drawing library escaped.
    pub fn drawing(&mut self, svg: &str) -> &mut Self {
        self.0 += svg;
        self
    }

    /// Another piece.
    pub fn append(&mut self, piece: &Self) -> &mut Self {
        self.0 += &piece.0;
        self
    }

    /// What was written.
    #[must_use]
    pub fn finish(self) -> String {
        self.0
    }
}

/// Words that are no markup, in an attribute neither. Control characters are shown, and do nothing.
#[must_use]
pub fn escape(words: &str) -> String {
    let mut out = String::with_capacity(words.len());
    for letter in words.chars() {
        match letter {
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '&' => out += "&amp;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            '\n' | '\t' => out.push(letter),
            // They turn the direction of what follows them.
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => out.push('\u{fffd}'),
            letter if letter.is_control() => out.push('\u{fffd}'),
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_from_a_file_is_no_markup() {
        let mut html = Html::default();
        let foreign = "</td><script>alert(\"1\")</script> & '\u{0}\u{1b}[31m\u{202e}";
        html.element("td", foreign).explained("th", foreign, foreign).text(foreign);
        let page = html.finish();
        assert!(!page.contains("<script") && !page.contains('\u{0}') && !page.contains('\u{1b}'), "{page}");
        assert_eq!(page.matches('<').count(), 4, "{page}");
        assert_eq!(page.matches('"').count(), 2, "{page}");
        assert!(
            page.contains("&lt;/td&gt;&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt; &amp; &#39;"),
            "{page}"
        );
    }
}
