//! The steps of `kiln pack`.

use super::args::Args;
use super::base::{StampsWanted, tell_stamps};
use super::failure::{advised, failure};
use super::output::{Destination, Stream};
use super::preset::PresetArg;
use super::sources::Operands;
use super::summary::{PackJson, Report, tell_skipped, tell_unmatched};
use super::target::Target;
use super::{estimate, explain, layers};
use crate::console::report::{note, print_document};
use crate::exit::{Exit, Failure};
use crate::process::signals::Signals;
use crate::verity::Hashing;
use kiln_builder::Reasons;
use kiln_format::BlockBits;
use kiln_source::Source;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub fn run(args: &Args) -> Result<Exit, Failure> {
    let operands = args.sources.operands(args.estimate || args.containerd_cache.is_some())?;
    if let Some(cache) = &args.containerd_cache {
        return layers::run(args, &operands, layers::Place::Cache(cache));
    }
    match operands.image {
        None => estimate::run(args, &operands),
        Some(dir) if args.layers => layers::run(args, &operands, layers::Place::Dir(dir)),
        Some(image) => pack(args, &operands, image),
    }
}

/// Packs the sources into one image.
fn pack(args: &Args, operands: &Operands<'_>, image: &Path) -> Result<Exit, Failure> {
    let open = |signals: Option<&Signals>| args.sources.open(operands, &args.out.spool, signals);
    // Sources to which the image refers decide its block size.
    let referred = if args.sources.reference { Some(referable(open(None)?)?) } else { None };
    let block_len = referred.as_ref().and_then(|source| source.block_bits()).map(BlockBits::len);
    let (packer, order) = args.packer(args.options(args.preset.into(), block_len)?)?;
    args.work.apply_nice()?;
    // A FIFO that nothing reads makes this wait, as in any program: a signal ends it.
    let destination = Destination::find(image)?;
    refuse_mixed_output(args, destination.stream())?;
    let stamps = stamps(args, &destination, image)?;
    let (name, quiet) = (destination.name(image), args.quiet.quiet || destination.is_stderr());
    let signals = Signals::catch()?;
    let mut target = target(args, destination, image)?;
    let source = referred.map_or_else(|| open(Some(&signals)), Ok)?;
    let base = args.base.open()?.map(Arc::new);
    let mut packer = target.prepare(packer).stop(Arc::clone(signals.stop()));
    if let Some(base) = &base {
        packer = packer.base(Arc::clone(base));
    }
    let fail = |error| advised(failure(error, &signals, image), source.path());
    if !quiet && let Some(stream) = operands.stream() {
        tell_spool(stream, packer.spools_because(&*source), args.out.spool.dir());
    }
    // The system takes back the memory of trees and reasons sooner than they are freed file by file.
    let scanned = args.work.watch(quiet, |progress| packer.scan_into(&*source, target.out(), progress));
    let scanned = ManuallyDrop::new(scanned.map_err(|error| target.failure(fail(error)))?);
    stamps.check(&scanned.scan, args.out.existing())?;
    target.refer_to(scanned.scan.tree.stores().devices, scanned.options.block_bits)?;
    let built = args.work.watch(args.quiet.quiet, |progress| scanned.build(target.out(), progress));
    let mut built = ManuallyDrop::new(built.map_err(|error| target.failure(fail(error)))?);
    let hashing = Hashing { work: Some(&args.work), quiet: args.quiet.quiet, signals: &signals };
    let tree = target.seal(&mut built.summary, image, hashing)?;
    let mut written = None;
    if !args.dry_run {
        built.commit_by(|summary| target.commit(summary, &signals))?;
        written = stamps.write(image, &scanned.scan, args.out.existing())?;
    }
    if !quiet {
        tell_unmatched(&scanned.unmatched);
        args.by_path.hot.tell(&scanned.hot_files);
        tell_stamps(base.as_deref(), &scanned.scan, written);
    }
    let src = args.sources.only_source(operands);
    let (scan, summary, tree) = (Some(&scanned.scan), &built.summary, tree.as_ref());
    let report = Report { src, image: &name, scan, order: &order, summary, tree };
    finish(args, &report, &built.reasons, quiet)
}

/// Notes that a stream goes to a temporary file, and why.
fn tell_spool(stream: &Path, reason: Option<&str>, dir: PathBuf) {
    if let Some(reason) = reason {
        let dir = dir.display();
        note(format_args!("{}: goes through a temporary file in {dir}, since {reason}", stream.display()));
    }
}

/// Refuses documents that would come between the bytes of the image.
fn refuse_mixed_output(args: &Args, stream: Option<&Stream>) -> Result<(), Failure> {
    match (args.work.json || args.explain) && stream.is_some_and(Stream::is_stdout) {
        true => Err(Failure::Usage(
            "the image goes to standard output, so --json and --explain, which print there, are not possible".into(),
        )),
        false => Ok(()),
    }
}

/// Returns the stamps to write. They are of a file that has its name, and nothing else in it.
fn stamps(args: &Args, destination: &Destination, image: &Path) -> Result<StampsWanted, Failure> {
    let is_file = matches!(destination, Destination::File(_)) && args.layout.offset == 0 && !args.dry_run;
    let by_default = args.preset == PresetArg::Backup && is_file && args.layout.blob_device.is_none();
    args.base.stamps(destination.stream().is_none().then_some(image), by_default)
}

fn target(args: &Args, destination: Destination, image: &Path) -> Result<Target, Failure> {
    let existing = args.out.existing();
    let mut target = Target::create(destination, existing, args.layout.offset, args.out.spool.asked())?;
    target = target.with_tree(args.verity.wanted(), image, existing)?;
    if let Some(path) = &args.layout.blob_device {
        target = target.with_blob(path, existing)?;
    }
    if let Some(path) = &args.layout.vmdk {
        target = target.with_descriptor(path, image, existing)?;
    }
    Ok(target)
}

/// Returns `source`, unless an image cannot refer to its data.
fn referable(source: Box<dyn Source>) -> Result<Box<dyn Source>, Failure> {
    match source.block_bits() {
        Some(_) => Ok(source),
        None => Err(Failure::Usage(format!(
            "--reference: {}: an image can refer to tar archives and EROFS images only",
            source.path().display()
        ))),
    }
}

fn finish(args: &Args, report: &Report<'_>, reasons: &Reasons<'_>, quiet: bool) -> Result<Exit, Failure> {
    let exit = tell_skipped(report);
    if !quiet {
        report.tell();
    }
    match (args.explain, args.work.json) {
        (true, true) => explain::print_json(reasons, &PackJson::new(report))?,
        (true, false) => explain::tell(reasons)?,
        (false, true) => print_document(&PackJson::new(report))?,
        (false, false) => {}
    }
    Ok(exit)
}
