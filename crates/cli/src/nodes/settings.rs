//! The settings of nodes as arguments: made from their table.

use clap::{Arg, ArgMatches, Command, Error, FromArgMatches};
use toehold_node::settings::{NodeSettings, Setting, TABLE};

/// What the command line and the environment say about nodes.
#[derive(Debug, Clone)]
pub(super) struct Settings(pub(super) NodeSettings);

impl clap::Args for Settings {
    fn augment_args(command: Command) -> Command {
        TABLE
            .iter()
            .fold(command, |command, setting| command.arg(argument(setting)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Settings {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut settings = Settings(NodeSettings::default());
        settings.update_from_arg_matches(matches)?;
        Ok(settings)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        for setting in TABLE {
            if let Some(value) = matches.get_one::<String>(setting.name) {
                let set = setting.set(&mut self.0, value);
                set.map_err(|error| Error::raw(clap::error::ErrorKind::InvalidValue, error))?;
            }
        }
        Ok(())
    }
}

fn argument(setting: &'static Setting) -> Arg {
    let check = |text: &str| {
        let set = setting.set(&mut NodeSettings::default(), text);
        set.map(|()| text.to_owned())
            .map_err(|error| format!("choose {}", error.range))
    };
    let default = match setting.default() {
        none if none.is_empty() => String::new(),
        value => format!(" [default: {value}]"),
    };
    let argument = Arg::new(setting.name)
        .long(setting.name)
        .env(setting.variable)
        .hide_env(true)
        .value_name(setting.placeholder)
        .value_parser(check)
        .help_heading("Settings of the nodes (each also a variable, TOEHOLD_…; see docs/settings.md)")
        .help(format!("{} {}{default}", setting.summary(), values(setting)));
    match setting.bare() {
        // Or what follows could be its value as well as a node's name.
        Some(bare) => argument
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value(bare),
        None => argument,
    }
}

fn values(setting: &Setting) -> String {
    format!("[{}]", setting.range)
}
