//! Which settings make the next failure diagnosable here, with their values.

use std::path::{Path, PathBuf};

use ringleader_knowledge::export::{self, Export, Needs, SettingLevel, SettingReader};
use ringleader_knowledge::version::NcclVersion as Release;

use crate::env::installed::Installed;

/// What the choice depends on.
pub(crate) struct Wants {
    pub(crate) torch: Option<Release>,
    pub(crate) nccl: Option<Release>,
    pub(crate) plugin: Option<PathBuf>,
    pub(crate) dir: PathBuf,
    pub(crate) is_full: bool,
    pub(crate) has_timeline: bool,
}

/// A setting with its value for this machine.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) row: &'static Export,
    pub(crate) value: String,
}

/// The plugin is loaded by path by this release alone under conditions: NCCL 2.27.3 takes a name.
fn takes_name_alone(nccl: Option<Release>) -> bool {
    let mut rows = export::all().iter().filter(|row| row.needs == Needs::PluginByName);
    nccl.is_some() && rows.any(|row| row.is_read_by(nccl))
}

impl Wants {
    /// For what is installed.
    pub(crate) fn of(installed: &Installed, plugin: Option<PathBuf>, dir: &Path) -> Self {
        let release = |package: &Option<super::installed::Package>| {
            package.as_ref().and_then(|package| Release::parse(&package.version))
        };
        Self {
            torch: release(&installed.torch),
            nccl: release(&installed.nccl),
            plugin,
            dir: dir.to_owned(),
            is_full: false,
            has_timeline: false,
        }
    }

    fn release(&self, reader: SettingReader) -> Option<Release> {
        match reader {
            SettingReader::Torch => self.torch,
            SettingReader::Nccl => self.nccl,
            SettingReader::Python => None,
        }
    }

    /// The settings, each name once, in the order of the table.
    pub(crate) fn settings(&self) -> Vec<Setting> {
        let mut out: Vec<Setting> = Vec::new();
        for row in export::all().iter().filter(|row| self.is_wanted(row)) {
            let setting = Setting { row, value: self.value(row) };
            // A later row of the same name asks for more.
            match out.iter_mut().find(|other| other.row.name == row.name) {
                Some(other) => *other = setting,
                None => out.push(setting),
            }
        }
        out
    }

    fn is_wanted(&self, row: &Export) -> bool {
        let is_asked = match row.level {
            SettingLevel::Usual => true,
            SettingLevel::Full => self.is_full,
            SettingLevel::Timeline => self.has_timeline,
        };
        let by_name = takes_name_alone(self.nccl);
        let is_there = match row.needs {
            Needs::Nothing => true,
            Needs::Plugin => self.plugin.is_some() && self.nccl.is_some(),
            Needs::PluginByPath => self.plugin.is_some() && !by_name,
            Needs::PluginByName => self.plugin.is_some() && by_name,
        };
        is_asked && is_there && row.is_read_by(self.release(row.reader))
    }

    fn value(&self, row: &Export) -> String {
        let plugin = self.plugin.as_deref().unwrap_or(Path::new(""));
        let folder = plugin.parent().unwrap_or(plugin);
        row.value
            .replace("{dir}", &self.dir.display().to_string())
            .replace("{plugin_dir}", &folder.display().to_string())
            .replace("{plugin}", &plugin.display().to_string())
    }
}

/// What becomes of a setting where the environment may hold a value already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SettingFate {
    /// It is set.
    Set,
    /// Its value takes the place of this one.
    Replaces(String),
    /// This value does as well, and stays.
    Does(String),
    /// This value does not work, but stays, since it selects another library on purpose.
    Left(String),
    /// Nothing need be set: not being set does.
    Unset,
}

/// What becomes of it, if the environment holds `current`.
pub(crate) fn fate(setting: &Setting, current: Option<&str>) -> SettingFate {
    let row = setting.row;
    match current.filter(|value| !value.is_empty()) {
        None if row.is_met_unset() => SettingFate::Unset,
        None => SettingFate::Set,
        Some(value) if row.is_met_by(value, &setting.value) => SettingFate::Does(value.to_owned()),
        Some(value) if row.meets == export::Meets::Ours => SettingFate::Left(value.to_owned()),
        Some(value) => SettingFate::Replaces(value.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(torch: &str, nccl: &str, plugin: bool) -> Vec<&'static str> {
        let wants = Wants {
            torch: Release::parse(torch),
            nccl: Release::parse(nccl),
            plugin: plugin.then(|| "/opt/libringleader_nccl.so".into()),
            dir: "/evidence".into(),
            is_full: false,
            has_timeline: false,
        };
        wants.settings().iter().map(|setting| setting.row.name).collect()
    }

    #[test]
    fn what_is_installed_decides() {
        let old = names("2.1.2", "2.18.1", true);
        assert_eq!(old, ["PYTHONFAULTHANDLER", "NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"]);
        let new = names("2.11.0+cu130", "2.28.9", true);
        assert!(new.contains(&"TORCH_FR_BUFFER_SIZE") && new.contains(&"NCCL_PROFILER_PLUGIN"), "{new:?}");
        assert!(
            !new.contains(&"TORCH_NCCL_TRACE_BUFFER_SIZE") && !new.contains(&"LD_LIBRARY_PATH"),
            "{new:?}"
        );
        assert!(!names("2.11.0", "2.28.9", false).contains(&"NCCL_PROFILER_PLUGIN"));
        assert!(names("2.8.0", "2.27.3", true).contains(&"LD_LIBRARY_PATH"));
        // Unknown releases: both names are harmless.
        let all = names("", "", true);
        assert!(
            all.contains(&"TORCH_FR_BUFFER_SIZE") && all.contains(&"TORCH_NCCL_TRACE_BUFFER_SIZE"),
            "{all:?}"
        );
    }

    #[test]
    fn what_is_set_already() {
        let wants = Wants {
            torch: Release::parse("2.8.0"),
            nccl: Release::parse("2.28.9"),
            plugin: Some("/opt/libringleader_nccl.so".into()),
            dir: "/evidence".into(),
            is_full: false,
            has_timeline: false,
        };
        let settings = wants.settings();
        let fate = |name: &str, value: Option<&str>| {
            fate(settings.iter().find(|setting| setting.row.name == name).expect("it is there"), value)
        };
        assert_eq!(fate("NCCL_DEBUG", None), SettingFate::Set);
        assert_eq!(fate("NCCL_DEBUG", Some("")), SettingFate::Set);
        assert_eq!(fate("NCCL_DEBUG", Some("WARN")), SettingFate::Replaces("WARN".to_owned()));
        assert_eq!(fate("NCCL_DEBUG_FILE", Some("/x/%h")), SettingFate::Does("/x/%h".to_owned()));
        assert_eq!(
            fate("NCCL_PROFILER_PLUGIN", Some("inspector")),
            SettingFate::Left("inspector".to_owned())
        );
        assert_eq!(fate("NCCL_RAS_ENABLE", None), SettingFate::Unset);
        assert_eq!(fate("NCCL_RAS_ENABLE", Some("0")), SettingFate::Replaces("0".to_owned()));
    }
}
