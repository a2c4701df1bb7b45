//! An image of which the stored data lies elsewhere in a new one.

use super::CommonArgs;
use crate::console::report::{note, print_document};
use crate::console::size::Human;
use crate::exit::{Exit, Failure};
use crate::image::DEVICE_OPTION;
use crate::pack::hot::HotArgs;
use crate::pack::output::{Destination, Stream};
use crate::pack::target::Target;
use crate::pack::{Job, PackJson, Report, tell_unmatched};
use crate::process::signals::Signals;
use kiln::{PackRequest, Unmatched};
use kiln_builder::{BuildOptions, Existing, PhaseClock, Progress, Summary};
use kiln_source::filter::{DataOrder, Filter, Policy};
use kiln_source::image::erofs::{BaseImage, ImageSource, Relayout};
use kiln_source::{Scan, ScanOptions};
use std::path::Path;
use std::sync::Arc;
use uuid::Uuid;

/// What is to be made of an image.
pub(super) struct Moved<'a> {
    pub image: &'a Path,
    pub out: &'a Path,
    pub order: &'a DataOrder,
    pub hot: Option<&'a HotArgs>,
    pub common: &'a CommonArgs,
}

impl Moved<'_> {
    /// Make it.
    pub(super) fn make(&self) -> Result<Exit, Failure> {
        let CommonArgs { uuid, force, spool, threads, nice, progress: progress_args, json } = self.common;
        nice.apply()?;
        let destination = Destination::find(self.out)?;
        let stream = destination.stream();
        if *json && stream.is_some_and(Stream::is_stdout) {
            let message = "the image goes to standard output, so --json, which prints there, is not possible";
            return Err(Failure::Usage(message.into()));
        }
        let name = stream.map_or(self.out, Stream::name).to_owned();
        let quiet = progress_args.quiet || stream.is_some_and(Stream::is_stderr);
        let signals = Signals::catch()?;
        let existing = if *force { Existing::Replace } else { Existing::Keep };
        let target = Target::create(destination, existing, 0, spool.as_deref())?;
        let outputs = target.ids();
        let base = BaseImage::open(self.image).map_err(|error| Failure::of_source(error, None, DEVICE_OPTION))?;
        let base = Arc::new(base);
        let before = PhaseClock::start();
        let scan_options =
            ScanOptions { threads: threads.threads(), outputs: &outputs, ..ScanOptions::new(signals.stop()) };
        let relayout = Relayout::of(&base, &scan_options);
        let mut relayout = relayout.map_err(|error| Failure::of_source(error, signals.caught(), DEVICE_OPTION))?;
        let source = ImageSource::new(base.image().clone(), self.image);
        let (filter, policy) = (Filter::default(), Policy::default());
        let request = PackRequest {
            source: &source,
            base: None,
            filter: &filter,
            policy: &policy,
            outputs: &outputs,
            stop: signals.stop(),
        };
        let job = Job { request, image: self.out, signals: &signals };
        let (order, paths) = self.order.of(relayout.tree());
        let mut options = BuildOptions {
            threads: threads.threads(),
            uuid: uuid.map(Uuid::into_bytes),
            scratch_dir: target.scratch_dir().to_owned(),
            order,
            hot: self.order.hot_zone(relayout.tree()),
            ..relayout.options().clone()
        };
        relayout.gather(&options.hot);
        let mut hot_files = None;
        if let Some(hot) = self.hot {
            let stored_len = |node| relayout.stored_len(node);
            let tree = relayout.tree();
            let found = hot.apply((tree, self.order), &stored_len, &mut options, |error| job.failure(error))?;
            found.nodes.iter().for_each(|node| relayout.store_anew(*node));
            hot_files = Some((hot, found));
        }
        let scan = Scan::from(relayout.into_tree());
        before.finish("scan");
        let meter = progress_args.meter();
        let progress = |progress: Progress| meter.set(progress.done_bytes, progress.total_bytes);
        let built = job.build(&scan.tree, target.out(), &options, &progress);
        drop(meter);
        let (mut summary, _) = built.map_err(|failure| target.failure(failure))?;
        let after = PhaseClock::start();
        target.commit(&summary, &signals)?;
        after.finish("sync");
        summary.phases = [before.phases(), summary.phases, after.phases()].concat();
        let report = Report { src: self.image, image: &name, scan: &scan, order: self.order, summary: &summary };
        if !quiet {
            tell_unmatched(&Unmatched { paths, hints: Vec::new() });
            tell(&report, base.image().source_len());
            if let Some((hot, found)) = &hot_files {
                hot.tell(found);
            }
        }
        if *json {
            print_document(&PackJson::new(&report))?;
        }
        Ok(Exit::Done)
    }
}

/// Say what became of an image of `old_len` bytes.
fn tell(report: &Report<'_>, old_len: u64) {
    let Summary { files, image_bytes, bytes_in, kept_files, kept_bytes, copied_bytes, .. } = *report.summary;
    let (src, image) = (report.src.display(), report.image.display());
    note(format_args!("{src}: {} became {image}: {}", Human(old_len), Human(image_bytes)));
    note(format_args!(
        "moved as stored: {kept_files} files, {} stored as {}; stored anew: {} files, {}",
        Human(kept_bytes),
        Human(copied_bytes),
        files - kept_files,
        Human(bytes_in - kept_bytes)
    ));
    let Summary { hot_start, hot_bytes, .. } = *report.summary;
    if hot_bytes > 0 {
        note(format_args!("what comes first: {} from byte {hot_start} on", Human(hot_bytes)));
    }
}
