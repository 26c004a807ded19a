//! The state folder: how holder and supervisor communicate, so that either can be replaced.
//!
//! ```text
//! run.json                the request                   (written once)
//! holder.json             what runs and what has ended  (holder)
//! supervisor.json         state of the supervisor       (supervisor)
//! orders/000001.json      launch, clean, end            (supervisor)
//! attempts/1/…            output and evidence of an attempt
//! journal.jsonl           every transition, `ringleader.run.v1`
//! ```
//! Files are replaced as a whole, by rename.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Largest file of the folder that is read, bytes.
const MAX_BYTES: u64 = 4 << 20;

/// The folder of one run on one node.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
}

/// The request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunRequest {
    /// Name of the job: the same on all nodes.
    pub job: String,
    /// This node's name.
    pub node: String,
    /// The launcher and its arguments, with placeholders such as `{checkpoint}`.
    pub argv: Vec<String>,
    /// The options of `run`, as given.
    pub options: Vec<String>,
    /// When it began, seconds since 1970.
    pub at: f64,
}

/// State of the holder.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HolderState {
    /// The holder.
    pub pid: u32,
    /// The supervisor, if one runs.
    pub supervisor: Option<u32>,
    /// Number of supervisors started.
    pub n_supervisors: u32,
    /// Number of the last executed order.
    pub obeyed: u64,
    /// The launcher started last.
    pub launched: Option<Launched>,
    /// How it ended.
    pub ended: Option<LauncherEnd>,
    /// Signals that the holder received, oldest first.
    pub told: Vec<SentSignal>,
    /// The job has been suspended (SIGTSTP) and not continued: it is not expected to make progress.
    pub is_suspended: bool,
    /// An order that could not be executed, and why.
    pub refused: Option<(u64, String)>,
}

/// A launcher that was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Launched {
    /// Number of the attempt.
    pub attempt: u32,
    /// Generation of the decision that it belongs to.
    pub generation: u64,
    /// The launcher.
    pub pid: u32,
    /// When, seconds since 1970.
    pub at: f64,
}

/// How a launcher ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LauncherEnd {
    /// Number of the attempt.
    pub attempt: u32,
    /// Its exit code.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// When, seconds since 1970.
    pub at: f64,
    /// Whether the processes that it left behind have been ended.
    pub is_clean: bool,
}

impl LauncherEnd {
    /// The exit code as a shell reports it.
    pub fn code(&self) -> u8 {
        let code = self.code.or_else(|| self.signal.map(|signal| 128 + signal)).unwrap_or(1);
        u8::try_from(code).unwrap_or(u8::MAX)
    }

    /// Whether it exited with 0.
    pub fn is_success(&self) -> bool {
        self.code == Some(0)
    }

    /// `exit code 1`, `signal 9`.
    pub fn words(&self) -> String {
        match (self.code, self.signal) {
            (_, Some(signal)) => format!("signal {signal}"),
            (Some(code), None) => format!("exit code {code}"),
            (None, None) => "an unknown end".to_owned(),
        }
    }
}

/// A signal to the holder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SentSignal {
    /// Its number.
    pub signal: i32,
    /// When it was forwarded, seconds since 1970.
    pub at: f64,
}

/// An order of the supervisor to the holder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Start the launcher. Refused if this attempt or a later one was already started.
    Launch {
        /// Number of the attempt.
        attempt: u32,
        /// Generation of the decision.
        generation: u64,
        /// Program and arguments.
        argv: Vec<String>,
        /// Variables to add to the holder's environment.
        env: Vec<(String, String)>,
    },
    /// End processes that the attempt's launcher left behind: SIGTERM, then SIGKILL after `grace_ms`.
    Clean {
        /// Number of the attempt.
        attempt: u32,
        /// Time to exit after SIGTERM.
        grace_ms: u64,
    },
    /// Exit with this code, or with the last launcher's.
    End {
        /// Set if no launcher was ever started, or the job succeeded without this node.
        code: Option<u8>,
    },
}

impl Folder {
    /// Opens the folder and creates what is missing. Errors: the file system's.
    pub fn open(path: &Path) -> io::Result<Self> {
        for part in [path.to_owned(), path.join("orders"), path.join("attempts")] {
            fs::create_dir_all(part)?;
        }
        // The launcher may have a different working directory than later readers of the folder.
        Ok(Self { path: path.canonicalize()? })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder of an attempt. Errors: the file system's.
    pub fn attempt(&self, attempt: u32) -> io::Result<PathBuf> {
        let path = self.path.join("attempts").join(attempt.to_string());
        fs::create_dir_all(&path)?;
        Ok(path)
    }

    /// The journal.
    pub fn journal(&self) -> PathBuf {
        self.path.join("journal.jsonl")
    }

    /// Reads a file of the folder; None if it is absent. Errors: it cannot be read or parsed.
    pub fn read<T: DeserializeOwned>(&self, name: &str) -> io::Result<Option<T>> {
        read(&self.path.join(name))
    }

    /// Replaces a file of the folder. Errors: the file system's.
    pub fn write<T: Serialize>(&self, name: &str, content: &T) -> io::Result<()> {
        write(&self.path.join(name), content)
    }

    /// Writes an order and returns its number. Only the supervisor that holds [`Folder::seat`] may write orders.
    /// Errors: the file system's.
    pub fn order(&self, order: &Order) -> io::Result<u64> {
        let mut number = 1;
        for entry in fs::read_dir(self.path.join("orders"))?.take(100_000).flatten() {
            let known = entry.path().file_stem().and_then(|stem| stem.to_str()?.parse::<u64>().ok());
            number = number.max(known.map_or(0, |known| known + 1));
        }
        write(&self.order_path(number), order)?;
        Ok(number)
    }

    /// The order with this number, if it exists. Errors: as [`Folder::read`].
    pub fn order_at(&self, number: u64) -> io::Result<Option<Order>> {
        read(&self.order_path(number))
    }

    fn order_path(&self, number: u64) -> PathBuf {
        self.path.join("orders").join(format!("{number:06}.json"))
    }

    /// Locks the holder's place; None if another run has it. Dropping the file releases it. Errors: the file system's.
    pub fn place(&self) -> io::Result<Option<File>> {
        self.lock("place")
    }

    /// Locks the supervisor's seat; None if another supervisor has it. Dropping the file releases it. Errors: the file
    /// system's.
    pub fn seat(&self) -> io::Result<Option<File>> {
        self.lock("seat")
    }

    fn lock(&self, name: &str) -> io::Result<Option<File>> {
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(self.path.join(name))?;
        match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(file, MAX_BYTES), &mut bytes)?;
    serde_json::from_slice(&bytes)
        .map(Some)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

fn write<T: Serialize>(path: &Path, content: &T) -> io::Result<()> {
    let bytes = serde_json::to_vec_pretty(content).map_err(io::Error::other)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    file.write_all(&bytes)?;
    file.sync_data()?;
    fs::rename(&beside, path).inspect_err(|_| drop(fs::remove_file(&beside)))
}

/// Seconds since 1970.
pub fn now() -> f64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0.0, |since| since.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_numbered_and_the_seat_is_one() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = Folder::open(&temporary.path().join("state")).unwrap();
        let clean = Order::Clean { attempt: 1, grace_ms: 5 };
        assert_eq!(folder.order(&clean).unwrap(), 1);
        assert_eq!(folder.order(&Order::End { code: None }).unwrap(), 2);
        assert_eq!(folder.order_at(1).unwrap(), Some(clean));
        assert_eq!(folder.order_at(3).unwrap(), None);
        let seat = folder.seat().unwrap();
        assert!(seat.is_some() && folder.seat().unwrap().is_none());
        drop(seat);
        assert!(folder.seat().unwrap().is_some());
    }

    #[test]
    fn a_damaged_file_is_an_error_and_an_absent_one_is_none() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = Folder::open(temporary.path()).unwrap();
        assert_eq!(folder.read::<HolderState>("holder.json").unwrap(), None);
        let held = HolderState { pid: 7, ..HolderState::default() };
        folder.write("holder.json", &held).unwrap();
        assert_eq!(folder.read::<HolderState>("holder.json").unwrap(), Some(held));
        std::fs::write(folder.path().join("holder.json"), "{").unwrap();
        assert!(folder.read::<HolderState>("holder.json").is_err());
    }

    #[test]
    fn ends() {
        let of = |code, signal| LauncherEnd { code, signal, ..LauncherEnd::default() };
        assert_eq!((of(Some(3), None).code(), of(None, Some(9)).code(), of(None, None).code()), (3, 137, 1));
        assert!(of(Some(0), None).is_success() && !of(None, Some(9)).is_success());
    }
}
