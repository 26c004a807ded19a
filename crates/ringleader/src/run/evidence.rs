//! Bundles of other nodes. With a shared file system they can be read directly; otherwise each node puts its bundle
//! into the hub, and the deciding node fetches them there. If that fails, the most certain verdict of all nodes counts,
//! so no error here is fatal.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ringleader_hub::register::{MAX_EVIDENCE_BYTES, Register};
use ringleader_run::agree::Announcement;

/// Longest call to the hub.
const DEADLINE: Duration = Duration::from_secs(6);
/// How long the hub keeps evidence; also the length of the register's lease.
const TTL: Duration = Duration::from_mins(10);
/// Longest wait for all bundles together.
const PATIENCE: Duration = Duration::from_secs(20);

/// Access to the evidence of other nodes.
#[derive(Clone, Debug)]
pub(crate) struct RemoteEvidence {
    hub: String,
    job: String,
    node: String,
    folder: PathBuf,
}

impl RemoteEvidence {
    pub(crate) fn new(hub: String, job: &str, node: &str, folder: &Path) -> Self {
        Self { hub, job: job.to_owned(), node: node.to_owned(), folder: folder.to_owned() }
    }

    fn register(&self) -> Result<Register, String> {
        Register::open(&self.hub, &self.job, &self.node, TTL, DEADLINE).map_err(|error| error.to_string())
    }

    /// Puts this node's bundle into the hub. Errors: the bundle is too long, the hub is unreachable or full.
    pub(crate) fn share(&self, generation: u64, bundle: &Path) -> Result<(), String> {
        let length = std::fs::metadata(bundle).map_err(|error| error.to_string())?.len();
        if length > MAX_EVIDENCE_BYTES as u64 {
            return Err(format!("{length} bytes, more than {MAX_EVIDENCE_BYTES}"));
        }
        let bytes = std::fs::read(bundle).map_err(|error| error.to_string())?;
        self.register()?.share(generation, &bytes).map_err(|error| error.to_string())
    }
}

/// The bundles of these members: read directly where possible, else from the hub. Missing ones are noted.
pub(crate) fn of_all(
    members: &[Announcement],
    from: Option<&RemoteEvidence>,
    generation: u64,
    notes: &mut Vec<String>,
) -> Vec<PathBuf> {
    let mut register = None;
    let until = Instant::now() + PATIENCE;
    let (mut bundles, mut missing) = (Vec::new(), Vec::new());
    for member in members {
        let Some(path) = member.bundle.as_ref().map(PathBuf::from) else { continue };
        if path.is_file() {
            bundles.push(path);
            continue;
        }
        let Some(from) = from else { continue };
        if register.is_none() {
            register = from.register().ok();
        }
        let fetched = register
            .as_mut()
            .filter(|_| Instant::now() < until)
            .and_then(|register| register.fetch(&member.node, generation).ok().flatten());
        match fetched.and_then(|bytes| kept(&from.folder, member, generation, &bytes)) {
            Some(path) => bundles.push(path),
            None => missing.push(member.node.clone()),
        }
    }
    if !missing.is_empty() {
        let names = missing.join(", ");
        notes.push(format!(
            "the evidence of {names} could not be fetched: the verdict is based on what each node found alone"
        ));
    }
    bundles
}

/// Saves it as a file beside our own evidence of the attempt. None if it cannot be written.
fn kept(folder: &Path, member: &Announcement, generation: u64, bytes: &[u8]) -> Option<PathBuf> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    // A node's name may contain any character.
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let name: String = member.node.chars().map(plain).take(80).collect();
    let path = folder.join("attempts").join(generation.to_string()).join(format!("of-{name}.tar.zst"));
    let mut file =
        std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path).ok()?;
    file.write_all(bytes).ok()?;
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bundles_go_through_the_hub_and_what_is_missing_is_said() {
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
        let at = |name: &str| folder.path().join(name);
        for name in ["a/attempts/3", "b/attempts/3", "hub"] {
            std::fs::create_dir_all(at(name)).unwrap_or_else(|error| panic!("{error}"));
        }
        let of =
            |node: &str| RemoteEvidence::new(format!("dir:{}", at("hub").display()), "job", node, &at(node));
        let bundle = at("bundle");
        std::fs::write(&bundle, vec![7; 300_000]).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(of("a").share(3, &bundle), Ok(()));
        let member = |node: &str, path: &Path| Announcement {
            node: node.to_owned(),
            bundle: Some(path.display().to_string()),
            ..Announcement::default()
        };
        let absent = at("on-another-machine");
        let members = [member("a", &absent), member("b", &bundle), member("c", &absent)];
        let mut notes = Vec::new();
        let found = of_all(&members, Some(&of("b")), 3, &mut notes);
        assert_eq!(found, [at("b/attempts/3/of-a.tar.zst"), bundle.clone()]);
        assert_eq!(std::fs::read(&found[0]).map(|bytes| bytes.len()).ok(), Some(300_000));
        assert!(notes.len() == 1 && notes[0].contains("the evidence of c could not"), "{notes:?}");
        // Evidence of another attempt is not evidence of this one.
        notes.clear();
        assert_eq!(of_all(&members[..1], Some(&of("b")), 4, &mut notes), Vec::<PathBuf>::new());
        std::fs::write(&bundle, vec![7; MAX_EVIDENCE_BYTES + 1]).unwrap_or_else(|error| panic!("{error}"));
        assert!(of("a").share(3, &bundle).is_err_and(|why| why.contains("more than")));
    }
}
