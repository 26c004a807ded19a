//! A plot as a list of shapes, and the same as SVG. `png` draws it as an image.

use std::fmt::Write as _;

/// Red, green and blue, one byte each.
pub(super) type Color = [u8; 3];

/// What a plot consists of.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Shape {
    /// A filled rectangle.
    Rect {
        x: f64,
        y: f64,
        width: f64,
        height: f64,
        fill: Color,
        /// Shown under the pointer; may be empty.
        tip: String,
    },
    /// A word; `y` is its baseline.
    Text { x: f64, y: f64, text: String, is_bold: bool },
    /// A filled circle.
    Dot {
        x: f64,
        y: f64,
        radius: f64,
        fill: Color,
        /// Shown under the pointer.
        tip: String,
    },
}

/// A plot. Lengths are pixels of a screen without scaling; letters are 11 high.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    pub(super) title: &'static str,
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) shapes: Vec<Shape>,
}

/// How much of what is behind a dot is covered.
pub(super) const DOT_OPACITY: f64 = 0.7;

impl Picture {
    pub(super) fn new(title: &'static str, width: f64, height: f64) -> Self {
        Self { title, width, height, shapes: Vec::new() }
    }

    pub(super) fn rect(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), fill: Color, tip: String) {
        self.shapes.push(Shape::Rect { x, y, width, height, fill, tip });
    }

    pub(super) fn text(&mut self, x: f64, y: f64, text: impl Into<String>) {
        self.shapes.push(Shape::Text { x, y, text: text.into(), is_bold: false });
    }

    /// A colour and what it means.
    pub(super) fn legend(&mut self, x: f64, y: f64, fill: Color, meaning: &str) {
        self.rect((x, y), (9.0, 9.0), fill, String::new());
        self.text(x + 13.0, y + 9.0, meaning);
    }

    /// As SVG.
    pub fn to_svg(&self) -> String {
        let (width, height) = (self.width, self.height);
        let mut out = format!(
            "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' height='{height}' \
             font-family='sans-serif' font-size='11'><title>{}</title>\n",
            escaped(self.title)
        );
        for shape in &self.shapes {
            let _ = match shape {
                Shape::Rect { x, y, width, height, fill, tip } => write!(
                    out,
                    "<rect x='{x:.1}' y='{y:.1}' width='{width:.1}' height='{height:.1}' fill='{}'{}",
                    hex(*fill),
                    end("rect", tip)
                ),
                Shape::Text { x, y, text, is_bold } => {
                    let weight = if *is_bold { " font-weight='bold'" } else { "" };
                    write!(out, "<text x='{x:.1}' y='{y:.1}'{weight}>{}</text>", escaped(text))
                }
                Shape::Dot { x, y, radius, fill, tip } => write!(
                    out,
                    "<circle cx='{x:.1}' cy='{y:.1}' r='{radius}' fill='{}' fill-opacity='{DOT_OPACITY}'{}",
                    hex(*fill),
                    end("circle", tip)
                ),
            };
        }
        out + "</svg>\n"
    }
}

fn hex([red, green, blue]: Color) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// The end of an element, with what it shows under the pointer.
fn end(element: &str, tip: &str) -> String {
    if tip.is_empty() { "/>".to_owned() } else { format!("><title>{}</title></{element}>", escaped(tip)) }
}

/// Characters that mean something to a browser.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
