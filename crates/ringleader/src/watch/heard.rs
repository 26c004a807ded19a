//! What is printed, and whether anybody reads it.

use std::io::{self, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};

/// Nobody reads what is printed.
static UNHEARD: AtomicBool = AtomicBool::new(false);

pub(super) fn is_unheard() -> bool {
    UNHEARD.load(Ordering::Relaxed)
}

/// Prints, and ignores a closed pipe.
pub(super) fn print(text: &str, to_error: bool) {
    let _ = if to_error {
        io::stderr().lock().write_all(text.as_bytes())
    } else {
        let mut out = io::stdout().lock();
        let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        if written.is_err() {
            UNHEARD.store(true, Ordering::Relaxed);
        }
        written
    };
}
