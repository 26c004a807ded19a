//! Who is who: rank, host, process, local rank and GPU, joined from whatever names two of them together.

use ringleader_model::{Case, Culprit, GroupRank, Host, LocalRank, PciAddress, Pid, Rank, Who};

/// One process of the job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Member {
    /// Global rank.
    pub rank: Option<Rank>,
    /// Host as logs name it.
    pub host: Option<Host>,
    /// Address, as RAS names hosts.
    pub address: Option<Host>,
    /// Process.
    pub pid: Option<Pid>,
    /// Rank within its node.
    pub local_rank: Option<LocalRank>,
    /// GPU.
    pub gpu: Option<PciAddress>,
    /// CUDA device number.
    pub cuda_dev: Option<u32>,
}

/// All members of the job.
#[derive(Clone, Debug, Default)]
pub struct Roster {
    /// Members, ordered by rank, unknown ranks last.
    pub members: Vec<Member>,
    /// World size, if anything tells.
    pub world_size: Option<u32>,
}

impl Roster {
    /// Joins what the case says.
    pub fn new(_case: &Case) -> Self {
        Self::default()
    }

    /// Everything known of `who`.
    pub fn culprit(&self, who: &Who) -> Culprit {
        let member = self.find(who);
        Culprit {
            rank: who.rank.or(member.and_then(|m| m.rank)),
            host: member.and_then(|m| m.host.clone()).or_else(|| who.host.clone()),
            pid: who.pid.or(member.and_then(|m| m.pid)),
            local_rank: who.local_rank.or(member.and_then(|m| m.local_rank)),
            gpu: member.and_then(|m| m.gpu),
            place: None,
        }
    }

    /// The member that `who` means.
    pub fn find(&self, who: &Who) -> Option<&Member> {
        let same_host = |m: &&Member| {
            who.host.is_none()
                || m.host.is_none()
                || m.host == who.host
                || m.address.is_some() && m.address == who.host
        };
        if let Some(rank) = who.rank {
            return self.members.iter().find(|m| m.rank == Some(rank));
        }
        if let Some(pid) = who.pid {
            let mut found = self.members.iter().filter(|m| m.pid == Some(pid)).filter(same_host);
            return match (found.next(), found.next()) {
                (Some(one), None) => Some(one),
                _ => None,
            };
        }
        None
    }

    /// The member with this global rank.
    pub fn by_rank(&self, rank: Rank) -> Option<&Member> {
        self.members.iter().find(|m| m.rank == Some(rank))
    }

    /// Placeholder for group ranks of the world communicator.
    pub fn world_rank(rank: GroupRank) -> Rank {
        Rank(rank.0)
    }
}
