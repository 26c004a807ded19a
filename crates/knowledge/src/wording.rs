//! What messages name in their words: ranks, GPUs, addresses, read by the form that each program prints.
//!
//! [`crate::saying`] says what a message means; this says whom and what it names.

use std::net::Ipv4Addr;
use std::net::Ipv6Addr;

use ringleader_model::{Date, PciAddress, Pid};

/// NCCL: `Duplicate GPU detected : rank 2 and rank 0 both on CUDA device 1000`. Ranks of the communicator, and the bus id as
/// NCCL writes it.
pub fn same_gpu(text: &str) -> Option<([u32; 2], u64)> {
    let (_, rest) = text.split_once("rank ")?;
    let (a, rest) = rest.split_once(" and rank ")?;
    let (b, rest) = rest.split_once(" both on CUDA device ")?;
    let hex = rest.split(|c: char| !c.is_ascii_hexdigit()).next()?;
    Some(([a.trim().parse().ok()?, b.trim().parse().ok()?], u64::from_str_radix(hex, 16).ok()?))
}

/// NCCL 2.30.3 and later name the variable that allows several ranks on one GPU.
pub fn may_share_gpu(text: &str) -> bool {
    text.contains("Multi")
}

/// What NCCL's bootstrap says of processes whose numbers do not fit together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbers {
    /// `rank 1 of 4 ranks has already checked in`: the rank, if it is printed.
    Twice(Option<u32>),
    /// `mismatched … from procs 2 : 4`: the two numbers, if they are printed and differ.
    Differ(Option<(u32, u32)>),
}

/// NCCL: numbers of processes that came together and contradict each other.
pub fn numbers(text: &str) -> Option<Numbers> {
    let words = || text.split([' ', ',', ':']).filter(|word| !word.is_empty());
    let number = |word: &str| word.parse::<u32>().ok();
    if text.contains("has already checked in") {
        return Some(Numbers::Twice(words().skip_while(|word| *word != "rank").nth(1).and_then(number)));
    }
    if !text.contains(" from procs") {
        return None;
    }
    let mut sizes = words().filter_map(number);
    let pair = sizes.next().zip(sizes.next());
    Some(Numbers::Differ(pair.filter(|(a, b)| a != b)))
}

/// NCCL: `Connection closed by remote peer n1.cluster<41234>`: the peer, empty if it is not printed.
pub fn closed_by(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("Connection closed by remote peer")?;
    Some(rest.split_whitespace().next().unwrap_or_default())
}

/// A peer as NCCL, torch or gloo prints it: its address and its host, which is the address without a port. `10.0.0.2<41234>`,
/// `[10.0.0.2]:41234`, `n1.cluster<41234>`, `n1.cluster:41234`.
pub fn peer(text: &str) -> (&str, &str) {
    let text = text.split('<').next().unwrap_or(text);
    if let Some((address, _)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return (address, address);
    }
    (text, text.split(':').next().unwrap_or(text))
}

/// torch, quoting NCCL: `… a remote process exited or there was a network error`.
pub fn has_peer_exited(text: &str) -> bool {
    text.contains("remote process exited")
}

/// NCCL over InfiniBand: `Got completion from peer … with status=12`.
pub fn is_completion(text: &str) -> bool {
    text.contains("Got completion")
}

/// NCCL: the interface that it is configured to use is not there.
pub fn lacks_interface(text: &str) -> bool {
    text.contains("no socket interface found")
}

/// A connection that the network refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// To which address, if it is printed.
    pub address: Option<Ipv4Addr>,
    /// ENETUNREACH: the own kernel found no route at all.
    pub is_unrouted: bool,
}

/// NCCL: the address in `Connect to 10.0.0.1<44217> failed : Connection timed out`, `connect to 10.0.0.1<44217> returned …`.
pub fn cannot_connect(text: &str) -> Option<&str> {
    let (address, _) = text.split_once("onnect to ")?.1.split_once('<')?;
    let has_failed = ["failed", "returned", "timed out", "timeout"].iter().any(|word| text.contains(word));
    has_failed.then_some(address)
}

/// NCCL: `connect to 10.0.0.1<44444> returned No route to host`.
pub fn refused(text: &str) -> Option<Refused> {
    let is_unrouted = text.contains("Network is unreachable");
    let is_refused = is_unrouted || text.contains("No route to host");
    is_refused.then(|| Refused { address: ringleader_model::address::ipv4(text), is_unrouted })
}

/// connect(2): the own host has no way out.
pub fn has_no_way_out(text: &str) -> bool {
    ["Network is unreachable", "Network is down"].iter().any(|words| text.contains(words))
}

/// NCCL over InfiniBand: the peer of a failed work request, `10.0.0.7` of `… from peer 10.0.0.7<54800> with status=12`.
pub fn completion_peer(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("from peer ")?;
    rest.split(['<', ' ']).next().filter(|peer| !peer.is_empty())
}

/// NCCL over RoCE: the local and the remote GID; None unless the message has both.
pub fn gids(text: &str) -> Option<(Ipv6Addr, Ipv6Addr)> {
    // `local GID index 3` comes before `local GID ::ffff:…`: the first word that is an address counts.
    let after = |keys: [&str; 2]| {
        keys.iter().find_map(|key| {
            text.match_indices(key).find_map(|(at, _)| {
                let rest = text.get(at + key.len()..)?;
                rest.trim_start().split([',', ' ', ')']).next()?.parse::<Ipv6Addr>().ok()
            })
        })
    };
    Some((after(["local GID ", "localGid "])?, after(["remote GID ", "remoteGids"])?))
}

/// torch: the host in `… the IPv4 network addresses of (job-01.internal, 29500) cannot be retrieved`.
pub fn unresolved_host(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("addresses of (")?;
    rest.split_once(',').map(|(host, _)| host.trim())
}

/// gloo: it takes the loopback interface because the host's name does not resolve.
pub fn falls_back_to_loopback(text: &str) -> bool {
    text.contains("Using the loopback address as fallback")
}

/// gloo: the processes did not all reach each other.
pub fn fails_to_mesh(text: &str) -> bool {
    text.contains("connectFullMesh failed")
}

/// gloo: a connection that failed at a loopback address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnLoopback {
    /// 127.0.1.1, which Debian gives the host's own name.
    pub is_own_name: bool,
}

/// A text of gloo, or about it, that says so.
pub fn failed_on_loopback(text: &str) -> Option<OnLoopback> {
    let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
    let is_gloo = has(&["gloo", "Gloo", "GLOO", "loopback", "SO_ERROR"]);
    let has_failed = has(&["refused", "timed out", "failed", "SO_ERROR"]);
    let is_local = has(&["[127.", "remote=127.", "[::1]"]);
    (is_gloo && has_failed && is_local).then(|| OnLoopback { is_own_name: text.contains("127.0.1.1") })
}

/// Fabric Manager: the number of `detected NVSwitch fatal error 20034 on …`.
pub fn switch_error(text: &str) -> Option<u32> {
    let (_, rest) = text.split_once("detected NVSwitch fatal error ")?;
    rest.split(' ').next()?.parse().ok()
}

/// Why nvidia-smi, or a question to the driver, failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolFailure<'t> {
    /// A probe of this program timed out; which GPUs, if it is printed.
    NoAnswer(Option<&'t str>),
    /// The user may not ask.
    Forbidden,
    /// The driver is not loaded.
    NotLoaded,
    /// A GPU is gone, or the driver cannot get hold of it.
    Lost,
    /// The driver's library and its kernel module have two versions.
    TwoVersions,
    /// The container may not open the GPUs any more.
    LockedOut,
    /// None of these.
    Other,
}

/// Why nvidia-smi, or a question to the driver, failed.
pub fn tool_failure(text: &str) -> ToolFailure<'_> {
    let has = |words: &str| text.contains(words);
    if has("no answer within") {
        ToolFailure::NoAnswer(text.split_once(" for GPU ").map(|(_, gpus)| gpus))
    } else if has("Permission") {
        ToolFailure::Forbidden
    } else if has("Unable to determine the device handle") || has("GPU is lost") {
        if has("Not Loaded") { ToolFailure::NotLoaded } else { ToolFailure::Lost }
    } else if has("library version mismatch") {
        ToolFailure::TwoVersions
    } else if has("NVML: Unknown Error") {
        ToolFailure::LockedOut
    } else {
        ToolFailure::Other
    }
}

/// nvidia-smi: the address in `Unable to determine the device handle for GPU0000:3B:00.0: Unknown Error`.
pub fn gpu_address(text: &str) -> Option<PciAddress> {
    text.split_ascii_whitespace().find_map(|word| {
        let word = word.trim_start_matches("GPU").trim_end_matches([':', '.', ',']);
        if word.contains(':') { PciAddress::parse(word) } else { None }
    })
}

/// torch: the device in `out of memory. Tried to allocate … (GPU 2; 15.90 GiB total capacity` or `GPU 5 has a total capacity`.
pub fn full_device(text: &str) -> Option<u32> {
    let (_, rest) = text.split_once("out of memory")?;
    let (_, rest) = rest.split_once("GPU ")?;
    let n = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = rest.split_at_checked(n)?;
    number.parse().ok().filter(|_| rest.starts_with(';') || rest.starts_with(" has a total"))
}

/// C++: the message of an exception that nobody caught, after `what():`.
pub fn thrown(text: &str) -> Option<&str> {
    text.split_once("what():").map(|(_, message)| message.trim())
}

/// Whether the exception that nobody caught is the one with which the watchdog of a process group ends its process.
pub fn is_of_watchdog(text: &str) -> bool {
    text.contains("watchdog thread terminated with exception")
}

/// Processes that a statement names: `(pid 123)`, `(pid(s) 123, 124)`, `pid: 123`.
pub fn pids(text: &str) -> Vec<Pid> {
    let mut pids = Vec::new();
    for key in ["(pid ", "pid(s) ", "pid: ", "pid="] {
        for (at, _) in text.match_indices(key).take(8) {
            let rest = text.get(at + key.len()..).unwrap_or_default();
            for word in rest.split([',', ' ']).take(8) {
                let digits: String = word.chars().take_while(char::is_ascii_digit).collect();
                match digits.parse() {
                    Ok(number) => pids.push(Pid(number)),
                    Err(_) if word.is_empty() => {}
                    Err(_) => break,
                }
                if digits.len() < word.len() {
                    break;
                }
            }
        }
    }
    pids
}

/// glog: the time of `E1120 08:21:34.879176503`, anywhere near the beginning of a line, in ns from the beginning of the year.
pub fn glog_time(line: &str) -> Option<i64> {
    let head: &str = line.get(..96).unwrap_or(line);
    head.match_indices(['I', 'W', 'E', 'F']).find_map(|(at, _)| {
        let is_word = at > 0 && head.as_bytes().get(at - 1).is_some_and(u8::is_ascii_alphanumeric);
        let rest = line.get(at + 1..).filter(|_| !is_word)?;
        let (date, rest) = rest.split_once(' ')?;
        let number = |text: &str| text.parse::<i64>().ok().filter(|n| *n >= 0);
        let (month, day) = (number(date.get(..2)?)?, number(date.get(2..)?)?);
        let is_date = date.len() == 4 && (1..=12).contains(&month) && (1..=31).contains(&day);
        let stamp = rest.split(' ').next().filter(|_| is_date)?;
        let (clock, part) = stamp.split_once('.').unwrap_or((stamp, "0"));
        let mut parts = clock.split(':').map(number);
        let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next()??);
        let part: String =
            part.chars().take_while(char::is_ascii_digit).chain("000000000".chars()).take(9).collect();
        if hour >= 24 || minute >= 60 || second > 60 {
            return None;
        }
        let days = Date { year: 1970, month, day }.days();
        let seconds = days * 86_400 + hour * 3_600 + minute * 60 + second;
        Some(seconds * 1_000_000_000 + number(&part)?)
    })
}

/// torch: the port in `… port: 29508, useIpv6: …` or `… failed to bind to [::]:29508`.
pub fn taken_port(text: &str) -> Option<u16> {
    let digits = |rest: &str| {
        let n = rest.bytes().take_while(u8::is_ascii_digit).count();
        rest.get(..n)?.parse().ok()
    };
    let mut keys = ["port: ", "bind to [::]:", "bind to 0.0.0.0:"].iter();
    keys.find_map(|key| text.split_once(key).and_then(|(_, rest)| digits(rest)))
}

/// Fabric Manager: the last line of its log when it gives up.
pub fn manager_aborts(text: &str) -> bool {
    text.contains("aborting fabric manager")
}

/// Fabric Manager: it ends at once where there is no switch.
pub fn manages_nothing(text: &str) -> bool {
    ["nothing to do", "NOTHING_TO_DO", "no NVSwitch", "No NVSwitch"].iter().any(|words| text.contains(words))
}

/// Kernel: the body of an Xid 74, which was seen under another number too.
pub fn is_nvlink_fatal(body: &str) -> bool {
    body.starts_with("NVLink: fatal error")
}

/// Kernel: a fault of the IOMMU that names NVIDIA's driver.
pub fn names_nvidia_driver(text: &str) -> bool {
    text.contains("nvidia ")
}

/// perftest: it could not register its memory.
pub fn cannot_register_memory(text: &str) -> bool {
    text.starts_with("Couldn't allocate MR")
}

/// nvidia-smi: a line on the fabric's health that says it is not well.
pub fn is_ill_fabric(text: &str) -> bool {
    text.contains("nhealthy") || text.contains("egraded")
}

/// What a test of dcgmi failed of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestFault {
    /// The Fabric Manager.
    FabricManager,
    /// NVLink, but for peer access alone.
    NvLink,
    /// Memory that read wrong values; not one that found no room.
    Memory,
    /// Rows of memory that could not be replaced.
    RowRemap,
    /// The link over PCIe.
    Pcie,
    /// Clocks that heat or power keep down.
    Throttled,
}

impl TestFault {
    /// Whether a test of this name failed of it, by its warnings.
    pub fn is_of(self, name: &str, warnings: &[Box<str>]) -> bool {
        let (name, warnings) = (name.to_ascii_lowercase(), warnings.join(" ").to_ascii_lowercase());
        let has = |words: &[&str]| words.iter().any(|word| warnings.contains(word));
        match self {
            Self::FabricManager => name.contains("fabric manager") || has(&["fabric manager"]),
            Self::NvLink => name.contains("nvlink") || has(&["nvlink"]) && !has(&["p2p"]),
            Self::Memory => {
                let is_memory = matches!(&*name, "memory" | "gpu memory" | "memtest");
                let counts = has(&["uncorrectable", "double bit", "double-bit", "dbe"]);
                counts || is_memory && !has(&["alloc", "row remap"])
            }
            Self::RowRemap => has(&["row remap"]) && has(&["fail"]),
            Self::Pcie => name == "pcie" && has(&["replay", "width", "bandwidth"]),
            Self::Throttled => has(&[
                "thermal violation",
                "power violation",
                "clock throttl",
                "clocks throttl",
                "clocks event",
                "high temperature",
            ]),
        }
    }
}

/// Kernel: options or messages by which the IOMMU translates traffic between devices instead of passing it through.
pub fn translates(options: &str) -> bool {
    let has = |word: &str| options.split([' ', ',']).any(|w| w == word || w.ends_with(&format!("={word}")));
    if options.starts_with("iommu: Default domain type: ") {
        return options.contains("Translated");
    }
    let is_on = options.contains("intel_iommu=on")
        || options.contains("amd_iommu=on")
        || options.starts_with("DMAR:");
    is_on && !has("pt") && !options.contains("iommu=pt")
}

#[cfg(test)]
mod tests {
    use super::{
        Numbers, ToolFailure, closed_by, failed_on_loopback, full_device, gids, glog_time, gpu_address,
        numbers, peer, pids, refused, thrown, tool_failure,
    };

    #[test]
    fn numbers_of_processes() {
        let twice = "bootstrapRoot : rank 1 of 4 ranks has already checked in";
        assert_eq!(numbers(twice), Some(Numbers::Twice(Some(1))));
        let differ = "Bootstrap Root : mismatch in rank count from procs 2 : 4";
        assert_eq!(numbers(differ), Some(Numbers::Differ(Some((2, 4)))));
        assert_eq!(numbers("Connection refused"), None);
    }

    #[test]
    fn peers_and_addresses() {
        assert_eq!(
            closed_by("Connection closed by remote peer n1.cluster<41234>"),
            Some("n1.cluster<41234>")
        );
        assert_eq!(closed_by("Connection closed by remote peer"), Some(""));
        let said = refused("connect to 10.0.0.1<44444> returned No route to host");
        assert!(said.is_some_and(|said| said.address.is_some() && !said.is_unrouted));
        let gloo = "Gloo connectFullMesh failed with [127.0.1.1]:4711: Connection refused";
        assert!(failed_on_loopback(gloo).is_some_and(|l| l.is_own_name));
        assert_eq!(failed_on_loopback("connect to [127.0.0.1]:29500 was refused"), None);
    }

    #[test]
    fn failures_of_tools() {
        let lost = "Unable to determine the device handle for GPU0000:3B:00.0: Unknown Error";
        assert_eq!(tool_failure(lost), ToolFailure::Lost);
        assert!(gpu_address(lost).is_some());
        assert_eq!(
            tool_failure("no answer within 5000 ms for GPU 0, 3"),
            ToolFailure::NoAnswer(Some("0, 3"))
        );
        assert_eq!(tool_failure("No devices were found"), ToolFailure::Other);
    }

    #[test]
    fn peers_with_and_without_brackets() {
        for (text, address, host) in [
            ("10.0.0.2<41234>", "10.0.0.2", "10.0.0.2"),
            ("[10.0.0.2]:41234", "10.0.0.2", "10.0.0.2"),
            ("[2001:db8::2]:41234", "2001:db8::2", "2001:db8::2"),
            ("n1.cluster<41234>", "n1.cluster", "n1.cluster"),
            ("n1.cluster:41234", "n1.cluster:41234", "n1.cluster"),
        ] {
            assert_eq!(peer(text), (address, host), "{text}");
        }
    }

    #[test]
    fn gids_of_both_forms() {
        let check = |text: &str, expected: Option<(&str, &str)>| {
            let found = gids(text).map(|(a, b)| (a.to_string(), b.to_string()));
            assert_eq!(found, expected.map(|(a, b)| (a.to_owned(), b.to_owned())), "{text}");
        };
        check(
            "dev mlx5_5:1, local GID index 3, local GID ::ffff:10.20.5.13, remote GID ::ffff:10.20.2.11",
            Some(("::ffff:10.20.5.13", "::ffff:10.20.2.11")),
        );
        // NCCL prints no blank here.
        check("(Recv) localGid fd00:5:4::22 remoteGidsfd00:5:4::1f", Some(("fd00:5:4::22", "fd00:5:4::1f")));
        check("local GID index 3 of no other", None);
    }

    #[test]
    fn devices_processes_and_exceptions() {
        assert_eq!(
            full_device("CUDA out of memory. Tried to allocate 2 MiB (GPU 2; 15.90 GiB total"),
            Some(2)
        );
        assert_eq!(full_device("CUDA out of memory. GPU 5 has a total capacity of 79 GiB"), Some(5));
        assert_eq!(full_device("GPU 5 has a total capacity of 79 GiB"), None);
        let ids = |text| pids(text).iter().map(|p| p.0).collect::<Vec<_>>();
        assert_eq!(ids("DataLoader worker (pid(s) 12, 13) exited unexpectedly"), [12, 13]);
        assert_eq!(ids("DataLoader worker (pid 4711) is killed by signal: Killed."), [4711]);
        assert_eq!(ids("rapid 12"), Vec::<u32>::new());
        assert_eq!(thrown("terminate called\n  what():  no room "), Some("no room"));
        assert_eq!(thrown("terminate called"), None);
    }

    #[test]
    fn stamps_without_a_year() {
        let noon = |ms: i64| (323 * 86_400 + 12 * 3_600) * 1_000_000_000 + ms * 1_000_000;
        assert_eq!(
            glog_time("[E1120 12:00:00.879000000 ProcessGroupNCCL.cpp:689] [Rank 3] x"),
            Some(noon(879))
        );
        assert_eq!(glog_time("[rank3]:[W1120 12:00:00.5 Utils.hpp:1] x"), Some(noon(500)));
        assert_eq!(glog_time("E1120 12:00:00 1330 torch/distributed/api.py:986] failed"), Some(noon(0)));
        for other in [
            "",
            "INFO 12:00:00 x",
            "Exception 1120 12:00:00",
            "E9999 12:00:00 x",
            "W1120 x",
            "I20260809 14:02:12.110 x",
            "I1120 9999999999999999:0:0 x",
        ] {
            assert_eq!(glog_time(other), None, "{other}");
        }
    }
}
