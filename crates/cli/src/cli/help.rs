//! One help text for `-h` and `--help`: a line or two for each option.

use clap::{Arg, ArgAction, Command};

/// Order of the parts: the summary, the description, and then as usual.
const TEMPLATE: &str = "{about-with-newline}\n{before-help}{usage-heading} {usage}\n\n{all-args}{after-help}";

/// Returns `command`, and so its subcommands, with this help.
pub fn with_one_help(command: Command) -> Command {
    let command = command.mut_subcommands(with_one_help);
    // The short form has no empty lines between options.
    let help = Arg::new("help").short('h').long("help").action(ArgAction::HelpShort).help("Print help");
    let description = description(&command);
    let command = command.disable_help_flag(true).disable_help_subcommand(true).help_template(TEMPLATE);
    let command = command.arg(help.help_heading(None));
    match description {
        Some(description) => command.before_help(description),
        None => command,
    }
}

/// Returns the description of a command without its summary.
fn description(command: &Command) -> Option<String> {
    let long = command.get_long_about()?.to_string();
    let summary = command.get_about()?.to_string();
    long.strip_prefix(&summary).map(|rest| rest.trim().to_owned()).filter(|rest| !rest.is_empty())
}
