//! Transcripts in README.md, `docs/` and the guide: each `console` block is run, and its output compared.
//!
//! A line that begins with `$ ` is a command of sh(1). The lines below it are its output, standard
//! error included; `...` in them matches any text, also over several lines. All blocks of a
//! document run in one directory, which has `my-tree`.

use crate::common::kiln;
use kiln_tests::temp::TempDir;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Makes the directory `my-tree` that documents use.
fn make_tree(dir: &Path) {
    let tree = dir.join("my-tree");
    for (name, text) in [
        ("docs/guide.txt", "guide\n".repeat(1000)),
        ("docs/index.txt", "index of docs\n".to_owned()),
        ("src/main.c", "int main(void) { return 0; }\n".to_owned()),
    ] {
        let path = tree.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

/// Returns the commands of a document, each with its line, its text and its expected output.
fn commands(document: &str) -> Vec<(usize, String, String)> {
    let mut found: Vec<(usize, String, String)> = Vec::new();
    let mut is_console = false;
    for (number, line) in (1..).zip(document.lines()) {
        match line.strip_prefix("```") {
            Some(language) => is_console = language == "console",
            None if !is_console => {}
            None => match line.strip_prefix("$ ") {
                Some(command) => found.push((number, command.to_owned(), String::new())),
                None => found.last_mut().unwrap().2.push_str(&format!("{line}\n")),
            },
        }
    }
    found
}

/// Returns whether `output` is `expected`, in which `...` matches any text.
fn matches(expected: &str, output: &str) -> bool {
    let mut parts = expected.split("...");
    let Some(mut rest) = output.strip_prefix(parts.next().unwrap()) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, between)) = parts.split_last() else { return rest.is_empty() };
    for part in between {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    // `...` as the last line may match nothing.
    rest.ends_with(last) || *last == "\n"
}

/// Returns the documents that may have transcripts.
fn documents() -> Vec<PathBuf> {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let dirs = ["docs", "docs/guide"].map(|dir| fs::read_dir(project.join(dir)).unwrap());
    let docs = dirs.into_iter().flatten().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> = docs.filter(|path| path.extension().is_some_and(|suffix| suffix == "md")).collect();
    found.push(project.join("README.md"));
    found.sort();
    found
}

#[test]
fn documents_show_what_commands_print() {
    let bin = PathBuf::from(kiln().get_program());
    let path = format!("{}:{}", bin.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let mut count = 0;
    for document in documents() {
        let commands = commands(&fs::read_to_string(&document).unwrap());
        let dir = TempDir::new("transcripts").unwrap();
        make_tree(dir.path());
        for (line, command, expected) in commands {
            let mut shell = Command::new("sh");
            shell.args(["-c", &format!("exec 2>&1\n{command}")]).current_dir(dir.path());
            shell.env("PATH", &path).env("COLUMNS", "100").env_remove("SOURCE_DATE_EPOCH");
            let output = String::from_utf8(shell.output().unwrap().stdout).unwrap();
            let place = format!("{}:{line}: {command}", document.display());
            assert!(matches(&expected, &output), "{place}\nexpected:\n{expected}\nprinted:\n{output}");
            count += 1;
        }
    }
    assert!(count > 5, "{count}");
}

#[test]
fn dots_match_any_text() {
    assert!(matches("a\n", "a\n") && !matches("a\n", "a\nb\n"));
    assert!(matches("a ... c\n", "a b c\n") && matches("...\n", "") && matches("a\n...\n", "a\nb\n"));
    assert!(!matches("a ... c\n", "a b d\n") && !matches("... b ... d\n", "a c d\n"));
}
