//! Encodes drawings as SVG or PNG files.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{self, fontdb};

/// Scale of a PNG, for high-resolution screens.
const PIXELS_PER_POINT: f32 = 2.0;

/// File format of a plot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Scalable vector graphics.
    Svg,
    /// Pixels.
    Png,
}

/// Error of encoding a plot.
#[derive(Debug, thiserror::Error)]
pub enum PictureError {
    /// The file name ends neither in `.svg` nor in `.png`.
    #[error("{}: a plot's name must end in .svg or .png", .0.display())]
    Name(PathBuf),
    /// The drawing cannot be rendered.
    #[error("drawing: {0}")]
    Drawing(String),
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 2] = [Self::Svg, Self::Png];

    /// The format for the extension of `file`.
    ///
    /// # Errors
    /// The extension is missing or unknown.
    pub fn of(file: &Path) -> Result<Self, PictureError> {
        let requested = file.extension().map(|it| it.to_string_lossy().to_lowercase());
        let known = Self::ALL.into_iter().find(|format| requested.as_deref() == Some(format.extension()));
        known.ok_or_else(|| PictureError::Name(file.to_owned()))
    }

    /// File name extension.
    #[must_use]
    pub fn extension(self) -> &'static str {
        match self {
            Self::Svg => "svg",
            Self::Png => "png",
        }
    }

    /// Encodes `svg` as a file of this format.
    ///
    /// # Errors
    /// The text is not a valid SVG, or has no size.
    pub fn encode(self, svg: String) -> Result<Vec<u8>, PictureError> {
        match self {
            Self::Svg => Ok(svg.into_bytes()),
            Self::Png => png(&svg),
        }
    }
}

fn png(svg: &str) -> Result<Vec<u8>, PictureError> {
    let failed = |error: &dyn std::fmt::Display| PictureError::Drawing(error.to_string());
    let options = usvg::Options { fontdb: fonts(), ..usvg::Options::default() };
    let tree = usvg::Tree::from_str(svg, &options).map_err(|error| failed(&error))?;
    let size = tree.size().to_int_size().scale_by(PIXELS_PER_POINT).ok_or_else(|| failed(&"no size"))?;
    let mut pixels = Pixmap::new(size.width(), size.height()).ok_or_else(|| failed(&"no size"))?;
    let larger = Transform::from_scale(PIXELS_PER_POINT, PIXELS_PER_POINT);
    resvg::render(&tree, larger, &mut pixels.as_mut());
    pixels.encode_png().map_err(|error| failed(&error))
}

/// The bundled font. Plots look the same on every machine, and have text on machines without fonts.
fn fonts() -> Arc<fontdb::Database> {
    static FONTS: OnceLock<Arc<fontdb::Database>> = OnceLock::new();
    let load = || {
        let mut fonts = fontdb::Database::new();
        fonts.load_font_data(epaint_default_fonts::UBUNTU_LIGHT.to_vec());
        let family =
            fonts.faces().next().and_then(|face| face.families.first()).map(|(name, _)| name.clone());
        fonts.set_sans_serif_family(family.expect("the bundled font is valid"));
        Arc::new(fonts)
    };
    Arc::clone(FONTS.get_or_init(load))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawing(message: &str) -> String {
        format!(
            "<svg width=\"120\" height=\"40\" xmlns=\"http://www.w3.org/2000/svg\">\
             <text x=\"4\" y=\"30\" font-family=\"sans-serif\" font-size=\"20\" fill=\"black\">{message}</text></svg>"
        )
    }

    fn inked(text: &str) -> usize {
        let pixels = Pixmap::decode_png(&png(&drawing(text)).unwrap()).unwrap();
        assert_eq!((pixels.width(), pixels.height()), (240, 80));
        pixels.pixels().iter().filter(|pixel| pixel.alpha() > 0).count()
    }

    #[test]
    fn png_renders_text_with_the_bundled_font() {
        let (none, one, more) = (inked(""), inked("p99"), inked("p99 5 µs"));
        assert!(none == 0 && one > 300 && more > one, "{none} {one} {more}");
    }

    #[test]
    fn format_of_file_follows_its_extension() {
        assert_eq!(Format::of(Path::new("a/run.SVG")).unwrap(), Format::Svg);
        assert_eq!(Format::of(Path::new("run.png")).unwrap(), Format::Png);
        for name in ["run.pdf", "run", "png"] {
            assert!(
                Format::of(Path::new(name)).unwrap_err().to_string().contains("must end in .svg or .png")
            );
        }
    }

    #[test]
    fn encode_of_invalid_svg_is_an_error() {
        assert!(matches!(Format::Png.encode("no svg".to_owned()), Err(PictureError::Drawing(_))));
    }
}
