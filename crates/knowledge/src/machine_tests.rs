//! Laws of the tables of Xids and SXids, and the decoding of known lines.

use std::collections::BTreeSet;

use crate::remedy::{Class, Exclude, Grade, Kills, Move};
use crate::{sxid, xid};

#[test]
fn every_xid_is_complete_cited_and_unique() {
    let codes: BTreeSet<u16> = xid::all().iter().map(|x| x.code).collect();
    assert_eq!(codes.len(), xid::all().len());
    assert_eq!(codes, (1..=176).collect(), "the catalogue has no holes");
    for x in xid::all() {
        assert!(!x.mnemonic.is_empty() && !x.name.is_empty() && !x.meaning.is_empty(), "{x:?}");
        assert!(!x.cite.is_empty() && x.cite.iter().all(|c| c.len() > 10), "{x:?}");
        assert_eq!(xid::get(x.code), Some(x));
        // Words that imply one another.
        let decode =
            [x.severity == Grade::Decode, x.kills_job == Kills::Decode, x.exclude_node == Exclude::Decode];
        if x.kills_job == Kills::Decode {
            assert_eq!(decode, [true; 3], "{x:?}");
            assert!(xid::nvlink_rules().iter().any(|r| r.xid == x.code), "nothing to decode {} with", x.code);
        }
        if x.class == Class::Application {
            assert!(matches!(x.exclude_node, Exclude::No | Exclude::IfRepeated), "{x:?}");
            assert!(!matches!(x.action, Move::ResetGpu | Move::RebootNode | Move::Diagnose), "{x:?}");
        }
        if x.exclude_node == Exclude::Yes {
            assert!(matches!(x.severity, Grade::Critical | Grade::Fatal), "{x:?}");
        }
        if x.severity == Grade::Info {
            assert!(matches!(x.kills_job, Kills::No | Kills::Symptom), "{x:?}");
        }
    }
    assert_eq!(xid::get(0), None);
    assert_eq!(xid::get(177), None);
}

#[test]
fn every_group_names_known_codes() {
    for id in [
        "application",
        "never_root_cause",
        "memory_ecc",
        "nvlink_pre_blackwell",
        "nvlink5",
        "gsp",
        "lost_gpu",
        "video_or_display",
        "sticky_3h",
        "k8s_device_plugin_ignores",
    ] {
        assert!(!xid::group(id).is_empty(), "{id}");
    }
    assert_eq!(xid::groups().len(), 10);
    for group in xid::groups() {
        assert!(group.codes.is_sorted(), "{group:?}");
        assert_eq!(group.codes.iter().collect::<BTreeSet<_>>().len(), group.codes.len(), "{group:?}");
        assert!(group.codes.iter().all(|&c| xid::get(c).is_some()), "{group:?}");
    }
    for &code in xid::group("never_root_cause") {
        let x = xid::get(code).unwrap_or_else(|| panic!("{code}"));
        assert_eq!(x.kills_job, Kills::Symptom, "{x:?}");
    }
    for &code in xid::group("application") {
        assert!(xid::get(code).is_some_and(|x| x.class == Class::Application), "{code}");
    }
    assert!(xid::group("no such group").is_empty());
}

#[test]
fn every_sub_code_is_complete_cited_and_found_again() {
    for (value, action) in (0..).zip(xid::recovery_actions()) {
        assert_eq!(action.value, value);
        assert!(!action.name.is_empty() && !action.meaning.is_empty() && !action.cite.is_empty());
        assert_eq!(action.blocks_new_jobs, value != 0, "{action:?}");
    }
    assert_eq!(xid::recovery_actions().len(), 6);
    let mut seen = [0_u32; 7];
    for bits in xid::link_bits() {
        assert!(bits.mask != 0 && bits.word < 7 && !bits.cite.is_empty(), "{bits:?}");
        let word = &mut seen[usize::from(bits.word)];
        assert_eq!(*word & bits.mask, 0, "a bit in two rows: {bits:?}");
        *word |= bits.mask;
    }
    let mut keys = BTreeSet::new();
    for rule in xid::nvlink_rules() {
        assert!((144..=150).contains(&rule.xid) && !rule.cite.is_empty(), "{rule:?}");
        assert!(matches!(rule.resolution, "IGNORE" | "RESET_GPU" | "XID_154_EVAL"), "{rule:?}");
        assert!(matches!(rule.severity, "nonfatal" | "fatal" | "link_fatal"), "{rule:?}");
        for (mask, value) in [rule.first_v1, rule.first_v2] {
            assert_eq!(value & mask, value);
            assert_eq!((value >> 20) & 0x3f, u32::from(rule.subcode), "{rule:?}");
            assert!(keys.insert((rule.xid, rule.units, mask, value, rule.error_status)), "twice: {rule:?}");
            for unit in rule.units {
                let found = xid::nvlink_rule(rule.xid, unit, value, rule.error_status);
                assert_eq!(found.map(|f| f.resolution), Some(rule.resolution), "{unit} hides {rule:?}");
            }
        }
    }
    for chain in xid::chains() {
        assert!(!chain.sequence.is_empty() && chain.window_s > 0 && !chain.cite.is_empty(), "{chain:?}");
        for root in chain.root.iter().filter_map(|r| r.strip_prefix("xid:")) {
            let code = root.parse().unwrap_or_else(|_| panic!("{root}"));
            assert!(xid::get(code).is_some_and(|x| !x.is_never_root()), "{chain:?}");
        }
    }
}

#[test]
fn real_lines_decode() {
    // `149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6 0x00000000 …)`: the far end is the source.
    let far = xid::nvlink_rule(149, "NETIR_LINK_EVT", 0x0214_25c6, 0);
    assert_eq!(far.map(|r| (r.subcode, r.severity, r.resolution)), Some((0x21, "link_fatal", "RESET_GPU")));
    // `145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 …)`
    let peer = xid::nvlink_rule(145, "RLW_RXPIPE", 0x0409_a0c2, 8);
    assert_eq!(peer.map(|r| (r.severity, r.resolution)), Some(("nonfatal", "IGNORE")));
    assert_eq!(xid::nvlink_rule(145, "RLW_RXPIPE", 0x0409_a0c2, 0x40), None, "an unknown status is unknown");
    // `74, NVLink: fatal error detected on link 14(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)`
    let bits = xid::link_bits_of(&[0, 0, 0x1_0000, 0, 0, 0, 0]);
    assert_eq!(bits.iter().map(|b| b.verdict).collect::<Vec<_>>(), ["field_diag_if_repeated"]);
    assert!(xid::link_bits_of(&[]).is_empty());
    assert_eq!(xid::recovery_action(4).map(|a| a.name), Some("Drain and Reset"));
}

#[test]
fn every_sxid_is_complete_cited_and_unique() {
    assert_eq!(sxid::all().len(), 420);
    let codes: BTreeSet<u32> = sxid::all().iter().map(|s| s.code).collect();
    assert_eq!(codes.len(), sxid::all().len());
    let symbols: BTreeSet<&str> = sxid::all().iter().map(|s| s.symbol).collect();
    assert_eq!(symbols.len(), sxid::all().len());
    for s in sxid::all() {
        assert!((10_000..100_000).contains(&s.code), "{s:?}");
        assert!(!s.symbol.is_empty() && !s.unit.is_empty() && !s.cite.is_empty(), "{s:?}");
        assert_eq!(sxid::get(s.code), Some(s));
        let prints: Vec<sxid::Print> = [s.lr10, s.ls10].into_iter().flatten().collect();
        assert!(prints.iter().all(|p| p.fatal || !p.device), "{s:?}");
        if s.guide == sxid::Guide::AlwaysFatal {
            assert_eq!(s.kills_job, Kills::Yes, "{s:?}");
        }
    }
    let real = sxid::get(20_034);
    assert_eq!(real.map(|s| s.guide), Some(sxid::Guide::PotentiallyFatal));
    assert_eq!(sxid::get(1), None);
}
