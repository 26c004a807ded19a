//! `README.md` and `docs/*.md` as pages.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use pulldown_cmark::{Event, Options, Parser, Tag, html};

use super::page::Page;

/// The guides, by the names of their files.
pub(super) fn documents(root: &Path) -> Result<Vec<Page>> {
    let entries =
        fs::read_dir(root.join("docs"))?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    let is_markdown = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "md");
    let mut paths: Vec<PathBuf> = entries.into_iter().filter(is_markdown).collect();
    paths.sort();
    paths.insert(0, root.join("README.md"));
    paths.iter().map(|path| document(path)).collect()
}

fn document(path: &Path) -> Result<Page> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let title = text.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or(&stem).to_owned();
    let about =
        text.lines().skip(1).find(|line| !line.is_empty() && !line.starts_with(['#', '<', '`', '|', ' ']));
    let body = render(&text);
    let is_readme = stem == "README";
    let (slug, title) = if is_readme { ("start", "Start".to_owned()) } else { (stem.as_str(), title) };
    Ok(Page::new("docs", slug, &format!("docs/{stem}.md"), &title, about.unwrap_or(&title), body))
}

/// Markdown with tables. What is HTML in it stays text but for comments.
fn render(text: &str) -> String {
    let events =
        Parser::new_ext(text, Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH).map(
            |event| match event {
                Event::Html(html) if html.trim_start().starts_with("<!--") => Event::Text("".into()),
                Event::Html(html) | Event::InlineHtml(html) => Event::Text(html),
                Event::Start(Tag::Link { link_type, dest_url, title, id }) => {
                    Event::Start(Tag::Link { link_type, dest_url: place(&dest_url).into(), title, id })
                }
                Event::Start(Tag::Image { link_type, dest_url, title, id }) => {
                    Event::Start(Tag::Image { link_type, dest_url: place(&dest_url).into(), title, id })
                }
                other => other,
            },
        );
    let mut out = String::new();
    html::push_html(&mut out, events);
    // The marks of links between pages are ours alone.
    out.replace("{{", "&#123;{")
}

/// Where a link between documents leads on the site.
fn place(link: &str) -> String {
    if link.contains("://") || link.starts_with('#') {
        return link.to_owned();
    }
    let (path, anchor) =
        link.split_once('#').map_or((link, String::new()), |(path, anchor)| (path, format!("#{anchor}")));
    let name = path.rsplit('/').next().unwrap_or(path);
    match name.strip_suffix(".md") {
        Some("README") => format!("start.html{anchor}"),
        Some(stem) => format!("{}.html{anchor}", stem.to_lowercase()),
        None => name.to_owned(),
    }
}

/// Words with `code` in them.
pub(super) fn inline(text: &str) -> String {
    let parts: Vec<String> = text
        .split('`')
        .enumerate()
        .map(|(n, part)| {
            let part = super::escape(part);
            if n % 2 == 1 { format!("<code>{part}</code>") } else { part }
        })
        .collect();
    parts.concat()
}
