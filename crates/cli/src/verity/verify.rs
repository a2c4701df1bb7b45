//! `kiln verity verify`

use super::{erofs, failure, open, root_hash, signed};
use crate::console::progress::QuietArgs;
use crate::console::report::{note, print_document};
use crate::console::size::Human;
use crate::exit::{Exit, Failure};
use crate::process::signals::Signals;
use crate::process::work::WorkArgs;
use kiln_verity::verify::{Finding, Report, verify};
use kiln_verity::{Control, FoundTree, Location, Part, VerityError, find_tree};
use serde::Serialize;
use std::path::PathBuf;

/// Verify an image by its hash tree
///
/// All of the image and of the tree is compared with the root hash, which must come from a place that you trust.
/// Exit codes: 0 everything is right, 4 something is wrong, 1 nothing could be verified.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kiln verity verify image.erofs --root-hash image.roothash
  kiln verity verify image.erofs image.verity --root-hash 5a8c...
  kiln verity verify image.erofs --root-hash image.roothash --signature image.roothash.p7s --certificate certificate.pem")]
pub struct Args {
    /// Image: a file or a block device
    image: PathBuf,

    /// File with the tree; default: behind IMAGE, then IMAGE.verity
    tree: Option<PathBuf>,

    /// Root hash: hexadecimal digits, or a file with them
    #[arg(long, value_name = "HEX|FILE")]
    root_hash: String,

    #[command(flatten)]
    signed: signed::Args,

    #[command(flatten)]
    quiet: QuietArgs,

    #[command(flatten)]
    work: WorkArgs,
}

/// The document of `--json`.
#[derive(Serialize)]
struct ReportJson {
    signature: Option<signed::SignatureJson>,
    hash_offset: u64,
    data_bytes: u64,
    uncovered_bytes: u64,
    unverifiable_bytes: u64,
    has_own_uuid: bool,
    problem_count: u64,
    problems: Vec<ProblemJson>,
}

#[derive(Serialize)]
struct ProblemJson {
    part: &'static str,
    offset: Option<u64>,
    error: String,
}

impl ProblemJson {
    fn new(finding: &Finding) -> Self {
        let (part, offset) = finding.place();
        Self { part: if part == Part::Data { "data" } else { "tree" }, offset, error: finding.to_string() }
    }
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    args.work.apply_nice()?;
    let signals = Signals::catch()?;
    let root_hash = root_hash(&args.root_hash)?;
    let signature = args.signed.verify(&root_hash, args.quiet.quiet)?;
    let image = open(&args.image)?;
    let fail = |error| failure(&args.image, error);
    let found = match &args.tree {
        Some(path) => Some(FoundTree { path: path.clone(), location: Location::Beside { hash_off: 0 }, sidecar: None }),
        None => find_tree(&args.image, &image, erofs(&args.image).map(|erofs| erofs.end)).map_err(fail)?,
    };
    let Some(found) = found else { return Err(Failure::NoTree { image: args.image.clone() }) };
    let tree = open(&found.path)?;
    let meter = args.work.meter(args.quiet.quiet);
    if meter.is_shown()
        && let Ok(superblock) = kiln_verity::read_superblock(&tree, found.location.hash_off())
    {
        meter.set(0, superblock.parameters.data_len());
    }
    let progress = |bytes| meter.advance(bytes);
    let control = Control { threads: args.work.threads(), stop: signals.stop(), progress: &progress };
    let report = verify(&image, &tree, found.location, &root_hash, &control);
    drop(meter);
    let report = report.map_err(|error| match (error, signals.caught()) {
        (VerityError::Interrupted, Some(number)) => Failure::Signal(number),
        (error, _) => failure(&found.path, error),
    })?;
    tell(args, &report);
    if args.work.json {
        print_document(&ReportJson {
            signature,
            hash_offset: found.location.hash_off(),
            data_bytes: report.superblock.parameters.data_len(),
            uncovered_bytes: report.uncovered,
            unverifiable_bytes: report.unverifiable,
            has_own_uuid: report.has_own_uuid,
            problem_count: report.finding_count,
            problems: report.findings.iter().map(ProblemJson::new).collect(),
        })?;
    }
    Ok(if report.is_good() { Exit::Done } else { Exit::ErrorsFound })
}

fn tell(args: &Args, report: &Report) {
    let image = args.image.display();
    for finding in &report.findings {
        note(format_args!("{image}: {finding}"));
    }
    let unlisted = report.finding_count - report.findings.len() as u64;
    if unlisted > 0 {
        note(format_args!("{image}: and {unlisted} problems more"));
    }
    if report.unverifiable > 0 {
        note(format_args!("{image}: {} below wrong hash blocks could not be verified", Human(report.unverifiable)));
    }
    if args.quiet.quiet {
        return;
    }
    if report.uncovered > 0 {
        note(format_args!("{image}: {} behind the data are not covered by the tree", Human(report.uncovered)));
    }
    let (len, count) = (Human(report.superblock.parameters.data_len()), report.finding_count);
    note(format_args!("{image}: {len} compared with the root hash: {count} problems"));
}
