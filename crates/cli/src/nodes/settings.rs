//! The settings of nodes as arguments, generated from their table.

use std::marker::PhantomData;

use clap::{Arg, ArgAction, ArgMatches, Command, Error, FromArgMatches};
use toehold_node::settings::{NodeSettings, Setting, TABLE};

/// Settings of nodes from the command line and the environment.
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
        TABLE
            .iter()
            .try_for_each(|setting| take(setting, matches, &mut self.0))
    }
}

/// The settings of a member other than a node.
pub(super) trait Choice: Clone {
    const NAMES: &'static [&'static str];
}

/// Settings of a gateway, which has no IP addresses.
#[derive(Debug, Clone)]
pub(super) struct OfGateways;

impl Choice for OfGateways {
    const NAMES: &'static [&'static str] = &["mac", "mtu", "ring"];
}

/// Settings of a kernel interface.
#[derive(Debug, Clone)]
pub(super) struct OfDevices;

impl Choice for OfDevices {
    const NAMES: &'static [&'static str] = &["ipv4", "ipv6", "mac", "mtu", "ring"];
}

/// A subset of the settings; the others do not apply to this kind of member.
#[derive(Debug, Clone)]
pub(super) struct Chosen<C> {
    pub(super) settings: NodeSettings,
    choice: PhantomData<C>,
}

fn chosen<C: Choice>() -> impl Iterator<Item = &'static Setting> {
    TABLE.iter().filter(|setting| C::NAMES.contains(&setting.name))
}

impl<C: Choice> clap::Args for Chosen<C> {
    fn augment_args(command: Command) -> Command {
        chosen::<C>().fold(command, |command, setting| {
            command.arg(argument(setting).help_heading(None))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<C: Choice> FromArgMatches for Chosen<C> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut chosen = Chosen {
            settings: NodeSettings::default(),
            choice: PhantomData,
        };
        chosen.update_from_arg_matches(matches)?;
        Ok(chosen)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        chosen::<C>().try_for_each(|setting| take(setting, matches, &mut self.settings))
    }
}

fn take(setting: &Setting, matches: &ArgMatches, settings: &mut NodeSettings) -> Result<(), Error> {
    let Some(values) = matches.get_many::<String>(setting.name) else {
        return Ok(());
    };
    let values: Vec<&str> = values.map(String::as_str).collect();
    let set = setting.set(settings, &values.join(","));
    set.map_err(|error| Error::raw(clap::error::ErrorKind::InvalidValue, error))
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
    let argument = match setting.is_several {
        true => argument.action(ArgAction::Append),
        false => argument,
    };
    match setting.bare() {
        // Otherwise the next word could be its value or a node's name.
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
