//! How the text form names a process and a rank.

use ringleader_model::{GroupRank, Host, Pid, RasPeer};

/// `Process 1406 on node 192.0.2.2 managing GPU 3`, `… managing GPUs 0,1 (NVML 2,3)`, with or without more after it.
pub(super) fn process(words: &str) -> Option<RasPeer> {
    let (pid, rest) = words.strip_prefix("Process ")?.split_once(" on node ")?;
    let (node, gpus) = rest.split_once(" managing GPU").unwrap_or((rest, ""));
    let cuda_dev = gpus.strip_prefix(' ').and_then(|g| g.split([' ', ':']).next()?.parse().ok());
    Some(RasPeer { host: host(node), pid: Some(Pid(pid.parse().ok()?)), cuda_dev, ..RasPeer::default() })
}

/// A rank line: rank, what is said of it (empty if that is in a line before), and its process.
///
/// `Rank 2 has launched up to operation 47 -- GPU 2 managed by process 1347 on node 192.0.2.2`,
/// `Rank 2 -- GPU 0 (NVML 2) managed by process 1230 on node 10.77.0.12`,
/// `Rank 7 -- [process information not found]`, `Rank 7 has status UNKNOWN` (2.24, 2.25).
pub(super) fn rank(words: &str) -> Option<(RasPeer, &str)> {
    let rest = words.strip_prefix("Rank ")?;
    let (said, gpu) = rest.split_once("-- ").unwrap_or((rest, ""));
    let (number, said) = said.split_once(' ').unwrap_or((said, ""));
    let mut peer = RasPeer { rank: Some(GroupRank(number.parse().ok()?)), ..RasPeer::default() };
    if let Some((device, rest)) = gpu.strip_prefix("GPU ").and_then(|g| g.split_once(" managed by process "))
    {
        peer.cuda_dev = device.split(' ').next().and_then(|d| d.parse().ok());
        let (pid, node) = rest.split_once(" on node ").unwrap_or((rest, ""));
        peer.pid = pid.parse().ok().map(Pid);
        peer.host = host(node);
    }
    Some((peer, said.trim_end()))
}

/// An address or name; none where NCCL found none.
pub(super) fn host(name: &str) -> Option<Host> {
    (!name.is_empty() && name != "unknown" && name.len() < 256).then(|| Host::from(name))
}

/// `1,2,5` of the older releases; ranges are taken too.
pub(super) fn rank_list(words: &str, max: u32) -> Vec<u32> {
    let mut ranks = Vec::new();
    for part in words.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(from), Ok(to)) = (from.trim().parse::<u32>(), to.trim().parse::<u32>()) {
            ranks.extend((from..=to).take((max as usize).saturating_sub(ranks.len())));
        }
    }
    ranks
}
