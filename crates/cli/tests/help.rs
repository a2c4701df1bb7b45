//! The help texts, as files: a change of them is a change that a reviewer sees. `KILN_BLESS=1` rewrites the files.

mod common;

use common::{Scratch, run, stdout};
use std::fs;
use std::path::Path;

const COMMANDS: [&str; 15] = [
    "pack",
    "mount",
    "umount",
    "stats",
    "ls",
    "tree",
    "stat",
    "cat",
    "extract",
    "info",
    "du",
    "explain",
    "check",
    "diff",
    "install-names",
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

#[test]
fn help_is_as_reviewed() {
    check("kiln", &stdout(&["--help"]));
    for command in COMMANDS {
        check(command, &stdout(&[command, "--help"]));
    }
}

#[test]
fn every_command_is_reviewed() {
    let help = String::from_utf8(stdout(&["--help"])).unwrap();
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    // Lines that go on are indented further.
    let commands = commands.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let commands: Vec<_> = commands.filter(|name| !name.is_empty()).collect();
    assert_eq!(commands, [&COMMANDS[..], &["help"]].concat());
}

#[test]
fn packagers_get_man_pages_and_completions() {
    let scratch = Scratch::new();
    stdout(&["generate", "man", &scratch.path("man")]);
    for command in COMMANDS {
        let page = fs::read_to_string(scratch.path(&format!("man/kiln-{command}.1"))).unwrap();
        assert!(page.contains(".TH"), "{command}");
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
