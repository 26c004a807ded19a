//! Shell scripts, read with tree-sitter: a placeholder such as `X=<PATH>` costs one node.

use tree_sitter::{Node, Parser};

use super::variables::{Variables, is_repeated};
use super::{Command, Container, Launch, Setting, Spot, is_tiny};

/// Nodes of one script.
const MAX_NODES: usize = 400_000;
/// The most likely number for `--gpus all` and `--nproc-per-node=gpu`.
const GPUS_OF_A_NODE: u64 = 8;

/// Reads a script; `line` is added to lines, for scripts within other files.
pub(super) fn read(text: &str, line: u32, launch: &mut Launch<'_>) {
    launch.directives.extend(directives(text, line));
    let mut parser = Parser::new();
    if parser.set_language(&tree_sitter_bash::LANGUAGE.into()).is_err() {
        return;
    }
    let Some(tree) = parser.parse(text, None) else { return };
    let mut assigned: Vec<(Setting, bool)> = Vec::new();
    let mut exported: Vec<String> = Vec::new();
    let variables = variables(text, tree.root_node());
    let mut stack = vec![tree.root_node()];
    let mut left = MAX_NODES;
    while let Some(node) = stack.pop() {
        left = left.saturating_sub(1);
        if left == 0 {
            break;
        }
        match node.kind() {
            "declaration_command" => {
                let is_export = node.child(0).is_some_and(|word| slice(text, word) == "export");
                let mut cursor = node.walk();
                for child in node.named_children(&mut cursor) {
                    match child.kind() {
                        "variable_assignment" => {
                            assigned
                                .extend(assignment(text, child, line, &variables).map(|s| (s, is_export)));
                        }
                        "variable_name" if is_export => exported.push(slice(text, child).to_owned()),
                        _ => {}
                    }
                }
                continue;
            }
            "variable_assignment" => {
                assigned.extend(assignment(text, node, line, &variables).map(|s| (s, false)));
            }
            "command" => command(text, node, line, &variables, launch, &mut assigned),
            _ => {}
        }
        let mut cursor = node.walk();
        let children: Vec<Node<'_>> = node.named_children(&mut cursor).collect();
        stack.extend(
            children
                .into_iter()
                .rev()
                .filter(|child| !(node.kind() == "command" && child.kind() == "variable_assignment")),
        );
    }
    launch.assigned.extend(assigned.iter().map(|(setting, _)| setting.clone()));
    let kept = assigned.into_iter().filter(|(s, is_passed)| *is_passed || exported.contains(&s.name));
    launch.settings.extend(kept.map(|(setting, _)| setting));
}

/// The variables of a script.
fn variables(text: &str, root: Node<'_>) -> Variables {
    let mut variables = Variables::default();
    let mut stack = vec![root];
    let mut left = MAX_NODES;
    while let Some(node) = stack.pop() {
        left = left.saturating_sub(1);
        if left == 0 {
            break;
        }
        let mut cursor = node.walk();
        // What stands before a command is its alone.
        if node.kind() != "command" {
            variables.add(text, node);
        }
        let inner = node.named_children(&mut cursor);
        stack.extend(inner.filter(|child| node.kind() != "command" || child.kind() != "variable_assignment"));
    }
    variables
}

fn slice<'s>(text: &'s str, node: Node<'_>) -> &'s str {
    text.get(node.byte_range()).unwrap_or_default()
}

fn spot(node: Node<'_>, line: u32) -> Spot {
    let (start, end) = (node.start_position(), node.end_position());
    let end_column = if start.row == end.row { end.column as u32 + 1 } else { start.column as u32 + 2 };
    Spot { line: start.row as u32 + 1 + line, column: start.column as u32 + 1, end_column }
}

fn assignment(text: &str, node: Node<'_>, line: u32, variables: &Variables) -> Option<Setting> {
    let name = slice(text, node.child_by_field_name("name")?).to_owned();
    let raw = node.child_by_field_name("value").map_or("", |value| slice(text, value));
    let value = if raw.starts_with('\'') { literal(raw) } else { literal(&variables.expand(raw)) };
    Some(Setting { name, value, raw: raw.to_owned(), at: spot(node, line) })
}

/// A word without its quotes, if the shell does not compute it.
fn literal(raw: &str) -> Option<String> {
    if raw.starts_with('\'') {
        return Some(raw.trim_matches('\'').to_owned());
    }
    let bare = raw.trim_matches('"');
    (!bare.contains(['$', '`', '<', '{'])).then(|| bare.to_owned())
}

fn command(
    text: &str,
    node: Node<'_>,
    line: u32,
    variables: &Variables,
    launch: &mut Launch<'_>,
    assigned: &mut Vec<(Setting, bool)>,
) {
    let mut words = Vec::new();
    let mut own = Vec::new();
    let mut is_late = false;
    let mut cursor = node.walk();
    for child in node.named_children(&mut cursor) {
        match child.kind() {
            "variable_assignment" => own.extend(assignment(text, child, line, variables)),
            "file_redirect" | "herestring_redirect" | "comment" => {}
            _ => {
                let raw = slice(text, child);
                is_late |=
                    raw.contains(char::is_whitespace) && (raw.starts_with('\'') || raw.contains("\\$"));
                if raw.starts_with('\'') {
                    words.push(raw.trim_matches('\'').to_owned());
                } else if raw.starts_with('"') {
                    words.push(variables.expand(raw.trim_matches('"')));
                } else {
                    let expanded = variables.expand(raw);
                    if expanded == raw {
                        words.push(expanded.trim_matches('"').to_owned());
                    } else {
                        let parts = expanded.split_whitespace().filter(|part| *part != "\\");
                        words.extend(parts.map(|part| part.trim_matches('"').to_owned()));
                    }
                }
            }
        }
    }
    assigned.extend(own.iter().cloned().map(|setting| (setting, true)));
    let is_background = node.next_sibling().is_some_and(|next| next.kind() == "&");
    let is_repeated = is_repeated(node);
    let command = Command { words, own, is_background, is_repeated, is_late, at: spot(node, line) };
    if matches!(command.program(), "docker" | "podman" | "nvidia-docker")
        && command.words.get(1).is_some_and(|w| w == "run")
    {
        container(&command, launch);
        passed(&command, launch);
    }
    if matches!(command.program(), "mpirun" | "mpiexec") {
        passed(&command, launch);
    }
    // `ssh node1 "torchrun --node-rank=0 ..."`, `srun bash -c "torchrun ..."`: what the inner shell starts.
    let is_shell =
        |word: &String| matches!(word.rsplit('/').next(), Some("bash" | "sh" | "ssh" | "pdsh" | "clush"));
    if let Some(inner) = command.words.iter().position(|word| word.contains(char::is_whitespace))
        && command.words.iter().take(inner).any(is_shell)
    {
        let outer = command.words.iter().take(inner).cloned();
        let words = outer.chain(command.words[inner].split_whitespace().map(str::to_owned)).collect();
        launch.commands.push(Command { words, ..command.clone() });
    }
    if command.words.len() > 1 {
        launch.commands.push(command);
    }
}

fn container(command: &Command, launch: &mut Launch<'_>) {
    let gpus = command.option(&["gpus"]).unwrap_or_default();
    let listed = gpus.split_once("device=").map(|(_, list)| list.split(',').count() as u64);
    // As many as what runs in it starts processes.
    let started = || match command.option(&["nproc-per-node"]) {
        Some("gpu" | "auto") => Some(GPUS_OF_A_NODE),
        Some(n) => n.parse().ok(),
        None => by_mpi(command),
    };
    let all = || if gpus.trim_matches(['"', '\'']) == "all" { started() } else { None };
    let n_gpus = listed.or_else(|| gpus.parse().ok()).or_else(all).unwrap_or_default();
    let is_large = command.option(&["shm-size"]).is_some_and(|size| !is_tiny(size));
    let has_shared_memory = is_large
        || command.option(&["ipc"]).is_some()
        || command.words.iter().any(|word| word.contains("/dev/shm") || is_open(word));
    let has = |parts: &[&str]| command.words.iter().any(|word| parts.iter().any(|part| word.contains(part)));
    let is_privileged = has(&["--privileged"]) || command.words.iter().any(|word| is_open(word));
    let has_rdma = is_privileged || has(&["/dev/infiniband"]);
    let can_lock = is_privileged || has(&["memlock", "IPC_LOCK"]);
    launch.containers.push(Container { n_gpus, has_shared_memory, has_rdma, can_lock, at: command.at });
}

/// Number of processes that mpirun starts within a container.
fn by_mpi(command: &Command) -> Option<u64> {
    let text = command.words.join(" ");
    let mut words = text.split_whitespace().skip_while(|word| !matches!(*word, "mpirun" | "mpiexec"));
    words.find(|word| matches!(*word, "-n" | "-np" | "--np"))?;
    words.next()?.parse().ok()
}

/// Whether a word is a variable that may hold any options.
fn is_open(word: &str) -> bool {
    word.starts_with('$') && !word.contains(['/', ':', '='])
}

/// `-e NAME=value` of docker, `-x NAME=value` of mpirun.
fn passed(command: &Command, launch: &mut Launch<'_>) {
    for pair in command.words.windows(2) {
        let [flag, word] = pair else { continue };
        if matches!(flag.as_str(), "-e" | "--env" | "-x")
            && let Some((name, value)) = word.split_once('=')
        {
            let value = value.to_owned();
            let setting =
                Setting { name: name.to_owned(), value: literal(&value), raw: value, at: command.at };
            launch.settings.push(setting);
        }
    }
}

fn directives(text: &str, line: u32) -> Vec<(String, String, Spot)> {
    let mut found = Vec::new();
    for (n, row) in text.lines().enumerate() {
        let Some(rest) = row.strip_prefix("#SBATCH ") else { continue };
        let rest = rest.split(" #").next().unwrap_or_default();
        let at = Spot { line: n as u32 + 1 + line, column: 1, end_column: row.chars().count() as u32 + 1 };
        // A line may hold several options.
        let mut words = rest.split_whitespace().peekable();
        while let Some(word) = words.next() {
            if !word.starts_with('-') {
                continue;
            }
            let (key, value) = match word.split_once('=').filter(|_| word.starts_with("--")) {
                Some((key, value)) => (key, Some(value)),
                None => short_option(word).map_or((word, None), |(key, value)| (key, Some(value))),
            };
            let next = words.next_if(|next| value.is_none() && !next.starts_with('-'));
            let key = match key {
                "-N" => "nodes",
                "-n" => "ntasks",
                "-G" => "gpus",
                key => key.trim_start_matches('-'),
            };
            let value = value.or(next).unwrap_or_default().trim_matches('"');
            found.push((key.to_owned(), value.to_owned(), at));
        }
    }
    found
}

/// `-N` and `2` of `-N2`.
fn short_option(word: &str) -> Option<(&str, &str)> {
    word.starts_with('-')
        .then(|| word.split_at_checked(2))
        .flatten()
        .filter(|(key, value)| !key.ends_with('-') && !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_batch_scripts() {
        let text = "#!/bin/bash\n#SBATCH --nodes=2 --ntasks-per-node 1 --exclusive -G 8  # all\n#SBATCH -N4\n#SBATCH -J \"a name\"\n";
        let all = directives(text, 0);
        let found: Vec<(&str, &str)> = all.iter().map(|(k, v, _)| (&**k, &**v)).collect();
        let expected = [
            ("nodes", "2"),
            ("ntasks-per-node", "1"),
            ("exclusive", ""),
            ("gpus", "8"),
            ("nodes", "4"),
            ("J", "a"),
        ];
        assert_eq!(found, expected);
    }
}
