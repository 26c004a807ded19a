//! Which interfaces and ports the ranks of a node are configured to use, and which ports are comparable.

use std::collections::BTreeMap;

use ringleader_knowledge::interface;
use ringleader_node::{NameList, Network, Process, RdmaPort};

use crate::view::NodeView;

/// How the job's settings treat a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Use {
    /// The lists of all ranks exclude it.
    Excluded,
    /// No setting mentions it: NCCL uses it if it is active.
    Open,
    /// A list names exactly this port.
    Named,
}

/// Ranks with a readable environment in the network namespace in which the interfaces were read.
pub(crate) fn ranks_here<'a>(view: &'a NodeView<'a>) -> impl Iterator<Item = &'a Process> {
    let own = view.node.net.get().and_then(|net: &Network| net.namespace);
    view.ranks().filter(move |rank| {
        let is_elsewhere = own.zip(rank.net_namespace).is_some_and(|(own, namespace)| own != namespace);
        !is_elsewhere && rank.environment.is_some()
    })
}

/// Ranks by the value of a variable.
pub(crate) fn by_value<'a>(
    view: &'a NodeView<'a>,
    name: &str,
) -> BTreeMap<Option<&'a str>, Vec<&'a Process>> {
    let mut groups: BTreeMap<Option<&str>, Vec<&Process>> = BTreeMap::new();
    for rank in ranks_here(view) {
        groups.entry(rank.variable(name)).or_default().push(rank);
    }
    groups
}

/// `rank 3 (pid 4711)`, `8 ranks (pid 4711, 4712, …)`.
pub(crate) fn named(ranks: &[&Process]) -> String {
    const SHOWN: usize = 4;
    if let [only] = ranks {
        let rank = only.rank().map_or_else(String::new, |rank| format!("rank {rank} "));
        return format!("{rank}(pid {})", only.pid);
    }
    let pids: Vec<String> = ranks.iter().take(SHOWN).map(|rank| rank.pid.to_string()).collect();
    let more = if ranks.len() > SHOWN { ", …" } else { "" };
    format!("{} ranks (pid {}{more})", ranks.len(), pids.join(", "))
}

/// Whether a rank's job spans several nodes; None if its environment does not show it.
pub(crate) fn spans_nodes(rank: &Process) -> Option<bool> {
    let n_nodes = ["GROUP_WORLD_SIZE", "SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"]
        .iter()
        .find_map(|name| rank.number(name));
    let local = ["LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"]
        .iter()
        .find_map(|name| rank.number(name));
    match (rank.world_size(), local) {
        (Some(world), Some(local)) => Some(world > local),
        _ => n_nodes.map(|n| n > 1),
    }
}

/// Whether any rank here belongs to a job that spans several nodes.
pub(crate) fn is_multi_node(view: &NodeView<'_>) -> bool {
    ranks_here(view).any(|rank| spans_nodes(rank) == Some(true))
}

/// How the ranks' NCCL_IB_HCA and NCCL_IB_DISABLE treat a port.
pub(crate) fn use_of(view: &NodeView<'_>, port: &RdmaPort) -> Use {
    let of_rank = |rank: &Process| {
        if rank.number("NCCL_IB_DISABLE").is_some_and(|n| n != 0) {
            return Use::Excluded;
        }
        let Some(list) = rank.variable("NCCL_IB_HCA").map(NameList::new) else { return Use::Open };
        if !list.takes(&port.device, Some(port.port)) {
            return Use::Excluded;
        }
        let is_whole =
            |entry: &(String, Option<u32>)| entry.0 == port.device && entry.1.is_none_or(|n| n == port.port);
        if !list.is_exclusion && list.names.iter().any(is_whole) { Use::Named } else { Use::Open }
    };
    ranks_here(view).map(of_rank).max().unwrap_or(Use::Open)
}

/// Whether two ports are the same port of cards of the same kind: a card's second port is often left empty on all
/// cards.
pub(crate) fn are_alike(a: &RdmaPort, b: &RdmaPort) -> bool {
    let function =
        |port: &RdmaPort| port.pci.as_deref().and_then(|pci| pci.rsplit('.').next()).map(str::to_owned);
    a.board == b.board
        && a.link_layer == b.link_layer
        && a.is_virtual == b.is_virtual
        && a.port == b.port
        && function(a) == function(b)
}

/// The kind of local interface that a name suggests, if any.
pub(crate) fn leads_nowhere(name: &str) -> Option<&'static str> {
    if name == "lo" {
        return Some("loopback");
    }
    interface::is_of_containers(name).then_some("a bridge or link of containers")
}

#[cfg(test)]
pub(crate) mod staging {
    //! Nodes for the tests of network checks.

    use ringleader_node::{Interface, Jobs, Network, Node, Part, Process, RdmaPort};

    use crate::answer::CheckAnswer;
    use crate::rule::Check;
    use crate::view::{Expectations, NodeView};

    /// A port of a card of eight, active, over InfiniBand.
    pub(crate) fn port(number: u32) -> RdmaPort {
        RdmaPort {
            device: format!("mlx5_{number}"),
            port: 1,
            state: "ACTIVE".to_owned(),
            phys_state: "LinkUp".to_owned(),
            rate_gbps: Some(400.0),
            rate_text: "4X NDR".to_owned(),
            link_layer: "InfiniBand".to_owned(),
            lid: Some(7 + number),
            sm_lid: Some(1),
            firmware: "28.39.1002".to_owned(),
            board: "MT_0000000838".to_owned(),
            model: "MT4129".to_owned(),
            pci: Some(format!("0000:{:02x}:00.0", 0x18 + number)),
            ..RdmaPort::default()
        }
    }

    /// An interface that is up.
    pub(crate) fn interface(index: u32, name: &str, address: &str) -> Interface {
        Interface {
            name: name.to_owned(),
            index,
            is_up: true,
            operstate: "up".to_owned(),
            is_loopback: name == "lo",
            is_physical: name.starts_with('e'),
            mtu: 1500,
            addresses: if address.is_empty() { Vec::new() } else { vec![address.to_owned()] },
            ..Interface::default()
        }
    }

    /// A rank of a job on two nodes with two ranks each, with additional settings.
    pub(crate) fn rank(number: u32, settings: &[(&str, &str)]) -> Process {
        let own = [
            ("RANK", number.to_string()),
            ("LOCAL_RANK", number.to_string()),
            ("WORLD_SIZE", "4".to_owned()),
            ("LOCAL_WORLD_SIZE", "2".to_owned()),
        ];
        let own = own.map(|(name, value)| (name.to_owned(), value));
        let further = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Process {
            pid: 4711 + number,
            ppid: 4700,
            command: "python3".to_owned(),
            environment: Some(own.into_iter().chain(further).collect()),
            ..Process::default()
        }
    }

    /// A node with these.
    pub(crate) fn node(ports: Vec<RdmaPort>, interfaces: Vec<Interface>, ranks: Vec<Process>) -> Node {
        Node {
            at_ns: 1_000_000_000_000,
            rdma: Part::of(ports),
            net: Part::of(Network { interfaces, ..Network::default() }),
            jobs: Part::of(Jobs { processes: ranks, ..Jobs::default() }),
            ..Node::default()
        }
    }

    /// The check's answer.
    pub(crate) fn ask(check: &Check, node: &Node) -> CheckAnswer {
        (check.run)(&NodeView::new(node, &Expectations::default()))
    }

    /// Subjects of the items that are not well.
    pub(crate) fn blamed(answer: &CheckAnswer) -> Vec<&str> {
        let bad = answer.items.iter().filter(|item| item.verdict > crate::answer::CheckState::Ok);
        bad.map(|item| item.subject.as_str()).collect()
    }
}
