//! `kiln verity verify`

use super::{erofs, failure, open, signed};
use crate::console::progress::QuietArgs;
use crate::console::report::print_document;
use crate::exit::{Exit, Failure};
use crate::process::signals::Signals;
use crate::process::work::WorkArgs;
use crate::root_hash::{self, HASH_TREE_HELP, ROOT_HASH_HELP};
use kiln_verity::verify::{Finding, Report, verify};
use kiln_verity::{Control, Digest, FoundTree, Location, Part, VerityError, find_tree};
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

    #[arg(long, value_name = "HEX|FILE", help = ROOT_HASH_HELP, value_parser = root_hash::parser())]
    root_hash: Digest,

    #[arg(long, value_name = "FILE", help = HASH_TREE_HELP, conflicts_with = "tree")]
    hash_tree: Option<PathBuf>,

    #[command(flatten)]
    signed: signed::SignedArgs,

    #[command(flatten)]
    quiet: QuietArgs,

    #[command(flatten)]
    work: WorkArgs,
}

/// Result of comparing an image with its hash tree.
#[derive(Serialize)]
pub struct ReportJson {
    hash_offset: u64,
    data_bytes: u64,
    uncovered_bytes: u64,
    unverifiable_bytes: u64,
    has_own_uuid: bool,
    problem_count: u64,
    problems: Vec<ProblemJson>,
}

/// The document of `--json`.
#[derive(Serialize)]
struct VerifiedJson {
    signature: Option<signed::SignatureJson>,
    #[serde(flatten)]
    tree: ReportJson,
}

#[derive(Serialize)]
struct ProblemJson {
    part: &'static str,
    offset: Option<u64>,
    error: String,
}

impl ReportJson {
    /// Returns the document for a tree at `location`.
    pub fn new(location: Location, report: &Report) -> Self {
        Self {
            hash_offset: location.hash_off(),
            data_bytes: report.superblock.parameters.data_len(),
            uncovered_bytes: report.uncovered,
            unverifiable_bytes: report.unverifiable,
            has_own_uuid: report.has_own_uuid,
            problem_count: report.finding_count,
            problems: report.findings.iter().map(ProblemJson::new).collect(),
        }
    }
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
    let signature = args.signed.verify(&args.root_hash, args.quiet.quiet)?;
    let image = open(&args.image)?;
    let fail = |error| failure(&args.image, error);
    let found = match args.tree.as_ref().or(args.hash_tree.as_ref()) {
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
    let report = verify(&image, &tree, found.location, &args.root_hash, &control);
    drop(meter);
    let report = report.map_err(|error| match (error, signals.caught()) {
        (VerityError::Interrupted, Some(number)) => Failure::Signal(number),
        (error, _) => failure(&found.path, error),
    })?;
    root_hash::tell(&args.image, &report, args.quiet.quiet);
    if args.work.json {
        let tree = ReportJson::new(found.location, &report);
        print_document(&VerifiedJson { signature, tree })?;
    }
    Ok(if report.is_good() { Exit::Done } else { Exit::ErrorsFound })
}
