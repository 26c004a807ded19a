//! Words that the tables of Xids and SXids share: the class of a code, whether it ends a job, and what to do about it. And
//! the commands that several rules and checks advise, each in one spelling.

macro_rules! memory_kills {
    () => {
        "dmesg -T | grep -iE 'out of memory|oom-kill|killed process'"
    };
}

/// Shows what holds the clocks of the GPUs down.
pub const SHOW_CLOCKS: &str = "nvidia-smi -q -d CLOCK,POWER,TEMPERATURE,PERFORMANCE";
/// Shows errors of GPU memory, and rows that were replaced.
pub const SHOW_MEMORY_ERRORS: &str = "nvidia-smi -q -d ECC,ROW_REMAPPER";
/// Shows which processes the kernel killed for lack of memory.
pub const SHOW_MEMORY_KILLS: &str = memory_kills!();
/// The same, and how often the container's own limit was hit.
pub const SHOW_MEMORY_KILLS_AND_LIMIT: &str = concat!(memory_kills!(), "; cat /sys/fs/cgroup/memory.events");
/// Shows when ports of verbs devices went down and came back.
pub const SHOW_LINK_CHANGES: &str = "dmesg -T | grep -iE 'mlx5|link (is )?(down|up)'";

macro_rules! words {
    ($(#[$doc:meta])* $type:ident { $($(#[$variant_doc:meta])* $variant:ident => $name:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $type {
            $($(#[$variant_doc])* $variant),+
        }
        impl $type {
            /// Its spelling in the table.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }
        }
    };
}

words!(
    /// Where a code's fault usually is.
    Class {
        /// The GPU or its board.
        Hardware => "hardware",
        /// The driver or a firmware.
        Driver => "driver",
        /// The program.
        Application => "application",
        /// The connection between GPUs and host: PCIe, NVLink, switches.
        Fabric => "system/fabric",
        /// Power or heat.
        Power => "thermal/power",
        /// It is not a fault by itself.
        Informational => "informational",
    }
);

words!(
    /// The severity of a code for the machine.
    Grade {
        /// Worth knowing.
        Info => "info",
        /// A trend, or a loss without an effect yet.
        Warning => "warning",
        /// Work was lost.
        Error => "error",
        /// The device needs intervention before it works again.
        Critical => "critical",
        /// The device is gone.
        Fatal => "fatal",
        /// Depends on the sub-code.
        Decode => "decode",
    }
);

words!(
    /// The recommended action.
    Move {
        /// Nothing.
        Ignore => "ignore",
        /// Restart the job.
        RestartApp => "restart_app",
        /// Reset the GPU.
        ResetGpu => "reset_gpu",
        /// Reboot the node.
        RebootNode => "reboot_node",
        /// Drain the node and run field diagnostics.
        Diagnose => "drain_and_field_diagnose",
        /// Ask the vendor.
        ContactSupport => "contact_support",
        /// Check links, switches and the fabric manager.
        CheckFabric => "check_fabric",
        /// Update driver or firmware.
        UpdateDriver => "update_driver",
    }
);

impl Move {
    /// The action as an instruction.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Ignore => "nothing to do about the machine",
            Self::RestartApp => "restart the job",
            Self::ResetGpu => "reset the GPU before new work runs on it",
            Self::RebootNode => "reboot the node",
            Self::Diagnose => "take the node out and run field diagnostics",
            Self::ContactSupport => "keep a bug report and ask the vendor",
            Self::CheckFabric => "check links, switches and the fabric manager",
            Self::UpdateDriver => "update driver and firmware",
        }
    }
}

words!(
    /// Whether a code ends a job on the device.
    Kills {
        /// It does.
        Yes => "yes",
        /// It does not.
        No => "no",
        /// Sometimes.
        Maybe => "maybe",
        /// Something else already killed it.
        Symptom => "symptom",
        /// Depends on the sub-code.
        Decode => "decode",
    }
);

words!(
    /// Whether the node must be excluded.
    Exclude {
        /// It stays.
        No => "no",
        /// Exclude it if the code recurs.
        IfRepeated => "if_repeated",
        /// The GPU is unusable until it is reset.
        UntilReset => "until_reset",
        /// Exclude it now.
        Yes => "yes",
        /// Depends on the sub-code.
        Decode => "decode",
    }
);

#[cfg(test)]
mod tests {
    use super::{SHOW_CLOCKS, SHOW_MEMORY_ERRORS, SHOW_MEMORY_KILLS};
    use crate::{cause, event};

    /// The tables spell these commands as the rules do.
    #[test]
    fn one_spelling_of_a_command() {
        let advice = cause::all()
            .iter()
            .flat_map(|row| row.advice)
            .chain(event::all().iter().flat_map(|row| row.advice));
        for command in advice.map(|advice| advice.command) {
            if command.contains("CLOCK,") || command.contains(",CLOCK") {
                assert_eq!(command, SHOW_CLOCKS);
            }
            if command.contains("ECC,ROW") || command.contains("REMAPPER,ECC") {
                assert_eq!(command, SHOW_MEMORY_ERRORS);
            }
            if command.contains("killed process") {
                assert_eq!(command, SHOW_MEMORY_KILLS);
            }
        }
    }
}
