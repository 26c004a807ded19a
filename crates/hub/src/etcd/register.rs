//! A register in etcd: `v1/ledger/NAME/entry` holds the number and the entry, `v1/ledger/NAME/members/NODE` holds the
//! notes under leases. Calls block: the register has a runtime of one thread, and its caller a thread of its own.

use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tonic::Code;

use super::client::{Client, EtcdFailure};
use super::proto::{Compare, PutRequest, TxnOp};
use crate::address::EtcdAddress;
use crate::records::{MAX_EVIDENCE_BYTES, Page};
use crate::seat::{escape, unescape};
use crate::{HubError, OpenError};

/// Attempts per call, each with a share of the deadline: if a member fails, the next one is asked.
const TRIES: u32 = 3;
/// Longest part of evidence in one key, bytes: etcd accepts 1.5 MiB per request.
const PART: usize = 512 << 10;
/// Bytes of the number before an entry.
const NUMBER: usize = 8;

pub(crate) struct EtcdRegister {
    runtime: Runtime,
    client: Client,
    prefix: String,
    evidence: String,
    node: String,
    ttl: Duration,
    deadline: Duration,
    lease: Option<i64>,
    /// Content of the note, and when the lease was renewed.
    note: Vec<u8>,
    renewed: Option<Instant>,
}

fn trouble(failure: &EtcdFailure, deadline: Duration) -> HubError {
    if failure.code == Code::DeadlineExceeded {
        return HubError::Deadline(deadline);
    }
    HubError::Away(failure.why.clone())
}

impl EtcdRegister {
    pub(crate) fn open(
        address: &EtcdAddress,
        name: &str,
        node: &str,
        ttl: Duration,
        deadline: Duration,
    ) -> Result<Self, OpenError> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(OpenError::Thread)?;
        let prefix = format!("{}/v1/ledger/{name}/", address.prefix);
        let evidence = format!("{}/v1/evidence/{name}/", address.prefix);
        let client = {
            // Channels are bound to the runtime in which they are created.
            let _guard = runtime.enter();
            Client::all(address)?.into_iter().next()
        };
        let client = client.ok_or(OpenError::Options("the address names no etcd member"))?;
        Ok(Self {
            runtime,
            client,
            prefix,
            evidence,
            node: node.to_owned(),
            ttl,
            deadline,
            lease: None,
            note: Vec::new(),
            renewed: None,
        })
    }

    /// Runs a call, and retries with the next member if one fails. Only for calls that may safely run twice.
    fn call<T>(
        &self,
        work: &impl AsyncFn(&Client, Duration) -> Result<T, EtcdFailure>,
    ) -> Result<T, HubError> {
        let share = self.deadline / TRIES;
        let mut last = None;
        for _ in 0..TRIES {
            match self.runtime.block_on(work(&self.client, share)) {
                Ok(value) => return Ok(value),
                Err(failure) => {
                    let is_final = matches!(failure.code, Code::ResourceExhausted | Code::NotFound);
                    last = Some(trouble(&failure, self.deadline));
                    if is_final {
                        break;
                    }
                }
            }
        }
        Err(last.unwrap_or(HubError::Deadline(self.deadline)))
    }

    fn entry_key(&self) -> Vec<u8> {
        format!("{}entry", self.prefix).into_bytes()
    }

    fn members_key(&self) -> String {
        format!("{}members/", self.prefix)
    }

    pub(crate) fn read(&mut self) -> Result<Page, HubError> {
        let prefix = self.prefix.clone().into_bytes();
        let (kvs, _) = self.call(&async |client, deadline| client.list(&prefix, false, deadline).await)?;
        let (entry_key, members_key) = (self.entry_key(), self.members_key());
        let mut page = Page::default();
        for kv in kvs {
            if kv.key == entry_key {
                let number =
                    kv.value.get(..NUMBER).and_then(|bytes| bytes.try_into().ok()).map(u64::from_be_bytes);
                page.entry =
                    number.map(|number| (number, kv.value.get(NUMBER..).unwrap_or_default().to_vec()));
            } else if let Some(node) = kv.key.strip_prefix(members_key.as_bytes()) {
                let node = std::str::from_utf8(node).ok().and_then(unescape);
                page.members.extend(node.map(|node| (node, kv.value)));
            }
        }
        Ok(page)
    }

    pub(crate) fn propose(&mut self, number: u64, bytes: &[u8]) -> Result<bool, HubError> {
        let key = self.entry_key();
        // Only one try: a failed write may have been done, and the next read will show it.
        let deadline = self.deadline;
        let work = async {
            let old = self.client.get(&key, deadline).await?;
            let before = old
                .as_ref()
                .and_then(|kv| kv.value.get(..NUMBER)?.try_into().ok())
                .map_or(0, u64::from_be_bytes);
            if before + 1 != number {
                return Ok(false);
            }
            let written = old.map_or(0, |kv| kv.mod_revision);
            let value = [&number.to_be_bytes()[..], bytes].concat();
            let put = TxnOp::Put(PutRequest { key: key.clone(), value, lease: 0 });
            let compare = vec![Compare::written_at(key.clone(), written)];
            Ok(self.client.txn(compare, vec![put], deadline).await?.is_some())
        };
        self.runtime.block_on(work).map_err(|failure: EtcdFailure| trouble(&failure, deadline))
    }

    /// Uses separate keys, since every look reads the register's keys: `v1/evidence/NAME/NODE/PART`, each with number and
    /// count before its share of the bytes, under one lease.
    pub(crate) fn share(&mut self, number: u64, bytes: &[u8]) -> Result<(), HubError> {
        let ttl = self.ttl;
        let (lease, ..) = self.call(&async |client, deadline| client.grant(ttl, deadline).await)?;
        let parts: Vec<&[u8]> = bytes.chunks(PART).collect();
        for (at, part) in parts.iter().enumerate() {
            let head = [number.to_be_bytes(), (parts.len() as u64).to_be_bytes()].concat();
            let put =
                PutRequest { key: self.part_key(&self.node, at), value: [&head, *part].concat(), lease };
            self.call(&async |client, deadline| client.put(put.clone(), deadline).await)?;
        }
        Ok(())
    }

    pub(crate) fn fetch(&mut self, node: &str, number: u64) -> Result<Option<Vec<u8>>, HubError> {
        let (mut bytes, mut at) = (Vec::new(), 0);
        loop {
            let key = self.part_key(node, at);
            let Some(kv) = self.call(&async |client, deadline| client.get(&key, deadline).await)? else {
                return Ok(None);
            };
            let word = |range: std::ops::Range<usize>| {
                kv.value.get(range).and_then(|bytes| bytes.try_into().ok()).map(u64::from_be_bytes)
            };
            let (of, n) = (word(0..NUMBER), word(NUMBER..2 * NUMBER));
            bytes.extend_from_slice(kv.value.get(2 * NUMBER..).unwrap_or_default());
            at += 1;
            if of != Some(number) || bytes.len() > MAX_EVIDENCE_BYTES {
                return Ok(None);
            }
            if n.is_none_or(|n| at as u64 >= n) {
                return Ok(Some(bytes));
            }
        }
    }

    fn part_key(&self, node: &str, at: usize) -> Vec<u8> {
        format!("{}{}/{at:04}", self.evidence, escape(node)).into_bytes()
    }

    pub(crate) fn announce(&mut self, bytes: &[u8]) -> Result<(), HubError> {
        let deadline = self.deadline;
        let ttl = self.ttl;
        if let Some(lease) = self.lease
            && self.renewed.is_none_or(|at| at.elapsed() >= ttl / 3)
        {
            if self.call(&async |client, deadline| client.renew(lease, deadline).await)?.is_some() {
                self.renewed = Some(Instant::now());
            } else {
                (self.lease, self.note) = (None, Vec::new());
            }
        }
        let lease = if let Some(lease) = self.lease {
            lease
        } else {
            let (lease, ..) = self.call(&async |client, deadline| client.grant(ttl, deadline).await)?;
            (self.lease, self.renewed) = (Some(lease), Some(Instant::now()));
            lease
        };
        if self.note == bytes {
            return Ok(());
        }
        let key = format!("{}{}", self.members_key(), escape(&self.node)).into_bytes();
        let put = PutRequest { key, value: bytes.to_vec(), lease };
        let written = self.runtime.block_on(self.client.put(put, deadline));
        if let Err(failure) = &written
            && failure.is_lease_lost()
        {
            self.lease = None;
        }
        written.map_err(|failure| trouble(&failure, deadline))?;
        self.note = bytes.to_vec();
        Ok(())
    }
}
