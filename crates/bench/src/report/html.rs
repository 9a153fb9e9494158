//! Generates HTML. Markup comes only from string literals of this program; all other text is escaped.

use std::fmt::Write as _;

/// A fragment of a page.
#[derive(Debug, Default)]
pub struct Html(String);

impl Html {
    /// Appends markup from a literal.
    pub fn markup(&mut self, markup: &'static str) -> &mut Self {
        self.0 += markup;
        self
    }

    /// Appends escaped text.
    pub fn text(&mut self, text: &str) -> &mut Self {
        self.0 += &escape(text);
        self
    }

    /// Appends an element with escaped text.
    pub fn element(&mut self, tag: &'static str, text: &str) -> &mut Self {
        let _ = write!(self.0, "<{tag}>{}</{tag}>", escape(text));
        self
    }

    /// Appends an element for each text.
    pub fn elements(
        &mut self,
        tag: &'static str,
        texts: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> &mut Self {
        for text in texts {
            self.element(tag, text.as_ref());
        }
        self
    }

    /// Appends a list, unless it is empty.
    pub fn list(&mut self, lines: &[String]) -> &mut Self {
        match lines {
            [] => self,
            lines => self.markup("<ul>").elements("li", lines).markup("</ul>\n"),
        }
    }

    /// Appends a table that scrolls sideways: a head for each column, and the rows that `rows` appends.
    pub fn table(
        &mut self,
        class: &'static str,
        heads: impl IntoIterator<Item = impl AsRef<str>>,
        rows: impl FnOnce(&mut Self),
    ) -> &mut Self {
        let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
        let _ = write!(self.0, "<div class=\"scroll\"><table{class}>\n<thead><tr>");
        self.elements("th", heads).markup("</tr></thead>\n<tbody>\n");
        rows(self);
        self.markup("</tbody></table></div>\n")
    }

    /// Appends an element with escaped text and a tooltip.
    pub fn explained(&mut self, tag: &'static str, text: &str, explanation: &str) -> &mut Self {
        let _ = write!(self.0, "<{tag} title=\"{}\">{}</{tag}>", escape(explanation), escape(text));
        self
    }

    /// Appends a checked checkbox, with a label after it. `id` has only letters, digits and hyphens.
    pub fn checkbox(&mut self, id: &str, label: &str) -> &mut Self {
        let (id, label) = (escape(id), escape(label));
        let _ = write!(self.0, " <label><input type=\"checkbox\" checked id=\"{id}\"> {label}</label>");
        self
    }

    /// Opens a table row with these classes.
    pub fn row_of_classes(&mut self, classes: &[String]) -> &mut Self {
        let _ = write!(self.0, "<tr class=\"{}\">", escape(&classes.join(" ")));
        self
    }

    /// Appends an SVG of this program, in which the drawing library escaped all text.
    pub fn drawing(&mut self, svg: &str) -> &mut Self {
        self.0 += svg;
        self
    }

    /// Returns the HTML.
    #[must_use]
    pub fn finish(self) -> String {
        self.0
    }
}

/// Escapes text for content and attributes. Control characters are replaced by a visible character.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '&' => out += "&amp;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            '\n' | '\t' => out.push(letter),
            // These would change the direction of the text after them.
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
    fn text_from_a_file_is_escaped() {
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
