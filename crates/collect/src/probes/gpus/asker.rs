//! Questions to the driver's library, and what became of them.

use std::sync::{Arc, Mutex};

use nvml_wrapper::error::NvmlError;

use super::{is_unsupported, word};

/// Asks, keeps errors, and says what it is at.
pub(super) struct Asker {
    pub(super) doing: Arc<Mutex<&'static str>>,
    pub(super) failures: Vec<(String, String)>,
    pub(super) is_lost: bool,
}

impl Asker {
    /// The answer, or None if there is none; an informative error is kept.
    pub(super) fn ask<T>(
        &mut self,
        name: &'static str,
        call: impl FnOnce() -> Result<T, NvmlError>,
    ) -> Option<T> {
        // A GPU that is off the bus answers no other question, and takes its time not to.
        if self.is_lost {
            return None;
        }
        if let Ok(mut doing) = self.doing.lock() {
            *doing = name;
        }
        match call() {
            Ok(value) => Some(value),
            Err(error) => {
                self.is_lost = matches!(error, NvmlError::GpuLost);
                if !is_unsupported(&error) {
                    self.failures.push((name.to_owned(), word(&error)));
                }
                None
            }
        }
    }
}

/// `00000000:1B:00.0` as the kernel writes it, `0000:1b:00.0`.
pub(super) fn address(bus_id: &str) -> String {
    let lower = bus_id.to_ascii_lowercase();
    match lower.split_once(':') {
        Some((domain, rest)) if domain.len() > 4 => {
            let (zeros, domain) = domain.split_at(domain.len() - 4);
            if zeros.bytes().all(|b| b == b'0') { format!("{domain}:{rest}") } else { lower }
        }
        _ => lower,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_the_kernels() {
        assert_eq!(address("00000000:1B:00.0"), "0000:1b:00.0");
        assert_eq!(address("0008:01:00.0"), "0008:01:00.0");
        assert_eq!(address("00010000:01:00.0"), "00010000:01:00.0");
    }
}
