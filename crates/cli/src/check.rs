//! `kiln check`

use crate::exit::{Exit, Failure};
use crate::image::ImageArgs;
use crate::report::{SkippedJson, note, print_document};
use crate::size::Human;
use crate::threads::ThreadsArgs;
use kiln_read::{CheckReport, OpenOptions};
use serde::Serialize;

/// Read everything in an image and report what is wrong
///
/// Exit codes as fsck(8): 0 nothing wrong, 4 errors found, 8 the check itself failed, 16 wrong usage.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  kiln check image.erofs && echo whole")]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,

    #[command(flatten)]
    threads: ThreadsArgs,

    /// One JSON document on standard output
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    // A wrong checksum is one finding of many, not the end.
    let options = OpenOptions { verify_checksum: false, ..OpenOptions::default() };
    let image = args.image.open_with(&options)?;
    let report = kiln_read::check(&image, args.threads.count()).map_err(|error| args.image.failure(error))?;
    if args.json {
        print_document(&ReportJson::new(&report))?;
    } else {
        tell(args, &report);
    }
    Ok(if report.problem_count == 0 { Exit::Done } else { Exit::ErrorsFound })
}

fn tell(args: &Args, report: &CheckReport) {
    let image = args.image.image.display();
    for problem in &report.problems {
        note(format_args!("{image}: {problem}"));
    }
    let unlisted = report.problem_count - (report.problems.len() as u64).min(report.problem_count);
    if unlisted > 0 {
        note(format_args!("{image}: and {unlisted} problems more"));
    }
    let CheckReport { inodes, directories, extents, bytes, problem_count, .. } = report;
    let bytes = Human(*bytes);
    note(format_args!(
        "{image}: {inodes} inodes, {directories} of them directories, {extents} extents, {bytes}: {problem_count} problems"
    ));
}

#[derive(Serialize)]
struct ReportJson {
    inodes: u64,
    directories: u64,
    extents: u64,
    bytes: u64,
    problem_count: u64,
    /// At most 1000.
    problems: Vec<ProblemJson>,
}

#[derive(Serialize)]
struct ProblemJson {
    #[serde(flatten)]
    problem: SkippedJson,
    nid: Option<u64>,
}

impl ReportJson {
    fn new(report: &CheckReport) -> Self {
        let problem = |problem: &kiln_read::CheckProblem| ProblemJson {
            problem: SkippedJson::new(&problem.path, &problem),
            nid: problem.nid.map(|nid| nid.0),
        };
        Self {
            inodes: report.inodes,
            directories: report.directories,
            extents: report.extents,
            bytes: report.bytes,
            problem_count: report.problem_count,
            problems: report.problems.iter().map(problem).collect(),
        }
    }
}
