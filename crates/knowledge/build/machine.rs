//! The tables of Xids and SXids.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use toml::{Table, Value};

use super::{array, constants, list, optional, read, text};

pub(super) fn write(out: &mut String) {
    xids(out);
    sxids(out);
}

fn number(row: &Table, key: &str) -> i64 {
    row.get(key).and_then(Value::as_integer).unwrap_or_else(|| panic!("number `{key}` missing in {row:?}"))
}

fn flag(row: &Table, key: &str) -> bool {
    row.get(key).is_some_and(|v| v.as_bool().unwrap_or_else(|| panic!("`{key}` is no bool in {row:?}")))
}

/// The sources of a row, spelled out.
fn cites(row: &Table, table: &Table) -> Vec<String> {
    let sources = table.get("source").and_then(Value::as_table).expect("a table of sources");
    let names = list(row, "cite");
    assert!(!names.is_empty(), "no source: {row:?}");
    names.into_iter().map(|name| text(sources, name).to_owned()).collect()
}

fn action(row: &Table, key: &str) -> String {
    let name = match text(row, key) {
        "ignore" => "Ignore",
        "restart_app" => "RestartApp",
        "reset_gpu" => "ResetGpu",
        "reboot_node" => "RebootNode",
        "drain_and_field_diagnose" => "Diagnose",
        "contact_support" => "ContactSupport",
        "check_fabric" => "CheckFabric",
        "update_driver" => "UpdateDriver",
        other => panic!("unknown move {other}"),
    };
    format!("crate::remedy::Move::{name}")
}

fn kills(row: &Table) -> String {
    let name = match text(row, "kills_job") {
        "yes" => "Yes",
        "no" => "No",
        "maybe" => "Maybe",
        "symptom" => "Symptom",
        "decode" => "Decode",
        other => panic!("unknown kills_job {other}"),
    };
    format!("crate::remedy::Kills::{name}")
}

fn exclude(row: &Table) -> String {
    let name = match text(row, "exclude_node") {
        "no" => "No",
        "if_repeated" => "IfRepeated",
        "until_reset" => "UntilReset",
        "yes" => "Yes",
        "decode" => "Decode",
        other => panic!("unknown exclude_node {other}"),
    };
    format!("crate::remedy::Exclude::{name}")
}

fn xids(out: &mut String) {
    let table = read("xid.toml");
    let mut codes = BTreeSet::new();
    out.push_str("pub(crate) static XIDS: &[crate::xid::Xid] = &[\n");
    let mut rows = array(&table, "xid");
    rows.sort_by_key(|row| number(row, "code"));
    for row in rows {
        let code = number(row, "code");
        assert!(codes.insert(code), "xid {code} twice");
        let class = match text(row, "class") {
            "hardware" => "Hardware",
            "driver" => "Driver",
            "application" => "Application",
            "system/fabric" => "Fabric",
            "thermal/power" => "Power",
            "informational" => "Informational",
            other => panic!("xid {code}: unknown class {other}"),
        };
        let severity = match text(row, "severity") {
            "info" => "Info",
            "warning" => "Warning",
            "error" => "Error",
            "critical" => "Critical",
            "fatal" => "Fatal",
            "decode" => "Decode",
            other => panic!("xid {code}: unknown severity {other}"),
        };
        let _ = writeln!(
            out,
            "crate::xid::Xid {{ code: {code}, mnemonic: {:?}, header_names: &{:?}, name: {:?}, meaning: {:?}, \
             class: crate::remedy::Class::{class}, severity: crate::remedy::Grade::{severity}, action: {}, \
             then: {}, kills_job: {}, exclude_node: {}, nvidia_immediate: {:?}, nvidia_investigate: {:?}, \
             may_be: &{:?}, unused: {}, rule: {:?}, message: {:?}, note: {:?}, workflow: {:?}, cite: &{:?} }},",
            text(row, "mnemonic"),
            list(row, "header_names"),
            text(row, "name"),
            text(row, "meaning"),
            action(row, "action"),
            action(row, "then"),
            kills(row),
            exclude(row),
            optional(row, "nvidia_immediate"),
            optional(row, "nvidia_investigate"),
            list(row, "r555_causes"),
            flag(row, "unused"),
            optional(row, "rule"),
            optional(row, "message"),
            optional(row, "note"),
            optional(row, "workflow"),
            cites(row, &table),
        );
    }
    out.push_str("];\npub(crate) static XID_GROUPS: &[crate::xid::XidSet] = &[\n");
    for (id, members) in table.get("groups").and_then(Value::as_table).expect("a table of groups") {
        let members = members.as_array().expect("a group is a list");
        let mut members: Vec<i64> =
            members.iter().map(|m| m.as_integer().expect("codes are numbers")).collect();
        members.sort_unstable();
        assert!(members.iter().all(|m| codes.contains(m)), "group {id} names an unknown code");
        let _ = writeln!(out, "crate::xid::XidSet {{ id: {id:?}, codes: &{members:?} }},");
    }
    out.push_str("];\n");
    sub_codes(out, &table, &codes);
}

fn sub_codes(out: &mut String, table: &Table, codes: &BTreeSet<i64>) {
    out.push_str("pub(crate) static RECOVERY_ACTIONS: &[crate::xid::RecoveryAction] = &[\n");
    for row in array(table, "recovery_action") {
        let _ = writeln!(
            out,
            "crate::xid::RecoveryAction {{ value: {}, name: {:?}, meaning: {:?}, action: {}, \
             blocks_new_jobs: {}, cite: &{:?} }},",
            number(row, "value"),
            text(row, "name"),
            text(row, "meaning"),
            action(row, "action"),
            flag(row, "blocks_new_jobs"),
            cites(row, table),
        );
    }
    out.push_str("];\npub(crate) static XID74_BITS: &[crate::xid::LinkBits] = &[\n");
    for row in array(table, "xid74_bits") {
        let bits = row.get("bits").and_then(Value::as_array).expect("a list of bits");
        let mask =
            bits.iter().map(|b| b.as_integer().expect("bits are numbers")).fold(0_u32, |m, b| m | 1 << b);
        let _ = writeln!(
            out,
            "crate::xid::LinkBits {{ word: {}, mask: {mask:#x}, verdict: {:?}, cite: &{:?} }},",
            text(row, "word").trim_start_matches('r'),
            text(row, "verdict"),
            cites(row, table),
        );
    }
    // What is no single word is a sentence for readers.
    let is_word = |action: &&str| action.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let rules = array(table, "nvlink5_rule");
    let investigations: BTreeSet<&str> =
        rules.iter().map(|row| text(row, "investigate")).filter(is_word).collect();
    out.push_str("];\n");
    constants(out, "investigations", investigations);
    out.push_str("pub(crate) static NVLINK5_RULES: &[crate::xid::NvlinkRule] = &[\n");
    for row in rules {
        let xid = number(row, "xid");
        assert!(codes.contains(&xid), "unknown code {xid}");
        let units: Vec<&str> = text(row, "unit").split('/').collect();
        let _ = writeln!(
            out,
            "crate::xid::NvlinkRule {{ xid: {xid}, units: &{units:?}, subcode: {}, first_v1: {:?}, \
             first_v2: {:?}, error_status: {:#x}, resolution: {:?}, resolution_if_fatal: {:?}, \
             investigate: {:?}, severity: {:?}, side: {:?}, local: {:?}, remote: {:?}, note: {:?}, \
             cite: &{:?} }},",
            number(row, "subcode"),
            pattern(text(row, "intrinfo_v1")),
            pattern(text(row, "intrinfo_v2")),
            number(row, "error_status"),
            text(row, "resolution"),
            optional(row, "resolution_if_fatal_seen"),
            text(row, "investigate"),
            text(row, "severity"),
            text(row, "side"),
            text(row, "local"),
            text(row, "remote"),
            optional(row, "note"),
            cites(row, table),
        );
    }
    out.push_str("];\npub(crate) static CHAINS: &[crate::xid::Chain] = &[\n");
    for row in array(table, "chain") {
        let _ = writeln!(
            out,
            "crate::xid::Chain {{ name: {:?}, root: &{:?}, sequence: &{:?}, window_s: {}, note: {:?}, \
             cite: &{:?} }},",
            text(row, "name"),
            list(row, "root"),
            list(row, "sequence"),
            number(row, "window_seconds"),
            optional(row, "note"),
            cites(row, table),
        );
    }
    out.push_str("];\n");
}

/// Mask and value of 32 characters, bit 31 first; `-` = any.
fn pattern(bits: &str) -> (u32, u32) {
    assert_eq!(bits.len(), 32, "{bits}");
    bits.bytes().fold((0, 0), |(mask, value), bit| match bit {
        b'-' => (mask << 1, value << 1),
        b'0' => (mask << 1 | 1, value << 1),
        b'1' => (mask << 1 | 1, value << 1 | 1),
        _ => panic!("{bits}"),
    })
}

fn sxids(out: &mut String) {
    let table = read("sxid.toml");
    let mut codes = BTreeSet::new();
    let mut rows = array(&table, "sxid");
    rows.sort_by_key(|row| number(row, "code"));
    out.push_str("pub(crate) static SXIDS: &[crate::sxid::Sxid] = &[\n");
    for row in rows {
        let code = number(row, "code");
        assert!(codes.insert(code), "sxid {code} twice");
        let device = list(row, "device_fatal");
        let print = |chip: &str| {
            let severity = row.get("driver_severity").and_then(Value::as_table)?.get(chip)?.as_str()?;
            assert!(matches!(severity, "fatal" | "nonfatal"), "sxid {code}: {severity}");
            Some((severity == "fatal", device.contains(&chip)))
        };
        let [lr10, ls10] = ["lr10", "ls10"].map(|chip| match print(chip) {
            Some((fatal, device)) => {
                format!("Some(crate::sxid::Print {{ fatal: {fatal}, device: {device} }})")
            }
            None => "None".to_owned(),
        });
        let guide = match text(row, "fm_class") {
            "non_fatal" => "NonFatal",
            "potentially_fatal" => "PotentiallyFatal",
            "always_fatal" => "AlwaysFatal",
            "notable" => "Notable",
            "unlisted" => "Unlisted",
            other => panic!("sxid {code}: unknown class {other}"),
        };
        let _ = writeln!(
            out,
            "crate::sxid::Sxid {{ code: {code}, symbol: {:?}, unit: {:?}, texts: &{:?}, lr10: {lr10}, \
             ls10: {ls10}, guide: crate::sxid::Guide::{guide}, action: {}, kills_job: {}, exclude_node: {}, \
             note: {:?}, cite: &{:?} }},",
            text(row, "symbol"),
            text(row, "unit"),
            list(row, "driver_text"),
            action(row, "action"),
            kills(row),
            exclude(row),
            optional(row, "note"),
            cites(row, &table),
        );
    }
    out.push_str("];\n");
}
