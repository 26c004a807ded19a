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
