//! Words that the tables of the machine's own codes (Xid, SXid) share: what a code is, whether it ends a job, and what
//! to do about it.

macro_rules! words {
    ($(#[$doc:meta])* $type:ident { $($(#[$variant_doc:meta])* $variant:ident => $name:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $type {
            $($(#[$variant_doc])* $variant),+
        }
        impl $type {
            /// As the table spells it.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }
        }
    };
}

words!(
    /// Where a code's fault usually lies.
    Class {
        /// The GPU or its board.
        Hardware => "hardware",
        /// The driver or a firmware.
        Driver => "driver",
        /// The program.
        Application => "application",
        /// What stands between GPUs and host: PCIe, NVLink, switches.
        Fabric => "system/fabric",
        /// Power or heat.
        Power => "thermal/power",
        /// Nothing is wrong by itself.
        Informational => "informational",
    }
);

words!(
    /// How bad a code is for the machine.
    Grade {
        /// Worth knowing.
        Info => "info",
        /// A trend, or a loss that nothing feels yet.
        Warning => "warning",
        /// Work was lost.
        Error => "error",
        /// The device needs help before it works again.
        Critical => "critical",
        /// The device is gone.
        Fatal => "fatal",
        /// Depends on the sub-code.
        Decode => "decode",
    }
);

words!(
    /// What to do.
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
        /// Look at links, switches and the fabric manager.
        CheckFabric => "check_fabric",
        /// Update driver or firmware.
        UpdateDriver => "update_driver",
    }
);

impl Move {
    /// The move as an instruction.
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
    /// Whether a job on the device dies of it.
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
    /// Whether the node must leave.
    Exclude {
        /// It stays.
        No => "no",
        /// It leaves when the code comes again.
        IfRepeated => "if_repeated",
        /// The GPU is unusable until it was reset.
        UntilReset => "until_reset",
        /// It leaves now.
        Yes => "yes",
        /// Depends on the sub-code.
        Decode => "decode",
    }
);
