//! Many nodes: each sends what it sees to a hub; the one that is elected there follows all of them, and asks the others
//! to collect when something stalls.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ringleader_hub::{Answer, Change, Feed, Hub, HubLink, HubOptions, Incident, Request, RequestState};
use ringleader_watch::digest::Digest;

use crate::failure::Failure;
use crate::watch::incident::Judged;

/// How long others are waited for: what they collect has the same deadlines as our own.
const PATIENCE: Duration = Duration::from_secs(6);
/// Between two looks at their answers.
const POLL: Duration = Duration::from_millis(200);

/// Our place among the nodes.
pub(crate) struct Nodes {
    hub: Arc<Hub>,
    name: String,
    feed: Option<Feed>,
    was_away: bool,
    analyser: Option<String>,
    answered: u64,
}

/// What one turn has brought.
#[derive(Default)]
pub(crate) struct Heard {
    pub(crate) digests: Vec<Digest>,
    pub(crate) notes: Vec<String>,
    pub(crate) is_analyser: bool,
    /// We have just been elected: what was known before is of another's making.
    pub(crate) is_new_term: bool,
    pub(crate) request: Option<CollectRequest>,
}

/// A wish of the analyser to collect, to be answered.
pub(crate) struct CollectRequest {
    hub: Arc<Hub>,
    request: Request,
}

/// Can ask the others to collect.
pub(crate) struct Asker {
    hub: Arc<Hub>,
}

/// A wish to the others, to be gathered.
pub(crate) struct Gathering {
    hub: Arc<Hub>,
    request: u64,
}

impl Nodes {
    /// # Errors
    /// If the address is wrong. A hub that is away is no error.
    pub(crate) fn join(address: &str, host: &str) -> Result<Self, Failure> {
        let wrong = |error: &ringleader_hub::OpenError| Failure::Nodes {
            why: error.to_string(),
            help: "--hub dir:/shared/folder or --hub etcd://host:2379/job",
        };
        let hub = Hub::open(address, HubOptions::new(host)).map_err(|error| wrong(&error))?;
        hub.campaign(true);
        Ok(Self {
            hub: Arc::new(hub),
            name: host.to_owned(),
            feed: None,
            was_away: false,
            analyser: None,
            answered: 0,
        })
    }

    /// Sends our own digest, takes those of the others if we are the one that judges.
    pub(crate) fn turn(&mut self, own: &Digest) -> Heard {
        let mut heard = Heard::default();
        if let Err(error) = self.hub.publish(own) {
            heard.notes.push(error.to_string());
        }
        match self.hub.link() {
            HubLink::Away { why, .. } if !self.was_away => {
                self.was_away = true;
                heard.notes.push(format!("the hub cannot be reached, this node is watched alone: {why}"));
            }
            HubLink::Up if self.was_away => {
                self.was_away = false;
                heard.notes.push("the hub can be reached again".to_owned());
            }
            _ => {}
        }
        let role = self.hub.role();
        // Without a hub every node judges for itself.
        heard.is_analyser = role.is_analyser() || self.was_away;
        if role.is_analyser() {
            if self.feed.is_none() {
                self.feed = Some(self.hub.follow());
                heard.is_new_term = true;
                heard.notes.push("this node diagnoses for all".to_owned());
            }
        } else {
            self.feed = None;
            if let ringleader_hub::Role::Agent { analyser: Some(analyser) } = role
                && self.analyser.as_ref() != Some(&analyser)
            {
                heard.notes.push(format!("{analyser} diagnoses for all"));
                self.analyser = Some(analyser);
            }
        }
        for change in self.feed.as_mut().map(|feed| feed.next(Duration::ZERO)).unwrap_or_default() {
            match change {
                Change::Digest(digest) if digest.node != self.name => heard.digests.push(*digest),
                Change::Unreadable { node, why } => heard.notes.push(format!("digest of {node}: {why}")),
                Change::Surplus => heard.notes.push("more nodes than can be followed".to_owned()),
                // The engine detects silence by the age of its data; the link has reported disconnects and reconnects.
                Change::Digest(_)
                | Change::Silent { .. }
                | Change::Left { .. }
                | Change::Away { .. }
                | Change::Back => {}
            }
        }
        if let Some(request) = self.hub.request()
            && request.number > self.answered
        {
            self.answered = request.number;
            if request.node != self.name {
                let accepted = Answer { request: request.number, ..Answer::default() };
                self.hub.answer(accepted);
                heard.request = Some(CollectRequest { hub: Arc::clone(&self.hub), request });
            }
        }
        heard
    }

    /// Who can ask all to collect, from another thread: the hub may take its time.
    pub(crate) fn asker(&self) -> Asker {
        Asker { hub: Arc::clone(&self.hub) }
    }

    /// Writes down what came of an incident.
    pub(crate) fn record(&self, judged: &Judged) {
        let verdict = &judged.report.verdict;
        let incident = Incident {
            at_ns: crate::watch::now_ns(),
            summary: verdict.summary.clone(),
            verdict: verdict.cause.clone(),
            bundle: Some(judged.bundle.display().to_string()),
            ..Incident::default()
        };
        let hub = Arc::clone(&self.hub);
        // It may take as long as the hub's deadline, and nothing rests on it.
        thread::spawn(move || hub.record(incident));
    }
}

impl CollectRequest {
    pub(crate) fn why(&self) -> String {
        format!("asked by {}: {}", self.request.node, self.request.why)
    }

    pub(crate) fn answer(&self, outcome: Result<PathBuf, String>) {
        let (outcome, bundle, note) = match outcome {
            Ok(path) => {
                let path = path.canonicalize().unwrap_or(path);
                (RequestState::Done, Some(path.display().to_string()), String::new())
            }
            Err(why) => (RequestState::Failed, None, why),
        };
        self.hub.answer(Answer { request: self.request.number, outcome, bundle, note, ..Answer::default() });
    }
}

impl Asker {
    /// Asks; none if that cannot be asked.
    pub(crate) fn ask(self, why: &str) -> Option<Gathering> {
        let request = self.hub.request_collect(why).ok()?;
        Some(Gathering { hub: self.hub, request })
    }
}

impl Gathering {
    /// Bundles of the others that can be read from here, and what is to be said of the rest.
    pub(crate) fn gather(&self) -> (Vec<PathBuf>, Vec<String>) {
        let until = Instant::now() + PATIENCE;
        let answers = loop {
            thread::sleep(POLL);
            match self.hub.answers(self.request) {
                Ok(answers) => {
                    let is_open = answers.iter().any(|answer| answer.outcome == RequestState::Accepted);
                    // Who has said nothing within half the time will not.
                    let is_early = until.saturating_duration_since(Instant::now()) > PATIENCE / 2;
                    if !(is_open || is_early) || Instant::now() >= until {
                        break answers;
                    }
                }
                Err(error) if Instant::now() >= until => {
                    return (Vec::new(), vec![format!("bundles of other nodes: {error}")]);
                }
                Err(_) => {}
            }
        };
        let (mut bundles, mut notes) = (Vec::new(), Vec::new());
        for answer in answers {
            match answer.bundle.as_ref().map(PathBuf::from) {
                Some(path) if path.is_file() => bundles.push(path),
                Some(path) => {
                    notes.push(format!(
                        "the bundle of {} stays on that node: {}",
                        answer.node,
                        path.display()
                    ));
                }
                None if answer.outcome == RequestState::Failed => {
                    notes.push(format!("{} has no bundle: {}", answer.node, answer.note));
                }
                None => notes.push(format!("{} did not collect in time", answer.node)),
            }
        }
        bundles.sort();
        (bundles, notes)
    }
}
