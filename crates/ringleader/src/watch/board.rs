//! What the page, the metrics and the export read: the job that is shown, and each job where several are followed.

use std::sync::{Arc, Mutex, PoisonError};

use ringleader_watch::view::JobState;
use serde::Serialize;

use crate::watch::picture::Picture;

/// A picture that its watcher keeps new.
pub(crate) type Live = Arc<Mutex<Picture>>;

/// Clones lead to the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Board {
    /// Of several jobs the one that stalls, else the first.
    front: Live,
    /// Each job with its name, once several have been there at the same time.
    jobs: Arc<Mutex<Vec<(String, Live)>>>,
}

/// A job as the page lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct JobRow {
    pub(crate) name: String,
    /// As on the screen: `stalled`.
    pub(crate) job: JobState,
    pub(crate) n_ranks: usize,
}

impl Board {
    pub(crate) fn new(front: Live) -> Self {
        Self { front, jobs: Arc::default() }
    }

    /// Replaces the pictures of single jobs, each with the job's name; none where all ranks are of one job.
    pub(crate) fn put(&self, jobs: Vec<(String, Live)>) {
        *self.jobs.lock().unwrap_or_else(PoisonError::into_inner) = jobs;
    }

    /// All pictures: one without a name, or several with theirs.
    pub(crate) fn all(&self) -> Vec<(Option<String>, Picture)> {
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if jobs.is_empty() {
            return vec![(None, copy(&self.front))];
        }
        jobs.into_iter().map(|(name, picture)| (Some(name), copy(&picture))).collect()
    }

    /// The picture of a job, of one that is gone the front; and the rows of all jobs.
    pub(crate) fn of(&self, job: Option<&str>) -> (Picture, Vec<JobRow>) {
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let asked = jobs.iter().find(|(name, _)| Some(name.as_str()) == job);
        let mut picture = copy(asked.map_or(&self.front, |(_, picture)| picture));
        if let Some((name, _)) = asked {
            let others = jobs.iter().map(|(other, _)| other).filter(|other| *other != name);
            (picture.name, picture.others) = (Some(name.clone()), others.cloned().collect());
        }
        let row = |(name, picture): &(String, Live)| {
            let picture = picture.lock().unwrap_or_else(PoisonError::into_inner);
            JobRow { name: name.clone(), job: picture.job, n_ranks: picture.n_ranks }
        };
        (picture, jobs.iter().map(row).collect())
    }
}

fn copy(picture: &Live) -> Picture {
    picture.lock().unwrap_or_else(PoisonError::into_inner).clone()
}
