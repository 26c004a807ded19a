//! # What it checks
//!
//! Whether the driver's library (NVML) loads, starts and answers.
//!
//! # What fails
//!
//! It does not answer in time: the summary names the call and where the process is blocked. It cannot be loaded
//! although there is a GPU; its version differs from that of the kernel module; the module is not loaded; or all GPUs
//! refuse.
//!
//! # What to do
//!
//! A version mismatch means that the driver was updated while its module was loaded: reboot, or reload the module when
//! nothing uses it. For a hang in the kernel read the driver's log; it usually needs a reboot.
//!
//! # References
//!
//! NVML API reference, nvmlInit and nvmlReturn_t.

use ringleader_node::{DRIVER_NOT_LOADED, NO_MODULE, VERSION_MISMATCH, is_hang};

use crate::answer::{CheckAnswer, CheckState, Impact, Item, ValueKind};
use crate::gpus::count;
use crate::rule::{Area, Check, Probe};
use crate::view::NodeView;

/// See the module.
pub(super) static CHECK: Check = Check {
    id: "gpu-driver",
    title: "GPU driver",
    area: Area::Gpu,
    reads: &[Probe::Gpus],
    drains: true,
    is_quick: true,
    since: "0.2",
    doc: include_str!("gpu_driver.rs"),
    run,
};

fn run(view: &NodeView<'_>) -> CheckAnswer {
    let gpus = match view.node.gpus.seen() {
        Ok(gpus) => gpus,
        Err(missing) if !missing.is_trouble => return missing.into(),
        Err(missing) => {
            let text =
                if missing.is_hang { format!("it hangs: {}", missing.why) } else { missing.why.clone() };
            return advise(broken(text), &missing.why, missing.is_hang);
        }
    };
    if gpus.gpus.is_empty()
        && let Some((index, word)) = gpus.failures.first()
    {
        let text = format!("none of {} answers; GPU {index}: {word}", count(gpus.failures.len(), "GPU"));
        return advise(broken(text), word, is_hang(word));
    }
    let version = gpus.driver_version.as_deref().unwrap_or("of unknown version");
    let cuda = gpus.cuda_version.as_deref().map_or(String::new(), |cuda| format!(", CUDA up to {cuda}"));
    let mut answer = CheckAnswer::ok(format!("driver {version}{cuda}"));
    if let Some(version) = &gpus.driver_version {
        answer = answer.value("driver-version", version, ValueKind::Same);
    }
    answer
}

fn broken(text: String) -> CheckAnswer {
    let item = Item {
        subject: "NVML".to_owned(),
        verdict: CheckState::Fail,
        evidence: format!("libnvidia-ml.so.1: {text}"),
        text,
    };
    CheckAnswer::from_items("", vec![item])
}

fn advise(answer: CheckAnswer, why: &str, is_hang: bool) -> CheckAnswer {
    let answer = answer.advise(
        Impact::Harmless,
        "read what the driver says",
        Some("dmesg -T | grep -iE 'nvrm|xid|nvidia' | tail -50".to_owned()),
    );
    if is_hang {
        return answer.advise(
            Impact::Destructive,
            "reboot the node: a call that hangs in the driver does not end",
            None,
        );
    }
    if why.contains(VERSION_MISMATCH) {
        return answer.advise(
            Impact::Destructive,
            "the driver was updated under the running kernel: reboot, or load the new module once nothing uses a GPU",
            Some("rmmod nvidia_peermem nvidia_uvm nvidia_drm nvidia_modeset nvidia; modprobe nvidia".to_owned()),
        );
    }
    if why.contains(DRIVER_NOT_LOADED) || why.contains(NO_MODULE) {
        return answer.advise(
            Impact::Disruptive,
            "load the driver; if that fails, it was not built for this kernel",
            Some("modprobe nvidia && nvidia-smi -L".to_owned()),
        );
    }
    answer.advise(
        Impact::Disruptive,
        "in a container: start it with its GPUs and the driver's libraries",
        Some("docker run --gpus all …".to_owned()),
    )
}

#[cfg(test)]
mod tests {
    use ringleader_node::{Gpus, Node, Outcome, Part};

    use super::*;
    use crate::staging_gpus::{answer, is_sound};

    fn with(outcome: Outcome<Gpus>) -> Node {
        Node { gpus: Part { outcome, ..Part::default() }, ..Node::default() }
    }

    #[test]
    fn it_answers() {
        is_sound(&CHECK);
    }

    #[test]
    fn a_hang_says_where() {
        let stuck_in = "nvmlInit (pid 4711), state D, in os_acquire_mutex".to_owned();
        let said = answer(&CHECK, &with(Outcome::TimedOut { limit_ms: 1_000, stuck_in }));
        assert_eq!(said.verdict, CheckState::Fail);
        assert!(said.summary.contains("nvmlInit (pid 4711)") && said.summary.contains("os_acquire_mutex"));
    }

    #[test]
    fn a_mismatch_has_its_own_fix() {
        let said = answer(&CHECK, &with(Outcome::Failed(format!("NVML does not start: {VERSION_MISMATCH}"))));
        assert_eq!(said.verdict, CheckState::Fail);
        assert!(said.fixes.iter().any(|fix| fix.text.contains("updated under the running kernel")));
    }

    #[test]
    fn no_gpu_is_no_fault() {
        let said = answer(&CHECK, &with(Outcome::Absent("no NVIDIA GPU on the PCI bus".to_owned())));
        assert_eq!(said.verdict, CheckState::Skipped);
    }

    #[test]
    fn gpus_that_all_refuse() {
        let gpus = Gpus { n_counted: 1, failures: vec![(0, "Unknown Error".to_owned())], ..Gpus::default() };
        let said = answer(&CHECK, &with(Outcome::Seen(gpus)));
        assert_eq!(said.verdict, CheckState::Fail);
        assert!(said.summary.contains("Unknown Error"));
    }
}
