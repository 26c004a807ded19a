//! What the action of a row costs: its field `impact`, without which it is harmless. The build fails where an action reads as if it
//! stopped something and no `impact` is stated, so that it cannot be forgotten.

use toml::Table;

use super::optional;

/// First words of an action that ends every process of a GPU or a node.
const DESTROYS: [&str; 3] = ["reboot", "reset", "power-cycle"];
/// First words of an action that stops or restarts something, or takes it away from others.
const DISRUPTS: [&str; 17] = [
    "restart",
    "drain",
    "replace",
    "reseat",
    "stop",
    "kill",
    "end",
    "terminate",
    "reload",
    "unload",
    "requeue",
    "exclude",
    "cancel",
    "modprobe",
    "systemctl",
    "scancel",
    "take",
];
/// Words before the verb.
const BEFORE: [&str; 3] = ["then", "else", "cold"];

/// The variants of `ringleader_model::Impact`, by number.
pub(super) const VARIANTS: [&str; 3] = ["Harmless", "Disruptive", "Destructive"];

/// The impact of the `action` of this row: an index of [`VARIANTS`].
pub(super) fn of(row: &Table) -> usize {
    let action = optional(row, "action");
    let stated = optional(row, "impact");
    assert!(!action.is_empty() || stated.is_empty(), "an impact and no action in {row:?}");
    match stated {
        "harmless" => 0,
        "disruptive" => 1,
        "destructive" => 2,
        "" => {
            assert!(
                !seems_to_stop(action),
                "say the `impact` of `{action}`: it reads as if it stopped something"
            );
            0
        }
        other => panic!("unknown impact {other}"),
    }
}

/// Whether a part of it does more than read, or change the next run.
fn seems_to_stop(action: &str) -> bool {
    let action = action.to_ascii_lowercase();
    let (mut is_first, mut last) = (true, "");
    for word in action.split_ascii_whitespace() {
        let bare = word.trim_matches(['(', ')', ';', ':', ',', '.', '`']);
        // Wherever they stand: `on NVSwitch hosts reset all GPUs`.
        let is_anywhere = bare == "power-cycle"
            || matches!(
                (last, bare),
                ("power", "cycle") | ("nvidia-smi", "-r") | ("reset", "all" | "its" | "the")
            );
        let is_verb = DESTROYS.contains(&bare) || DISRUPTS.contains(&bare);
        if is_anywhere || is_verb && (is_first || word.starts_with('(')) {
            return true;
        }
        is_first = word.ends_with([';', ':', ','])
            || ["or", "and"].contains(&bare)
            || is_first && BEFORE.contains(&bare);
        last = bare;
    }
    false
}
