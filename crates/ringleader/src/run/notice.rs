//! Reports decisions and stalls: to a command, to a webhook, to the incident history.

use std::path::PathBuf;
use std::thread::{self, JoinHandle};

use ringleader_run::journal::Record;

use crate::run::RunArgs;
use crate::watch::hooks;

/// Reports a decision or a stall in a thread; returns the result. Only one node calls the webhook.
pub(crate) fn pass_on(args: &RunArgs, record: &Record, is_ours: bool) -> Option<JoinHandle<Vec<String>>> {
    let hooks = (args.on_decision.clone(), args.webhook.clone().filter(|_| is_ours));
    if hooks.0.is_none() && hooks.1.is_none() {
        return None;
    }
    let mut body = serde_json::to_value(record).ok()?;
    let decision = record.why.join("; ");
    let verdict = record.verdict.as_ref().map_or_else(String::new, |verdict| format!("{}: ", verdict.cause));
    if let Some(table) = body.as_object_mut() {
        table.insert("text".to_owned(), format!("{verdict}{decision}").into());
    }
    let body = body.to_string();
    Some(thread::spawn(move || {
        let said = hooks::call(hooks, &body, None, &body);
        said.into_iter().map(|text| text.replace("--on-stall", "--on-decision")).collect()
    }))
}

/// Path of the incident history; None if it is off or the home folder is unknown.
pub(crate) fn history(named: Option<&PathBuf>, is_off: bool) -> Option<PathBuf> {
    if is_off {
        return None;
    }
    let of = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    named
        .cloned()
        .or_else(|| of("RINGLEADER_HISTORY"))
        .or_else(|| of("XDG_DATA_HOME").map(|data| data.join("ringleader/history.db")))
        .or_else(|| of("HOME").map(|home| home.join(".local/share/ringleader/history.db")))
}
