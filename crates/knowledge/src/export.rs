//! Settings that make the next failure diagnosable, each with the releases that read it: what `ringleader env` prints, and
//! what it compares a running job with.
//!
//! Source: the readers' own sources and the names in PyTorch's wheels; `data/exports.toml` names them in each row.

use crate::tables::EXPORTS;
use crate::version::NcclVersion as Release;

/// One setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Export {
    /// Its name.
    pub name: &'static str,
    /// Who reads it.
    pub reader: SettingReader,
    /// First release of the reader that does; `None` = all.
    pub from: Option<Release>,
    /// First release of the reader that has another row.
    pub until: Option<Release>,
    /// How much is asked for.
    pub level: SettingLevel,
    /// What must be there.
    pub needs: Needs,
    /// Its value, with `{dir}`, `{plugin}` and `{plugin_dir}` for what the machine knows.
    pub value: &'static str,
    /// Which other values do as well.
    pub meets: Meets,
    /// Whether it is set at all: otherwise it only must not be switched off.
    pub is_printed: bool,
    /// Names that the reader took for it before, and still takes.
    pub old: &'static [&'static str],
    /// What it gives.
    pub gives: &'static str,
    /// What it costs the job.
    pub costs: &'static str,
    /// What a diagnosis lacks without it.
    pub without: &'static str,
    /// Source of the row.
    pub source: &'static str,
}

/// Who reads a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingReader {
    /// PyTorch.
    Torch,
    /// NCCL.
    Nccl,
    /// The interpreter.
    Python,
}

impl SettingReader {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Torch => "PyTorch",
            Self::Nccl => "NCCL",
            Self::Python => "Python",
        }
    }
}

/// How much is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SettingLevel {
    /// What every job can afford.
    Usual,
    /// What costs time or room in each call.
    Full,
    /// What recording timelines of a running job needs.
    Timeline,
}

/// What must be there for a setting to make sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Nothing.
    Nothing,
    /// The NCCL plugin.
    Plugin,
    /// The plugin, and a release of NCCL that takes its path.
    PluginByPath,
    /// The plugin, and a release of NCCL that takes a bare name alone.
    PluginByName,
}

/// Which values do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meets {
    /// A number that is not smaller.
    AtLeast(u64),
    /// The same one, words for truth included.
    Same,
    /// A list with commas that holds each word of the value, or `ALL`.
    Holds,
    /// NCCL's level of logging: this one or a chattier one.
    Level,
    /// A library by the name of ours.
    Ours,
    /// A list with colons that holds the value.
    PathHolds,
    /// Any but the empty one.
    Set,
    /// Any but these; not set means the reader's own default, which does.
    Not(&'static [&'static str]),
}

/// All rows, in the order in which they are printed.
pub fn all() -> &'static [Export] {
    EXPORTS
}

impl Export {
    /// Whether this release of the reader reads it, and no other row replaces it. What is not known is taken to read
    /// it.
    pub fn is_read_by(&self, release: Option<Release>) -> bool {
        let Some(release) = release else { return true };
        self.from.is_none_or(|from| release >= from) && self.until.is_none_or(|until| release < until)
    }

    /// Whether this value does what the row's `wanted` does.
    pub fn is_met_by(&self, value: &str, wanted: &str) -> bool {
        let value = value.trim();
        match self.meets {
            Meets::AtLeast(least) => value.parse::<u64>().is_ok_and(|number| number >= least),
            Meets::Same => truth(value) == truth(wanted),
            Meets::Holds => {
                let has = |word: &str| value.split(',').any(|own| own.trim().eq_ignore_ascii_case(word));
                // A leading ^ means all but these.
                !value.starts_with('^') && (has("ALL") || wanted.split(',').all(has))
            }
            Meets::Level => ["INFO", "ABORT", "TRACE"].iter().any(|level| value.eq_ignore_ascii_case(level)),
            Meets::Ours => value.contains("ringleader_nccl"),
            Meets::PathHolds => value.split(':').any(|folder| folder == wanted),
            Meets::Set => !value.is_empty(),
            Meets::Not(bad) => !bad.contains(&value),
        }
    }

    /// Whether it does as well if it is not set at all.
    pub fn is_met_unset(&self) -> bool {
        !self.is_printed
    }
}

/// 1 and 0 have many spellings.
fn truth(value: &str) -> String {
    let lower = value.to_ascii_lowercase();
    match lower.as_str() {
        "1" | "t" | "true" | "y" | "yes" | "on" => "1".to_owned(),
        "0" | "f" | "false" | "n" | "no" | "off" => "0".to_owned(),
        _ => lower,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> &'static Export {
        all().iter().find(|row| row.name == name).unwrap_or_else(|| panic!("{name}"))
    }

    fn read_by(reader: SettingReader, release: &str) -> Vec<&'static str> {
        let release = Release::parse(release);
        let rows = all().iter().filter(|row| row.reader == reader && row.level == SettingLevel::Usual);
        rows.filter(|row| row.is_read_by(release)).map(|row| row.name).collect()
    }

    #[test]
    fn one_name_for_the_recorder_in_each_release_of_pytorch() {
        for (release, size) in [
            ("2.2.0", "TORCH_NCCL_TRACE_BUFFER_SIZE"),
            ("2.7.1+cu126", "TORCH_NCCL_TRACE_BUFFER_SIZE"),
            ("2.8.0", "TORCH_FR_BUFFER_SIZE"),
            ("2.11.0+cu130", "TORCH_FR_BUFFER_SIZE"),
        ] {
            let names = read_by(SettingReader::Torch, release);
            assert!(names.contains(&size), "{release}: {names:?}");
            assert_eq!(names.iter().filter(|name| name.ends_with("BUFFER_SIZE")).count(), 1, "{release}");
        }
        assert_eq!(read_by(SettingReader::Torch, "2.1.2"), [""; 0]);
    }

    #[test]
    fn releases_of_nccl() {
        let old = read_by(SettingReader::Nccl, "2.21.5");
        assert!(
            !old.contains(&"NCCL_PROFILER_PLUGIN") && !old.contains(&"NCCL_DEBUG_TIMESTAMP_LEVELS"),
            "{old:?}"
        );
        assert!(read_by(SettingReader::Nccl, "2.31.1").contains(&"NCCL_ALLGATHERV_ENABLE"));
        assert!(!read_by(SettingReader::Nccl, "2.30.7").contains(&"NCCL_ALLGATHERV_ENABLE"));
        let by_name = |release: &str| read_by(SettingReader::Nccl, release).contains(&"LD_LIBRARY_PATH");
        assert!(by_name("2.27.3") && !by_name("2.27.7") && !by_name("2.27.2"));
    }

    #[test]
    fn values_that_do() {
        let size = named("TORCH_FR_BUFFER_SIZE");
        assert!(size.is_met_by("20000", "20000") && size.is_met_by("50000", "20000"));
        assert!(!size.is_met_by("2000", "20000") && !size.is_met_by("many", "20000"));
        let dump = named("TORCH_NCCL_DUMP_ON_TIMEOUT");
        assert!(dump.is_met_by("true", "1") && !dump.is_met_by("0", "1"));
        let parts = named("NCCL_DEBUG_SUBSYS");
        assert!(parts.is_met_by("ALL", parts.value) && !parts.is_met_by("^NET", parts.value));
        assert!(parts.is_met_by("coll,init,bootstrap,env,net,graph", parts.value));
        assert!(!parts.is_met_by("COLL", parts.value));
        let level = named("NCCL_DEBUG");
        assert!(level.is_met_by("info", "INFO") && !level.is_met_by("WARN", "INFO"));
        let errors = named("TORCH_NCCL_ASYNC_ERROR_HANDLING");
        assert!(errors.is_met_by("3", "3") && errors.is_met_by("2", "3") && !errors.is_met_by("1", "3"));
    }

    /// `explain` knows every name that is printed.
    #[test]
    fn names_are_known_variables() {
        for row in
            all().iter().filter(|row| row.reader == SettingReader::Nccl && row.name.starts_with("NCCL_"))
        {
            assert!(crate::variable::get(row.name).is_some(), "{}", row.name);
        }
        for row in all().iter().filter(|row| row.name.starts_with("TORCH_")) {
            assert!(crate::variable::get(row.name).is_some(), "{}", row.name);
        }
    }
}
