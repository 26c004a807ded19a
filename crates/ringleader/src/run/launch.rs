//! The launcher's command line: fills in placeholders for the checkpoint and the rendezvous.

use ringleader_knowledge::program::{self, ProgramRole};
use ringleader_model::address::same_host;
use ringleader_run::journal::Chosen;

/// Values of the placeholders.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fill {
    pub(crate) job: String,
    pub(crate) generation: u64,
    pub(crate) nodes: Vec<String>,
    /// Address of the first node.
    pub(crate) master: String,
    pub(crate) node: String,
    pub(crate) checkpoint: Option<Chosen>,
}

/// Ports for the rendezvous. Each attempt has a different one: a straggler of the previous attempt may still hold its
/// port.
const PORTS: std::ops::Range<u64> = 20_000..28_000;

impl Fill {
    fn rank(&self) -> usize {
        self.nodes.iter().position(|node| *node == self.node).unwrap_or(0)
    }

    fn port(&self) -> u64 {
        let of_job =
            self.job.bytes().fold(7_u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
        PORTS.start + of_job.wrapping_add(self.generation.wrapping_mul(37)) % (PORTS.end - PORTS.start)
    }

    /// Value of a placeholder.
    fn value(&self, name: &str) -> Option<String> {
        Some(match name {
            "checkpoint" => self.checkpoint.as_ref().map(|chosen| chosen.path.clone()).unwrap_or_default(),
            "nnodes" => self.nodes.len().to_string(),
            "node_rank" => self.rank().to_string(),
            "master_addr" => self.master.clone(),
            "master_port" => self.port().to_string(),
            "rdzv_id" => format!("{}-{}", self.job, self.generation),
            "generation" => self.generation.to_string(),
            _ => return None,
        })
    }

    /// The command line. Without a checkpoint, an argument with its placeholder is left out, together with the flag
    /// before it.
    pub(crate) fn argv(&self, template: &[String]) -> Vec<String> {
        let words = self.filled(template);
        if range(template).is_some() { self.fixed(words) } else { words }
    }

    /// Replaces a range of nodes by the agreed number: with a range torchrun would wait half a minute for more nodes at
    /// every start, and excluded nodes could return. A rendezvous that was shut down stays closed under its id, so each
    /// attempt has its own id; an endpoint on an excluded node moves to the first node.
    fn fixed(&self, words: Vec<String>) -> Vec<String> {
        let is_c10d = words
            .iter()
            .position(|word| is_option(word, "--rdzv-backend"))
            .is_none_or(|at| value_of(&words, at).is_none_or(|backend| backend == "c10d"));
        let mut out = words;
        for at in 0..out.len() {
            let Some(old) = value_of(&out, at) else { continue };
            let new = if is_option(&out[at], "--nnodes") {
                self.nodes.len().to_string()
            } else if is_option(&out[at], "--rdzv-id") {
                format!("{old}-{}", self.generation)
            } else if is_option(&out[at], "--rdzv-endpoint") && is_c10d {
                let (host, port) = old.rsplit_once(':').map_or((old.as_str(), None), |(h, p)| (h, Some(p)));
                if self.nodes.iter().any(|node| same_host(node, host)) {
                    continue;
                }
                format!("{}:{}", self.master, port.map_or_else(|| self.port().to_string(), str::to_owned))
            } else {
                continue;
            };
            match out[at].split_once('=') {
                Some((flag, _)) => out[at] = format!("{flag}={new}"),
                None => out[at + 1] = new,
            }
        }
        out
    }

    fn filled(&self, template: &[String]) -> Vec<String> {
        let mut out: Vec<String> = Vec::new();
        for word in template {
            if word.contains("{checkpoint}") && self.checkpoint.is_none() {
                let is_alone = word == "{checkpoint}";
                if is_alone && out.last().is_some_and(|flag| flag.starts_with('-') && !flag.contains('=')) {
                    out.pop();
                }
                continue;
            }
            out.push(self.fill(word));
        }
        out
    }

    fn fill(&self, word: &str) -> String {
        let mut out = String::new();
        let mut rest = word;
        while let Some((head, behind)) = rest.split_once('{') {
            out.push_str(head);
            let filled = behind.split_once('}').and_then(|(name, tail)| Some((self.value(name)?, tail)));
            if let Some((value, tail)) = filled {
                out.push_str(&value);
                rest = tail;
            } else {
                // Other braces belong to the program and stay.
                out.push('{');
                rest = behind;
            }
        }
        out + rest
    }

    /// Environment variables for the launcher.
    pub(crate) fn env(&self, attempt: u32) -> Vec<(String, String)> {
        let mut env = vec![
            ("RINGLEADER_ATTEMPT".to_owned(), attempt.to_string()),
            ("RINGLEADER_GENERATION".to_owned(), self.generation.to_string()),
        ];
        if let Some(chosen) = &self.checkpoint {
            env.push(("RINGLEADER_CHECKPOINT".to_owned(), chosen.path.clone()));
            env.extend(chosen.step.map(|step| ("RINGLEADER_CHECKPOINT_STEP".to_owned(), step.to_string())));
        }
        env
    }
}

/// Whether a word is this option, with hyphens or underscores, with or without `=value`.
fn is_option(word: &str, name: &str) -> bool {
    let flag = word.split('=').next().unwrap_or_default();
    flag.replace('_', "-") == name
}

/// The value of the option at an index.
fn value_of(words: &[String], at: usize) -> Option<String> {
    let word = words.get(at).filter(|word| word.starts_with("--"))?;
    word.split_once('=').map(|(_, value)| value.to_owned()).or_else(|| words.get(at + 1).cloned())
}

/// The range of nodes in torchrun's options: `--nnodes MIN:MAX`.
pub(crate) fn range(command: &[String]) -> Option<(usize, usize)> {
    if !is_elastic(command) {
        return None;
    }
    let at = command.iter().position(|word| is_option(word, "--nnodes"))?;
    let value = value_of(command, at)?;
    let (least, most) = value.split_once(':')?;
    let (least, most) = (least.parse().ok()?, most.parse().ok()?);
    (1 <= least && least <= most).then_some((least, most))
}

/// Ranks that torchrun starts for each supervisor, if the command states it: on its node, or without other supervisors on all nodes
/// that the command names.
pub(crate) fn per_node(command: &[String], has_hub: bool) -> Option<u32> {
    let is_torchrun = |word: &String| program::launcher_as(ProgramRole::Elastic, word) == Some("torchrun");
    let at = |name| command.iter().position(|word| is_option(word, name));
    if !command.iter().take(4).any(is_torchrun) {
        return None;
    }
    let ranks: u32 = value_of(command, at("--nproc-per-node")?)?.parse().ok()?;
    let nodes: u32 = match at("--nnodes") {
        _ if has_hub => 1,
        None if std::env::var_os("PET_NNODES").is_some() => return None,
        None => 1,
        Some(at) => value_of(command, at)?.parse().ok()?,
    };
    ranks.checked_mul(nodes)
}

/// The command for several nodes, and a remark: torchrun without a rendezvous gets one, since every node would start a job of
/// its own.
pub(crate) fn on_nodes(command: &[String], nodes: usize) -> (Vec<String>, Option<String>) {
    const WORDS: &str =
        "--nnodes {nnodes} --node-rank {node_rank} --master-addr {master_addr} --master-port {master_port}";
    const NAMED: [&str; 6] =
        ["--nnodes", "--rdzv-endpoint", "--master-addr", "--num-machines", "--hostfile", "--main-process-ip"];
    let is_named = |word: &String| {
        NAMED.iter().any(|name| is_option(word, name))
            || word.contains("{master_addr}")
            || word.contains("{node_rank}")
    };
    if nodes < 2 || command.is_empty() || command.iter().any(is_named) {
        return (command.to_vec(), None);
    }
    let at = command.iter().take(4).position(|word| program::launcher_as(ProgramRole::Joins, word).is_some());
    let is_standalone = command.iter().any(|word| is_option(word, "--standalone"));
    let Some(at) = at.filter(|_| !is_standalone) else {
        let note = format!(
            "the command names no rendezvous: {nodes} nodes would start {nodes} jobs that know nothing of each other; \
             {{nnodes}}, {{node_rank}}, {{master_addr}} and {{master_port}} are filled in"
        );
        return (command.to_vec(), Some(note));
    };
    let mut out = command.to_vec();
    let rest = out.split_off(at + 1);
    out.extend(WORDS.split_whitespace().map(str::to_owned).chain(rest));
    (out, Some(format!("the command names no rendezvous: added {WORDS}")))
}

/// The launcher is torchrun or works like it: it ends all ranks as soon as one fails.
pub(crate) fn is_elastic(command: &[String]) -> bool {
    command.iter().take(4).any(|word| program::launcher_as(ProgramRole::Elastic, word).is_some())
}

/// Launchers that die from SIGUSR1 and leave their workers behind, unless configured to forward it.
pub(crate) fn dies_of_user_signals(command: &[String]) -> bool {
    let is_of = |at: usize| {
        is_option(&command[at], "--signals-to-handle")
            && value_of(command, at).is_some_and(|list| list.contains("USR"))
    };
    let is_told = (0..command.len()).any(is_of)
        || std::env::var("TORCHELASTIC_SIGNALS_TO_HANDLE").is_ok_and(|signals| signals.contains("USR"));
    is_elastic(command) && !is_told
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn places_are_filled_in() {
        let chosen = Chosen { path: "/c/step_5.pt".to_owned(), step: Some(5), ..Chosen::default() };
        let fill = Fill {
            job: "j".to_owned(),
            generation: 3,
            nodes: words("a b"),
            master: "10.0.0.1".to_owned(),
            node: "b".to_owned(),
            checkpoint: Some(chosen),
        };
        let template = words(
            "torchrun --nnodes {nnodes} --node-rank={node_rank} t.py --resume {checkpoint} {\"a\":{x}}",
        );
        let filled = "torchrun --nnodes 2 --node-rank=1 t.py --resume /c/step_5.pt {\"a\":{x}}";
        assert_eq!(fill.argv(&template), words(filled));
        let without = Fill { checkpoint: None, ..fill.clone() };
        let shorter = "torchrun --nnodes 2 --node-rank=1 t.py {\"a\":{x}}";
        assert_eq!(without.argv(&template), words(shorter));
        assert_eq!(without.argv(&words("t.py --resume={checkpoint} -x")), words("t.py -x"));
        let next = Fill { generation: 4, ..fill.clone() };
        assert_ne!(fill.argv(&words("{master_port}")), next.argv(&words("{master_port}")));
        assert!(fill.env(2).contains(&("RINGLEADER_CHECKPOINT_STEP".to_owned(), "5".to_owned())));
    }

    #[test]
    fn a_range_becomes_the_number_that_was_agreed_on() {
        let fill = Fill {
            job: "j".to_owned(),
            generation: 3,
            nodes: words("b c"),
            master: "10.0.0.2".to_owned(),
            ..Fill::default()
        };
        let given = words(
            "torchrun --nnodes=2:4 --rdzv_id run7 --rdzv-backend=c10d --rdzv-endpoint a:29500 --nproc-per-node 8 t.py --nnodes",
        );
        let got = words(
            "torchrun --nnodes=2 --rdzv_id run7-3 --rdzv-backend=c10d --rdzv-endpoint 10.0.0.2:29500 --nproc-per-node 8 t.py --nnodes",
        );
        assert_eq!((range(&given), fill.argv(&given)), (Some((2, 4)), got));
        // The rendezvous is on a node of the attempt, or belongs to another program.
        for word in ["--rdzv-endpoint b:29500", "--rdzv-backend etcd-v2 --rdzv-endpoint a:2379"] {
            let given = words(&format!("torchrun --nnodes 1:2 {word} t.py"));
            assert_eq!(fill.argv(&given), words(&format!("torchrun --nnodes 2 {word} t.py")));
        }
        for other in [
            "torchrun --nnodes 2 t.py",
            "python t.py --nnodes 1:2",
            "torchrun --nnodes 3:2 t.py",
            "torchrun --nnodes",
        ] {
            assert_eq!(range(&words(other)), None, "{other}");
            assert_eq!(fill.argv(&words(other)), words(other));
        }
    }

    #[test]
    fn ranks_on_each_node() {
        for (text, of_hub, alone) in [
            ("torchrun --nproc_per_node=8 t.py", Some(8), Some(8)),
            ("python -m torch.distributed.run --nnodes 4 --nproc-per-node 2 t.py", Some(2), Some(8)),
            ("torchrun --nnodes 2:4 --nproc-per-node 2 t.py", Some(2), None),
            ("torchrun --nproc-per-node gpu t.py", None, None),
            ("torchrun t.py", None, None),
            // Its hosts come from a file.
            ("deepspeed --num_gpus 4 t.py", None, None),
            ("python t.py --nproc-per-node 8", None, None),
        ] {
            assert_eq!(
                (per_node(&words(text), true), per_node(&words(text), false)),
                (of_hub, alone),
                "{text}"
            );
        }
    }

    #[test]
    fn several_nodes_need_a_rendezvous() {
        let (got, note) = on_nodes(&words("torchrun --nproc-per-node 8 t.py"), 4);
        assert_eq!(
            got,
            words(
                "torchrun --nnodes {nnodes} --node-rank {node_rank} --master-addr {master_addr} --master-port {master_port} \
                 --nproc-per-node 8 t.py"
            )
        );
        assert!(note.is_some_and(|note| note.contains("added --nnodes")));
        for (text, is_noted) in [
            ("torchrun --standalone t.py", true),
            ("python t.py", true),
            ("accelerate launch t.py", true),
            ("torchrun --nnodes 2:4 --rdzv_endpoint a:1 t.py", false),
            ("python t.py --master={master_addr}", false),
        ] {
            let (got, note) = on_nodes(&words(text), 4);
            assert_eq!((got, note.is_some()), (words(text), is_noted), "{text}");
            assert_eq!(on_nodes(&words(text), 1), (words(text), None));
        }
    }

    #[test]
    fn user_signals() {
        assert!(dies_of_user_signals(&words("torchrun --nproc-per-node 2 t.py")));
        assert!(dies_of_user_signals(&words("python -m torch.distributed.run t.py")));
        assert!(!dies_of_user_signals(&words("torchrun --signals-to-handle SIGTERM,SIGUSR1 t.py")));
        assert!(!dies_of_user_signals(&words("python t.py")));
    }
}
