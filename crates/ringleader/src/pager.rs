//! Long text on a terminal goes through the user's pager, everything else straight to standard output.

use std::io::{self, IsTerminal, Write};
use std::process::{Command, Stdio};

/// Prints `text`: through `$PAGER` (`less -R` if unset) if standard output is a terminal on which it does not fit.
///
/// # Errors
/// If standard output cannot be written.
pub(crate) fn print(text: &str, wanted: bool) -> io::Result<()> {
    let fits = || {
        let height = terminal_size::terminal_size().map_or(usize::MAX, |(_, height)| usize::from(height.0));
        text.lines().count() < height
    };
    if !wanted || !io::stdout().is_terminal() || fits() || !paged(text) {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()?;
    }
    Ok(())
}

/// Whether a pager took the text.
fn paged(text: &str) -> bool {
    let pager = std::env::var("PAGER").unwrap_or_else(|_| "less -R".to_owned());
    if pager.trim().is_empty() || pager.trim() == "cat" {
        return false;
    }
    let mut command = Command::new("sh");
    command.arg("-c").arg(&pager).stdin(Stdio::piped());
    if std::env::var_os("LESS").is_none() {
        // Colours as they are, and the page stays on the screen after the end.
        command.env("LESS", "FRX");
    }
    let Ok(mut child) = command.spawn() else { return false };
    if let Some(mut pipe) = child.stdin.take() {
        // Who leaves the pager early has read enough.
        let _ = pipe.write_all(text.as_bytes());
    }
    // 127: the shell found no such pager.
    child.wait().is_ok_and(|status| status.code() != Some(127))
}
