//! The help texts, as files: a reviewer sees any change of them. `KILN_BLESS=1` rewrites the files.

use crate::common::{Scratch, run, stdout};
use std::fs;
use std::path::Path;

const COMMANDS: [&str; 57] = [
    "pack",
    "mount",
    "umount",
    "run",
    "stats",
    "record",
    "preload",
    "hotlist",
    "hotlist merge",
    "hotlist show",
    "hotlist diff",
    "ls",
    "tree",
    "stat",
    "cat",
    "extract",
    "export",
    "convert",
    "patch",
    "patch make",
    "patch apply",
    "update",
    "log",
    "rollback",
    "repair",
    "relayout",
    "oci",
    "oci inspect",
    "oci pack",
    "oci convert",
    "composefs",
    "composefs create",
    "composefs info",
    "composefs info ls",
    "composefs info objects",
    "composefs info missing-objects",
    "composefs info dump",
    "composefs info measure-file",
    "composefs mount",
    "composefs store",
    "composefs store verify",
    "composefs store gc",
    "verity",
    "verity format",
    "verity verify",
    "verity show",
    "verity sign",
    "digest",
    "info",
    "du",
    "explain",
    "check",
    "diff",
    "doctor",
    "install-names",
    "generate",
    "help",
];

fn check(name: &str, help: &[u8]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/help").join(format!("{name}.txt"));
    let help = str::from_utf8(help).unwrap();
    if std::env::var_os("KILN_BLESS").is_some_and(|bless| bless == "1") {
        fs::write(&path, help).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(help, expected, "{}: KILN_BLESS=1 accepts the change", path.display());
    assert!(help.lines().all(|line| line.chars().count() <= 100), "{name}: lines end at column 100");
}

/// Returns the output of `kiln COMMAND --help`.
fn help_of(command: &str) -> Vec<u8> {
    stdout(&command.split(' ').chain(["--help"]).collect::<Vec<_>>())
}

#[test]
fn help_is_as_reviewed() {
    check("kiln", &stdout(&["--help"]));
    for command in COMMANDS {
        check(&command.replace(' ', "-"), &help_of(command));
    }
}

/// Lines of two screens.
const LINES_MAX: usize = 109;

#[test]
fn help_fits_two_screens_and_has_one_form() {
    for command in COMMANDS.iter().map(|command| command.split(' ').collect::<Vec<_>>()).chain([vec![]]) {
        let help = |option| String::from_utf8(stdout(&[&command[..], &[option]].concat())).unwrap();
        let long = help("--help");
        assert!(long.contains("-h, --help"), "{command:?}: {long}");
        assert!(long.lines().count() <= LINES_MAX, "{command:?}: {} lines\n{long}", long.lines().count());
        assert_eq!(long, help("-h"), "{command:?}");
        let by_name = [&["help"], &command[..]].concat();
        if !command.is_empty() {
            assert_eq!(long, String::from_utf8(stdout(&by_name)).unwrap(), "{by_name:?}");
        }
    }
}

const TOPICS: [&str; 11] = [
    "sources",
    "filters",
    "metadata",
    "edits",
    "compression",
    "layout",
    "order",
    "reuse",
    "mounting",
    "root-hash",
    "exit-codes",
];

#[test]
fn topics_are_listed_and_printed() {
    let list = String::from_utf8(stdout(&["help"])).unwrap();
    for topic in TOPICS {
        let listed = list.lines().find(|line| line.trim_start().split(' ').next() == Some(topic));
        let text = String::from_utf8(stdout(&["help", topic])).unwrap();
        let title = text.lines().next().unwrap();
        let summary = listed.unwrap().trim_start().trim_start_matches(topic).trim_start();
        assert!(title.ends_with(summary), "{topic}: {title}");
        assert!(text.lines().count() > 10, "{text}");
    }
    let output = run(&["help", "frob"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("topics: sources, filters"));
}

#[test]
fn every_command_is_reviewed() {
    let help = String::from_utf8(stdout(&["--help"])).unwrap();
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    // Continued lines are indented further.
    let commands = commands.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let commands: Vec<_> = commands.filter(|name| !name.is_empty()).collect();
    let reviewed: Vec<_> = COMMANDS.into_iter().filter(|name| !name.contains(' ')).collect();
    assert_eq!(commands, reviewed);
}

#[test]
fn packagers_get_man_pages_and_completions() {
    let scratch = Scratch::new();
    stdout(&["generate", "man", &scratch.path("man")]);
    let page = |name: &str| fs::read_to_string(scratch.path(&format!("man/{name}"))).unwrap();
    let has = |page: &str, title: &str| {
        let titles = [format!(".SH {title}"), format!(".SH \"{title}\"")];
        page.lines().any(|line| titles.contains(&line.to_owned()))
    };
    for (command, called) in COMMANDS.map(|called| (called.replace(' ', "-"), called)) {
        let text = page(&format!("kiln-{command}.1"));
        assert!(
            text.contains(&format!(".TH kiln-{command} 1")) || text.contains(&format!(".TH \"kiln-{command}\" 1")),
            "{text}"
        );
        for title in ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "EXAMPLES", "SEE ALSO"] {
            assert!(has(&text, title), "{command} has no {title}");
        }
        // Each example of the help occurs there as typed.
        let help = String::from_utf8(help_of(called)).unwrap();
        let examples = help.lines().skip_while(|line| !line.starts_with("Example")).skip(1);
        let typed = text.replace("\\-", "-").replace("\\(aq", "'").replace("\\(ga", "`").replace("\\e", "\\");
        for example in examples.filter(|line| line.len() < 90) {
            assert!(typed.contains(example.trim()), "{command}: {example}");
        }
        assert_eq!(help.contains("--json"), text.contains("kiln\\-json(5)"), "{command}");
    }
    assert!(has(&page("kiln-pack.1"), "ENVIRONMENT") && has(&page("kiln-mount.1"), "FILES"));
    assert!(page("kiln.1").contains("kiln\\-pack(1)"));
    for name in crate::dropin::NAMES {
        let text = page(&format!("{name}.1"));
        for title in ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "SEE ALSO"] {
            assert!(has(&text, title), "{name} has no {title}");
        }
    }
    assert!(page("kiln-json.5").contains("served_bytes"));
    for topic in TOPICS {
        let text = page(&format!("kiln-{topic}.7"));
        assert!(has(&text, "NAME") && has(&text, "DESCRIPTION") && text.lines().count() > 20, "{topic}");
    }
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = String::from_utf8(stdout(&["generate", "completions", shell])).unwrap();
        assert!(script.contains("extract"), "{shell}");
    }
}

#[test]
fn misuse_has_its_own_code() {
    for args in
        [&[][..], &["frob"], &["ls"], &["ls", "--frob", "x"], &["pack", "a"], &["mount", "--via", "nbd", "a", "b"]]
    {
        assert_eq!(run(args).status.code(), Some(2), "{args:?}");
    }
    assert_eq!(run(&["check"]).status.code(), Some(16));
    assert_eq!(run(&["--version"]).status.code(), Some(0));
}

/// Checks that the pages in `docs/reference` are those of the definition. `KILN_BLESS=1` rewrites them.
#[test]
fn reference_pages_are_generated() {
    let scratch = Scratch::new();
    let made = scratch.path("reference");
    stdout(&["generate", "reference", &made]);
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
    if std::env::var_os("KILN_BLESS").is_some_and(|bless| bless == "1") {
        stdout(&["generate", "reference", docs.to_str().unwrap()]);
    }
    for name in ["options.md", "presets.md"] {
        let [made, kept] = [Path::new(&made), &docs].map(|dir| fs::read_to_string(dir.join(name)).unwrap_or_default());
        assert!(made == kept, "docs/reference/{name} is old: `kiln generate reference docs/reference` writes it");
    }
}
