//! CUDA errors in the words of `cudaGetErrorString`: number, name, text. Source: the CUDA runtime reference,
//! enum `cudaError`, and the strings that NCCL and torch print (`Cuda failure 700 '…'`, `CUDA error: …`).

use ringleader_model::Cause;

use crate::tables::CUDA_ERRORS;

/// One error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CudaError {
    /// `cudaError` number.
    pub code: u16,
    /// Name in the enum.
    pub name: &'static str,
    /// Text of `cudaGetErrorString`.
    pub text: &'static str,
    /// Whether every later CUDA call of the process fails with the same error: then only the first one is
    /// informative.
    pub sticky: bool,
    /// What it means in practice.
    pub meaning: &'static str,
    /// Causes that it may indicate, most likely first.
    pub causes: &'static [Cause],
    /// What it is commonly mistaken for.
    pub is_not: &'static str,
    /// Source.
    pub source: &'static str,
}

/// All rows, by number.
pub fn all() -> &'static [CudaError] {
    CUDA_ERRORS
}

/// The error with this number.
pub fn get(code: u16) -> Option<&'static CudaError> {
    CUDA_ERRORS.binary_search_by_key(&code, |e| e.code).ok().and_then(|at| CUDA_ERRORS.get(at))
}

/// The error that a text names: by its text within NCCL's or torch's wording, or by its name.
pub fn in_text(text: &str) -> Option<&'static CudaError> {
    let framed =
        ["Cuda failure", "CUDA error", "CUDA failure", "CUDA driver error"].iter().any(|f| text.contains(f));
    CUDA_ERRORS
        .iter()
        .filter(|e| framed && text.contains(e.text) || text.contains(e.name))
        .max_by_key(|e| e.text.len())
}
