//! What is above the ranks of a job: shells and launchers, which start processes and are no ranks themselves.

use ringleader_knowledge::program;

/// Programs that start others and are themselves no rank, besides those that start ranks.
const SHELLS: &[&str] = &[
    "sh",
    "bash",
    "dash",
    "ash",
    "busybox",
    "zsh",
    "fish",
    "ksh",
    "tcsh",
    "csh",
    "tmux: server",
    "tmux: client",
    "screen",
    "sshd",
    "login",
    "su",
    "sudo",
    "env",
    "nohup",
    "timeout",
    "setsid",
    "mpiexec",
    "orterun",
    "prterun",
    "prted",
    "orted",
    "docker",
    "podman",
    "kubectl",
    "containerd-shim",
    "conmon",
    "tini",
    "dumb-init",
    "systemd",
    "init",
];
/// Whether a process with this name starts others and is no rank itself.
pub fn is_above(name: &str) -> bool {
    SHELLS.contains(&name) || program::launches(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shells_and_launchers_are_above_ranks() {
        for name in ["bash", "tmux: server", "torchrun", "slurmstepd"] {
            assert!(is_above(name), "{name}");
        }
        assert!(!is_above("python") && !is_above("train"));
    }
}
