//! Laws of the tables of variables, result codes, CUDA errors and rates, and the parsing of known values.

use std::collections::BTreeSet;

use crate::variable::{Agreement, Parse, Status, misread};
use crate::version::NcclVersion;
use crate::{cause, conflict, cuda_error, event, nccl_result, rate, variable};

fn version(text: &str) -> NcclVersion {
    NcclVersion::parse(text).unwrap_or_else(|| panic!("{text}"))
}

#[test]
fn every_variable_is_complete_cited_and_unique() {
    let names: BTreeSet<&str> = variable::all().iter().map(|v| v.name).collect();
    assert_eq!(names.len(), variable::all().len());
    assert!(names.len() > 360);
    for v in variable::all() {
        let cited = ["NVIDIA/", "pytorch/", "CUDA ", "PyTorch "].iter().any(|s| v.source.starts_with(s));
        assert!(v.does.len() > 5 && !v.default.is_empty() && cited, "{v:?}");
        assert_eq!(variable::get(v.name), Some(v));
        assert!(variable::get_unread(v.name).is_none() && !variable::is_of_plugin(v.name), "{}", v.name);
        assert_eq!(v.last.is_some(), v.since.is_some(), "{v:?}");
        let gone = v.last.is_some_and(|last| last < variable::newest());
        if v.last.is_some() {
            assert_eq!(gone, v.status == Status::Removed, "{v:?}");
        }
        assert!(v.since_or_before || v.since <= v.last, "{v:?}");
        assert!(v.defaults.is_sorted_by_key(|(since, _)| since), "{v:?}");
        if let Some((_, newest)) = v.defaults.last() {
            assert_eq!(newest, &v.default, "{}: history and default differ", v.name);
        }
        let wants_words = matches!(
            v.parse,
            Parse::Word | Parse::ExactWord | Parse::WordList | Parse::Level | Parse::TorchWord
        );
        assert_eq!(!v.words.is_empty(), wants_words, "{v:?}");
        let successor = v.replaced_by.split('=').next().unwrap_or_default();
        assert!(successor.is_empty() || variable::get(successor).is_some(), "{v:?}");
        // The behaviour of an unset variable is never a mistake.
        for default in std::iter::once(v.default).chain(v.defaults.iter().map(|(_, d)| *d)) {
            let is_value = default.parse::<i64>().is_ok() || v.words.contains(&default);
            if is_value {
                assert_eq!(misread(v, default, None), None, "{}={default}", v.name);
            }
        }
        for word in v.words {
            assert_eq!(misread(v, word, None), None, "{}={word}", v.name);
        }
    }
    for (alias, name) in variable::aliases() {
        assert_eq!(variable::get(alias).map(|v| v.name), Some(*name));
    }
    assert_eq!(
        variable::get("NCCL_ASYNC_ERROR_HANDLING").map(|v| v.name),
        Some("TORCH_NCCL_ASYNC_ERROR_HANDLING")
    );
    assert_eq!(variable::get("RANK").map(|v| v.agreement), Some(Agreement::Differ));
}

#[test]
fn every_look_alike_says_what_to_use_instead() {
    let names: BTreeSet<&str> = variable::unread().iter().map(|u| u.name).collect();
    assert_eq!(names.len(), variable::unread().len());
    for u in variable::unread() {
        assert!(!u.meant.is_empty() && !u.source.is_empty(), "{u:?}");
        assert_eq!(variable::get_unread(u.name), Some(u));
        // Names in capitals must exist.
        for word in u.meant.split(|c: char| !c.is_ascii_uppercase() && !c.is_ascii_digit() && c != '_') {
            if word.starts_with("NCCL_") || word.starts_with("TORCH_") {
                assert!(variable::get(word).is_some(), "{}: {word} is unknown too", u.name);
            }
        }
    }
    assert!(names.contains("NCCL_TIMEOUT"));
    assert!(variable::is_of_plugin("NCCL_FASTRAK_ENABLE_CONTROL_CHANNEL"));
    assert!(!variable::is_of_plugin("NCCL_TIMEOUT"));
    assert!(variable::is_label("NCCL_VERSION") && variable::get("NCCL_VERSION").is_none());
}

#[test]
fn variables_know_their_versions() {
    let read = |name, v| variable::is_read_by(name, Some(version(v)));
    assert_eq!(read("NCCL_NVLS_ENABLE", "2.16.2"), Some(false));
    assert_eq!(read("NCCL_NVLS_ENABLE", "2.28.9"), Some(true));
    assert_eq!(read("NCCL_NVLS_ENABLE", "2.31.0"), Some(true));
    assert_eq!(read("NCCL_CHECKS_DISABLE", "2.30.7"), Some(false));
    assert_eq!(read("NCCL_TIMEOUT", "2.30.7"), None);
    let timeout = variable::get("NCCL_IB_TIMEOUT")
        .map(|v| ["2.8.3", "2.18.5", "2.28.9"].map(|r| v.default_of(version(r))));
    assert_eq!(timeout, Some(["14", "18", "20"]));
}

#[track_caller]
fn check(setting: &str, expected: &str) {
    let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
    let variable = variable::get(name).unwrap_or_else(|| panic!("{name}"));
    let got = misread(variable, value, NcclVersion::parse("2.28.9"));
    let got = got.map_or("fine".to_owned(), |m| format!("{}: {}", m.trap.id, m.what));
    assert_eq!(got, expected, "{setting}");
}

#[test]
fn numbers_of_nccl_are_read_as_c_reads_them() {
    check("NCCL_IB_DISABLE=1", "fine");
    check("NCCL_IB_DISABLE=", "fine");
    check("NCCL_IB_DISABLE=true", "word-for-number: true reads as 0");
    check("NCCL_IB_DISABLE=2", "out-of-range: 2 is not within 0 to 1");
    check("NCCL_BUFFSIZE=8388608", "fine");
    check("NCCL_BUFFSIZE=0x800000", "fine");
    check("NCCL_BUFFSIZE=4M", "unit: 4M reads as 4");
    check("NCCL_BUFFSIZE=1e6", "unit: 1e6 reads as 1");
    check(
        "NCCL_BUFFSIZE=99999999999999999999",
        "too-large: 99999999999999999999 is refused, the default is used",
    );
    check("NCCL_IB_TC=106", "fine");
    check("NCCL_IB_TC=0106", "leading-zero: 0106 reads as 70");
    check("NCCL_IB_TC=08", "unit: 08 reads as 0");
    check("NCCL_IB_TC=-1", "fine");
    check("NCCL_IB_TC=00", "fine");
    check("NCCL_IB_TIMEOUT=22", "fine");
    check("NCCL_IB_TIMEOUT=40", "out-of-range: 40 is not within 0 to 31");
    check("NCCL_IB_TIMEOUT=\"22\"", "quotes: \"22\" keeps its quotes");
}

#[test]
fn words_of_nccl_are_read_as_nccl_reads_them() {
    check("NCCL_DEBUG=info", "fine");
    check("NCCL_DEBUG=DEBUG", "unknown-word: DEBUG is none of NONE, VERSION, WARN, INFO, ABORT, TRACE");
    check("NCCL_DEBUG_SUBSYS=INIT,NET", "fine");
    check("NCCL_DEBUG_SUBSYS=^GRAPH", "fine");
    check("NCCL_ALGO=Ring,Tree", "fine");
    check("NCCL_ALGO=allreduce:tree,ring;broadcast:ring", "fine");
    check("NCCL_PROTO=^LL128", "fine");
    check("NCCL_PROTO=LL256", "unknown-word: LL256 is none of LL, LL128, Simple");
    check("NCCL_P2P_LEVEL=NVL", "fine");
    check("NCCL_P2P_LEVEL=nvl", "unknown-word: nvl is not NVL: case counts");
    check("NCCL_P2P_LEVEL=4", "fine");
    check("NCCL_SOCKET_IFNAME=^lo,docker", "fine");
}

#[test]
fn torch_raises_on_what_it_does_not_know() {
    check("TORCH_NCCL_BLOCKING_WAIT=yes", "fine");
    check("TORCH_NCCL_BLOCKING_WAIT=on", "torch-refuses: torch raises on on");
    check("TORCH_NCCL_ASYNC_ERROR_HANDLING=3", "fine");
    check("NCCL_ASYNC_ERROR_HANDLING=5", "out-of-range: 5 is not within 0 to 3");
    check("TORCH_NCCL_ASYNC_ERROR_HANDLING=true", "torch-refuses: torch raises on true");
    check("TORCH_NCCL_TRACE_BUFFER_SIZE=2k", "unit: reads as 2");
    check("TORCH_DISTRIBUTED_DEBUG=DETAIL", "fine");
    check("TORCH_DISTRIBUTED_DEBUG=1", "torch-refuses: torch raises on 1");
}

#[test]
fn a_switch_of_a_newer_release_takes_words() {
    let switch = variable::get("NCCL_SET_THREAD_NAME").unwrap_or_else(|| panic!("unknown"));
    assert_eq!(misread(switch, "true", Some(version("2.30.7"))), None);
    assert_eq!(misread(switch, "true", Some(version("2.28.9"))).map(|m| m.trap.id), Some("word-for-number"));
}

#[test]
fn every_trap_is_complete_and_its_example_falls_into_it() {
    for trap in variable::traps() {
        for field in [trap.becomes, trap.means, trap.instead, trap.source] {
            assert!(!field.is_empty(), "{trap:?}");
        }
        let setting = trap.example.split(' ').next().unwrap_or_default();
        let (name, value) = setting.split_once('=').unwrap_or_else(|| panic!("{trap:?}"));
        let variable = variable::get(name).unwrap_or_else(|| panic!("{name}"));
        assert_eq!(misread(variable, value, None).map(|m| m.trap.id), Some(trap.id), "{trap:?}");
    }
    assert_eq!(variable::traps().len(), 8);
}

/// Ids of the conflicts among these settings.
fn clash(settings: &[(&'static str, &'static str)]) -> Vec<&'static str> {
    let get = |name: &str| settings.iter().find(|(own, _)| *own == name).map(|(_, value)| *value);
    conflict::found(get).into_iter().map(|(row, _)| row.id).collect()
}

#[test]
fn settings_that_cancel_each_other_are_found() {
    assert_eq!(clash(&[("NCCL_P2P_DISABLE", "1"), ("NCCL_P2P_LEVEL", "NVL")]), ["p2p-off-and-level"]);
    assert_eq!(clash(&[("NCCL_P2P_DISABLE", "0"), ("NCCL_P2P_LEVEL", "NVL")]), [""; 0]);
    assert_eq!(clash(&[("NCCL_IB_DISABLE", "1"), ("NCCL_IB_HCA", "mlx5_0")]), ["ib-off-and-ib-settings"]);
    assert_eq!(clash(&[("NCCL_NET", "socket"), ("NCCL_IB_HCA", "mlx5_0")]), ["sockets-and-ib-settings"]);
    assert_eq!(clash(&[("NCCL_NET", "IB"), ("NCCL_IB_HCA", "mlx5_0")]), [""; 0]);
    assert_eq!(
        clash(&[("TORCH_NCCL_BLOCKING_WAIT", "1"), ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "3")]),
        ["blocking-wait-and-watchdog"]
    );
    assert_eq!(
        clash(&[("TORCH_NCCL_BLOCKING_WAIT", "1"), ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")]),
        [""; 0]
    );
    assert_eq!(clash(&[]), [""; 0]);
}

#[test]
fn every_conflict_is_complete_and_holds_when_its_conditions_do() {
    for row in conflict::all() {
        for field in [row.means, row.instead, row.source] {
            assert!(!field.is_empty(), "{row:?}");
        }
        let value =
            |c: &conflict::Condition| if c.negated { "7" } else { c.values.first().copied().unwrap_or("1") };
        for second in row.and {
            let settings: Vec<_> = row.with.iter().chain([second]).map(|c| (c.name, value(c))).collect();
            assert!(clash(&settings).contains(&row.id), "{row:?}");
            assert!(!clash(&settings[..row.with.len()]).contains(&row.id), "{row:?}");
        }
    }
}

#[test]
fn every_result_is_complete_and_cited() {
    for (code, r) in (0_u8..).zip(nccl_result::all()) {
        assert_eq!(r.code, code);
        for field in [r.name, r.text, r.since, r.meaning, r.is_not, r.source] {
            assert!(!field.is_empty(), "{r:?}");
        }
        assert!(!r.advice.is_empty(), "{r:?}");
        // Every failure indicates something.
        assert_eq!(r.causes.is_empty(), matches!(code, 0 | 7), "{r:?}");
    }
    assert_eq!(nccl_result::all().len(), 9);
    assert_eq!(nccl_result::get(8).map(|r| r.name), Some("ncclTimeout"));
}

#[test]
fn every_cuda_error_is_complete_and_cited() {
    for e in cuda_error::all() {
        for field in [e.name, e.text, e.meaning, e.is_not, e.source] {
            assert!(!field.is_empty(), "{e:?}");
        }
        assert!(!e.causes.is_empty(), "{e:?}");
        assert_eq!(cuda_error::get(e.code), Some(e));
    }
    assert!(cuda_error::all().is_sorted_by_key(|e| e.code));
    assert_eq!(cuda_error::get(5), None);
}

#[test]
fn every_event_is_complete_and_cited() {
    for e in event::all() {
        for field in [e.title, e.means, e.is_not, e.source] {
            assert!(!field.is_empty(), "{e:?}");
        }
        assert_eq!(event::get(e.id), Some(e));
        assert!(cause::get(e.id).is_none(), "{} is a cause too", e.id);
    }
}

#[test]
fn every_rate_is_complete_and_cited() {
    let mut names = BTreeSet::new();
    for link in rate::links() {
        assert!(!link.cite.is_empty() && link.one_way_gb_s > 0.0, "{link:?}");
        assert!(
            link.reached_gb_s.is_none_or(|r| r < link.one_way_gb_s && r > link.one_way_gb_s / 2.0),
            "{link:?}"
        );
        for name in std::iter::once(&link.name).chain(link.aliases) {
            assert!(names.insert(name.to_lowercase()), "{name} twice");
            assert_eq!(rate::link(name).map(|l| l.name), Some(link.name));
        }
    }
    let mut rows = BTreeSet::new();
    for b in rate::bandwidths() {
        assert!(rows.insert((b.node, b.operation, b.way)), "{b:?} twice");
        assert!(!b.cite.is_empty() && b.low_gb_s <= b.high_gb_s, "{b:?}");
    }
    let operations: BTreeSet<&str> = rate::factors().iter().map(|f| f.operation).collect();
    assert_eq!(operations.len(), rate::factors().len());
    assert!(
        rate::factors().iter().all(|f| !f.counted.is_empty() && !f.formula.is_empty() && !f.cite.is_empty())
    );
    // A ring moves no more than the wire can carry.
    let ring = rate::bandwidths().iter().find(|b| b.node == "8x H200" && b.way == "ring");
    let wire = rate::link("nvlink 4");
    assert!(ring.zip(wire).is_some_and(|(ring, wire)| ring.high_gb_s < wire.one_way_gb_s));
}
