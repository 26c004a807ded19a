//! Scheduler commands for an excluded node. The caller chooses whether to run them; by default they are printed, since
//! they affect nodes that others use.

/// The request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Name of the job.
    pub job: String,
    /// Excluded nodes.
    pub nodes: Vec<String>,
    /// Why, one sentence.
    pub why: String,
    /// Whether to requeue the whole job without them.
    pub requeue: bool,
}

/// A command for a scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// The right that its caller needs.
    pub right: &'static str,
    /// Words that its output has if it succeeded; its exit code alone does not show that.
    pub proof: Option<&'static str>,
    /// It would do harm if the command before it failed.
    pub needs_previous: bool,
}

/// Longest reason that is passed to the scheduler.
const MAX_REASON: usize = 160;

/// Requeues a Slurm job without some nodes, from within the job. The exclude list of a running job cannot be changed,
/// so the job is requeued on hold first. That ends the job's processes: SIGTERM now, SIGKILL after KillWait (30 s);
/// this shell ignores SIGTERM and needs less than a second. Earlier excluded nodes stay excluded.
const REQUEUE: &str = "trap '' TERM HUP INT; \
    old=$(scontrol show job \"$1\" -o | tr ' ' '\\n' | sed -n 's/^ExcNodeList=//p' | grep -v null); \
    scontrol requeuehold \"$1\" || exit; n=0; \
    until scontrol update JobId=\"$1\" ExcNodeList=\"${old:+$old,}$2\"; do n=$((n+1)); [ $n -gt 20 ] && break; sleep 1; done; \
    scontrol release \"$1\"";

/// The commands for the scheduler of this environment; none without a scheduler. Names that are not plain host names
/// are omitted: they come from evidence.
pub fn commands(wanted: &Wanted, environment: &[(String, String)]) -> Vec<Command> {
    let of = |name: &str| environment.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    let nodes: Vec<&str> = wanted.nodes.iter().map(String::as_str).filter(|node| is_host(node)).collect();
    if nodes.is_empty() {
        return Vec::new();
    }
    let reason = reason(wanted);
    let command = |words: &[&str], right| Command {
        argv: words.iter().map(|word| (*word).to_owned()).collect(),
        right,
        proof: None,
        needs_previous: false,
    };
    if let Some(job) = of("SLURM_JOB_ID") {
        let list = nodes.join(",");
        let mut all = vec![command(
            &["scontrol", "update", &format!("NodeName={list}"), "State=DRAIN", &format!("Reason={reason}")],
            "administrator of Slurm",
        )];
        if wanted.requeue && is_host(job) {
            all.push(command(&["sh", "-c", REQUEUE, "requeue", job, &list], "owner of the job"));
        }
        return all;
    }
    if of("KUBERNETES_SERVICE_HOST").is_some() {
        let mut all = Vec::new();
        for node in nodes {
            let cordon = command(&["kubectl", "--request-timeout=20s", "cordon", node], "patch nodes");
            all.push(Command { proof: Some("cordoned"), ..cordon });
            let namespace = of("POD_NAMESPACE").filter(|name| is_host(name)).unwrap_or("default");
            let selector = format!("--field-selector=spec.nodeName={node}");
            let label = format!(
                "--selector=ringleader-job={}",
                if is_host(&wanted.job) { &wanted.job } else { "job" }
            );
            let words = [
                "kubectl",
                "--request-timeout=20s",
                "delete",
                "pod",
                "--namespace",
                namespace,
                &selector,
                &label,
                "--grace-period=120",
                "--wait=false",
            ];
            // Without the cordon the pod would come back to the same node.
            all.push(Command { needs_previous: true, ..command(&words, "delete pods in the namespace") });
        }
        return all;
    }
    Vec::new()
}

/// Whether it is only a host name: no option, list separator or blank.
fn is_host(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    !name.is_empty() && name.len() <= 253 && !name.starts_with(['-', '.']) && name.chars().all(is_plain)
}

fn reason(wanted: &Wanted) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-._:/ ".contains(c) { c } else { ' ' };
    let text: String = wanted.why.chars().map(plain).take(MAX_REASON).collect();
    format!("ringleader: {}", text.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(nodes: &[&str], environment: &[(&str, &str)]) -> Vec<String> {
        let requeue = environment.iter().any(|(key, _)| *key == "requeue");
        let wanted = Wanted {
            job: "train".to_owned(),
            nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
            why: "gpu-fallen-off-bus on n7; \"$(x)\"\nnode restart 1 of 3".to_owned(),
            requeue,
        };
        let environment: Vec<(String, String)> =
            environment.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        commands(&wanted, &environment).into_iter().map(|command| command.argv.join(" ")).collect()
    }

    #[test]
    fn schedulers() {
        assert_eq!(lines(&["n7"], &[]), Vec::<String>::new());
        let drain = "scontrol update NodeName=n7,n8 State=DRAIN Reason=ringleader: gpu-fallen-off-bus on n7 x node restart 1 of 3";
        assert_eq!(lines(&["n7", "n8"], &[("SLURM_JOB_ID", "12")]), [drain]);
        let requeue = lines(&["n7", "n8"], &[("SLURM_JOB_ID", "12"), ("requeue", "")]);
        assert!(
            requeue[1].starts_with("sh -c trap") && requeue[1].ends_with("requeue 12 n7,n8"),
            "{requeue:?}"
        );
        let pods = lines(&["n7"], &[("KUBERNETES_SERVICE_HOST", "10.0.0.1"), ("POD_NAMESPACE", "ml")]);
        assert_eq!(pods[0], "kubectl --request-timeout=20s cordon n7");
        assert!(
            pods[1]
                .contains("--namespace ml --field-selector=spec.nodeName=n7 --selector=ringleader-job=train")
        );
    }

    #[test]
    fn names_of_evidence_are_no_options() {
        for name in ["", "-o", "a,b", "a b", "$(x)", "a/b", "..", "n7\n"] {
            assert_eq!(lines(&[name], &[("SLURM_JOB_ID", "12")]), Vec::<String>::new(), "{name:?}");
        }
    }
}
