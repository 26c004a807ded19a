//! A plot as PNG, for tickets that show no SVG. Drawn at twice its size in pixels, with a fixed bitmap font inside the
//! program: fonts of the system are neither needed nor looked for.

use std::convert::Infallible;

use embedded_graphics::Drawable as _;
use embedded_graphics::Pixel;
use embedded_graphics::draw_target::DrawTarget;
use embedded_graphics::geometry::{OriginDimensions, Point, Size};
use embedded_graphics::mono_font::MonoTextStyle;
use embedded_graphics::mono_font::iso_8859_1::{FONT_9X18_BOLD, FONT_10X20};
use embedded_graphics::pixelcolor::{Rgb888, RgbColor as _};
use embedded_graphics::text::{Baseline, Text};

use super::picture::{Color, DOT_OPACITY, Picture, Shape};

/// Pixels of the image for one of the plot.
const SCALE: f64 = 2.0;
/// Room for the title, which a page or SVG shows elsewhere.
const TITLE: f64 = 20.0;
/// Images are no larger in either direction, pixels.
const MAX_PIXELS: f64 = 16_384.0;

impl Picture {
    /// As PNG.
    ///
    /// # Errors
    /// Never in practice: writing to memory does not fail.
    pub fn to_png(&self) -> Result<Vec<u8>, png::EncodingError> {
        let pixels = |length: f64| (length * SCALE).clamp(1.0, MAX_PIXELS) as u32;
        let mut canvas = Canvas::new(pixels(self.width), pixels(self.height + TITLE));
        canvas.text((4.0, 13.0), self.title, true);
        for shape in &self.shapes {
            match shape {
                Shape::Rect { x, y, width, height, fill, .. } => {
                    canvas.rect((*x, *y + TITLE), (*width, *height), *fill);
                }
                Shape::Text { x, y, text, is_bold } => canvas.text((*x, *y + TITLE), text, *is_bold),
                Shape::Dot { x, y, radius, fill, .. } => canvas.dot((*x, *y + TITLE), *radius, *fill),
            }
        }
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, canvas.width, canvas.height);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(&canvas.pixels)?;
        writer.finish()?;
        Ok(bytes)
    }
}

/// White at first; three bytes a pixel.
struct Canvas {
    width: u32,
    height: u32,
    pixels: Vec<u8>,
}

impl Canvas {
    fn new(width: u32, height: u32) -> Self {
        Self { width, height, pixels: vec![255; width as usize * height as usize * 3] }
    }

    /// Covers a share of a pixel.
    fn blend(&mut self, (x, y): (i64, i64), color: Color, share: f64) {
        if x < 0 || y < 0 || x >= i64::from(self.width) || y >= i64::from(self.height) {
            return;
        }
        let at = (y as usize * self.width as usize + x as usize) * 3;
        for (old, new) in self.pixels.iter_mut().skip(at).zip(color) {
            *old = (f64::from(*old) * (1.0 - share) + f64::from(new) * share).round() as u8;
        }
    }

    /// Edges within a pixel cover a part of it, so that the many thin pieces of a timeline have their true weight.
    fn rect(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), fill: Color) {
        let limit = |value: f64, most: u32| (value * SCALE).clamp(0.0, f64::from(most));
        let (left, right) = (limit(x, self.width), limit(x + width, self.width));
        let (top, bottom) = (limit(y, self.height), limit(y + height, self.height));
        let part = |at: i64, from: f64, to: f64| ((at + 1) as f64).min(to) - (at as f64).max(from);
        for row in top.floor() as i64..bottom.ceil() as i64 {
            let of_row = part(row, top, bottom);
            for column in left.floor() as i64..right.ceil() as i64 {
                self.blend((column, row), fill, of_row * part(column, left, right));
            }
        }
    }

    fn dot(&mut self, (x, y): (f64, f64), radius: f64, fill: Color) {
        let (x, y, radius) = (x * SCALE, y * SCALE, radius * SCALE);
        for row in (y - radius).floor() as i64..=(y + radius).ceil() as i64 {
            for column in (x - radius).floor() as i64..=(x + radius).ceil() as i64 {
                let (across, down) = (column as f64 + 0.5 - x, row as f64 + 0.5 - y);
                // `hypot` is a symbol of glibc 2.35, and older ones are supported.
                let distance = (across * across + down * down).sqrt();
                let share = (radius - distance + 0.5).clamp(0.0, 1.0) * DOT_OPACITY;
                self.blend((column, row), fill, share);
            }
        }
    }

    fn text(&mut self, (x, y): (f64, f64), text: &str, is_bold: bool) {
        let font = if is_bold { &FONT_9X18_BOLD } else { &FONT_10X20 };
        let at = Point::new((x * SCALE) as i32, (y * SCALE) as i32);
        let style = MonoTextStyle::new(font, Rgb888::BLACK);
        let Ok(_) = Text::with_baseline(text, at, style, Baseline::Alphabetic).draw(self);
    }
}

impl OriginDimensions for Canvas {
    fn size(&self) -> Size {
        Size::new(self.width, self.height)
    }
}

impl DrawTarget for Canvas {
    type Color = Rgb888;
    type Error = Infallible;

    fn draw_iter<I>(&mut self, pixels: I) -> Result<(), Infallible>
    where
        I: IntoIterator<Item = Pixel<Rgb888>>,
    {
        for Pixel(at, color) in pixels {
            self.blend((at.x.into(), at.y.into()), [color.r(), color.g(), color.b()], 1.0);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use super::super::picture::Picture;

    /// Size and pixels of an image, decoded.
    fn decoded(image: &[u8]) -> ((u32, u32), Vec<u8>) {
        let mut reader = png::Decoder::new(std::io::Cursor::new(image)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        ((info.width, info.height), pixels)
    }

    #[test]
    fn shapes_are_where_they_belong() {
        let mut picture = Picture::new("", 20.0, 10.0);
        picture.rect((2.0, 1.0), (4.0, 3.0), [0, 0x72, 0xb2], String::new());
        // A fourth of a pixel in each row.
        picture.rect((10.0, 1.0), (0.125, 3.0), [0; 3], String::new());
        picture.shapes.push(super::Shape::Dot {
            x: 15.0,
            y: 5.0,
            radius: 2.0,
            fill: [0; 3],
            tip: String::new(),
        });
        // Outside: ignored.
        picture.rect((-50.0, -50.0), (10.0, 10.0), [0; 3], String::new());
        picture.rect((500.0, 500.0), (10.0, 10.0), [0; 3], String::new());
        let ((width, height), pixels) = decoded(&picture.to_png().unwrap());
        assert_eq!((width, height), (40, 60));
        let at = |x: usize, y: usize| {
            let first = (y * 40 + x) * 3;
            [pixels[first], pixels[first + 1], pixels[first + 2]]
        };
        assert_eq!(at(4, 42), [0, 0x72, 0xb2]);
        assert_eq!(at(11, 47), [0, 0x72, 0xb2]);
        assert_eq!((at(3, 42), at(12, 42), at(4, 41), at(4, 48)), ([255; 3], [255; 3], [255; 3], [255; 3]));
        assert_eq!(at(20, 43), [191; 3]);
        assert_eq!(at(30, 50), [77; 3]);
        assert_eq!(at(30, 56), [255; 3]);
    }

    /// The letters of the font, as they come out.
    #[test]
    fn text_is_legible() {
        let mut picture = Picture::new("", 24.0, 12.0);
        picture.text(0.0, 9.0, "rank");
        let ((width, _), pixels) = decoded(&picture.to_png().unwrap());
        let mut drawn = Vec::new();
        for row in pixels.chunks(width as usize * 3).skip(45) {
            let line: String =
                row.chunks(3).take(40).map(|pixel| if pixel[0] < 128 { '#' } else { ' ' }).collect();
            if !line.trim().is_empty() {
                drawn.push(line.trim_end().to_owned());
            }
        }
        assert_eq!(drawn, LETTERS);
    }

    const LETTERS: [&str; 13] = [
        "                               ##",
        "                               ##",
        "                               ##",
        "                               ##",
        "                               ##",
        " ## ####     #####   ## ###    ##   ##",
        "  ###  ##   ##   ##  ###  ##   ##  ##",
        "  ##             ##  ##    ##  ## ##",
        "  ##        #######  ##    ##  ####",
        "  ##       ##    ##  ##    ##  #####",
        "  ##       ##    ##  ##    ##  ##  ##",
        "  ##       ##    ##  ##    ##  ##   ##",
        "  ##        ##### #  ##    ##  ##    ##",
    ];
}
