//! The jobs of this node, each followed by itself: a watcher for each, in a thread of its own, with its own alarms.
//! Nobody has named one; ranks are looked for repeatedly, and a job that appears is taken up.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ringleader_collect::follow;
use ringleader_collect::kin::{Job, Kin};
use ringleader_watch::view::JobState;

use super::heard::is_unheard;
use super::{NAP, Seat, Watch, WatchEnd};
use crate::exit::Code;
use crate::jobs::label;
use crate::watch::args::WatchArgs;
use crate::watch::board::Board;
use crate::watch::events::Teller;
use crate::watch::picture::Picture;

/// Between two looks for jobs.
const SCAN: Duration = Duration::from_secs(2);
/// Between two pictures of the whole.
const SHOW: Duration = Duration::from_millis(250);
/// Jobs that are followed at the same time.
const MAX_JOBS: usize = 64;
/// If nothing is there after this, it is said how to start.
const NOTHING: Duration = Duration::from_secs(2);
/// The three ways to start.
const WAYS: &str = "no job is seen on this node yet; three ways to start: `ringleader watch -- torchrun … train.py` starts a job \
                    and follows it; `ringleader watch --pid PID` follows one that runs, by its launcher or a rank; a job with \
                    NCCL_PROFILER_PLUGIN=/path/libringleader_nccl.so in its environment is found by itself";

/// A job that is followed.
struct Followed {
    seat: Seat,
    /// What it is called where there are several.
    label: String,
    /// The process that started its ranks; none while no job has been found for it.
    root: Option<u32>,
    meeting: Option<String>,
    /// It was there together with another: its metrics have its name from then on.
    is_told_apart: bool,
    thread: JoinHandle<WatchEnd>,
}

/// Follows all of them. Answers with what the only one ended with, or the worst of several.
pub(super) fn follow(
    args: &WatchArgs,
    front: &Seat,
    board: &Board,
    teller: &Teller,
    make: &dyn Fn(Seat) -> Watch,
) -> ExitCode {
    let proc = Path::new("/proc");
    let folders = args.rings.clone().map_or_else(follow::ring_folders, |folder| vec![folder]);
    let mut kin = Kin::new(proc, folders);
    kin.rings_alone = args.rings.is_some();
    let mut crowd = Crowd { jobs: Vec::new(), n_ever: 0, ended: Vec::new(), front, board, make };
    let began = Instant::now();
    let (mut scan, mut show) = (began, began);
    let mut is_told = args.once;
    loop {
        let now = Instant::now();
        crowd.reap();
        if now >= scan && (crowd.jobs.is_empty() || !args.once) {
            scan = now + SCAN;
            let all = follow::processes(proc);
            crowd.assign(kin.jobs(&all));
        }
        if !is_told && crowd.n_ever == 0 && began.elapsed() > NOTHING {
            is_told = true;
            teller.note(WAYS.to_owned());
        }
        if now >= show {
            show = now + SHOW;
            crowd.show();
        }
        let has_verdict = args.until_verdict && crowd.ended.iter().any(|ended| ended.n_verdicts > 0);
        let is_time_up = front.until.is_some_and(|until| now >= until);
        if has_verdict || is_time_up || is_unheard() && !args.stay {
            front.stop.store(true, Ordering::Relaxed);
        }
        if crowd.jobs.is_empty() && (!args.stay || front.stop.load(Ordering::Relaxed)) {
            crowd.show();
            return crowd.code();
        }
        thread::sleep(NAP);
    }
}

struct Crowd<'c> {
    jobs: Vec<Followed>,
    /// Jobs that were found so far.
    n_ever: usize,
    ended: Vec<WatchEnd>,
    front: &'c Seat,
    board: &'c Board,
    make: &'c dyn Fn(Seat) -> Watch,
}

impl Crowd<'_> {
    /// Takes what the threads of jobs that are over have to say.
    fn reap(&mut self) {
        let (over, live): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.jobs).into_iter().partition(|job| job.thread.is_finished());
        self.jobs = live;
        for job in over {
            show_of(&job.seat, self.front);
            match job.thread.join() {
                Ok(ended) => self.ended.push(ended),
                // A panic of one is our bug and reported at the top.
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        // Of a long run only the worst counts.
        if self.ended.len() > MAX_JOBS {
            let worst = self.worst();
            self.ended = vec![worst];
        }
    }

    /// Gives each job that was found to its watcher.
    fn assign(&mut self, found: Vec<Job>) {
        if self.front.stop.load(Ordering::Relaxed) {
            return;
        }
        for job in found {
            let is_same = |followed: &&mut Followed| {
                let pids = followed.seat.group.lock().unwrap_or_else(PoisonError::into_inner);
                let shares = !pids.is_disjoint(&job.pids);
                // A launcher that starts its ranks once more has the same job.
                shares
                    || followed.root == Some(job.root)
                    || followed.meeting.is_some() && followed.meeting == job.meeting
            };
            let at = self.jobs.iter_mut().find(is_same).map(|followed| followed.seat.clone());
            if let Some(seat) = at {
                seat.group.lock().unwrap_or_else(PoisonError::into_inner).extend(job.pids);
                continue;
            }
            if self.jobs.len() < MAX_JOBS {
                self.begin(job.pids, Some(job.root), job.meeting);
            }
        }
        if self.jobs.is_empty() && self.n_ever == 0 {
            // Who watches sees at least that nothing is there.
            self.begin(BTreeSet::new(), None, None);
        }
        if self.n_ever > 1 {
            for job in &self.jobs {
                *job.seat.name.lock().unwrap_or_else(PoisonError::into_inner) = Some(job.label.clone());
            }
        }
    }

    fn begin(&mut self, pids: BTreeSet<u32>, root: Option<u32>, meeting: Option<String>) {
        let first = pids.first().copied();
        self.n_ever += usize::from(root.is_some());
        let label = root.map_or_else(String::new, |root| label(root, first.unwrap_or(root)));
        // The one that was there for nobody is for the first job.
        if let Some(free) = self.jobs.iter_mut().find(|job| job.root.is_none())
            && root.is_some()
        {
            free.seat.group.lock().unwrap_or_else(PoisonError::into_inner).extend(pids);
            (free.root, free.meeting, free.label) = (root, meeting, label);
            return;
        }
        let seat = Seat {
            group: Arc::new(Mutex::new(pids)),
            name: Arc::default(),
            picture: Arc::new(Mutex::new(Picture::new(follow::host()))),
            ..self.front.clone()
        };
        let watch = (self.make)(seat.clone());
        let thread = thread::spawn(move || watch.follow());
        self.jobs.push(Followed { seat, label, root, meeting, is_told_apart: false, thread });
    }

    /// The screen shows the job that stalls, else the first; the page and the metrics each.
    fn show(&mut self) {
        let is_several = self.jobs.len() > 1;
        for job in &mut self.jobs {
            job.is_told_apart |= is_several;
        }
        // After the last one has ended its picture stays.
        if !self.jobs.is_empty() {
            let told_apart = self.jobs.iter().filter(|job| job.is_told_apart);
            self.board
                .put(told_apart.map(|job| (job.label.clone(), Arc::clone(&job.seat.picture))).collect());
        }
        let is_stalled = |job: &&Followed| {
            let picture = job.seat.picture.lock().unwrap_or_else(PoisonError::into_inner);
            picture.job == JobState::Stalled
        };
        let Some(job) = self.jobs.iter().find(is_stalled).or(self.jobs.first()) else { return };
        show_of(&job.seat, self.front);
        if self.n_ever > 1 {
            let others =
                self.jobs.iter().filter(|other| !Arc::ptr_eq(&other.seat.picture, &job.seat.picture));
            let others = others.map(|other| other.label.clone()).collect();
            let mut front = self.front.picture.lock().unwrap_or_else(PoisonError::into_inner);
            (front.name, front.others) = (Some(job.label.clone()), others);
        }
    }

    fn worst(&self) -> WatchEnd {
        let gravity = |ended: &&WatchEnd| match ended.worst {
            Code::Findings => 3,
            Code::Undecided => 2,
            Code::NothingFound => 0,
            _ => 1,
        };
        self.ended.iter().max_by_key(gravity).copied().unwrap_or_default()
    }

    fn code(&self) -> ExitCode {
        self.worst().worst.into()
    }
}

fn show_of(seat: &Seat, front: &Seat) {
    let picture = seat.picture.lock().unwrap_or_else(PoisonError::into_inner).clone();
    *front.picture.lock().unwrap_or_else(PoisonError::into_inner) = picture;
}
