//! The program on the other side: found by name, or copied there where this version of it is absent.
//!
//! A copy is the very file that runs here, in a folder named by version and content. It is written beside its place,
//! checked by its hash, and renamed: a node that starts it at that moment, also from a shared home directory, finds the
//! whole of it or nothing.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

use ringleader_check::fleet::{Silence, SilenceKind};
use sha2::{Digest, Sha256};

use super::spool::Output;
use super::{Input, Limits, Ran, Transport, last_line};

/// Exit status of our own script: the copy is not there yet.
const NOT_THERE: i32 = 97;
/// The other side is another kind of machine.
const OTHER_MACHINE: i32 = 98;
/// Bytes that the script may print.
const MAX_SAID: u64 = 4096;

pub(crate) enum Program {
    /// A name or a path over there.
    Named(String),
    /// The running program, copied where it is absent.
    Copied { file: PathBuf, hash: String, version: String },
}

impl Program {
    /// The running program.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(crate) fn running(version: &str) -> io::Result<Self> {
        let file = std::env::current_exe()?;
        let hash = sha256(&mut File::open(&file)?)?;
        Ok(Self::Copied { file, hash, version: version.to_owned() })
    }

    /// The command that runs it over there.
    pub(super) fn argv(&self, args: &[String]) -> Vec<String> {
        let mut argv = match self {
            Self::Named(name) => vec![name.clone()],
            Self::Copied { version, .. } => {
                let folder = self.folder();
                // One of this version that is installed there is as good as a copy.
                let script = format!(
                    "P={folder}/ringleader; [ -x \"$P\" ] || {{ P=$(command -v ringleader) && \
                     [ \"$(\"$P\" --version)\" = \"ringleader {version}\" ]; }} || exit {NOT_THERE}; \
                     exec \"$P\" \"$@\""
                );
                ["sh", "-c", &script, "ringleader"].map(str::to_owned).to_vec()
            }
        };
        argv.extend(args.iter().cloned());
        argv
    }

    /// Whether it has to be copied first.
    pub(super) fn is_missing(&self, outcome: &Result<Ran, Silence>) -> bool {
        matches!(self, Self::Copied { .. })
            && outcome.as_ref().is_ok_and(|ran| ran.status == Some(NOT_THERE) && ran.n_output == 0)
    }

    /// Copies it there.
    pub(super) fn send(
        &self,
        transport: &dyn Transport,
        host: &str,
        limits: &Limits<'_>,
    ) -> Result<(), Silence> {
        let Self::Copied { file, hash, .. } = self else { return Ok(()) };
        // Counted out, since not every way to a host can tell the end of what it sends.
        let size = std::fs::metadata(file).map_or(0, |metadata| metadata.len());
        let (folder, machine) = (self.folder(), std::env::consts::ARCH);
        // No quote of the single kind: the whole is quoted for a shell that need not be sh. The name of the new file
        // holds host and process, since the folder may be one that many hosts see.
        let script = format!(
            "umask 077; M=$(uname -m); [ \"$M\" = {machine} ] || {{ echo \"$M\"; exit {OTHER_MACHINE}; }}; D={folder}; \
             mkdir -p \"$D\" || exit 1; T=\"$D/.new.$(uname -n).$$\"; trap \"rm -f \\\"$T\\\"\" EXIT; \
             head -c {size} > \"$T\" || exit 1; S=$(sha256sum < \"$T\") || exit 1; \
             [ \"${{S%% *}}\" = {hash} ] || {{ echo what arrived is not what was sent >&2; exit 1; }}; \
             chmod 700 \"$T\" && mv -f \"$T\" \"$D/ringleader\""
        );
        let argv = ["sh", "-c", &script].map(str::to_owned);
        let ran =
            transport.ask(host, &argv, &Input::File(file.clone()), Output::new(MAX_SAID, None), limits)?;
        let why = match ran.status {
            Some(0) => return Ok(()),
            Some(OTHER_MACHINE) => format!(
                "the copy would not run there: this machine is {machine}, that one {}",
                String::from_utf8_lossy(&ran.output).trim()
            ),
            _ => format!("it could not be copied there: {}", last_line(&ran.said, host)),
        };
        Err(Silence {
            kind: SilenceKind::NoProgram,
            why,
            next:
                "is there space left in the home directory there? Else install it and name it with --remote-program"
                    .to_owned(),
        })
    }

    /// Where copies are, in words of a shell over there.
    fn folder(&self) -> String {
        match self {
            Self::Copied { hash, version, .. } => {
                format!("\"$HOME/.cache/ringleader/{version}-{}\"", hash.get(..16).unwrap_or(hash))
            }
            Self::Named(_) => String::new(),
        }
    }
}

fn sha256(input: &mut impl Read) -> io::Result<String> {
    let mut digest = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match input.read(&mut buffer)? {
            0 => break,
            n => digest.update(&buffer[..n]),
        }
    }
    let mut text = String::new();
    for byte in digest.finalize() {
        // Writing to a String does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}
