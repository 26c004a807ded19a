//! Words that the tables of Xids and SXids share: the class of a code, whether it ends a job, and what to do about it.

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
