//! `kiln doctor`: what this machine can do with images.

mod kernel;
mod namespaces;
mod system;

use crate::console::report::{Out, print_document};
use crate::exit::{Exit, Failure};
use serde::Serialize;
use std::io::Write;

/// Tell what this machine can do with images
///
/// Tries what can be tried without harm: as root, it mounts a small image of each algorithm by the kernel's driver, in
/// no directory. What is missing comes with the way to get it.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  kiln doctor")]
pub struct Args {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Answer to one question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Yes,
    No,
    /// It could not be tried: for want of privileges, mostly.
    Unknown,
}

/// Result of one question.
#[derive(Debug, Serialize)]
struct Finding {
    /// Name of the thing, short enough for a column.
    name: String,
    answer: Answer,
    /// More about it; may be empty.
    detail: String,
    /// The way to get it; empty if it is there.
    help: &'static str,
}

impl Finding {
    fn yes(name: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { name: name.into(), answer: Answer::Yes, detail: detail.into(), help: "" }
    }

    fn no(name: impl Into<String>, detail: impl Into<String>, help: &'static str) -> Self {
        Self { name: name.into(), answer: Answer::No, detail: detail.into(), help }
    }

    fn unknown(name: impl Into<String>, detail: impl Into<String>, help: &'static str) -> Self {
        Self { name: name.into(), answer: Answer::Unknown, detail: detail.into(), help }
    }
}

#[derive(Serialize)]
struct DoctorJson<'a> {
    kernel: &'a str,
    findings: &'a [Finding],
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    let kernel = system::kernel_release();
    // A process of its own is made while there is one thread.
    let namespaces = namespaces::findings();
    let mut findings = kernel::findings();
    findings.extend(system::fuse());
    findings.extend(namespaces);
    findings.extend(system::others());
    if args.json {
        print_document(&DoctorJson { kernel: &kernel, findings: &findings })?;
        return Ok(Exit::Done);
    }
    let mut out = Out::new();
    writeln!(out, "Linux {kernel}, kiln {}", env!("CARGO_PKG_VERSION"))?;
    let width = findings.iter().map(|finding| finding.name.len()).max().unwrap_or_default();
    for Finding { name, answer, detail, help } in &findings {
        let word = match answer {
            Answer::Yes => "yes",
            Answer::No => "no",
            Answer::Unknown => "unknown",
        };
        let line = format!("{name:width$}  {word:7}  {detail}");
        writeln!(out, "{}", line.trim_end())?;
        if !help.is_empty() {
            writeln!(out, "{:width$}           {help}", "")?;
        }
    }
    out.finish()?;
    Ok(Exit::Done)
}
