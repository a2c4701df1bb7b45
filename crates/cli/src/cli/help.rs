//! Two helps from one definition: `-h` is one screen, with the options that most calls need and a sentence for each; `--help` is all.

use clap::{Arg, Command};

/// Of commands with more options than a screen has lines, those that `-h` shows. What is not named here is for `--help`.
const COMMON: [(&str, &[&str]); 14] = [
    ("pack", &["preset", "compression", "pcluster_len", "kernel", "exclude", "force", "quiet"]),
    ("update", &["add", "remove", "replace", "preset", "exclude", "quiet"]),
    (
        "mount",
        &["via", "options", "over", "owner", "allow_other", "foreground", "cache", "preload", "pin", "log", "quiet"],
    ),
    ("relayout", &["order", "hot_as", "hot_budget", "force", "quiet", "json"]),
    ("compact", &["force", "quiet", "json"]),
    ("convert", &["to", "preset", "force", "keep_going", "quiet", "json"]),
    ("apply", &["in_place", "complete", "status", "journal", "force", "quiet", "json"]),
    ("diff", &["ignore", "contents", "brief", "quiet", "json"]),
    ("export", &["to", "level", "force", "keep_going", "quiet", "json"]),
    ("extract", &["force", "no_owners", "keep_going", "quiet", "json"]),
    ("oci pack", &["tag", "platform", "preset", "media_type", "quiet"]),
    ("oci convert", &["tag", "image", "platform", "preset", "media_type", "quiet"]),
    ("ls", &["long", "recursive", "all", "json"]),
    ("du", &["depth", "summarize", "apparent", "bytes", "json"]),
];

/// A command with both helps, and so its subcommands.
pub fn with_both(command: Command) -> Command {
    of_path(command, "")
}

/// The same for a command that is called by `path` behind `kiln`.
fn of_path(command: Command, path: &str) -> Command {
    let command = brief(command, path);
    let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    names.iter().fold(command, |command, name| {
        command.mut_subcommand(name, |sub| of_path(sub, format!("{path} {name}").trim_start()))
    })
}

fn brief(command: Command, path: &str) -> Command {
    // Examples are for `--help`.
    let after = command.get_after_help().cloned();
    let command = match after {
        Some(after) => command.after_help(None).after_long_help(after),
        None => command,
    };
    let common = COMMON.iter().find(|(name, _)| *name == path).map(|(_, common)| *common);
    command.mut_args(|arg| {
        let is_rare = common.is_some_and(|common| !arg.is_positional() && !common.contains(&arg.get_id().as_str()));
        one_sentence(arg).hide_short_help(is_rare)
    })
}

/// The first sentence is the short help, all of it the long one.
fn one_sentence(arg: Arg) -> Arg {
    let Some(help) = arg.get_help().map(ToString::to_string) else { return arg };
    let end = [". ", "; "].iter().filter_map(|end| help.find(end)).min();
    let Some(end) = end.filter(|_| arg.get_long_help().is_none()) else { return arg };
    let short = help[..end].to_owned();
    arg.help(short).long_help(help)
}
