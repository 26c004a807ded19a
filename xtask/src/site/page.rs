//! One page.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::Names;

/// Longest slug of a page, bytes.
const MAX_SLUG: usize = 80;
/// Words of a page that the search knows.
const MAX_WORDS: usize = 160;

/// A page of the site.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    pub(crate) section: String,
    /// Name of its file without its ending.
    pub(crate) slug: String,
    /// Title of the page in links from other pages.
    pub(crate) name: String,
    pub(crate) title: String,
    about: String,
    /// Phrases by which it is searched for besides its own words, in lower case.
    pub(crate) asked: Vec<String>,
    /// HTML of its body. `{{see:NAME}}` becomes a link where there is such a page.
    pub(crate) body: String,
}

impl Page {
    pub(crate) fn new(section: &str, slug: &str, name: &str, title: &str, about: &str, body: String) -> Self {
        Self {
            section: section.to_owned(),
            slug: slug_of(slug),
            name: name.to_owned(),
            title: title.to_owned(),
            about: about.to_owned(),
            asked: Vec::new(),
            body,
        }
    }

    pub(crate) fn asked(self, asked: Vec<String>) -> Self {
        Self { asked, ..self }
    }

    /// Its place from the root of the site.
    pub(crate) fn path(&self) -> String {
        format!("{}/{}.html", self.section, self.slug)
    }

    /// The whole file. `up` leads to the root of the site.
    pub(crate) fn html(&self, up: &str, names: &Names) -> String {
        let title = if self.title == "ringleader" {
            self.title.clone()
        } else {
            format!("{} - ringleader", self.title)
        };
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{}</title>\n\
             <meta name=\"description\" content=\"{}\">\n<link rel=\"stylesheet\" href=\"{up}style.css\">\n</head>\n<body data-up=\"{up}\">\n\
             <header><a href=\"{up}index.html\">ringleader</a>\n\
             <input id=\"search\" type=\"search\" aria-label=\"Search\" placeholder=\"Xid 79, an error text, a variable\" autocomplete=\"off\">\n\
             <ol id=\"found\" aria-live=\"polite\"></ol></header>\n<main>\n{}</main>\n\
             <script src=\"{up}search-index.js\"></script>\n<script src=\"{up}search.js\"></script>\n</body>\n</html>\n",
            escape(&title),
            escape(&self.about),
            self.linked(up, names)
        )
    }

    /// The body with links in place of their marks.
    fn linked(&self, up: &str, names: &Names) -> String {
        let mut out = String::new();
        let mut rest = self.body.as_str();
        while let Some((before, after)) = rest.split_once("{{see:") {
            out.push_str(before);
            let Some((name, after)) = after.split_once("}}") else { break };
            match names.of(name) {
                Some(path) => {
                    let _ = write!(out, "<a href=\"{up}{path}\">{}</a>", escape(name));
                }
                None => {
                    let _ = write!(out, "<code>{}</code>", escape(name));
                }
            }
            rest = after;
        }
        out.push_str(rest);
        out
    }

    /// The words of its text, each once. A single letter is none; a digit may be the number of a status.
    pub(crate) fn words(&self) -> String {
        let mut text = String::new();
        let mut is_tag = false;
        for c in self.body.chars() {
            match c {
                '<' => is_tag = true,
                '>' if is_tag => {
                    is_tag = false;
                    text.push(' ');
                }
                c if !is_tag => text.extend(c.to_lowercase()),
                _ => {}
            }
        }
        let mut seen = BTreeSet::new();
        let words = text
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .filter(|word| word.len() > 1 || word.bytes().any(|b| b.is_ascii_digit()));
        let own: Vec<&str> = words.filter(|word| seen.insert(*word)).take(MAX_WORDS).collect();
        own.join(" ")
    }
}

/// Letters, digits and dashes.
fn slug_of(text: &str) -> String {
    let plain: String = text
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '.' { c.to_ascii_lowercase() } else { '-' })
        .collect();
    let mut out = String::new();
    for part in plain.split('-').filter(|part| !part.is_empty()) {
        if out.len() + part.len() + 1 > MAX_SLUG {
            break;
        }
        if !out.is_empty() {
            out.push('-');
        }
        out.push_str(part);
    }
    if out.is_empty() { "page".to_owned() } else { out.trim_matches('.').to_owned() }
}

/// Text as HTML.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // The marks of links are ours.
            '{' => out.push_str("&#123;"),
            c => out.push(c),
        }
    }
    out
}
