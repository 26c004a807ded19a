//! The store of decrees and members: a file on this node, a directory that all nodes see, or etcd.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ringleader_hub::register::Register;

use crate::agree::{Announcement, Decree, StoreView};

/// A store of decrees and members. Calls may take up to the store's deadline.
pub trait Store: Send {
    /// The newest decree and the live members. Errors: it does not answer.
    fn read(&mut self) -> Result<StoreView, String>;
    /// Writes a decree if its predecessor is still the newest; false otherwise. Errors: it does not answer or is full;
    /// the decree may have been written.
    fn propose(&mut self, decree: &Decree) -> Result<bool, String>;
    /// Announces the state of this node to the others until its lease expires. Errors: as [`Store::propose`].
    fn announce(&mut self, member: &Announcement) -> Result<(), String>;
}

/// A single node: the decree is a file in its state folder.
#[derive(Debug)]
pub struct Alone {
    path: PathBuf,
    member: Option<Announcement>,
}

impl Alone {
    /// In a state folder.
    pub fn new(folder: &Path) -> Self {
        Self { path: folder.join("decree.json"), member: None }
    }

    fn decree(&self) -> io::Result<Option<Decree>> {
        match fs::read(&self.path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Store for Alone {
    fn read(&mut self) -> Result<StoreView, String> {
        let decree = self.decree().map_err(|error| error.to_string())?;
        Ok(StoreView { decree, members: self.member.iter().cloned().collect() })
    }

    fn propose(&mut self, decree: &Decree) -> Result<bool, String> {
        let last = self.decree().map_err(|error| error.to_string())?.map_or(0, |last| last.seq);
        if decree.seq != last + 1 {
            return Ok(false);
        }
        let beside = self.path.with_extension("json.part");
        let written = serde_json::to_vec_pretty(decree)
            .map_err(io::Error::other)
            .and_then(|bytes| fs::write(&beside, bytes))
            .and_then(|()| fs::rename(&beside, &self.path));
        written.map(|()| true).map_err(|error| error.to_string())
    }

    fn announce(&mut self, member: &Announcement) -> Result<(), String> {
        self.member = Some(member.clone());
        Ok(())
    }
}

/// Several nodes: a register of the hub.
pub struct SharedStore {
    register: Register,
}

impl SharedStore {
    /// Uses an open register.
    pub fn new(register: Register) -> Self {
        Self { register }
    }
}

impl Store for SharedStore {
    fn read(&mut self) -> Result<StoreView, String> {
        let page = self.register.read().map_err(|error| error.to_string())?;
        let decree = match page.entry {
            Some((seq, bytes)) => {
                let decree: Decree =
                    serde_json::from_slice(&bytes).map_err(|error| format!("decree {seq}: {error}"))?;
                Some(decree).filter(|decree| decree.seq == seq)
            }
            None => None,
        };
        // A member of another version may not be readable; it does not count, and no decision uses it.
        let members = page.members.into_iter().filter_map(|(node, bytes)| {
            let member: Announcement = serde_json::from_slice(&bytes).ok()?;
            (member.node == node).then_some(member)
        });
        Ok(StoreView { decree, members: members.collect() })
    }

    fn propose(&mut self, decree: &Decree) -> Result<bool, String> {
        let bytes = serde_json::to_vec(decree).map_err(|error| error.to_string())?;
        self.register.propose(decree.seq, &bytes).map_err(|error| error.to_string())
    }

    fn announce(&mut self, member: &Announcement) -> Result<(), String> {
        let bytes = serde_json::to_vec(member).map_err(|error| error.to_string())?;
        self.register.announce(&bytes).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_proposals_one_wins() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Alone::new(folder.path());
        assert_eq!(store.read().unwrap(), StoreView::default());
        let first = Decree { seq: 1, generation: 1, ..Decree::default() };
        assert_eq!(store.propose(&first), Ok(true));
        assert_eq!(store.propose(&first), Ok(false));
        store.announce(&Announcement { node: "a".to_owned(), ..Announcement::default() }).unwrap();
        // Another supervisor of the node finds it.
        let mut again = Alone::new(folder.path());
        assert_eq!(again.read().unwrap().decree, Some(first));
        assert_eq!(store.read().unwrap().members.len(), 1);
    }
}
