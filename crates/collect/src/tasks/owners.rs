//! Whose socket an address is, by the kernel's tables: RAS is asked only where a rank of the job listens, and that rank
//! has loaded an NCCL that has RAS. Any other listener may belong to any program, and nothing connects to it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};

use ringleader_node::BETWEEN_COPIES;

use crate::libraries::{self, Versions};
use crate::request::{ReadingError, Request};
use crate::sockets::{self, Socket, SocketState};
use crate::tcp;

/// The first NCCL with RAS.
const FIRST: (u32, u32) = (2, 24);

/// The ranks that name an address, all of one network namespace.
pub(super) struct Owners {
    proc: PathBuf,
    ranks: BTreeSet<u32>,
    /// Below it are the tables of their namespace.
    at: PathBuf,
    namespace: Option<PathBuf>,
}

impl Owners {
    /// Those of the request's target.
    pub(super) fn of(request: &Request) -> Result<Self, ReadingError> {
        let pid = request.pid()?;
        let proc = request.roots.proc.clone();
        let at = proc.join(pid.to_string());
        // One that may not be read is that of a process which nothing is known of: its sockets are not found here.
        let own = tcp::namespace(&proc, std::process::id());
        let is_elsewhere = tcp::namespace(&proc, pid).is_some_and(|theirs| Some(theirs) != own);
        let namespace = is_elsewhere.then(|| at.join("ns/net"));
        Ok(Self { proc, ranks: request.target.pids.iter().copied().collect(), at, namespace })
    }

    /// Their network namespace, if it is not that of this process.
    pub(super) fn elsewhere(&self) -> Option<&Path> {
        self.namespace.as_deref()
    }

    /// Whether the listening processes have RAS, and one of them is a rank.
    pub(super) fn may_be_asked(&self, addresses: &[SocketAddr]) -> Result<(), ReadingError> {
        let listening: BTreeSet<u64> = sockets::all(&self.at)
            .iter()
            .filter(|socket| addresses.iter().any(|at| socket.listens_at(&[at.ip()], at.port())))
            .map(|socket| socket.inode)
            .collect();
        let refused = |why: String| Err(ReadingError::Failed(why));
        if listening.is_empty() {
            return refused(
                "no process listens there: NCCL before 2.24, NCCL_RAS_ENABLE=0, another user's job, or a job that has not \
                 called NCCL yet"
                    .to_owned(),
            );
        }
        let ours = sockets::holders(&self.proc, self.ranks.iter().copied());
        let others: BTreeSet<u64> = listening.iter().copied().filter(|i| !ours.contains_key(i)).collect();
        if others.len() == listening.len() {
            return refused(
                "the process that listens there is not a rank of the job: it is not queried".to_owned(),
            );
        }
        let theirs =
            if others.is_empty() { BTreeMap::new() } else { sockets::holders_of(&self.proc, &others) };
        let mut versions = Versions::new();
        for inode in &listening {
            let Some(pid) = ours.get(inode).or_else(|| theirs.get(inode)) else {
                return refused("the owner of the listener is unknown: it is not queried".to_owned());
            };
            if let Some(why) = lacks_ras(&self.proc, *pid, &mut versions) {
                return refused(format!("pid {pid}, which listens there, {why}: it is not queried"));
            }
        }
        Ok(())
    }

    /// Whether the other end of a connection is open in a rank of the job.
    pub(super) fn hold(&self, stream: &TcpStream) -> bool {
        let (Ok(own), Ok(peer)) = (stream.local_addr(), stream.peer_addr()) else { return false };
        let is_end = |socket: &&Socket| {
            let same = |a: SocketAddr, b: SocketAddr| {
                (a.ip().to_canonical(), a.port()) == (b.ip().to_canonical(), b.port())
            };
            socket.state == SocketState::Established && same(socket.own, peer) && same(socket.peer, own)
        };
        let sockets = sockets::all(&self.at);
        let Some(end) = sockets.iter().find(is_end) else { return false };
        sockets::holders(&self.proc, self.ranks.iter().copied()).contains_key(&end.inode)
    }
}

/// Why a process is not one that answers for RAS; None if it is.
fn lacks_ras(proc: &Path, pid: u32, versions: &mut Versions) -> Option<String> {
    let libraries = match libraries::of_process(proc, pid, versions) {
        Ok(libraries) => libraries,
        Err(error) => return Some(format!("cannot be inspected ({error})")),
    };
    let Some((_, version)) = libraries.iter().find(|(name, _)| name.starts_with("libnccl.so")) else {
        return Some("has loaded no NCCL".to_owned());
    };
    let has_ras = |version: &str| {
        let mut parts = version.split('.').map_while(|part| part.parse::<u32>().ok());
        parts.next().zip(parts.next()).is_some_and(|version| version >= FIRST)
    };
    (!version.split(BETWEEN_COPIES).any(has_ras)).then(|| match version.as_str() {
        "" => "has loaded an NCCL of unknown version".to_owned(),
        version => format!("has loaded NCCL {version}, which has no RAS"),
    })
}
