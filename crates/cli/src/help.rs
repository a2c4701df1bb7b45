//! `kiln help`: the help of commands, and topics.

mod render;
pub mod topics;

use crate::exit::{Exit, Failure};
use std::io::{self, Write};
use topics::TOPICS;

/// Print the help of a command or a topic
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kiln help layout
  kiln help oci pack")]
pub struct Args {
    /// Command or topic to explain; without one, topics are listed
    #[arg(value_name = "COMMAND|TOPIC")]
    words: Vec<String>,
}

/// Prints the help that is asked for, of the command that `definition` defines.
pub fn run(args: &Args, mut definition: clap::Command) -> Result<Exit, Failure> {
    definition.build();
    if let [name] = &*args.words
        && let Some(topic) = topics::find(name)
    {
        io::stdout().write_all(topic.text().as_bytes())?;
    } else if args.words.is_empty() {
        io::stdout().write_all(list().as_bytes())?;
    } else {
        command(definition, &args.words)?.print_help()?;
    }
    Ok(Exit::Done)
}

/// Returns the list of topics.
fn list() -> String {
    let width = TOPICS.iter().map(|topic| topic.name.len()).max().unwrap_or_default();
    let lines = TOPICS.iter().map(|topic| format!("  {:width$}  {}\n", topic.name, topic.summary()));
    format!("Topics:\n{}\n{FOOTER}\n", lines.collect::<String>())
}

const FOOTER: &str = "`kiln help TOPIC` prints one, `kiln help COMMAND` the help of a command,
`kiln --help` the list of commands.";

/// Returns the command that is called by `words`.
fn command(definition: clap::Command, words: &[String]) -> Result<clap::Command, Failure> {
    words.iter().try_fold(definition, |command, word| match command.find_subcommand(word) {
        Some(found) => Ok(found.clone()),
        None => {
            let topics: Vec<_> = TOPICS.iter().map(|topic| topic.name).collect();
            let message = format!("help {}: no such command or topic; topics: {}", words.join(" "), topics.join(", "));
            Err(Failure::Usage(message))
        }
    })
}
