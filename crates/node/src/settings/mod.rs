//! Settings that a node is given when it is made. One table of settings is the source of the
//! command line, the environment's variables, the checks and the documentation.

mod table;
#[cfg(test)]
mod tests;
mod value;

use toehold_link::mq::Quotas;

pub use self::table::{NodeSettings, TABLE};
use self::value::Value;

/// A row of the table.
#[derive(Debug)]
pub struct Setting {
    /// The setting's name: on the command line behind two dashes.
    pub name: &'static str,
    /// The variable of the environment that gives it where the command line does not.
    pub variable: &'static str,
    /// The placeholder of the setting's value in the help.
    pub placeholder: &'static str,
    /// The values that the setting takes.
    pub range: &'static str,
    /// The setting's description: sentences, and their line breaks.
    pub doc: &'static str,
    /// Whether the command line may have it several times; the values come together.
    pub is_several: bool,
    /// The value where the command line has the name alone; at most one.
    bare: &'static [&'static str],
    get: fn(&NodeSettings) -> String,
    set: fn(&mut NodeSettings, &str) -> Result<(), ()>,
}

/// A number of bytes as people write it: with K, M, G or T behind it, so many powers of 1024.
pub fn parse_bytes(text: &str) -> Option<u64> {
    u64::parse(text)
}

/// A value that a setting cannot take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name} cannot be {value:?}; choose {range}")]
pub struct InvalidSetting {
    /// Name of the setting.
    pub name: &'static str,
    /// The value that was given.
    pub value: String,
    /// The values that are allowed.
    pub range: &'static str,
}

impl Setting {
    /// The row of this name.
    pub fn named(name: &str) -> Option<&'static Setting> {
        TABLE.iter().find(|setting| setting.name == name)
    }

    /// The setting's value where the command line has its name and no value, if that may be.
    pub fn bare(&self) -> Option<&'static str> {
        self.bare.first().copied()
    }

    /// The default as text; empty if there is none.
    pub fn default(&self) -> String {
        (self.get)(&NodeSettings::default())
    }

    /// The value as text, which [`Setting::set`] takes again; empty if there is none.
    pub fn get(&self, settings: &NodeSettings) -> String {
        (self.get)(settings)
    }

    /// Sets it from text.
    ///
    /// # Errors
    ///
    /// If the text is no value of it, or one out of its range.
    pub fn set(&self, settings: &mut NodeSettings, value: &str) -> Result<(), InvalidSetting> {
        (self.set)(settings, value).map_err(|()| InvalidSetting {
            name: self.name,
            value: value.to_owned(),
            range: self.range,
        })
    }

    /// The setting's description in one line.
    pub fn summary(&self) -> String {
        let words = self.doc.split_whitespace().collect::<Vec<_>>();
        words.join(" ")
    }
}

impl NodeSettings {
    /// Bounds of how many of its peers one user and one process can be.
    pub(crate) fn quotas(&self) -> Quotas {
        Quotas {
            process: self.peers_per_process.into(),
            user: self.peers_per_user.map(usize::from),
        }
    }

    /// Checks every setting against its range.
    ///
    /// # Errors
    ///
    /// Checks that every value is in its range. Returns the first that is not.
    pub fn check(&self) -> Result<(), InvalidSetting> {
        TABLE
            .iter()
            .try_for_each(|setting| setting.set(&mut self.clone(), &setting.get(self)))
    }

    /// The settings that differ from their defaults, with their values as text.
    pub fn changed(&self) -> impl Iterator<Item = (&'static Setting, String)> {
        let values = TABLE.iter().map(|setting| (setting, setting.get(self)));
        values.filter(|(setting, value)| *value != setting.default())
    }
}

/// The table for the documentation's readers: Markdown.
pub fn document() -> String {
    let mut text =
        String::from("| setting | variable | values | default | what |\n| --- | --- | --- | --- | --- |\n");
    for setting in TABLE {
        let default = match setting.default() {
            none if none.is_empty() => "–".to_owned(),
            value => format!("`{value}`"),
        };
        let bare = setting.bare().map_or(String::new(), |_| "[=…]".to_owned());
        text.push_str(&format!(
            "| `--{}{bare}` | `{}` | {} | {default} | {} |\n",
            setting.name,
            setting.variable,
            setting.range,
            setting.summary(),
        ));
    }
    text
}
