//! What the terminal is like, and how much is to be shown on it.

use std::io::{self, IsTerminal};

use clap::{Args, ValueEnum};
use ringleader_report::{Detail, TextStyle};

/// Options of commands that print text.
#[derive(Debug, Args)]
pub(crate) struct LookArgs {
    /// Colour in the text report; auto obeys NO_COLOR
    #[arg(long, value_enum, default_value_t = Color::Auto, value_name = "WHEN", env = "RINGLEADER_COLOR", hide_env = true)]
    color: Color,
    /// Columns of the text report, 40 to 400 [default: the terminal's, else COLUMNS, else 80]
    #[arg(long, value_name = "COLUMNS", env = "RINGLEADER_WIDTH", hide_env = true,
          value_parser = clap::value_parser!(u16).range(40..=400))]
    width: Option<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
}

impl LookArgs {
    /// What these options mean on this terminal.
    pub(crate) fn look(&self, detail: Detail) -> TextStyle {
        look(self.color, self.width, detail)
    }
}

/// The text with its ellipses in ASCII, where the locale is set to one without UTF-8.
pub(crate) fn spelled(text: String) -> String {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set).unwrap_or_default();
    if takes_utf8(&locale) { text } else { text.replace('…', "...") }
}

/// Whether a locale of this name takes UTF-8; one that is not set is taken to.
fn takes_utf8(locale: &str) -> bool {
    let lower = locale.to_ascii_lowercase();
    lower.is_empty() || lower.contains("utf-8") || lower.contains("utf8")
}

/// What `--quiet` and `--verbose` mean. The command line refuses both at once.
pub(crate) fn detail(quiet: bool, verbose: bool) -> Detail {
    match (quiet, verbose) {
        (true, _) => Detail::Verdict,
        (_, true) => Detail::Everything,
        _ => Detail::Usual,
    }
}

/// How text looks on this terminal; a file or a pipe has the columns of COLUMNS, else 80, and no colour, unless asked for.
pub(crate) fn look(color: Color, width: Option<u16>, detail: Detail) -> TextStyle {
    let terminal = io::stdout().is_terminal();
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let color = match color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => {
            terminal && !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
        }
    };
    let own =
        || terminal.then(terminal_size::terminal_size).flatten().map(|(width, _)| width.0.clamp(40, 120));
    // Where there is no terminal, whoever made the pipe may have said how wide its reader is.
    let told = || {
        let columns = std::env::var("COLUMNS").ok().filter(|_| !terminal)?;
        Some(columns.trim().parse::<u16>().ok()?.clamp(40, 400))
    };
    let width = width.or_else(own).or_else(told).unwrap_or(80);
    TextStyle { width: width.into(), color, detail }
}
