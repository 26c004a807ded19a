//! The other supervisors: a thread reads the store, announces the state of this node and submits proposals. The
//! supervisor itself never waits for the store.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ringleader_run::agree::{Announcement, Decree, StoreView};
use ringleader_run::store::Store;

/// Interval between reads of the store while there is no news to write.
const PAUSE: Duration = Duration::from_millis(400);
/// Views older than this are not acted on.
const FRESH: Duration = Duration::from_secs(3);

/// State that both sides share.
#[derive(Default)]
struct CouncilState {
    member: Announcement,
    is_new: bool,
    proposal: Option<Decree>,
    view: Option<(Instant, StoreView)>,
    trouble: Option<String>,
    is_over: bool,
}

/// The supervisor's end.
pub(crate) struct Council {
    shared: Arc<(Mutex<CouncilState>, Condvar)>,
}

impl Council {
    pub(crate) fn start(store: Box<dyn Store>, member: Announcement, is_alone: bool) -> Self {
        let shared = CouncilState { member, is_new: true, ..CouncilState::default() };
        let shared = Arc::new((Mutex::new(shared), Condvar::new()));
        let theirs = Arc::clone(&shared);
        let pause = if is_alone { PAUSE / 4 } else { PAUSE };
        thread::spawn(move || turn(store, &theirs, pause));
        Self { shared }
    }

    fn shared(&self) -> MutexGuard<'_, CouncilState> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The latest view; None if it is too old.
    pub(crate) fn view(&self) -> Option<StoreView> {
        let shared = self.shared();
        shared.view.as_ref().filter(|(at, _)| at.elapsed() < FRESH).map(|(_, view)| view.clone())
    }

    /// Why the store does not answer; reported once.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.shared().trouble.take()
    }

    pub(crate) fn tell(&self, member: &Announcement) {
        let mut shared = self.shared();
        if shared.member != *member {
            // A change of `still_s` alone waits for the next beat.
            let is_news = Announcement { still_s: member.still_s, ..shared.member.clone() } != *member;
            shared.member = member.clone();
            shared.is_new |= is_news;
        }
        let wakes = shared.is_new;
        drop(shared);
        if wakes {
            self.shared.1.notify_one();
        }
    }

    /// Proposes a decree; replaces a waiting proposal with the same number.
    pub(crate) fn propose(&self, decree: Decree) {
        self.shared().proposal = Some(decree);
        self.shared.1.notify_one();
    }

    pub(crate) fn leave(&self) {
        self.shared().is_over = true;
        self.shared.1.notify_one();
    }
}

fn turn(mut store: Box<dyn Store>, shared: &(Mutex<CouncilState>, Condvar), pause: Duration) {
    let lock = || shared.0.lock().unwrap_or_else(PoisonError::into_inner);
    let mut was_away = false;
    loop {
        let (member, proposal) = {
            let mut shared = lock();
            if shared.is_over {
                return;
            }
            shared.is_new = false;
            (shared.member.clone(), shared.proposal.take())
        };
        let mut outcome = store.announce(&member);
        if let Some(decree) = proposal {
            outcome = outcome.and(store.propose(&decree).map(drop));
        }
        // Reading continues even if writing fails.
        let began = Instant::now();
        match store.read() {
            Ok(view) => lock().view = Some((began, view)),
            Err(why) => outcome = outcome.and(Err(why)),
        }
        match outcome {
            Ok(()) => was_away = false,
            Err(why) if !was_away => {
                was_away = true;
                lock().trouble = Some(why);
            }
            Err(_) => {}
        }
        let guard = lock();
        if !guard.is_new && guard.proposal.is_none() && !guard.is_over {
            drop(shared.1.wait_timeout(guard, pause));
        }
    }
}
