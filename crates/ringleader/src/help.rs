//! The long help: one topic, one text.

use clap::CommandFactory;

use crate::failure::Failure;

/// Topics besides the commands themselves.
const TOPICS: &[(&str, &str)] =
    &[("evidence", include_str!("help/evidence.txt")), ("exit-codes", include_str!("help/exit-codes.txt"))];

/// The text of a topic or command; without one, the list of them.
pub(crate) fn topic<C: CommandFactory>(name: Option<&str>) -> Result<String, Failure> {
    let mut command = C::command();
    let Some(name) = name else {
        let names: Vec<&str> = TOPICS.iter().map(|(name, _)| *name).collect();
        let help = command.render_help();
        return Ok(format!("{help}\nTopics: ringleader help {}\n", names.join(", ringleader help ")));
    };
    if let Some((_, text)) = TOPICS.iter().find(|(topic, _)| *topic == name) {
        return Ok((*text).to_owned());
    }
    command.build();
    if let Some(sub) = command.find_subcommand_mut(name) {
        return Ok(sub.render_long_help().to_string());
    }
    let names = TOPICS
        .iter()
        .map(|(topic, _)| *topic)
        .chain(["check", "collect", "diagnose", "explain", "watch"])
        .collect::<Vec<_>>()
        .join(", ");
    let text = format!("no help on '{name}'; there is help on: {names}");
    Err(Failure::Usage(command.error(clap::error::ErrorKind::InvalidValue, text)))
}

#[cfg(test)]
mod tests {
    use ringleader_knowledge::collecting;
    use ringleader_model::SourceKind;

    /// Commands stand in the help as in the reports; the help lays them out over lines.
    #[test]
    fn the_help_names_the_commands_of_the_table() {
        let text = include_str!("help/evidence.txt");
        for kind in [
            SourceKind::Stacks,
            SourceKind::Ras,
            SourceKind::Ring,
            SourceKind::Processes,
            SourceKind::NvidiaSmi,
            SourceKind::KernelLog,
            SourceKind::FlightRecorder,
            SourceKind::NcclLog,
            SourceKind::TorchLog,
            SourceKind::Dcgmi,
            SourceKind::GpuServices,
            SourceKind::BugReport,
            SourceKind::Environment,
            SourceKind::NodeSnapshot,
            SourceKind::Watch,
            SourceKind::Bundle,
        ] {
            let (_, rest) = text.split_once(&format!("\n  {}", kind.name())).expect(kind.name());
            // Up to the next kind: a line that is indented by two.
            let end = rest.match_indices("\n  ").find(|(at, _)| rest.as_bytes().get(at + 3) != Some(&b' '));
            let section = &rest[..end.map_or(rest.len(), |(at, _)| at)];
            let command =
                collecting::command(kind).unwrap_or_else(|| panic!("{} has no command", kind.name()));
            let command = command.replace("<pid of each rank>", "PID").replace("torchrun …", "");
            for word in command.split_whitespace() {
                assert!(section.contains(word), "{}: the help lacks {word}", kind.name());
            }
        }
    }
}
