//! `kiln hotlist diff`

use super::super::lists;
use crate::console::report::{Bytes, Out, print_document};
use crate::exit::{Exit, Failure};
use kiln_read::hotlist::{HotEntry, HotList};
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;

/// Compare two lists
///
/// Prints ranges that only A has with `-`, and those that only B has with `+`. Order and times are not compared.
/// Exit codes as diff(1): 0 the same, 1 different, 2 trouble.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kiln hotlist diff first.list second.list
  kiln hotlist diff --json first.list second.list")]
pub struct Args {
    /// First hot list; - is standard input
    a: PathBuf,

    /// Second hot list
    b: PathBuf,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct DifferenceJson {
    same: bool,
    only_a: Vec<EntryJson>,
    only_b: Vec<EntryJson>,
}

#[derive(Serialize)]
struct EntryJson {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_b64: Option<String>,
    offset: u64,
    bytes: u64,
    micros: u64,
}

impl EntryJson {
    fn new(entry: &HotEntry) -> Self {
        let HotEntry { offset, len, micros, path } = entry;
        let path = Bytes(path);
        Self { path: path.lossy(), path_b64: path.b64_if_lossy(), offset: *offset, bytes: *len, micros: *micros }
    }
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    let (a, b) = (lists::hot(&args.a)?, lists::hot(&args.b)?);
    let (only_a, only_b) = (a.without(&b), b.without(&a));
    let is_same = only_a.entries().is_empty() && only_b.entries().is_empty();
    if args.json {
        let entries = |list: &HotList| list.entries().iter().map(EntryJson::new).collect();
        print_document(&DifferenceJson { same: is_same, only_a: entries(&only_a), only_b: entries(&only_b) })?;
    } else {
        let mut out = Out::new();
        for (sign, list) in [('-', &only_a), ('+', &only_b)] {
            for entry in list.entries() {
                writeln!(out, "{sign}{entry}")?;
            }
        }
        out.finish()?;
    }
    Ok(if is_same { Exit::Done } else { Exit::Different })
}
