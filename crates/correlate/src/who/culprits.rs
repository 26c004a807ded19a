//! Culprits: each process once, and in a few words.

use ringleader_model::{Culprit, RankSet};

/// Adds a culprit, or what is new of it if the same process is there already.
pub fn add_culprit(culprits: &mut Vec<Culprit>, new: Culprit) {
    let same = |c: &&mut Culprit| match (c.rank, new.rank) {
        (Some(a), Some(b)) => a == b,
        _ => {
            c.pid.is_some()
                && c.pid == new.pid
                && (c.host == new.host || c.host.is_none() || new.host.is_none())
        }
    };
    let Some(old) = culprits.iter_mut().find(same) else {
        if !culprits.contains(&new) {
            culprits.push(new);
        }
        return;
    };
    old.rank = old.rank.or(new.rank);
    old.pid = old.pid.or(new.pid);
    old.gpu = old.gpu.or(new.gpu);
    old.local_rank = old.local_rank.or(new.local_rank);
    if old.host.is_none() {
        old.host = new.host;
    }
    if old.place.is_none() {
        old.place = new.place;
    }
}

/// `ranks 0-1,3`.
pub fn ranks(set: &RankSet) -> String {
    match set.len() {
        0 => "the other ranks".to_owned(),
        1 => format!("rank {set}"),
        _ => format!("ranks {}", set.words()),
    }
}

/// Culprits in a few words.
pub fn who(culprits: &[Culprit]) -> String {
    let ranks: RankSet = culprits.iter().filter_map(|c| c.rank).collect();
    match ranks.len() {
        1 => return format!("rank {ranks}"),
        n if n > 1 => return format!("ranks {ranks}"),
        _ => {}
    }
    match culprits {
        [one] => match (&one.host, one.pid) {
            (Some(host), Some(pid)) => format!("{host} (pid {})", pid.0),
            (Some(host), None) => host.to_string(),
            (None, Some(pid)) => format!("pid {}", pid.0),
            (None, None) => "one process".to_owned(),
        },
        [] => "a process".to_owned(),
        many => format!("{} processes", many.len()),
    }
}
