//! A register: one entry that is replaced only by the next number, and a note of each live participant. Supervisors use
//! it to agree.
//!
//! etcd: the entry is a key, written in a transaction on the revision that was read; notes are attached to a lease.
//! Directory: one file per entry, created exclusively; a note that has not changed for one lease, by the reader's own
//! clock, counts as dead. Every call returns within its deadline; after an error the work may still have been done.

use std::path::PathBuf;
use std::time::Duration;

use crate::address::Address;
pub use crate::records::{MAX_EVIDENCE_BYTES, MAX_REGISTER_BYTES, Page};
use crate::seat::escape;
use crate::{HubError, OpenError, directory, etcd};

/// One participant.
pub struct Register {
    backend: Backend,
}

enum Backend {
    Directory(directory::register::DirectoryRegister),
    Etcd(Box<etcd::register::EtcdRegister>),
}

impl Register {
    /// Opens the register `name` at a hub's address. `ttl`: a participant that is silent for longer is dead; at least 2 s.
    /// Errors: a wrong address or name, no thread.
    pub fn open(
        address: &str,
        name: &str,
        node: &str,
        ttl: Duration,
        deadline: Duration,
    ) -> Result<Self, OpenError> {
        if node.is_empty() || node.len() > 128 || name.is_empty() || name.len() > 128 {
            return Err(OpenError::Options("a name has 1 to 128 bytes"));
        }
        if ttl < Duration::from_secs(2) {
            return Err(OpenError::Options("the time to silence is at least 2 s"));
        }
        let name = escape(name);
        let backend = match Address::parse(address)? {
            Address::Directory(path) => {
                let path: PathBuf = path.join("ledgers").join(name);
                Backend::Directory(directory::register::DirectoryRegister::open(path, node, ttl))
            }
            Address::Etcd(address) => Backend::Etcd(Box::new(etcd::register::EtcdRegister::open(
                &address, &name, node, ttl, deadline,
            )?)),
        };
        Ok(Self { backend })
    }

    /// Reads entry and notes. Errors: hub away, deadline.
    pub fn read(&mut self) -> Result<Page, HubError> {
        match &mut self.backend {
            Backend::Directory(register) => register.read(),
            Backend::Etcd(register) => register.read(),
        }
    }

    /// Writes entry `number` if its predecessor is still the newest; false otherwise. Errors: hub away, deadline, too
    /// long; the entry may still have been written.
    pub fn propose(&mut self, number: u64, bytes: &[u8]) -> Result<bool, HubError> {
        if bytes.len() > MAX_REGISTER_BYTES {
            return Err(HubError::TooLong { bytes: bytes.len() });
        }
        match &mut self.backend {
            Backend::Directory(register) => register.propose(number, bytes),
            Backend::Etcd(register) => register.propose(number, bytes),
        }
    }

    /// Puts this node's evidence for an entry into the hub and replaces the previous one. In etcd it expires after the
    /// register's time to silence. Errors: hub away, no room, deadline, too long.
    pub fn share(&mut self, number: u64, bytes: &[u8]) -> Result<(), HubError> {
        if bytes.len() > MAX_EVIDENCE_BYTES {
            return Err(HubError::TooLong { bytes: bytes.len() });
        }
        match &mut self.backend {
            Backend::Directory(register) => register.share(number, bytes),
            Backend::Etcd(register) => register.share(number, bytes),
        }
    }

    /// Fetches a participant's evidence for an entry; None if there is none. Errors: hub away, deadline.
    pub fn fetch(&mut self, node: &str, number: u64) -> Result<Option<Vec<u8>>, HubError> {
        match &mut self.backend {
            Backend::Directory(register) => register.fetch(node, number),
            Backend::Etcd(register) => register.fetch(node, number),
        }
    }

    /// Writes this node's note and keeps it alive for another lease; must be called more often than that. Errors: hub
    /// away, deadline, too long.
    pub fn announce(&mut self, bytes: &[u8]) -> Result<(), HubError> {
        if bytes.len() > MAX_REGISTER_BYTES {
            return Err(HubError::TooLong { bytes: bytes.len() });
        }
        match &mut self.backend {
            Backend::Directory(register) => register.announce(bytes),
            Backend::Etcd(register) => register.announce(bytes),
        }
    }
}
