//! `ncclResult_t`: numbers, names, texts and their meaning in practice. Source: `src/nccl.h.in` and
//! `ncclGetErrorString` in `src/init.cc` of NVIDIA/nccl, 2.14.3 to 2.30.7.

use ringleader_model::Cause;

use crate::cause::Advice;
use crate::tables::RESULTS;

/// One result code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NcclResult {
    /// Number, as in `init.cc:904 -> 5`.
    pub code: u8,
    /// `ncclInvalidUsage`.
    pub name: &'static str,
    /// Text of `ncclGetErrorString`, up to the hint in parentheses that older releases lack.
    pub text: &'static str,
    /// First release that has it.
    pub since: &'static str,
    /// What it means in practice.
    pub meaning: &'static str,
    /// Causes that it may indicate, most likely first.
    pub causes: &'static [Cause],
    /// What it is commonly mistaken for.
    pub is_not: &'static str,
    /// What to do first.
    pub advice: &'static [Advice],
    /// Source.
    pub source: &'static str,
}

/// All codes in order.
pub fn all() -> &'static [NcclResult] {
    RESULTS
}

/// The code with this number.
pub fn get(code: u8) -> Option<&'static NcclResult> {
    RESULTS.get(code as usize)
}

/// The code that a text contains, by its name (`ncclSystemError`) or its text (`unhandled system error`).
pub fn in_text(text: &str) -> Option<&'static NcclResult> {
    let failures = || RESULTS.iter().filter(|r| !matches!(r.code, 0 | 7));
    failures().find(|r| text.contains(r.name)).or_else(|| {
        // Many other programs use `timeout` and `invalid argument`.
        failures().filter(|r| !matches!(r.code, 4 | 8)).find(|r| text.contains(r.text))
    })
}
