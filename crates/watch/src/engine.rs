//! Takes digests, and says at every look what has changed.

mod picture;

use std::collections::{BTreeMap, BTreeSet};

use crate::attendance::Attendance;
use crate::digest::{Digest, OpDigest, ProcessState, SeenBy};
use crate::event::{CommProgress, Event, Lag, MAX_COMMS, Shape, Slowest, Stall, Straggler, What, seconds};
use crate::history::History;
use crate::ledger::{Group, Ledger, Stage, Track};
use crate::links::{SlowLink, slow_link};
use crate::messages::Messages;
use crate::places;
use crate::roster::Roster;
pub use crate::settings::Settings;
use crate::stall::{Still, stalls};
use crate::start;
use crate::view::{JobState, Process, View};
use crate::waits::{WaitNode, Waits, member_moved};

/// Others that wait for a process which is stopped or gone wait in vain: no rhythm is needed to say so. Less would take the
/// end of a job for one, whose processes do not go at once.
const BROKEN_NS: i64 = 2_000_000_000;
/// What is over for as long has ended.
const ENDED_NS: i64 = 2_000_000_000;
/// Communicators that are remembered though no digest speaks of them any more, for this long.
const FORGET_NS: i64 = 600_000_000_000;
/// And no more than this.
const MAX_HISTORIES: usize = 16_384;
/// Communicators that carry less than this share of what the busiest carries say nothing of the job's step: one for
/// evaluation may rest for hours.
const BUSY_SHARE: f64 = 0.05;
/// Between two statements of what is watched.
const WATCHING_NS: i64 = 2_000_000_000;
/// Remarks of agents that are remembered, so that each is printed once.
const MAX_REMARKS: usize = 1024;
/// Between two notes that a communicator has become slow.
const SLOW_NS: i64 = 600_000_000_000;
/// A slow link is reported when the same one has been seen for this long.
const LINK_NS: i64 = 2_000_000_000;
/// It is reported when it has been slow for this long.
const SLOW_WAIT_NS: i64 = 8_000_000_000;
/// Stalls that hold at the same time.
const MAX_STALLS: usize = 8;
/// The slowest rank is shown for as long after it was last late.
const SLOWEST_NS: i64 = 15_000_000_000;
/// Most stragglers reported per look.
const MAX_TOLD: usize = 4;
/// Late ranks whose reports are remembered: where more are late, no single one is to blame.
const MAX_STRAGGLERS: usize = 1024;
/// Between two statements on the same straggler that differ little.
const STRAGGLER_NS: i64 = 60_000_000_000;

/// What seems to move again has recovered if none of its ranks has ended by then: an operation that is aborted ends as well.
const MOVES_NS: i64 = 2_000_000_000;

/// A stall that was reported.
#[derive(Debug)]
struct ToldStall {
    stall: Stall,
    /// Its communicator had last moved then.
    moved_ns: i64,
    /// Processes that it held up and that lived then: node and pid.
    alive: BTreeSet<(String, u32)>,
}

/// A wait of this length is reported, regardless of the patience.
const WAITING_NS: i64 = 15_000_000_000;
/// A rank that has slept for this long in a call that does not end by itself holds up those that wait for it.
const STUCK_NS: i64 = 30_000_000_000;
/// With every rank of the job inside an operation no rank is left to compile, load or save: a pause this long is a
/// stall even where the calls have shown no rhythm. Longer than a transfer over a slow link takes.
const FULL_NS: i64 = 20_000_000_000;
/// The first operations of a communicator connect its ranks, which may take as long.
const FULL_LEAST_OPS: u64 = 64;
/// Within these, and with the kernel of every rank running, a pause this long is a stall: connections are made before a kernel
/// starts.
const FULL_START_NS: i64 = 30_000_000_000;
/// Longer than the longest pause seen so far by this factor.
const FULL_SLACK: i64 = 2;

/// What a look at the ledger found.
#[derive(Default)]
struct LookResult {
    stalls: Vec<Stall>,
    /// Waits for which no alarm is due yet.
    waiting: Vec<Stall>,
    moved: BTreeMap<String, i64>,
    is_ended: bool,
}

/// Follows one job.
#[derive(Debug, Default)]
pub struct Engine {
    settings: Settings,
    roster: Roster,
    histories: BTreeMap<(String, u32), History>,
    told_stalls: Vec<ToldStall>,
    /// Those that hold no more, and since when: whether they recovered shows a moment later.
    past_stalls: Vec<(i64, ToldStall)>,
    /// When each wait is reported again, in seconds of its length.
    told_waiting: BTreeMap<(String, u64), f64>,
    /// By rank, and whether whole seconds of the job show it.
    told_stragglers: BTreeMap<(u32, bool), (i64, Straggler)>,
    messages: Messages,
    attendance: Attendance,
    slowest: Option<(i64, Slowest)>,
    /// The link that is slow by TCP's counts, and since when.
    slow_link: Option<(i64, SlowLink)>,
    /// What was last said of a slow network, and when.
    told_link: Option<(i64, Straggler)>,
    watching: Option<(i64, What)>,
    /// What agents have said that they cannot see.
    remarks: BTreeSet<String>,
    progress_ns: i64,
    ended_since_ns: Option<i64>,
    is_ended: bool,
    asks_stacks: bool,
    asks_often: bool,
    view: View,
}

impl Engine {
    /// Nothing is known yet.
    pub fn new(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Takes an agent's word, which came at `now_ns` (nanoseconds since 1970 by the clock of the one who looks). An older
    /// one than is already known of that agent is dropped.
    pub fn take(&mut self, mut digest: Digest, now_ns: i64) {
        if !self.roster.is_news(&digest) {
            return;
        }
        self.messages.hear(&digest.ranks);
        self.attendance.hear(&digest.ranks);
        for rank in &mut digest.ranks {
            for comm in rank.comms.iter_mut().filter(|c| !c.id.is_empty()) {
                let recent = std::mem::take(&mut comm.recent);
                let steps = std::mem::take(&mut comm.steps);
                let period = comm.period.take();
                if recent.is_empty() && period.is_none() {
                    continue;
                }
                if self.histories.len() >= MAX_HISTORIES {
                    break;
                }
                let history = self.histories.entry((comm.id.clone(), comm.size)).or_default();
                history.seen_ns = now_ns;
                // All ranks have the same step; the slowest word of it counts.
                if period
                    .as_ref()
                    .is_some_and(|p| history.period.as_ref().is_none_or(|o| o.step_ns < p.step_ns))
                {
                    history.period = period;
                }
                if let Some(comm_rank) = comm.rank {
                    history.differing.take(comm_rank, &recent);
                    history.late.take(comm_rank, comm.size, &recent, &steps);
                }
            }
        }
        self.roster.take(digest, now_ns);
    }

    /// What has changed since the last look. Call it a few times a second, after the digests that have come.
    pub fn look(&mut self, now_ns: i64) -> Vec<Event> {
        let ledger = Ledger::new(&self.roster, now_ns, self.settings.interval_ns);
        let waits = Waits::new(&ledger);
        let histories = &mut self.histories;
        let found = judge(&self.settings, &ledger, &waits, histories);
        self.view = picture::view(&ledger, &waits, histories, &found.stalls);
        let by_places = places::asks_stacks(&ledger);
        self.asks_stacks =
            start::asks_stacks(&ledger, &self.settings) || by_places.is_some() || !found.waiting.is_empty();
        self.asks_often = by_places == Some(true);
        histories.retain(|_, t| now_ns - t.seen_ns < FORGET_NS);
        let link = slow_link(&ledger);
        drop(waits);
        drop(ledger);
        let since =
            self.slow_link.take().filter(|(_, old)| link.as_ref().is_some_and(|new| new.is_same(old)));
        self.told_link.take_if(|(at, _)| now_ns - *at > STRAGGLER_NS);
        self.slow_link = link.map(|link| (since.map_or(now_ns, |(since, _)| since), link));
        let mut events = Vec::new();
        self.tell_watching(now_ns, &mut events);
        self.tell_waiting(now_ns, &found, &mut events);
        self.tell_stalls(now_ns, found, &mut events);
        self.tell_stragglers(now_ns, &mut events);
        let news = self.histories.values_mut().filter_map(|history| history.differing.news());
        events.extend(news.map(|text| Event::new(now_ns, What::Note { text })));
        // A clock that was set back is no reason to be silent for as long.
        let is_due = !(0..self.settings.progress_ns).contains(&(now_ns - self.progress_ns));
        if is_due && !self.view.comms.is_empty() && !self.is_ended {
            self.progress_ns = now_ns;
            events.push(Event::new(now_ns, progress(&self.view)));
        }
        events
    }

    /// The job as of the last look.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Where the network was seen to be slow a moment ago.
    pub fn slow_link(&self) -> Option<&Straggler> {
        self.told_link.as_ref().map(|(_, link)| link)
    }

    /// Whether agents should take stacks of their ranks: something stalls, or nothing else shows whether it does.
    pub fn asks_stacks(&self) -> bool {
        self.asks_stacks || self.view.job == JobState::Stalled
    }

    /// Whether the newest stacks are news: ranks have just come to rest.
    pub fn asks_often(&self) -> bool {
        self.asks_often || self.view.job == JobState::Stalled
    }

    fn tell_watching(&mut self, now_ns: i64, events: &mut Vec<Event>) {
        let view = &self.view;
        if view.processes.is_empty() {
            return;
        }
        let what = What::Watching {
            nodes: view.nodes.iter().filter(|n| !n.is_silent).count() as u32,
            ranks: view.processes.iter().filter(|p| p.state != ProcessState::Dead).count() as u32,
            sees: view.sees,
            cannot_see: view.cannot_see.clone(),
        };
        // The words of agents stand with the nodes.
        let remarks = || view.nodes.iter().flat_map(|node| &node.notes);
        let is_news = remarks().any(|note| !self.remarks.contains(note)) && self.remarks.len() < MAX_REMARKS;
        let is_due = |(at, told): &(i64, What)| (is_news || *told != what) && now_ns - at >= WATCHING_NS;
        if self.watching.as_ref().is_none_or(is_due) {
            self.watching = Some((now_ns, what.clone()));
            self.remarks.extend(remarks().take(MAX_REMARKS).cloned());
            events.push(Event::new(now_ns, what));
        }
    }

    /// Each wait once, and again each time that it has lasted twice as long.
    fn tell_waiting(&mut self, now_ns: i64, found: &LookResult, events: &mut Vec<Event>) {
        self.told_waiting.retain(|(comm, since), _| {
            found.waiting.iter().any(|wait| wait.comm == *comm && wait.since.to_bits() == *since)
        });
        for wait in &found.waiting {
            let key = (wait.comm.clone(), wait.since.to_bits());
            let due = self.told_waiting.entry(key).or_insert(0.0);
            if wait.after_s >= *due {
                *due = wait.after_s * 2.0;
                events.push(Event::new(now_ns, What::Waiting(Box::new(wait.clone()))));
            }
        }
    }

    fn tell_stalls(&mut self, now_ns: i64, found: LookResult, events: &mut Vec<Event>) {
        // What moves again has recovered; what is gone with its job has not.
        let still_stands = |s: &ToldStall| {
            found.stalls.iter().any(|f| is_same(&s.stall, f))
                || found.moved.get(&s.stall.comm).is_some_and(|moved| *moved <= s.moved_ns)
        };
        let (stand, past): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.told_stalls).into_iter().partition(still_stands);
        self.told_stalls = stand;
        // A communicator that was given up has not recovered.
        let moves = |s: &ToldStall| s.stall.comm.is_empty() || found.moved.contains_key(&s.stall.comm);
        self.past_stalls.extend(past.into_iter().filter(moves).map(|s| (now_ns, s)));
        let view = &self.view;
        self.past_stalls.retain(|(since, s)| {
            if found.is_ended {
                return false;
            }
            let (comm, after_s) = (s.stall.comm.clone(), seconds(*since) - s.stall.since);
            let what = if !s.alive.is_subset(&alive(view, &comm)) {
                What::Over { comm, after_s }
            } else if now_ns - since >= MOVES_NS || found.stalls.iter().any(|f| is_same(&s.stall, f)) {
                What::Recovered { comm, after_s }
            } else {
                return true;
            };
            events.push(Event::new(now_ns, what));
            false
        });
        for stall in found.stalls {
            let moved_ns = found.moved.get(&stall.comm).copied().unwrap_or(i64::MAX);
            if let Some(old) = self.told_stalls.iter_mut().find(|s| is_same(&s.stall, &stall)) {
                old.stall = stall;
            } else if self.told_stalls.len() < MAX_STALLS {
                events.push(Event::new(now_ns, What::Stall(Box::new(stall.clone()))));
                let alive = alive(&self.view, &stall.comm);
                self.told_stalls.push(ToldStall { stall, moved_ns, alive });
            }
        }
        self.view.stalls = self.told_stalls.iter().map(|s| s.stall.clone()).collect();
        if found.is_ended {
            let since = *self.ended_since_ns.get_or_insert(now_ns);
            if now_ns - since >= ENDED_NS && !self.is_ended {
                self.is_ended = true;
                let how = picture::how_ended(&self.view);
                events.push(Event::new(now_ns, What::Ended { how }));
            }
        } else {
            self.ended_since_ns = None;
            self.is_ended = false;
        }
        self.view.job = if self.is_ended {
            JobState::Ended
        } else if !self.told_stalls.is_empty() {
            JobState::Stalled
        } else {
            self.view.job
        };
    }

    fn tell_stragglers(&mut self, now_ns: i64, events: &mut Vec<Event>) {
        let mut told: Vec<Straggler> = Vec::new();
        for ((id, size), history) in &mut self.histories {
            let comm = self.view.comms.iter().find(|c| c.id == *id && c.size == *size);
            let Some(comm) = comm.filter(|_| history.late.has_news()) else { continue };
            let job_rank = |rank: u32| {
                let at = comm.members.binary_search_by_key(&rank, |m| m.rank).ok();
                at.and_then(|at| comm.members.get(at)).map_or(rank, |m| self.view.rank_of(m))
            };
            let straggler = history.late.straggler(id, job_rank);
            let is_member = |rank: u32| comm.members.iter().any(|m| self.view.rank_of(m) == rank);
            let link = self.slow_link.as_ref().filter(|(since, link)| {
                now_ns - since >= LINK_NS && is_member(link.rank) && link.peer.is_none_or(is_member)
            });
            let link = link.and_then(|(_, link)| {
                Some(link.straggler(id, history.late.slowed_ms(link.other_rate.is_some())?))
            });
            // Ranks do not leave a collective together where the network is slow, and seem late without being it.
            let straggler = match (straggler, link) {
                (Some(late), Some(link)) if late.late_ms > link.late_ms => Some(late),
                (late, link) => link.or(late),
            };
            let times = history.late.slowed().filter(|_| straggler.is_none());
            // Who is late, or whose link is slow, shows some seconds later than that it is slow.
            let since = *history.slow_since_ns.get_or_insert(now_ns);
            history.slow_since_ns = times.map(|_| since);
            let is_due = now_ns - since >= SLOW_WAIT_NS
                && history.slow_told_ns + SLOW_NS < now_ns
                && !history.late.is_forming();
            if let Some(times) = times.filter(|_| is_due) {
                history.slow_told_ns = now_ns;
                let name = if comm.name.is_empty() { id } else { &comm.name };
                let text = format!(
                    "collectives of {name} take {times:.1} times as long as at best, equally on all ranks: no rank is late"
                );
                events.push(Event::new(now_ns, What::Note { text }));
            }
            if let Some(link) = straggler.as_ref().filter(|s| s.of == Lag::Network) {
                self.told_link = Some((now_ns, link.clone()));
            }
            told.extend(straggler);
        }
        let comm = self.view.comms.iter().find(|comm| !comm.is_ended).map(|comm| comm.id.as_str());
        told.extend(self.messages.straggler(comm.unwrap_or_default()));
        let absent = self.attendance.straggler(comm.unwrap_or_default());
        if let Some(absent) = &absent {
            // What holds over all communicators and seconds says more than single steps of one of them.
            let is_host = absent.of == Lag::Host;
            told.retain(|s| !is_host || s.of == Lag::Network);
            if is_host || !told.iter().any(|s| s.persistent) {
                told.push(absent.clone());
            }
        }
        // The same rank may be late in several communicators: the most costly one is reported.
        told.sort_by(|a, b| b.late_ms.total_cmp(&a.late_ms).then(a.comm.cmp(&b.comm)));
        let best = told.iter().find(|s| s.persistent).or(told.first());
        if let Some(best) = best {
            let slowest = Slowest { rank: best.rank, late_ms: best.late_ms, persistent: best.persistent };
            self.slowest = Some((now_ns, slowest));
        }
        self.slowest.take_if(|(at, _)| now_ns - *at > SLOWEST_NS);
        self.view.slowest = self.slowest.as_ref().map(|(_, s)| s.clone());
        for straggler in told.into_iter().take(MAX_TOLD) {
            let key = (straggler.rank, Some(&straggler) == absent.as_ref());
            let old = self.told_stragglers.get(&key);
            let is_news = old.is_none_or(|(at, old)| {
                now_ns - at >= STRAGGLER_NS
                    || (straggler.persistent && !old.persistent)
                    || (straggler.of == Lag::Network
                        && old.of != Lag::Network
                        && straggler.late_ms > old.late_ms)
                    || (old.of != straggler.of && straggler.confidence > old.confidence)
            });
            if is_news && self.told_stragglers.len() < MAX_STRAGGLERS {
                self.told_stragglers.insert(key, (now_ns, straggler.clone()));
                events.push(Event::new(now_ns, What::Straggler(straggler)));
            }
        }
    }
}

/// Whether two tell of the same stall: the same place, or the same ranks held up others.
fn is_same(a: &Stall, b: &Stall) -> bool {
    a.comm == b.comm && a.op.number == b.op.number
        || a.suspects.iter().any(|r| b.suspects.contains(r))
        || a.victims.contains(&b.comm)
        || b.victims.contains(&a.comm)
}

/// Processes of a communicator that live; without one, of the job.
fn alive(view: &View, comm: &str) -> BTreeSet<(String, u32)> {
    let members: BTreeSet<usize> =
        view.comms.iter().filter(|c| c.id == comm).flat_map(|c| &c.members).map(|m| m.process).collect();
    let is_its = |at: usize| comm.is_empty() || members.contains(&at);
    let lives = |p: &Process| !matches!(p.state, ProcessState::Dead | ProcessState::Zombie);
    let of = view.processes.iter().enumerate().filter(|(at, p)| is_its(*at) && lives(p));
    of.map(|(_, p)| (view.host_of(p).to_owned(), p.pid)).collect()
}

fn judge(
    settings: &Settings,
    ledger: &Ledger<'_>,
    waits: &Waits,
    histories: &mut BTreeMap<(String, u32), History>,
) -> LookResult {
    let live = || ledger.groups.iter().enumerate().filter(|(_, c)| !c.is_ended);
    let broken_since = |group: usize| broken_since(ledger, waits, group);
    let busy: Vec<i64> = (0..ledger.members.len()).map(|member| member_moved(ledger, member)).collect();
    for (index, group) in live() {
        if histories.len() >= MAX_HISTORIES && !histories.contains_key(&(group.id.clone(), group.size)) {
            continue;
        }
        let moved = if group.is_inside { waits.moved_ns(index) } else { group.moved_ns };
        let busy = group.tracks.iter().filter_map(|c| busy.get(c.member).copied()).max().unwrap_or(0);
        // Of whom nothing is heard no pause is known either.
        let is_unseen = group.tracks.iter().all(|c| c.stage == Stage::Unseen);
        let is_excused = ledger.is_settling || is_unseen || group.is_inside && broken_since(index).is_some();
        let history = histories.entry((group.id.clone(), group.size)).or_default();
        history.look(ledger, group, (moved, busy), is_excused);
        history.late.settle();
    }
    let usual_ns = job_usual_ns(live().map(|(_, c)| c), histories);
    let (mut still, mut waiting) = (Vec::new(), Vec::new());
    let mut found = LookResult::default();
    let anyone_inside = live().any(|(_, c)| c.is_inside);
    let is_full = everyone_waits(ledger);
    for (index, group) in live() {
        let Some(history) = histories.get_mut(&(group.id.clone(), group.size)) else { continue };
        let patience = history.rhythm.patience(
            settings.stall_factor,
            settings.stall_floor_ns,
            settings.first_floor_ns,
            usual_ns,
        );
        history.patience = patience;
        found.moved.insert(group.id.clone(), group.moved_ns);
        if !group.is_inside {
            continue;
        }
        let mut patience_ns = patience.inside_ns;
        let mut moved_ns = waits.moved_ns(index);
        if let Some(since) = broken_since(index) {
            patience_ns = patience_ns.min(BROKEN_NS);
            moved_ns = group.moved_ns.max(since);
        } else if group.tracks.iter().any(|c| c.stage == Stage::Different) {
            // No healthy program does this.
            patience_ns = patience_ns.min(settings.stall_floor_ns);
        } else if stuck_since(ledger, waits, index).is_some_and(|since| ledger.now_ns - since >= STUCK_NS) {
            patience_ns = patience_ns.min(STUCK_NS);
        } else if is_full && history.ops_done >= FULL_LEAST_OPS {
            let longest_ns = history.rhythm.longest_inside_ns();
            patience_ns = patience_ns.min(FULL_NS.max(longest_ns.saturating_mul(FULL_SLACK)));
        } else if is_full
            && group.tracks.iter().all(|track| track.stage == Stage::Started || has_started_pair(track))
        {
            patience_ns = patience_ns.min(FULL_START_NS);
        }
        let is_still = ledger.known_ns - moved_ns > patience_ns;
        // Those that it waits for are busy with each other; for so long is too long.
        let own = patience.inside_ns.max(settings.first_floor_ns);
        if is_still || ledger.known_ns - group.moved_ns > own {
            still.push(Still { group: index, moved_ns: moved_ns.min(group.moved_ns), patience_ns });
        } else if ledger.known_ns - moved_ns > WAITING_NS && !ledger.is_settling {
            waiting.push(Still { group: index, moved_ns: moved_ns.min(group.moved_ns), patience_ns });
        }
    }
    found.stalls = stalls(ledger, waits, &still);
    if found.stalls.is_empty() {
        found.waiting = stalls(ledger, waits, &waiting);
        for wait in &mut found.waiting {
            wait.text = with_places(ledger, wait);
        }
    }
    found.is_ended = !ledger.members.is_empty() && ledger.members.iter().all(crate::ledger::Member::is_over);
    if !anyone_inside && !found.is_ended {
        found.stalls.extend(picture::all_outside(ledger, histories));
    }
    if !found.is_ended {
        found.stalls.extend(picture::broken_alone(ledger));
        found.stalls.extend(start::stall(ledger, settings));
    }
    if found.stalls.is_empty()
        && !found.is_ended
        && let Some(place) = places::look(ledger, settings)
    {
        let list = if place.is_alarm { &mut found.stalls } else { &mut found.waiting };
        list.push(place.stall);
    }
    found.stalls.truncate(MAX_STALLS);
    found
}

/// What those that are waited for do, after who waits for whom.
fn with_places(ledger: &Ledger<'_>, wait: &Stall) -> String {
    let of = |rank: &u32| {
        let member = ledger.members.iter().find(|member| member.word.digest.rank == Some(*rank))?;
        let detail = member.word.waiting.detail(&member.word.digest, ledger.now_ns);
        (!detail.is_empty()).then(|| format!("rank {rank}: {detail}"))
    };
    let places: Vec<String> = wait.suspects.iter().filter_map(of).take(MAX_TOLD).collect();
    if places.is_empty() { wait.text.clone() } else { format!("{}; {}", wait.text, places.join("; ")) }
}

/// Since when all that a communicator waits for sleep in places in which nothing ends by itself.
fn stuck_since(ledger: &Ledger<'_>, waits: &Waits, group: usize) -> Option<i64> {
    let mut latest = None;
    for node in waits.roots(group).iter().flat_map(|root| waits.nodes(*root)) {
        let WaitNode::Member(member) = node else { return None };
        let word = ledger.members.get(member)?.word;
        latest = latest.max(Some(word.waiting.held_up_ns(&word.digest, ledger.now_ns)?));
    }
    // Whoever works may do what they wait for.
    let is_inside = |member: &crate::ledger::Member<'_>| {
        let track = |(group, at): &(usize, usize)| ledger.groups.get(*group)?.tracks.get(*at);
        member.tracks.iter().filter_map(track).any(|track| track.stage.is_inside())
    };
    let waits = |member: &crate::ledger::Member<'_>| {
        member.is_over()
            || is_inside(member)
            || member.word.waiting.held_up_ns(&member.word.digest, ledger.now_ns).is_some()
    };
    ledger.members.iter().all(waits).then_some(latest).flatten()
}

/// Whether each rank of the job is inside an operation whose end would be seen.
fn everyone_waits(ledger: &Ledger<'_>) -> bool {
    let is_inside = |member: &crate::ledger::Member<'_>| {
        let track = |(group, at): &(usize, usize)| ledger.groups.get(*group)?.tracks.get(*at);
        member.tracks.iter().filter_map(track).any(|track| {
            let has_end = |op: Option<&OpDigest>| op.is_some_and(|op| !op.is_end_unseen);
            has_end(track.collective()) || has_end(track.pairs().next())
        })
    };
    let live = || ledger.members.iter().filter(|member| !member.is_over());
    live().count() > 1 && live().all(|member| !member.is_silent && is_inside(member))
}

/// A send or receive of this rank runs on its GPU.
fn has_started_pair(track: &Track<'_>) -> bool {
    track.pairs().next().is_some_and(|op| crate::ledger::stage_of(op) == Stage::Started)
}

/// Since when something that a communicator waits for is stopped, gone, or silent with its agent.
fn broken_since(ledger: &Ledger<'_>, waits: &Waits, group: usize) -> Option<i64> {
    let members = waits.roots(group).iter().flat_map(|root| waits.nodes(*root)).filter_map(|n| match n {
        WaitNode::Member(member) => ledger.members.get(member),
        WaitNode::Group(_) => None,
    });
    members
        .filter(|member| !member.is_silent && member.is_broken(ledger.now_ns))
        .map(|member| member.word.state_since_ns)
        .min()
}

/// The longest pause that is usual in those communicators that carry the job.
fn job_usual_ns<'a>(
    live: impl Iterator<Item = &'a Group<'a>> + Clone,
    histories: &BTreeMap<(String, u32), History>,
) -> i64 {
    let of = |group: &Group<'_>| histories.get(&(group.id.clone(), group.size));
    let busiest = live.clone().filter_map(of).map(|t| t.bytes).max().unwrap_or(0);
    live.filter_map(of)
        .filter(|t| busiest > 0 && t.bytes as f64 >= busiest as f64 * BUSY_SHARE)
        .filter_map(|t| t.rhythm.usual_ns())
        .max()
        .unwrap_or(0)
}

/// The state of the communicators.
pub fn progress(view: &View) -> What {
    let comms = view.comms.iter().take(MAX_COMMS).map(|c| CommProgress {
        id: c.id.clone(),
        name: c.name.clone(),
        size: c.size,
        ranks_seen: c.ranks_seen,
        ops_done: c.ops_done,
        ops_per_s: c.ops_per_s,
        bytes_per_s: c.bytes_per_s,
        busbw_gbs: c.busbw_gbs,
        in_flight: c.in_flight,
        waiting_for: c.waiting_for.clone(),
        still_s: c.still_ns as f64 / 1e9,
        patience_s: c.patience_ns as f64 / 1e9,
    });
    What::Progress { comms: comms.collect(), slowest: view.slowest.clone() }
}

/// Whether operations of this process can be seen.
fn sees_operations(seen_by: SeenBy) -> bool {
    seen_by != SeenBy::Process
}

/// A stall in which no operation can be seen.
fn unseen(shape: Shape, text: String) -> Stall {
    Stall { shape, text, ..Stall::default() }
}
