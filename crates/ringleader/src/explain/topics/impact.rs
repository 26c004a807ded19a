//! What advice costs whose table gives its text alone.

use ringleader_model::Impact;

/// First words of advice that ends every process of a GPU or a node.
const DESTROYS: [&str; 3] = ["reboot", "reset", "power-cycle"];
/// First words of advice that stops or restarts something, or takes it away from others.
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

/// What the text does: a part of it that does more than read, or change the next run, counts for all of it.
pub(super) fn impact_of(text: &str) -> Impact {
    let text = text.to_ascii_lowercase();
    let mut impact = Impact::Harmless;
    let (mut is_first, mut last, mut before_last) = (true, "", "");
    for word in text.split_ascii_whitespace() {
        // Most words have no sign around them, and every status is asked for where a question is looked up by its words.
        let is_bare =
            word.bytes().next_back().is_some_and(|b| b.is_ascii_alphanumeric()) && !word.starts_with('(');
        let bare = if is_bare { word } else { word.trim_matches(['(', ')', ';', ':', ',', '.', '`']) };
        // Wherever they stand: `on NVSwitch hosts reset all GPUs`.
        let destroys = match (last, bare) {
            (_, "power-cycle") | ("power", "cycle") | ("nvidia-smi", "-r") | ("reset", "all" | "its") => true,
            ("the", gpu) => before_last == "reset" && gpu.starts_with("gpu"),
            _ => is_first && DESTROYS.contains(&bare),
        };
        if destroys {
            return Impact::Destructive;
        }
        if (is_first || word.starts_with('(')) && DISRUPTS.contains(&bare) {
            impact = Impact::Disruptive;
        }
        is_first = word.ends_with([';', ':', ','])
            || ["or", "and"].contains(&bare)
            || is_first && BEFORE.contains(&bare);
        (before_last, last) = (last, bare);
    }
    impact
}

#[cfg(test)]
mod tests {
    use super::{Impact, impact_of};

    #[test]
    fn advice_costs_what_its_text_does() {
        for (text, impact) in [
            ("drain the node; nvidia-smi -q -d ECC,ROW_REMAPPER; reset the GPU", Impact::Destructive),
            ("dmesg for Xid 79; cold power cycle", Impact::Destructive),
            ("if it hangs at its first transfer set iommu=pt and reboot", Impact::Destructive),
            ("drain the node and look at its cables", Impact::Disruptive),
            ("restart that program", Impact::Disruptive),
            ("look for a reset, an unbind or a hot-unplug at this time", Impact::Harmless),
            ("usually a driver update without a restart of the node", Impact::Harmless),
            ("unset NCCL_ALGO and NCCL_PROTO", Impact::Harmless),
            ("look for the rank that ended first; if none ended, check the path", Impact::Harmless),
        ] {
            assert_eq!(impact_of(text), impact, "{text}");
        }
    }
}
