//! Rules of language: summaries that begin with a noun or a verb, and lines that fit a window.
//!
//! Each rule has a constant, the number of places that still break it. It may only be lowered.

use std::fs;
use std::path::{Path, PathBuf};

/// Headless summaries: doc comments and docstrings that begin with [`HEADLESS`].
const HEADLESS_MAX: usize = 0;
/// Lines of more than 120 columns in Rust files.
const RUST_MAX: usize = 72;
/// Lines of more than 100 columns in Markdown.
const MARKDOWN_MAX: usize = 0;

/// Words that leave a summary without a noun or a verb.
const HEADLESS: [&str; 6] = ["What", "Whether", "Where", "How", "Who", "When"];

/// Markdown that is generated, or that describes what was.
const UNCHECKED: [&str; 3] = ["docs/python-reference.md", "CHANGELOG.md", "THIRD-PARTY.md"];

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Returns each file below the project whose name ends with `end`, as its path and text.
fn texts(end: &str) -> Vec<(String, String)> {
    let project = project();
    let mut found = Vec::new();
    let mut todo = vec![project.clone()];
    while let Some(dir) = todo.pop() {
        for path in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() && !path.is_symlink() {
                todo.extend((name != "target" && !name.starts_with('.')).then(|| path.clone()));
            } else if name.ends_with(end) {
                let relative = path.strip_prefix(&project).unwrap().to_str().unwrap().to_owned();
                found.push((relative, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

fn is_headless(summary: &str) -> bool {
    let first = summary.split(|c: char| !c.is_alphanumeric()).next().unwrap();
    HEADLESS.contains(&first)
}

/// Returns the summaries of a Rust file: the first line of each doc comment.
fn rust_summaries(text: &str) -> Vec<(usize, &str)> {
    let doc = |line: &'_ str| line.trim_start().starts_with("///") || line.trim_start().starts_with("//!");
    let lines: Vec<&str> = text.lines().collect();
    let is_first = |at: &usize| doc(lines[*at]) && (*at == 0 || !doc(lines[*at - 1]));
    let firsts = (0..lines.len()).filter(is_first);
    firsts.map(|at| (at + 1, lines[at].trim_start()[3..].trim_start())).collect()
}

/// Returns the first line of each docstring of a Python file.
fn python_summaries(text: &str) -> Vec<(usize, &str)> {
    let lines = (1..).zip(text.lines());
    lines.filter_map(|(number, line)| Some((number, line.trim_start().strip_prefix("\"\"\"")?))).collect()
}

/// Returns the long lines of a Markdown file, but not those in tables and code, of links and of HTML.
fn long_markdown(text: &str) -> Vec<usize> {
    let mut is_code = false;
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let start = line.trim_start();
        is_code ^= start.starts_with("```");
        let is_free = is_code || start.starts_with(['|', '<']) || line.contains("](") || line.contains("://");
        found.extend((!is_free && line.chars().count() > 100).then_some(number));
    }
    found
}

/// Fails if there are more places than `max`, the constant called `name`.
fn assert_falls(places: &[String], name: &str, max: usize) {
    let count = places.len();
    println!("{name}: {count} of {max}");
    let last = places[count.saturating_sub(20)..].join("\n");
    assert!(
        count <= max,
        "{name} is {max} and may only be lowered, but there are {count} places; the last are\n{last}"
    );
}

#[test]
fn summaries_begin_with_a_noun_or_a_verb() {
    let mut places = Vec::new();
    for (path, text) in texts(".rs") {
        let headless = rust_summaries(&text).into_iter().filter(|(_, summary)| is_headless(summary));
        places.extend(headless.map(|(line, summary)| format!("{path}:{line}: {summary}")));
    }
    for (path, text) in texts(".py").into_iter().filter(|(path, _)| path.starts_with("crates/python/python")) {
        let headless = python_summaries(&text).into_iter().filter(|(_, summary)| is_headless(summary));
        places.extend(headless.map(|(line, summary)| format!("{path}:{line}: {summary}")));
    }
    assert_falls(&places, "HEADLESS_MAX", HEADLESS_MAX);
}

#[test]
fn lines_of_rust_fit_120_columns() {
    let mut places = Vec::new();
    for (path, text) in texts(".rs") {
        let long = (1..).zip(text.lines()).filter(|(_, line)| line.chars().count() > 120);
        places.extend(long.map(|(line, _): (usize, _)| format!("{path}:{line}")));
    }
    assert_falls(&places, "RUST_MAX", RUST_MAX);
}

#[test]
fn lines_of_markdown_fit_100_columns() {
    let mut places = Vec::new();
    for (path, text) in texts(".md").into_iter().filter(|(path, _)| !UNCHECKED.contains(&&**path)) {
        places.extend(long_markdown(&text).into_iter().map(|line| format!("{path}:{line}")));
    }
    assert_falls(&places, "MARKDOWN_MAX", MARKDOWN_MAX);
}

#[test]
fn headless_summaries_are_found() {
    let rust = "//! Whether.\n\nstruct A;\n    /// What is b.\n    /// How.\n/// Number of b.\n";
    let found: Vec<_> = rust_summaries(rust).into_iter().filter(|(_, summary)| is_headless(summary)).collect();
    assert_eq!(found, [(1, "Whether."), (4, "What is b.")]);
    assert_eq!(python_summaries("def f():\n    \"\"\"Where it is.\"\"\"\n"), [(2, "Where it is.\"\"\"")]);
    assert!(!is_headless("Whereas a"));
    assert_eq!(long_markdown(&format!("{0}\n| {0}\n```\n{0}\n```\n{0}](a)\n", "a".repeat(101))), [1]);
}
