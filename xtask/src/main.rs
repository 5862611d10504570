//! Build, test and demonstration tasks: `cargo xtask <task>`.
//!
//! A task installs or checks what it needs by itself and says what it did. It
//! works from any directory of the repository and leaves its output under the
//! target directory only, except for the files it exists to write.

mod book;
mod ci;
mod clauses;
mod commands;
mod compatibility;
mod demo;
mod fuzz;
mod fuzz_record;
mod links;
mod markdown;
mod prose;
mod readme;
mod requirements;
mod shell;
mod soak;
mod test;
mod vm_test;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Build, test and demonstration tasks of Toehold.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Everything a change has to pass: formatting, lints, tests, models, docs, licences, spelling.
    Ci(ci::Arguments),
    /// All tests; installs what they need first.
    Test(test::Arguments),
    /// Toehold beside the kernel in one measured run, in under two minutes.
    Demo(demo::Arguments),
    /// Every fuzz target for a while, or only the kept corpora.
    Fuzz(fuzz::Arguments),
    /// Writes docs/rfc-clauses.md from the citations in the code, or checks it.
    Clauses(clauses::Arguments),
    /// Writes docs/compatibility.md from the tests' results, or checks it.
    Compatibility(compatibility::Arguments),
    /// Writes docs/commands.md from the help of the built command, or checks it.
    Commands(commands::Arguments),
    /// The rules of the project's English that can be counted, in comments and documents.
    Prose(prose::Arguments),
    /// Links between the documents: each leads to a file and a heading that exist.
    Links(links::Arguments),
    /// The documentation site, by mdBook, with its links checked.
    Book(book::Arguments),
    /// Virtual machines that share memory, or have network cards: what no other test can show.
    VmTest(vm_test::Arguments),
    /// Runs the commands of the README and the book, so that they stay true.
    Readme(readme::Arguments),
    /// Nodes under load for half an hour, while programs and engines are killed: what grows?
    Soak(soak::Arguments),
    /// A program of the soak.
    #[command(hide = true)]
    SoakProgram(soak::ProgramArguments),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().task {
        Task::Ci(arguments) => ci::run(&arguments),
        Task::Test(arguments) => test::run(&arguments),
        Task::Demo(arguments) => demo::run(&arguments),
        Task::Fuzz(arguments) => fuzz::run(&arguments),
        Task::Clauses(arguments) => clauses::run(&arguments),
        Task::Compatibility(arguments) => compatibility::run(&arguments),
        Task::Commands(arguments) => commands::run(&arguments),
        Task::Prose(arguments) => prose::run(&arguments),
        Task::Links(arguments) => links::run(&arguments),
        Task::Book(arguments) => book::run(&arguments),
        Task::VmTest(arguments) => vm_test::run(&arguments),
        Task::Readme(arguments) => readme::run(&arguments),
        Task::Soak(arguments) => soak::run(&arguments),
        Task::SoakProgram(arguments) => soak::run_program(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
