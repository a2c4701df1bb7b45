//! `kiln check`

use crate::console::report::{SkippedJson, note, print_document};
use crate::console::size::Human;
use crate::exit::{Exit, Failure};
use crate::image::ImageArgs;
use crate::objects::ObjectsArgs;
use crate::process::work::WorkArgs;
use crate::root_hash::{self, verify_all};
use crate::update::lost::lost_generations;
use crate::verity::verify::ReportJson as TreeJson;
use kiln_read::{CheckProblem, CheckReport, Defect, Finding, Image, ImageOptions, ReadError};
use kiln_sink::Selection;
use kiln_verity::UnverifiedTree;
use kiln_verity::verify::Report;
use serde::Serialize;
use std::fmt;
use std::path::PathBuf;

/// Check that an image is consistent and readable
///
/// Metadata must be consistent, and compressed data decodable. Damage that leaves data decodable shows only if the
/// image has digests of contents (`kiln pack --content-digests`). The last line says for how many bytes it has
/// some. With --root-hash all of the image and of its hash tree is compared with the root hash first; if something
/// differs, the image is not looked at. Exit codes as fsck(8): 0 nothing wrong, 4 errors, 8 the check failed, 16
/// wrong usage.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  kiln check image.erofs && echo whole")]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,

    /// Accept a wrong checksum of the superblock
    #[arg(long)]
    no_sbcrc: bool,

    #[command(flatten)]
    work: WorkArgs,
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    args.work.apply_nice()?;
    let trees = args.image.hash_trees()?;
    let reports = verify(args, &trees)?;
    let verified = || trees.iter().zip(&reports).map(|((_, tree), report)| TreeJson::new(tree.location, report));
    if reports.iter().any(|report| !report.is_good()) {
        if args.work.json {
            print_document(&UnverifiedJson { verified: verified().collect() })?;
        }
        return Ok(Exit::ErrorsFound);
    }
    // A wrong checksum is one finding of many and must not end the check.
    let options = ImageOptions::default().with_any_checksum();
    let lost = lost_generations(&args.image);
    if let Some(lost) = &lost {
        note(format_args!("{}: {lost}", args.image.image.display()));
    }
    let image = args.image.open_compared(&options, &reports)?;
    args.image.note_left_over();
    let meter = args.work.meter(false);
    if meter.is_shown() {
        meter.set(0, contents_len(&image));
    }
    let report = image.check_with(args.work.threads(), &|bytes| meter.advance(bytes));
    drop(meter);
    let kind = args.image.view_kind()?;
    let mut report = report.map_err(|source| match source {
        // Readers of other formats stop at damage.
        ReadError::Io { .. } if kind.is_some() => Failure::Unsound { image: args.image.image.clone(), source },
        source => args.image.failure(source),
    })?;
    if args.no_sbcrc
        && let Some(problem) = forgive_checksum(&mut report)
    {
        note(format_args!("{}: {problem} (--no-sbcrc: no error)", args.image.image.display()));
    }
    if args.work.json {
        let verified = (!trees.is_empty()).then(|| verified().collect());
        print_document(&ReportJson { verified, ..ReportJson::new(&report, lost.as_deref()) })?;
    } else {
        tell(args, &report, kind);
    }
    Ok(if report.problem_count == 0 && lost.is_none() { Exit::Done } else { Exit::ErrorsFound })
}

/// Compares everything with the root hashes, and prints the results.
fn verify(args: &Args, trees: &[(PathBuf, UnverifiedTree)]) -> Result<Vec<Report>, Failure> {
    if trees.is_empty() {
        return Ok(Vec::new());
    }
    let reports = verify_all(trees, args.work.threads(), &args.work.meter(false))?;
    for ((path, _), report) in trees.iter().zip(&reports) {
        root_hash::tell(path, report, false);
    }
    Ok(reports)
}

/// Returns the bytes to be checked: contents of files, and inodes that store many files or inodes together. Parts
/// that cannot be read are reported by the check itself.
fn contents_len(image: &Image) -> u64 {
    let sb = image.superblock();
    let special = [sb.packed_nid, sb.metabox_nid].into_iter().flatten();
    let special: u64 = special.filter_map(|nid| image.inode(nid).ok()).map(|inode| inode.meta.size).sum();
    Selection::everything().contents_len(image).unwrap_or(0).saturating_add(special)
}

/// Removes a wrong checksum of the superblock from a report.
pub fn forgive_checksum(report: &mut CheckReport) -> Option<CheckProblem> {
    // It is checked first, so it is always listed.
    let idx = report.problems.iter().position(is_checksum)?;
    report.problem_count -= 1;
    Some(report.problems.remove(idx))
}

fn is_checksum(problem: &CheckProblem) -> bool {
    let Finding::Unreadable(ReadError::Corrupt { defect, .. }) = &problem.error else { return false };
    matches!(&**defect, Defect::Field(error) if error.record == "erofs_super_block" && error.field == "checksum")
}

fn tell(args: &Args, report: &CheckReport, kind: Option<&str>) {
    let image = args.image.image.display();
    for problem in &report.problems {
        note(format_args!("{image}: {problem}"));
    }
    let unlisted = report.problem_count - (report.problems.len() as u64).min(report.problem_count);
    if unlisted > 0 {
        note(format_args!("{image}: and {unlisted} problems more"));
    }
    let CheckReport { inodes, directories, extents, bytes, unverified_digests, problem_count, .. } = report;
    if *unverified_digests > 0 {
        note(format_args!(
            "{image}: {unverified_digests} digests not compared: the contents are far longer than the image"
        ));
    }
    for note in &report.notes {
        self::note(format_args!("{image}: note: {note}"));
    }
    let bytes = Human(*bytes);
    note(format_args!(
        "{image}: {inodes} inodes, {directories} of them directories, {extents} extents, contents of {bytes}: \
         {problem_count} problems"
    ));
    if *problem_count == 0 {
        match args.image.verified.is_given() {
            true => note(format_args!("{image}: all of it is what the root hash names; metadata: consistent")),
            false => match kind {
                Some(kind) => note(format_args!("{image}: all contents could be read; {}", proof_of_source(kind))),
                None => note(format_args!("{image}: {}", Proof { report, objects: &args.image.objects })),
            },
        }
    }
}

/// Returns the worth of a check of a source of this kind.
fn proof_of_source(kind: &str) -> String {
    match kind {
        // See `StoredMember` of the crate `source`.
        "zip" => "they have the CRC-32 that the archive says, which is not compared for members over 1 MiB that are \
                  stored uncompressed"
            .to_owned(),
        _ => format!("{kind} has no digests of them: nothing tells of damage that leaves them readable"),
    }
}

/// Summary of a check without problems.
struct Proof<'a> {
    report: &'a CheckReport,
    objects: &'a ObjectsArgs,
}

impl fmt::Display for Proof<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CheckReport { file_bytes, digested_bytes, objects, has_checksum, .. } = self.report;
        let checksum =
            if *has_checksum { "the superblock's checksum is right" } else { "the superblock has no checksum" };
        write!(f, "metadata: consistent, {checksum} (only a hash tree covers names, too: kiln verity); contents: ")?;
        match *digested_bytes {
            0 if *file_bytes > 0 => {
                write!(f, "not verifiable: without digests nothing tells of damage that leaves them decodable")?;
            }
            digested => {
                write!(f, "{digested} of {file_bytes} bytes are covered by digests")?;
                if digested < *file_bytes {
                    write!(f, ", the others are not verifiable: there is nothing to compare them with")?;
                }
            }
        }
        match objects {
            0 => Ok(()),
            _ if self.objects.are_verified() => {
                write!(f, "; {objects} files are objects of composefs, and have the digests that the image says")
            }
            _ => write!(f, "; {objects} files are objects of composefs, outside of the image"),
        }
    }
}

#[derive(Serialize)]
struct ReportJson {
    inodes: u64,
    directories: u64,
    extents: u64,
    bytes: u64,
    /// Bytes of regular files among these.
    file_bytes: u64,
    /// Bytes among these that match stored digests.
    digested_bytes: u64,
    unverified_digests: u64,
    /// Number of files whose contents are not in the image.
    objects: u64,
    /// The superblock has a checksum.
    has_checksum: bool,
    /// The reason why generations of an image that was updated in place are missing.
    lost_generations: Option<String>,
    /// Findings that are not errors.
    notes: Vec<String>,
    problem_count: u64,
    /// At most 1000.
    problems: Vec<ProblemJson>,
    /// Comparison with the root hashes of the image and of its devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    verified: Option<Vec<TreeJson>>,
}

/// The document for an image that is not the one of the root hash.
#[derive(Serialize)]
struct UnverifiedJson {
    verified: Vec<TreeJson>,
}

#[derive(Serialize)]
struct ProblemJson {
    #[serde(flatten)]
    problem: SkippedJson,
    nid: Option<u64>,
}

impl ReportJson {
    fn new(report: &CheckReport, lost_generations: Option<&str>) -> Self {
        let problem = |problem: &kiln_read::CheckProblem| ProblemJson {
            problem: SkippedJson::new(&problem.path, &problem),
            nid: problem.nid.map(|nid| nid.0),
        };
        Self {
            inodes: report.inodes,
            directories: report.directories,
            extents: report.extents,
            bytes: report.bytes,
            file_bytes: report.file_bytes,
            digested_bytes: report.digested_bytes,
            unverified_digests: report.unverified_digests,
            objects: report.objects,
            has_checksum: report.has_checksum,
            lost_generations: lost_generations.map(str::to_owned),
            notes: report.notes.iter().map(ToString::to_string).collect(),
            problem_count: report.problem_count,
            problems: report.problems.iter().map(problem).collect(),
            verified: None,
        }
    }
}
