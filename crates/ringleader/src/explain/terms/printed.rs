//! What the program itself prints: first lines of a report, events, verdicts of `check`, fields.

use super::Term;

const fn word(
    name: &'static str,
    also: &'static [&'static str],
    title: &'static str,
    means: &'static str,
    see: &'static [&'static str],
    source: &'static str,
) -> Term {
    Term { name, also, title, means, is_not: "", see, source }
}

const REPORT: &str = "docs/report.md";
const WATCH: &str = "docs/watch.md";
const CHECK: &str = "ringleader check --help";

/// First lines of a report, then events of `watch`, verdicts of `check`, fields of a culprit, codes of the driver.
pub(super) const TERMS: &[Term] = &[
    Term {
        name: "nothing wrong found",
        also: &["verdict: nothing wrong found"],
        title: "the verdict `none`",
        means: "the evidence shows a job that went on or ended well, and nothing that failed; exit code 0. `looked at` says what that rests \
                on. If the job did fail, give what is missing: `not given` lists it",
        is_not: "it is no proof of health: what was not given was not seen",
        see: &["looked at", "not given", "undecided"],
        source: REPORT,
    },
    word(
        "nothing readable",
        &["nothing to read"],
        "no file could be used",
        "the line says why of the first file: it is empty, binary, cut, or may not be read. Exit code 3, or 6 where permission is missing; \
         `ringleader help evidence` lists what is read",
        &["what to give", "unreadable"],
        REPORT,
    ),
    word(
        "jobs or attempts",
        &["jobs or attempts in what was given", "attempts", "attempt"],
        "the files are of several jobs, or of several starts of one",
        "a verdict over all of them may mix two failures: diagnose each by itself. Where each has a folder, the report prints the commands",
        &["what would decide"],
        REPORT,
    ),
    word(
        "verdict",
        &["verdicts"],
        "the answer: a cause, whom it names, and how sure that is",
        "the first line of a report, and an event of `watch`: the stall was collected and judged",
        &["culprit", "confidence", "undecided"],
        REPORT,
    ),
    word(
        "cause",
        &["causes"],
        "what went wrong, an id of a closed list",
        "the first word of a verdict. `ringleader explain --list causes` lists all, `ringleader explain CAUSE` tells what to do",
        &["verdict", "undecided"],
        REPORT,
    ),
    word(
        "host",
        &["node"],
        "the machine on which a process runs",
        "as the machine calls itself; on the line of a culprit it is where to look",
        &["culprit", "machines"],
        REPORT,
    ),
    word(
        "pid",
        &["process id"],
        "the number of a process on its host",
        "`ps -p PID` shows it while it lives. In a container it may have another number than outside",
        &["culprit", "rank"],
        REPORT,
    ),
    word(
        "GPU",
        &["gpus"],
        "the GPU of a rank, by its index or its PCI address",
        "on the line of a culprit: the GPU that it drives, or that failed. `nvidia-smi -L` lists those of a node",
        &["culprit", "rank"],
        REPORT,
    ),
    word(
        "communicator",
        &["communicators", "comm", "comms"],
        "a group of ranks that call collectives together",
        "a job has one of all ranks, and often others for parts of the model. Each has an order of calls of its own, which all its ranks must \
         keep",
        &["rank", "stalled"],
        REPORT,
    ),
    word(
        "watching",
        &[],
        "the first event of `watch`, and again when it changes",
        "how many ranks on how many nodes are followed, by what they are seen, and what cannot be seen",
        &["seen by", "cannot see"],
        WATCH,
    ),
    word(
        "progress",
        &[],
        "an event of `watch` every 5 s",
        "what each communicator has done and what is in flight. `no progress` in a stall: nothing has ended for so long",
        &["in flight", "stalled"],
        WATCH,
    ),
    word(
        "hold",
        &["--hold", "held back"],
        "how long a verdict on a rank that may come back is kept back",
        "30 s of a stall, twice that where the rank only sleeps, four times where it works; `--hold 0` tells it at once",
        &["verdict", "stalled"],
        WATCH,
    ),
    word(
        "bundle",
        &["bundles", "evidence written"],
        "all evidence of one node in a file",
        "`collect` and `watch` write it (`.tar.zst`), and `ringleader diagnose FILE` reads it. As an event of `watch`: it has been written, \
         at `path`",
        &["bundle-manifest"],
        WATCH,
    ),
    word(
        "unjudged",
        &[],
        "a stall of which no bundle could be written",
        "mostly the disk is full: the hook and the webhook get what was seen in place of a verdict",
        &["bundle", "verdict"],
        WATCH,
    ),
    word(
        "absent",
        &[],
        "a rank that is not where the others wait",
        "in the columns of `watch` without the plugin: its stack is in no call of torch.distributed while others are in one",
        &["never entered", "suspected"],
        WATCH,
    ),
    word(
        "ok",
        &[],
        "a check that found nothing wrong",
        "its line says what was read. In the table of several nodes: no check of the node failed",
        &["skip", "warning"],
        CHECK,
    ),
    word(
        "fail",
        &["FAIL", "failed check"],
        "a check that found a fault",
        "the lines below it say what and what to do; exit code 4. `check --for prolog` counts those alone that justify draining the node",
        &["ok", "skip"],
        CHECK,
    ),
    Term {
        name: "skip",
        also: &["skipped"],
        title: "a check that could not be made, or does not apply",
        means: "its line says what was missing: a library, permission, a device, a job",
        is_not: "not healthy and not faulty: nothing is known",
        see: &["ok", "fail"],
        source: CHECK,
    },
    word(
        "silent",
        &["silent node"],
        "a node that did not answer",
        "in the table of `check --hosts` and among the agents of `watch`: ssh, the launcher or the agent gave nothing in time; log in there \
         by hand",
        &["fail"],
        CHECK,
    ),
    word(
        "Xid",
        &["xids", "an xid"],
        "an error number of NVIDIA's driver for a GPU",
        "the kernel log has it as `NVRM: Xid (PCI:0000:3b:00): 79, …`: `dmesg -T | grep -i xid`. Look it up with `ringleader explain xid 79`; \
         `ringleader explain --list xids` lists all",
        &["SXid", "xid 79"],
        "NVIDIA documentation, Xid Errors",
    ),
    word(
        "SXid",
        &["sxids", "an sxid"],
        "an error number of an NVSwitch",
        "the kernel log has it as `nvidia-nvswitch0: SXid (PCI:…): 12028, …`: `dmesg -T | grep -i sxid`. Look it up with `ringleader explain \
         sxid 12028`; `ringleader explain --list sxids` lists all",
        &["Xid", "nvswitch-error"],
        "NVIDIA documentation, Fabric Manager for NVSwitch systems",
    ),
];
