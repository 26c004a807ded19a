//! A directory that all nodes see: one file per node, renamed into place; one thread per participant, so that a hung
//! file system blocks nothing else.
//!
//! Assumptions about the file system: rename and link are atomic, and reopening a file shows what another node has
//! written and closed (NFS, Lustre, GPFS and CephFS do). Directory listings may be cached: NFS then shows a new node
//! late, by default up to 60 s. Clocks of nodes are never compared: a node is silent if its reader has seen no change
//! for the time to silence.

mod files;
mod lease;
mod poll;
pub(crate) mod register;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use crate::feed::{Feed, Mailbox};
use crate::records::{Answer, Incident, MAX_INCIDENTS, Request};
use crate::seat::{HubLink, Lead, Seat, escape, unescape};
use crate::{HubError, OpenError, wire};

/// Largest record, bytes.
const MAX_RECORD_BYTES: usize = 64 << 10;
/// Number of requests whose files are kept.
const MAX_REQUESTS: usize = 4;
/// Names read from one folder, in case it is not ours.
const MAX_NAMES: usize = 1 << 17;

const DIGESTS: &str = "digests";
const ANSWERS: &str = "answers";
const INCIDENTS: &str = "incidents";
const REQUESTS: &str = "requests";

type DirectoryCall = Box<dyn FnOnce(&mut Worker) + Send>;

enum DirectoryTask {
    Wake,
    Call(DirectoryCall),
    Leave(Sender<()>),
}

pub(crate) struct Directory {
    root: PathBuf,
    seat: Arc<Seat>,
    jobs: Sender<DirectoryTask>,
}

impl Directory {
    pub(crate) fn open(root: PathBuf, seat: &Arc<Seat>) -> Result<Self, OpenError> {
        let (jobs, inbox) = mpsc::channel();
        let mut worker = Worker::new(root.clone(), seat.clone());
        std::thread::Builder::new()
            .name("ringleader-hub".to_owned())
            .spawn(move || worker.run(&inbox))
            .map_err(OpenError::Thread)?;
        Ok(Self { root, seat: seat.clone(), jobs })
    }

    pub(crate) fn beside(&self, seat: &Arc<Seat>) -> Result<Self, OpenError> {
        Self::open(self.root.clone(), seat)
    }

    pub(crate) fn wake(&self) {
        self.jobs.send(DirectoryTask::Wake).ok();
    }

    pub(crate) fn follow(&self) -> Feed {
        let (feed, mailbox) = Mailbox::feed();
        poll::start(&self.root, &self.seat, &mailbox);
        feed
    }

    pub(crate) fn record(&self, incident: Incident) -> Result<u64, HubError> {
        self.call(move |worker| {
            worker.as_analyser()?;
            worker.numbered(INCIDENTS, MAX_INCIDENTS, |number| {
                to_json(&Incident { number, ..incident.clone() })
            })
        })
    }

    pub(crate) fn incidents(&self) -> Result<Vec<Incident>, HubError> {
        self.call(|worker| {
            let mut incidents: Vec<Incident> = worker.read_all(INCIDENTS, |number, incident: Incident| {
                // The file name decides the number, whatever the file says.
                number.parse().ok().map(|number| Incident { number, ..incident })
            })?;
            incidents.sort_by_key(|incident| incident.number);
            incidents.drain(..incidents.len().saturating_sub(MAX_INCIDENTS));
            Ok(incidents)
        })
    }

    pub(crate) fn request(&self, request: Request) -> Result<u64, HubError> {
        self.call(move |worker| {
            worker.as_analyser()?;
            let number = worker
                .numbered(REQUESTS, MAX_REQUESTS, |number| to_json(&Request { number, ..request.clone() }))?;
            worker.requests_read = None;
            Ok(number)
        })
    }

    pub(crate) fn answers(&self) -> Result<Vec<Answer>, HubError> {
        self.call(|worker| {
            worker.read_all(ANSWERS, |name, answer: Answer| {
                unescape(name).filter(|node| *node == answer.node).map(|_| answer)
            })
        })
    }

    pub(crate) fn leave(&self) {
        let (done, left) = mpsc::channel();
        if self.jobs.send(DirectoryTask::Leave(done)).is_ok() {
            left.recv_timeout(Duration::from_secs(1)).ok();
        }
    }

    fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Worker) -> Result<T, DirectoryError> + Send + 'static,
    ) -> Result<T, HubError> {
        let (reply, answer) = mpsc::channel();
        let call = Box::new(move |worker: &mut Worker| drop(reply.send(work(worker))));
        let gone = |_| HubError::Away("the hub's thread has ended".to_owned());
        self.jobs.send(DirectoryTask::Call(call)).map_err(|_| gone(RecvTimeoutError::Disconnected))?;
        let deadline = self.seat.options.deadline;
        match answer.recv_timeout(deadline) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(DirectoryError::Io(error))) => Err(HubError::Away(error.to_string())),
            Ok(Err(DirectoryError::NotAnalyser)) => Err(HubError::NotAnalyser),
            Err(RecvTimeoutError::Timeout) => Err(HubError::Deadline(deadline)),
            Err(error) => Err(gone(error)),
        }
    }
}

enum DirectoryError {
    Io(io::Error),
    NotAnalyser,
}

impl From<io::Error> for DirectoryError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

struct Worker {
    root: PathBuf,
    seat: Arc<Seat>,
    lease: lease::Lease,
    /// Number of the digest in our file, and when we wrote it.
    digest: (u64, Option<Instant>),
    answer: u64,
    stepped: Option<Instant>,
    wanted: bool,
    requests_read: Option<Instant>,
}

impl Worker {
    fn new(root: PathBuf, seat: Arc<Seat>) -> Self {
        let lease =
            lease::Lease::new(root.join("analyser"), &seat.options.node, &seat.token, seat.options.ttl);
        Self {
            root,
            seat,
            lease,
            digest: (0, None),
            answer: 0,
            stepped: None,
            wanted: false,
            requests_read: None,
        }
    }

    fn run(&mut self, inbox: &mpsc::Receiver<DirectoryTask>) {
        // Ten looks per time to silence; a new digest is written as soon as its gap allows.
        let pause = (self.seat.options.ttl / 10).min(Duration::from_secs(1)).min(self.seat.options.gap);
        loop {
            if self.seat.is_abandoned() {
                return;
            }
            match self.turn(Instant::now()) {
                Ok(()) => self.seat.up(),
                Err(error) => self.seat.away(error.to_string()),
            }
            match inbox.recv_timeout(pause) {
                Ok(DirectoryTask::Wake) | Err(RecvTimeoutError::Timeout) => {}
                Ok(DirectoryTask::Call(call)) => call(self),
                Ok(DirectoryTask::Leave(done)) => {
                    if !self.seat.is_abandoned() {
                        self.leave();
                    }
                    done.send(()).ok();
                    return;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn turn(&mut self, now: Instant) -> io::Result<()> {
        let options = self.seat.options.clone();
        let outgoing = self.seat.outgoing();
        if self.seat.link() != HubLink::Up {
            for folder in [DIGESTS, ANSWERS, INCIDENTS, REQUESTS] {
                std::fs::create_dir_all(self.root.join(folder))?;
            }
        }
        let is_due = |last: Option<Instant>, every: Duration| {
            last.is_none_or(|last| now.duration_since(last) >= every)
        };
        if let Some((number, bytes)) = &outgoing.digest {
            let (written, at) = self.digest;
            let is_new = *number > written;
            if is_new && is_due(at, options.gap) || is_due(at, options.ttl / 3) {
                let path = self.root.join(DIGESTS).join(escape(&options.node));
                files::replace(&path, &self.seat.token, bytes)?;
                self.digest = (*number, Some(now));
                if is_new {
                    self.seat.taken(*number, bytes.len());
                }
            }
        }
        if let Some((number, answer)) = &outgoing.answer
            && *number > self.answer
        {
            let path = self.root.join(ANSWERS).join(format!("{}.json", escape(&options.node)));
            files::replace(&path, &self.seat.token, &to_json(&**answer)?)?;
            self.answer = *number;
        }
        if is_due(self.stepped, options.ttl / 5) || self.wanted != outgoing.wants {
            // The term counts from before the beat is written, so it ends no later than others expect.
            let lead = match self.lease.step(outgoing.wants, now)? {
                lease::LeaseOwner::Us(until) => {
                    self.seat.set_analyser(Some(options.node.clone()));
                    Some(Lead { term: 0, until })
                }
                lease::LeaseOwner::Other(node) => {
                    self.seat.set_analyser(node);
                    None
                }
            };
            self.seat.set_lead(lead);
            self.stepped = Some(now);
            self.wanted = outgoing.wants;
        }
        if is_due(self.requests_read, Duration::from_secs(1)) {
            let newest = self.names(REQUESTS)?.into_iter().max();
            let request = newest.and_then(|name| {
                let number = name.strip_suffix(".json")?.parse().ok()?;
                let request: Request = self.read(REQUESTS, &name)?;
                Some(Request { number, ..request })
            });
            self.seat.set_request(request);
            self.requests_read = Some(now);
        }
        Ok(())
    }

    fn as_analyser(&self) -> Result<(), DirectoryError> {
        if self.seat.lead().is_some() && self.lease.is_held() {
            Ok(())
        } else {
            Err(DirectoryError::NotAnalyser)
        }
    }

    /// Writes a record under the next free number and removes the oldest beyond `keep`.
    fn numbered(
        &self,
        folder: &str,
        keep: usize,
        json: impl Fn(u64) -> io::Result<Vec<u8>>,
    ) -> Result<u64, DirectoryError> {
        let mut numbers = self.numbers(folder)?;
        let mut number = numbers.last().map_or(1, |last| last.saturating_add(1));
        let path = |number: u64| self.root.join(folder).join(format!("{number:020}.json"));
        while !files::create(&path(number), &self.seat.token, &json(number)?)? {
            number = number.checked_add(1).ok_or_else(|| io::Error::other("no number is left"))?;
        }
        numbers.push(number);
        for old in numbers.iter().take(numbers.len().saturating_sub(keep)) {
            std::fs::remove_file(path(*old)).ok();
        }
        Ok(number)
    }

    fn numbers(&self, folder: &str) -> io::Result<Vec<u64>> {
        let mut numbers: Vec<u64> = self
            .names(folder)?
            .iter()
            .filter_map(|name| name.strip_suffix(".json"))
            .filter(|name| name.len() == 20)
            .filter_map(|name| name.parse().ok())
            .collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn names(&self, folder: &str) -> io::Result<Vec<String>> {
        names(&self.root.join(folder))
    }

    /// Reads a record; None if it cannot be parsed: a file may be truncated or hostile.
    fn read<T: serde::de::DeserializeOwned>(&self, folder: &str, name: &str) -> Option<T> {
        let (file, _) = files::open(&self.root.join(folder).join(name)).ok()?;
        let bytes = files::read(file, MAX_RECORD_BYTES).ok()?;
        if bytes.len() > MAX_RECORD_BYTES {
            return None;
        }
        serde_json::from_slice(&bytes).ok()
    }

    fn read_all<T, R>(
        &self,
        folder: &str,
        keep: impl Fn(&str, R) -> Option<T>,
    ) -> Result<Vec<T>, DirectoryError>
    where
        R: serde::de::DeserializeOwned,
    {
        let names = self.names(folder)?;
        Ok(names
            .iter()
            .filter_map(|name| keep(name.strip_suffix(".json")?, self.read(folder, name)?))
            .collect())
    }

    fn leave(&mut self) {
        self.lease.release();
        let node = escape(&self.seat.options.node);
        if self.digest.1.is_some() {
            // The file stays: without it a reader cannot tell a goodbye from a lost directory.
            files::replace(&self.root.join(DIGESTS).join(&node), &self.seat.token, &wire::bye()).ok();
        }
        if self.answer > 0 {
            std::fs::remove_file(self.root.join(ANSWERS).join(format!("{node}.json"))).ok();
        }
    }
}

/// File names in a folder, without those of half-written files.
fn names(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder)?.take(MAX_NAMES) {
        if let Ok(name) = entry?.file_name().into_string()
            && !name.starts_with('.')
        {
            names.push(name);
        }
    }
    Ok(names)
}

fn to_json(value: &impl serde::Serialize) -> io::Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(io::Error::other)
}
