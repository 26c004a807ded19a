//! etcd: not there yet.

use std::sync::Arc;

use crate::address::EtcdAddress;
use crate::feed::{Feed, Mailbox};
use crate::records::{Answer, Incident, Request};
use crate::seat::Seat;
use crate::{HubError, OpenError};

pub(crate) struct Etcd;

fn away() -> HubError {
    HubError::Away("etcd is not spoken yet".to_owned())
}

impl Etcd {
    pub(crate) fn open(_: &EtcdAddress, _: &Arc<Seat>) -> Result<Self, OpenError> {
        Ok(Self)
    }
    pub(crate) fn beside(&self, _: &Arc<Seat>) -> Self {
        Self
    }
    pub(crate) fn follow(&self) -> Feed {
        let (feed, mailbox) = Mailbox::feed();
        if let Some(mailbox) = mailbox.upgrade() {
            mailbox.away("etcd is not spoken yet".to_owned());
        }
        feed
    }
    pub(crate) fn record(&self, _: Incident) -> Result<u64, HubError> {
        Err(away())
    }
    pub(crate) fn incidents(&self) -> Result<Vec<Incident>, HubError> {
        Err(away())
    }
    pub(crate) fn request(&self, _: Request) -> Result<u64, HubError> {
        Err(away())
    }
    pub(crate) fn answers(&self) -> Result<Vec<Answer>, HubError> {
        Err(away())
    }
    pub(crate) fn leave(&self) {}
}
