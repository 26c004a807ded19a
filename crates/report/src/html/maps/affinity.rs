//! Which network card is near which GPU of a node, and what of it is wrong.

use std::fmt::Write as _;

use super::{is_bad, is_bad_port, text};
use crate::json::{CardPath, Machine, Report};

/// Kinds of paths, the nearest first: one bridge, several bridges, one host bridge, one processor, across processors.
const KINDS: [&str; 5] = ["PIX", "PXB", "PHB", "NODE", "SYS"];

fn distance(kind: &str) -> usize {
    KINDS.iter().position(|known| *known == kind).unwrap_or(KINDS.len())
}

/// One cell for each GPU and card. Marked: the nearest card of a GPU, a GPU all of whose cards are beyond its processor although others of
/// the node have nearer ones, cards that do not work, and GPUs at fault.
pub(super) fn table(out: &mut String, report: &Report, machine: &Machine) {
    let mut cards: Vec<&str> = machine.card_paths.iter().map(|path| path.card.as_str()).collect();
    let mut gpus: Vec<u32> = machine.card_paths.iter().map(|path| path.gpu).collect();
    // `mlx5_10` behind `mlx5_9`.
    cards.sort_by_key(|card| (card.len(), *card));
    cards.dedup();
    gpus.sort_unstable();
    gpus.dedup();
    if cards.is_empty() {
        return;
    }
    let of = |gpu: u32| machine.card_paths.iter().filter(move |path| path.gpu == gpu);
    let nearest = |gpu: u32| of(gpu).map(|path| distance(&path.kind)).min().unwrap_or(KINDS.len());
    let across = distance("SYS");
    let is_local = gpus.iter().any(|gpu| nearest(*gpu) < across);
    let (mut n_far, mut n_down) = (0, 0);
    out.push_str(
        "<details class=\"links\" open><summary>paths between GPUs and network cards</summary><table><thead><tr><th scope=\"col\">GPU</th>",
    );
    for card in &cards {
        let is_down = machine.nics.iter().any(|nic| is_of_card(&nic.name, card) && is_bad_port(nic));
        n_down += usize::from(is_down);
        let (class, more) = if is_down { (" class=\"bad\"", "<br>fault") } else { ("", "") };
        let _ = write!(out, "<th scope=\"col\"{class}>{}{more}</th>", text(card));
    }
    out.push_str("</tr></thead><tbody>\n");
    for gpu in &gpus {
        let own = machine.gpus.iter().find(|one| one.index == Some(*gpu));
        let class = if own.is_some_and(|own| is_bad(report, own)) { " class=\"bad\"" } else { "" };
        let rank = own.and_then(|own| own.rank).map(|rank| format!(" (rank {rank})")).unwrap_or_default();
        let _ = write!(out, "<tr><th scope=\"row\"{class}>{gpu}{rank}</th>");
        let near = nearest(*gpu);
        let is_far = is_local && near >= across;
        n_far += usize::from(is_far);
        for card in &cards {
            let kind =
                of(*gpu).find(|path: &&CardPath| path.card == *card).map_or("", |path| path.kind.as_str());
            let class = match (is_far, distance(kind) == near && near < across) {
                _ if kind.is_empty() => "",
                (true, _) => " class=\"far\"",
                (false, true) => " class=\"near\"",
                (false, false) => "",
            };
            let _ = write!(out, "<td{class}>{}</td>", text(kind));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table>");
    let gpus_of = |n: usize| if n == 1 { "1 GPU has".to_owned() } else { format!("{n} GPUs have") };
    let mut said = vec!["Green: the nearest card of a GPU.".to_owned()];
    if n_far > 0 {
        said.push(format!("{} no card at its own processor, others of this node do.", gpus_of(n_far)));
    }
    if n_down > 0 {
        said.push(format!("Out of order: {n_down} of {} cards.", cards.len()));
    }
    let _ = write!(out, "<p class=\"quiet\">{}</p></details>", said.join(" "));
}

/// Whether a port is of a card: `mlx5_0/2` of `mlx5_0`.
fn is_of_card(port: &str, card: &str) -> bool {
    port.strip_prefix(card).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_and_distances() {
        assert!(is_of_card("mlx5_1/2", "mlx5_1") && !is_of_card("mlx5_10", "mlx5_1"));
        assert!(distance("PIX") < distance("SYS") && distance("?") > distance("SYS"));
    }
}
