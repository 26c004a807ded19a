use clap::{Arg, ArgAction, Command, value_parser};

use super::*;
use crate::config::wrong::Wrong;

fn program() -> Command {
    let watch = Command::new("watch")
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue))
        .arg(Arg::new("quiet").long("quiet").action(ArgAction::SetTrue).conflicts_with("loud"))
        .arg(Arg::new("loud").long("loud").action(ArgAction::SetTrue))
        .arg(Arg::new("pid").long("pid").value_delimiter(',').num_args(1..).value_parser(value_parser!(u32)))
        .arg(Arg::new("factor").long("stall-factor").value_parser(value_parser!(f64)).default_value("5"))
        .arg(Arg::new("format").long("format").value_parser(["text", "json"]).default_value("text"))
        .arg(Arg::new("out").long("out").value_parser(value_parser!(PathBuf)))
        .arg(Arg::new("note").long("note"))
        .arg(Arg::new("on_stall").long("on-stall"));
    let check = Command::new("check").arg(Arg::new("quick").long("quick").action(ArgAction::SetTrue));
    Command::new("ringleader").subcommand(watch).subcommand(check)
}

fn read(text: &str, layer: Layer) -> Result<Vec<String>, Wrong> {
    let program = program();
    let command = program.find_subcommand("watch").expect("it is there");
    let set = file::parse(text, layer, &program, command)?;
    let mut out: Vec<String> = set.iter().map(|set| format!("{}={}", set.id, set.values.join("|"))).collect();
    out.sort();
    Ok(out)
}

fn wrong(text: &str, layer: Layer) -> String {
    read(text, layer).expect_err("it must be refused").render(Path::new("ringleader.toml"), text)
}

#[test]
fn keys_are_long_options() {
    let text = "stall-factor = 4\nformat = \"json\"\n[watch]\nstall-factor = 3.5\njson = true\npid = [1, 2]\n[check]\nquick = true\n";
    assert_eq!(
        read(text, Layer::User).expect("it is right"),
        ["factor=3.5", "format=json", "json=true", "pid=1|2"]
    );
}

#[test]
fn mistakes_are_shown_where_they_are() {
    let said = "error: failed to read the configuration: `stall-facter` is not an option of this command\n \
                --> ringleader.toml:2:1\n  |\n2 | stall-facter = 4\n  | ^^^^^^^^^^^^\n  = help: did you mean `stall-factor`?\n";
    assert_eq!(wrong("[watch]\nstall-facter = 4\n", Layer::User), said);
    let shown = wrong("# ours\nformat = \"xml\"\n", Layer::User);
    assert!(
        shown.contains("--> ringleader.toml:2:10\n") && shown.contains("  |          ^^^^^\n"),
        "{shown}"
    );
    for (text, said) in [
        ("[wach]\njson = true\n", "did you mean `watch`"),
        ("json = \"yes\"\n", "this is a flag"),
        ("stall-factor = true\n", "this is not a flag"),
        ("stall-factor = \"many\"\n", "invalid value 'many'"),
        ("format = [\"json\"]\n", "takes one value"),
        ("json = \n", "this is not TOML"),
        ("json = true\njson = false\n", "this is not TOML"),
        ("json = 1979-05-27\n", "options take text"),
    ] {
        assert!(wrong(text, Layer::System).contains(said), "{text}: {}", wrong(text, Layer::System));
    }
}

#[test]
fn a_file_does_not_control_the_terminal() {
    let shown = wrong("\u{1b}[2Jx = 1\n", Layer::User);
    assert!(!shown.contains('\u{1b}'), "{shown}");
    let shown = wrong("\"\u{9b}x\" = 1\n", Layer::User);
    assert!(!shown.contains('\u{9b}'), "{shown}");
}

#[test]
fn a_projects_file_starts_nothing_and_names_no_machine() {
    for text in
        ["on-stall = \"rm -rf /\"", "on-stall = \"1\"", "note = \"x\"", "out = \"/etc\"", "out = \"../up\""]
    {
        let shown = wrong(text, Layer::Project);
        assert!(shown.contains("may not set"), "{shown}");
        assert!(read(text, Layer::User).is_ok(), "{text}");
    }
    for text in ["format = \"json\"", "stall-factor = 2", "pid = [1]", "out = \"bundles/new\"", "json = true"]
    {
        assert!(read(text, Layer::Project).is_ok(), "{text}");
    }
}

#[test]
fn a_flag_wins_and_what_contradicts_it_is_passed_over() {
    let effective = |args: &[&str], set: Vec<Set>| {
        let program = program();
        let given = program.clone().try_get_matches_from(args).expect("they parse");
        let own = given.subcommand_matches("watch").expect("it is asked for");
        let command = program.find_subcommand("watch").expect("it is there").clone();
        let set = chosen(&command, own, set);
        let program = program.mut_subcommand("watch", |command| set.iter().fold(command, with));
        let all = program.try_get_matches_from(args).expect("they still parse");
        let own = all.subcommand_matches("watch").expect("it is asked for");
        (
            own.get_flag("quiet"),
            own.get_flag("loud"),
            own.get_one::<f64>("factor").copied().expect("a number"),
        )
    };
    let set = |id: &str, value: &str, layer| Set { id: id.to_owned(), values: vec![value.to_owned()], layer };
    let both = || {
        vec![
            set("factor", "2", Layer::System),
            set("factor", "3", Layer::Variable),
            set("quiet", "true", Layer::User),
        ]
    };
    assert_eq!(effective(&["ringleader", "watch"], both()), (true, false, 3.0));
    assert_eq!(effective(&["ringleader", "watch", "--stall-factor", "9"], both()), (true, false, 9.0));
    assert_eq!(effective(&["ringleader", "watch", "--loud"], both()), (false, true, 3.0));
    // What is off in a stronger place stays off.
    let off = vec![set("quiet", "true", Layer::System), set("quiet", "false", Layer::Project)];
    assert_eq!(effective(&["ringleader", "watch"], off), (false, false, 5.0));
    // Of two that contradict each other, the stronger.
    let two = vec![set("quiet", "true", Layer::System), set("loud", "true", Layer::User)];
    assert_eq!(effective(&["ringleader", "watch"], two), (false, true, 5.0));
}

/// Each option of the real program has a variable of its own, and its contradictions are reported.
#[test]
fn every_option_of_every_command_can_be_set() {
    let mut n_options = 0;
    for command in crate::cli::program().get_subcommands() {
        let mut names = BTreeSet::new();
        for (long, arg) in options(command) {
            assert!(names.insert(variable(long)), "{} {long}", command.get_name());
            // The parts that read a reserved name mean something else by it.
            assert!(!RESERVED.contains(&&*variable(long)), "{} {long}", command.get_name());
            let id = arg.get_id().as_str();
            assert!(contradictions(command, id).all(|other| other != id), "{} {long}", command.get_name());
            n_options += 1;
        }
    }
    assert!(n_options > 60, "{n_options}");
}

/// A new option is refused in a project's file until somebody has said that it does no harm there.
#[test]
fn every_option_is_classified_for_a_projects_file() {
    let program = crate::cli::program();
    let all: BTreeSet<&str> =
        file::commands(&program).flat_map(|command| options(command).map(|(long, _)| long)).collect();
    let listed = || file::IN_A_PROJECT.iter().chain(file::NOT_IN_A_PROJECT).copied();
    let both: BTreeSet<&str> = listed().collect();
    assert_eq!(both.len(), listed().count(), "an option is listed twice");
    assert_eq!(all, both, "left: the options; right: the lists of config/file.rs");
}

/// Variables that some part reads are known, so that what is spelt nearly so is reported.
#[test]
fn every_variable_that_is_read_is_listed() {
    fn names(folder: &Path, out: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).expect("it is there").flatten() {
            let path = entry.path();
            if path.is_dir() && !["target", "tests", "__pycache__"].iter().any(|name| path.ends_with(name)) {
                names(&path, out);
            }
            let is_code = path.extension().is_some_and(|extension| extension == "rs" || extension == "py");
            if !is_code || path.ends_with("tests.rs") {
                continue;
            }
            let text = std::fs::read_to_string(&path).expect("it is text");
            for (at, _) in text.match_indices(PREFIX) {
                let is_letter = |c: &char| c.is_ascii_uppercase() || *c == '_' || c.is_ascii_digit();
                out.insert(text[at..].chars().take_while(is_letter).collect());
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut read = BTreeSet::new();
    for folder in std::fs::read_dir(root.join("crates")).expect("it is there").flatten() {
        names(&folder.path(), &mut read);
    }
    names(&root.join("python"), &mut read);
    read.remove(PREFIX);
    let program = crate::cli::program();
    let options: BTreeSet<String> = program
        .get_subcommands()
        .flat_map(|command| options(command).map(|(long, _)| variable(long)))
        .collect();
    let listed: BTreeSet<String> = RESERVED.iter().chain(&OTHERS).map(|name| (*name).to_owned()).collect();
    let unknown: Vec<&String> =
        read.iter().filter(|name| !options.contains(*name) && !listed.contains(*name)).collect();
    assert!(unknown.is_empty(), "read, and in no list of config.rs: {unknown:?}");
}
