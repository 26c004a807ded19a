//! Collectives as they appear in training code, and what distinguishes the processes of a job.

pub use crate::tables::{COLLECTIVES, FIRSTS, GUARDS, JOB_FACTS, LOCALS, MAKERS, RANKS, RECEIVERS};

/// A family of calls that all members of a group must make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collective {
    /// The library.
    pub framework: &'static str,
    /// Modules of functions, or classes of methods.
    pub paths: &'static [&'static str],
    /// The calls.
    pub calls: &'static [CollectiveName],
    /// Who must call.
    pub who: Callers,
    /// In which setup it communicates.
    pub when: When,
    /// Whether all members get the same value.
    pub agrees: bool,
    /// Names that mean this on an object of unknown class, too.
    pub distinctive: &'static [&'static str],
    /// What its calls match; empty: calls of the same name.
    pub same: &'static str,
    /// Documentation of the framework.
    pub page: &'static str,
}

/// One name of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectiveName {
    /// Function or method.
    pub name: &'static str,
    /// Position of the group among the arguments.
    pub group: Option<u8>,
    /// Position of an argument that all members hold alike afterwards.
    pub agreed: Option<u8>,
}

/// Who must make a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Callers {
    /// The group that an argument names, else all ranks.
    Group,
    /// All ranks.
    World,
    /// The ranks that hold a part or a copy of the model.
    Model,
}

/// In which setup a call communicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// In each.
    Always,
    /// Where parameters are sharded: FSDP, ZeRO-3, tensor parallelism.
    Sharded,
    /// With `sync_dist=True`.
    Sync,
}

/// What the members of a group differ in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Axis {
    /// The rank in the job.
    Global,
    /// The rank in the node.
    Local,
    /// The node.
    Node,
    /// Data parallelism.
    Data,
    /// Tensor parallelism.
    Tensor,
    /// Pipeline stage.
    Pipeline,
    /// Context or sequence parallelism.
    Context,
    /// Expert parallelism.
    Expert,
    /// The rank in some group.
    Group,
}

/// The form in which code learns a place on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RankValue {
    /// The number.
    Rank,
    /// Whether it is the first.
    First,
    /// Whether it is the last.
    Last,
}

/// Spellings of a process's own place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankSource {
    /// On which axis.
    pub axis: Axis,
    /// In which form.
    pub value: RankValue,
    /// Last names of functions and methods.
    pub calls: &'static [&'static str],
    /// Attributes of any object.
    pub attributes: &'static [&'static str],
    /// Names of parameters and variables that nothing in sight defines.
    pub names: &'static [&'static str],
    /// Environment variables.
    pub variables: &'static [&'static str],
}

/// Decorators that restrict a function to some processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    /// Last names.
    pub names: &'static [&'static str],
    /// On which axis.
    pub axis: Axis,
    /// Which of them runs the function.
    pub value: RankValue,
}

/// A variable's usual name, where the file imports one of the packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receiver {
    /// Names.
    pub names: &'static [&'static str],
    /// The class that it usually has.
    pub kind: &'static str,
    /// Packages.
    pub imports: &'static [&'static str],
}

/// What each process finds for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Local {
    /// Of which kind.
    pub kind: LocalKind,
    /// Dotted names of functions.
    pub calls: &'static [&'static str],
    /// Methods of any object.
    pub methods: &'static [&'static str],
}

/// Kinds of values that differ between processes without a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LocalKind {
    /// The file system.
    File,
    /// The clock.
    Time,
    /// Randomness that no common seed governs.
    Random,
    /// Contents of tensors and batches.
    Data,
}

/// Axes in which the members of a group differ, by the words of its name: `self.dp_group`,
/// `get_tensor_model_parallel_group`.
pub fn axes_of_group(name: &str) -> Vec<Axis> {
    let lower = name.to_ascii_lowercase();
    let words: Vec<&str> =
        lower.split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty()).collect();
    let holds = |phrase: &str| {
        let phrase: Vec<&str> = phrase.split('_').collect();
        words.windows(phrase.len()).any(|window| window == phrase)
    };
    let mut axes: Vec<Axis> = crate::tables::GROUP_WORDS
        .iter()
        .filter(|(phrases, _)| phrases.iter().any(|phrase| holds(phrase)))
        .flat_map(|(_, axes)| axes.iter().copied())
        .collect();
    // "tensor_model_parallel" is the tensor axis alone, "pipeline_model_parallel" the pipeline's.
    if holds("tensor_model_parallel") {
        axes.retain(|axis| *axis != Axis::Pipeline);
    } else if holds("pipeline_model_parallel") || holds("expert_model_parallel") {
        axes.retain(|axis| *axis != Axis::Tensor);
    }
    axes.sort();
    axes.dedup();
    axes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_known_by_their_words() {
        assert_eq!(axes_of_group("mpu.get_data_parallel_group"), [Axis::Data]);
        assert_eq!(axes_of_group("get_tensor_model_parallel_group"), [Axis::Tensor]);
        assert_eq!(axes_of_group("self.dp_cp_group"), [Axis::Data, Axis::Context]);
        assert_eq!(axes_of_group("get_model_parallel_group"), [Axis::Tensor, Axis::Pipeline]);
        assert!(axes_of_group("self.group").is_empty());
    }

    #[test]
    fn each_call_stands_once_below_a_path() {
        let mut seen = std::collections::BTreeSet::new();
        for row in COLLECTIVES {
            for path in row.paths {
                for call in row.calls {
                    assert!(seen.insert((path, call.name)), "{path}.{} stands twice", call.name);
                }
            }
            for name in row.distinctive {
                assert!(row.calls.iter().any(|call| call.name == *name), "{name} is no call of its row");
            }
        }
    }
}
