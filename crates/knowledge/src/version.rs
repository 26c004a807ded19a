//! Version numbers of NCCL and CUDA as logs print them.

use std::fmt;

/// `2.28.9`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NcclVersion {
    /// 2.
    pub major: u16,
    /// 28.
    pub minor: u16,
    /// 9.
    pub patch: u16,
}

impl NcclVersion {
    /// Parses `2.28.9`, `2.28.9+cuda13.0`, `2.19.3-1`; a missing patch is 0.
    pub fn parse(text: &str) -> Option<Self> {
        let core = text.trim().split(['+', '-', ' ', '_']).next()?;
        let mut numbers = core.split('.').map(|p| {
            let digits = p.bytes().take_while(u8::is_ascii_digit).count();
            p.get(..digits).and_then(|d| d.parse::<u16>().ok())
        });
        let major = numbers.next()??;
        let minor = numbers.next()??;
        let patch = numbers.next().flatten().unwrap_or(0);
        Some(Self { major, minor, patch })
    }

    /// From the number in NCCL's messages: 22809 is 2.28.9, 2708 is 2.7.8.
    pub fn from_code(code: u32) -> Self {
        let (major, minor, patch) = if code >= 10_000 {
            (code / 10_000, code / 100 % 100, code % 100)
        } else {
            (code / 1000, code / 100 % 10, code % 100)
        };
        Self { major: major as u16, minor: minor as u16, patch: patch as u16 }
    }
}

impl fmt::Display for NcclVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// The CUDA release that a build of NCCL was made for: `13.0` of `2.28.9+cuda13.0`.
pub fn cuda_of_build(text: &str) -> Option<(u16, u16)> {
    let (_, cuda) = text.split_once("+cuda")?;
    let mut parts = cuda.split(|c: char| !c.is_ascii_digit());
    let major = parts.next()?.parse().ok()?;
    let minor = parts.next().and_then(|p| p.parse().ok()).unwrap_or(0);
    Some((major, minor))
}

/// `13.0`, as nvidia-smi prints the CUDA release that its driver supports.
pub fn cuda_of_text(text: &str) -> Option<(u16, u16)> {
    let (major, minor) = text.split_once('.')?;
    Some((major.trim().parse().ok()?, minor.trim().parse().ok()?))
}

/// The release without its build: `2.6.0` of `2.6.0+cu126`, `2.21.5` of `2.21.5-1+cuda12.4`.
pub fn release(version: &str) -> &str {
    version.split(['+', '-', '_']).next().unwrap_or(version)
}

/// `cudaDriverVersion 12020` as (12, 2).
pub fn cuda_of_code(code: u32) -> (u16, u16) {
    ((code / 1000) as u16, (code % 1000 / 10) as u16)
}
