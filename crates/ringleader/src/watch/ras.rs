//! NCCL RAS in place of the plugin: counts of calls, no ends. Asked in a thread, since a service whose peers are stuck
//! takes seconds to answer.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ringleader_collect::{Peer, Request, Target, by_name};
use ringleader_evidence::{Limits, Scratch};
use ringleader_model::{Fact, RasReport};
use ringleader_watch::digest::{CommDigest, RankDigest, SeenBy};

/// Between the end of an answer and the next question.
const PAUSE: Duration = Duration::from_secs(3);
/// Patience with one question.
const PATIENCE_MS: u64 = 4_000;

/// What RAS has said so far.
pub(crate) struct Ras {
    asked: Option<Receiver<Result<RasReport, String>>>,
    next: Instant,
    /// By pid, as the process itself counts: its communicators.
    known: BTreeMap<u32, Vec<CommDigest>>,
    trouble: Option<String>,
}

impl Ras {
    pub(crate) fn new() -> Self {
        Self { asked: None, next: Instant::now(), known: BTreeMap::new(), trouble: None }
    }

    /// Takes an answer that has come, and asks again if it is time and anybody is unseen: the living ranks, each with where
    /// its service listens and whether anything else tells of it.
    pub(crate) fn ask(&mut self, ranks: &[(u32, Option<String>, bool)]) {
        if let Some(asked) = &self.asked {
            match asked.try_recv() {
                Ok(Ok(report)) => {
                    self.trouble = None;
                    self.take(&report);
                }
                Ok(Err(why)) => self.trouble = Some(why),
                Err(mpsc::TryRecvError::Empty) => return,
                Err(mpsc::TryRecvError::Disconnected) => {}
            }
            self.asked = None;
            self.next = Instant::now() + PAUSE;
        }
        let unseen = ranks.iter().filter(|(_, _, is_seen)| !is_seen);
        let Some((first, address)) = unseen.clone().find_map(|(pid, at, _)| Some((*pid, at.clone()?))) else {
            return;
        };
        if Instant::now() < self.next {
            return;
        }
        // Any rank that shares the address may be the one that listens.
        let of_rank = |pid: u32| ringleader_collect::tcp::namespace("/proc".as_ref(), pid);
        let namespace = of_rank(first);
        let shares =
            |at: &Option<String>, pid: u32| at.as_ref() == Some(&address) && of_rank(pid) == namespace;
        let pids =
            ranks.iter().filter(|(pid, at, _)| shares(at, *pid)).map(|(pid, ..)| *pid).collect::<Vec<_>>();
        let (sender, receiver) = mpsc::channel();
        self.asked = Some(receiver);
        thread::spawn(move || {
            // The watcher may have ended.
            let _ = sender.send(question(&pids, &address));
        });
    }

    /// Adds what is known of a process that has no ring.
    pub(crate) fn complete(&self, digest: &mut RankDigest) {
        let inner = ringleader_collect::follow::inner_pid("/proc".as_ref(), digest.pid).unwrap_or(digest.pid);
        if let Some(comms) = self.known.get(&inner).or_else(|| self.known.get(&digest.pid)) {
            digest.seen_by = SeenBy::Ras;
            digest.comms.clone_from(comms);
        }
    }

    /// Why it says nothing.
    pub(crate) fn note(&self) -> Option<String> {
        self.trouble.as_ref().map(|why| format!("NCCL RAS: {why}"))
    }

    fn take(&mut self, report: &RasReport) {
        let now_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i64);
        let before = std::mem::take(&mut self.known);
        for comm in &report.comms {
            for rank in &comm.ranks {
                let Some(pid) = rank.peer.pid.map(|pid| pid.0) else { continue };
                let id = format!("{:x}", comm.hash);
                let collectives = rank.counts.iter().map(|(_, n)| *n).sum();
                let old = before.get(&pid).and_then(|comms| comms.iter().find(|comm| comm.id == id));
                // RAS reports no times: if nothing has changed since the last answer, there was no progress.
                let progress_ns =
                    old.filter(|old| old.collectives == collectives).map_or(now_ns, |old| old.progress_ns);
                self.known.entry(pid).or_default().push(CommDigest {
                    id,
                    size: comm.size,
                    rank: rank.peer.rank.map(|rank| rank.0),
                    collectives,
                    progress_ns,
                    is_ended: rank.finalizing,
                    ..CommDigest::default()
                });
            }
        }
        if self.known.is_empty() && !report.groups.is_empty() {
            self.trouble = Some("NCCL before 2.28.7 lists only communicators in trouble".to_owned());
        }
    }
}

fn question(pids: &[u32], address: &str) -> Result<RasReport, String> {
    let ras = by_name("ras-of").ok_or("no client")?;
    let mut last = String::new();
    for purpose in ["json", "text"] {
        let mut peer = Peer::named(address);
        purpose.clone_into(&mut peer.purpose);
        let request = Request {
            peers: vec![peer],
            // The thread enters their network, where that is another one.
            target: Target { pids: pids.to_vec(), ..Target::default() },
            deadline_ms: PATIENCE_MS,
            ..Request::default()
        };
        match (ras.take)(&request) {
            Ok(answer) => {
                let text = answer["report"].as_str().unwrap_or_default().to_owned();
                return parse(&text).ok_or_else(|| "its answer could not be parsed".to_owned());
            }
            Err(ringleader_collect::ReadingError::Failed(why)) => return Err(why),
            // An old one has no JSON.
            Err(ringleader_collect::ReadingError::Absent(why)) => last = why,
        }
    }
    Err(last)
}

fn parse(text: &str) -> Option<RasReport> {
    let mut input = text.as_bytes();
    let extract = ringleader_evidence::read("ras", &mut input, &mut Scratch::default(), &Limits::default());
    extract.observations.into_iter().find_map(|observation| match observation.fact {
        Fact::Ras(report) => Some(*report),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    /// As NCCL 2.28.9 writes it.
    fn report(count: u64) -> String {
        format!(
            r#"{{"nccl_version": "2.28.9", "timestamp": "2026-11-20 08:21:32", "communicators_count": 1,
            "communicators": [{{"hash": "0xd1ce", "size": 2, "ranks_count": 1, "missing_ranks_count": 0,
            "ranks": [{{"rank": 1, "host": "10.0.0.1", "pid": 17, "cuda_dev": 0, "nvml_dev": 0,
            "status": {{"init_state": 0, "async_error": 0, "finalize_called": false, "destroy_flag": false,
            "abort_flag": false}}, "collective_counts": {{"Broadcast": 1, "Reduce": 0, "AllGather": 0,
            "ReduceScatter": 0, "AllReduce": {count}}}}}], "missing_ranks": []}}],
            "ras": {{"collection_time_sec": 0.1, "timeouts_count": 0}}}}"#
        )
    }

    #[test]
    fn counts_become_a_digest_and_standing_still_is_remembered() {
        let mut ras = Ras::new();
        ras.take(&parse(&report(41)).unwrap());
        let mut digest = RankDigest { pid: 17, ..RankDigest::default() };
        ras.complete(&mut digest);
        assert_eq!(digest.seen_by, SeenBy::Ras);
        let comm = digest.comms[0].clone();
        assert_eq!((comm.id.as_str(), comm.rank, comm.collectives), ("d1ce", Some(1), 42));
        assert_eq!(comm.collectives_done, None);
        ras.take(&parse(&report(41)).unwrap());
        ras.complete(&mut digest);
        assert_eq!(digest.comms[0].progress_ns, comm.progress_ns);
        ras.take(&parse(&report(42)).unwrap());
        ras.complete(&mut digest);
        assert!(digest.comms[0].progress_ns > comm.progress_ns);
    }
}
