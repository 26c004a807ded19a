//! The settings in the forms in which shells, files and schedulers take them.

use std::fmt::Write as _;

use crate::env::answer::{Answer, State, Variable};

/// What is exported: what is not there, or takes the place of something.
fn exported(answer: &Answer) -> impl Iterator<Item = &Variable> {
    answer.variables.iter().filter(|variable| variable.state == State::Export)
}

/// For `eval "$(ringleader env)"`.
pub(super) fn shell(answer: &Answer, is_quiet: bool) -> String {
    let mut out = String::new();
    let mut say = |text: &str| {
        if !is_quiet {
            let _ = writeln!(out, "# {}", text.replace('\n', " "));
        }
    };
    say(&headline(answer));
    for note in &answer.notes {
        say(note);
    }
    let mut lines = String::new();
    for variable in &answer.variables {
        let why = match (&variable.state, &variable.was) {
            (State::Export, None) => variable.gives.clone(),
            (State::Export, Some(was)) => format!("{} (was {was})", variable.gives),
            (State::Kept, was) => {
                let was = was.clone().unwrap_or_default();
                format!("{} is already {was}, which is suitable", variable.name)
            }
            (State::Left, was) => {
                format!(
                    "{} is {} and is left so: {}",
                    variable.name,
                    was.clone().unwrap_or_default(),
                    variable.without
                )
            }
        };
        if !is_quiet {
            let _ = writeln!(lines, "# {}", why.replace('\n', " "));
        }
        if variable.state == State::Export {
            let _ = writeln!(lines, "export {}={}", variable.name, quoted(&variable.value));
        }
    }
    // NCCL and PyTorch write into a folder that is there, and make none.
    let _ = writeln!(out, "mkdir -p {}", quoted(&answer.directory));
    out + &lines
}

fn headline(answer: &Answer) -> String {
    let version = |name: &str, version: &Option<String>| match version {
        Some(version) => format!("{name} {version}"),
        None => format!("{name} not found"),
    };
    let plugin = answer.installed.plugin.as_ref().map_or("plugin not found", |_| "plugin found");
    format!(
        "for {}, {}, {plugin}",
        version("PyTorch", &answer.installed.torch),
        version("NCCL", &answer.installed.nccl)
    )
}

/// A word of a shell.
pub(super) fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./,:=+%@".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

/// For files that launchers and containers read: `--env-file`.
pub(super) fn dotenv(answer: &Answer) -> String {
    let plain = |value: &str| value.replace('\n', " ");
    exported(answer).map(|variable| format!("{}={}", variable.name, plain(&variable.value)) + "\n").collect()
}

/// For Slurm's TaskProlog, whose lines `export NAME=value` go into the task's environment, without a shell's quotes.
pub(super) fn slurm(answer: &Answer) -> String {
    let plain = |value: &str| value.replace('\n', " ");
    exported(answer)
        .map(|variable| format!("export {}={}", variable.name, plain(&variable.value)) + "\n")
        .collect()
}

/// For `env:` of a container in a pod's specification.
pub(super) fn k8s(answer: &Answer) -> String {
    // `$(NAME)` would be expanded; `$$` is one dollar.
    let value = |text: &str| serde_json::Value::from(text.replace('$', "$$")).to_string();
    exported(answer)
        .map(|variable| format!("- name: {}\n  value: {}", variable.name, value(&variable.value)) + "\n")
        .collect()
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn words_of_a_shell() {
        assert_eq!(quoted("/tmp/nccl_%h_%p.log"), "/tmp/nccl_%h_%p.log");
        assert_eq!(quoted("INIT,ENV"), "INIT,ENV");
        assert_eq!(quoted("/my runs/$x"), "'/my runs/$x'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
