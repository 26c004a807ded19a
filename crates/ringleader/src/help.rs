//! The long help: one topic, one text.

use crate::failure::Failure;

/// Topics besides the commands themselves.
const TOPICS: &[(&str, &str)] = &[
    ("evidence", include_str!("help/evidence.txt")),
    ("configuration", include_str!("help/configuration.txt")),
    ("exit-codes", include_str!("help/exit-codes.txt")),
];

/// What there is help on: the topics, and each command of `program` that is no secret.
pub(crate) fn names(program: &clap::Command) -> Vec<&str> {
    let commands = program.get_subcommands().filter(|command| !command.is_hide_set());
    let commands = commands.map(clap::Command::get_name).filter(|name| *name != "help");
    TOPICS.iter().map(|(name, _)| *name).chain(commands).collect()
}

/// The text of a topic or command; without one, the list of them.
///
/// # Errors
/// If there is no help by that name.
pub(crate) fn topic(mut program: clap::Command, name: Option<&str>) -> Result<String, Failure> {
    let Some(name) = name else {
        let names: Vec<&str> = TOPICS.iter().map(|(name, _)| *name).collect();
        let help = program.render_help();
        return Ok(format!("{help}\nTopics: ringleader help {}\n", names.join(", ringleader help ")));
    };
    if let Some((_, text)) = TOPICS.iter().find(|(topic, _)| *topic == name) {
        return Ok((*text).to_owned());
    }
    program.build();
    if let Some(command) = program.find_subcommand_mut(name) {
        return Ok(command.render_long_help().to_string());
    }
    let text = format!("no help on '{name}'; there is help on: {}", names(&program).join(", "));
    Err(Failure::Usage(program.error(clap::error::ErrorKind::InvalidValue, text)))
}

#[cfg(test)]
mod tests {
    use ringleader_knowledge::collecting;
    use ringleader_model::SourceKind;

    /// Commands are in the help as in the reports; the help lays them out over lines.
    #[test]
    fn the_help_names_the_commands_of_the_table() {
        let text = include_str!("help/evidence.txt");
        let collected =
            SourceKind::ALL.into_iter().filter_map(|kind| Some((kind, collecting::of(kind).command?)));
        for (kind, command) in collected {
            let (_, rest) =
                text.split_once(&format!("\n  {}", kind.name())).unwrap_or_else(|| panic!("{}", kind.name()));
            // Up to the next kind: a line that is indented by two.
            let end = rest.match_indices("\n  ").find(|(at, _)| rest.as_bytes().get(at + 3) != Some(&b' '));
            let section = &rest[..end.map_or(rest.len(), |(at, _)| at)];
            let command = command.replace("<pid of each rank>", "PID").replace("torchrun …", "");
            for word in command.split_whitespace() {
                assert!(section.contains(word), "{}: the help lacks {word}", kind.name());
            }
        }
    }
}
