//! The store of decrees and members: a file on this node, a directory that all nodes see, or etcd.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ringleader_hub::ledger::Ledger;

use crate::agree::{Decree, Member, View};

/// A store of decrees and members. Calls may take up to the store's deadline.
pub trait Store: Send {
    /// The newest decree and the live members. Errors: it does not answer.
    fn read(&mut self) -> Result<View, String>;
    /// Writes a decree if its predecessor is still the newest; false otherwise. Errors: it does not answer or is full;
    /// the decree may have been written.
    fn propose(&mut self, decree: &Decree) -> Result<bool, String>;
    /// Announces the state of this node to the others until its lease expires. Errors: as [`Store::propose`].
    fn announce(&mut self, member: &Member) -> Result<(), String>;
}

/// A single node: the decree is a file in its state folder.
#[derive(Debug)]
pub struct Alone {
    path: PathBuf,
    member: Option<Member>,
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
    fn read(&mut self) -> Result<View, String> {
        let decree = self.decree().map_err(|error| error.to_string())?;
        Ok(View { decree, members: self.member.iter().cloned().collect() })
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

    fn announce(&mut self, member: &Member) -> Result<(), String> {
        self.member = Some(member.clone());
        Ok(())
    }
}

/// Several nodes: a ledger of the hub.
pub struct Shared {
    ledger: Ledger,
}

impl Shared {
    /// Uses an open ledger.
    pub fn new(ledger: Ledger) -> Self {
        Self { ledger }
    }
}

impl Store for Shared {
    fn read(&mut self) -> Result<View, String> {
        let page = self.ledger.read().map_err(|error| error.to_string())?;
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
            let member: Member = serde_json::from_slice(&bytes).ok()?;
            (member.node == node).then_some(member)
        });
        Ok(View { decree, members: members.collect() })
    }

    fn propose(&mut self, decree: &Decree) -> Result<bool, String> {
        let bytes = serde_json::to_vec(decree).map_err(|error| error.to_string())?;
        self.ledger.propose(decree.seq, &bytes).map_err(|error| error.to_string())
    }

    fn announce(&mut self, member: &Member) -> Result<(), String> {
        let bytes = serde_json::to_vec(member).map_err(|error| error.to_string())?;
        self.ledger.announce(&bytes).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_proposals_one_wins() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Alone::new(folder.path());
        assert_eq!(store.read().unwrap(), View::default());
        let first = Decree { seq: 1, generation: 1, ..Decree::default() };
        assert_eq!(store.propose(&first), Ok(true));
        assert_eq!(store.propose(&first), Ok(false));
        store.announce(&Member { node: "a".to_owned(), ..Member::default() }).unwrap();
        // Another supervisor of the node finds it.
        let mut again = Alone::new(folder.path());
        assert_eq!(again.read().unwrap().decree, Some(first));
        assert_eq!(store.read().unwrap().members.len(), 1);
    }
}
