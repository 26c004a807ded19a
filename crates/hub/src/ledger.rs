//! A ledger: one entry that is replaced only by the next number, and a note of each live participant. What supervisors
//! agree by.
//!
//! etcd: the entry is a key that is written in a transaction on the revision that was read; notes stand under a lease.
//! Directory: one file an entry, created exclusively; a note that has not changed for a lease is taken for dead, by the
//! reader's own clock. Every call is answered within its deadline, and any error may mean that the work was done.

use std::path::PathBuf;
use std::time::Duration;

use crate::address::Address;
pub use crate::records::{MAX_EVIDENCE_BYTES, MAX_LEDGER_BYTES, Page};
use crate::seat::escape;
use crate::{HubError, OpenError, directory, etcd};

/// One participant.
pub struct Ledger {
    backend: Backend,
}

enum Backend {
    Directory(directory::ledger::Ledger),
    Etcd(Box<etcd::ledger::Ledger>),
}

impl Ledger {
    /// Opens the ledger `name` at a hub's address. `ttl`: a participant that is silent for longer is dead; at least 2 s.
    /// Errors: a wrong address or name, no thread.
    pub fn open(
        address: &str,
        name: &str,
        node: &str,
        ttl: Duration,
        deadline: Duration,
    ) -> Result<Self, OpenError> {
        if node.is_empty() || node.len() > 128 || name.is_empty() || name.len() > 128 {
            return Err(OpenError::Options("a name is 1 to 128 bytes"));
        }
        if ttl < Duration::from_secs(2) {
            return Err(OpenError::Options("the time to silence is at least 2 s"));
        }
        let name = escape(name);
        let backend = match Address::parse(address)? {
            Address::Directory(path) => {
                let path: PathBuf = path.join("ledgers").join(name);
                Backend::Directory(directory::ledger::Ledger::open(path, node, ttl))
            }
            Address::Etcd(address) => {
                Backend::Etcd(Box::new(etcd::ledger::Ledger::open(&address, &name, node, ttl, deadline)?))
            }
        };
        Ok(Self { backend })
    }

    /// Reads entry and notes. Errors: hub away, deadline.
    pub fn read(&mut self) -> Result<Page, HubError> {
        match &mut self.backend {
            Backend::Directory(ledger) => ledger.read(),
            Backend::Etcd(ledger) => ledger.read(),
        }
    }

    /// Writes entry `number` if the newest is the one before; false if it is not. Errors: hub away, deadline, too long;
    /// it may have been written all the same.
    pub fn propose(&mut self, number: u64, bytes: &[u8]) -> Result<bool, HubError> {
        if bytes.len() > MAX_LEDGER_BYTES {
            return Err(HubError::TooLong { bytes: bytes.len() });
        }
        match &mut self.backend {
            Backend::Directory(ledger) => ledger.propose(number, bytes),
            Backend::Etcd(ledger) => ledger.propose(number, bytes),
        }
    }

    /// Puts the own evidence of an entry into the hub, in place of the one before. In etcd it expires after the time to silence that
    /// the ledger was opened with. Errors: hub away, no room, deadline, too long.
    pub fn share(&mut self, number: u64, bytes: &[u8]) -> Result<(), HubError> {
        if bytes.len() > MAX_EVIDENCE_BYTES {
            return Err(HubError::TooLong { bytes: bytes.len() });
        }
        match &mut self.backend {
            Backend::Directory(ledger) => ledger.share(number, bytes),
            Backend::Etcd(ledger) => ledger.share(number, bytes),
        }
    }

    /// Takes a participant's evidence of an entry; None if it has put none there. Errors: hub away, deadline.
    pub fn fetch(&mut self, node: &str, number: u64) -> Result<Option<Vec<u8>>, HubError> {
        match &mut self.backend {
            Backend::Directory(ledger) => ledger.fetch(node, number),
            Backend::Etcd(ledger) => ledger.fetch(node, number),
        }
    }

    /// Writes the own note and keeps it alive for another lease: to be called more often than that. Errors: hub away,
    /// deadline, too long.
    pub fn announce(&mut self, bytes: &[u8]) -> Result<(), HubError> {
        if bytes.len() > MAX_LEDGER_BYTES {
            return Err(HubError::TooLong { bytes: bytes.len() });
        }
        match &mut self.backend {
            Backend::Directory(ledger) => ledger.announce(bytes),
            Backend::Etcd(ledger) => ledger.announce(bytes),
        }
    }
}
