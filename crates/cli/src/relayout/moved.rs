//! An image of which the stored data lies elsewhere in a new one.

use super::CommonArgs;
use crate::console::report::{note, print_document};
use crate::console::size::Human;
use crate::exit::{Exit, Failure};
use crate::pack::hot::HotArgs;
use crate::pack::output::{Destination, Stream};
use crate::pack::target::Target;
use crate::pack::{PackJson, Report, failure, tell_left_out, tell_unmatched, verifiable};
use crate::process::signals::Signals;
use kiln::Unmatched;
use kiln_builder::HotMethod;
use kiln_builder::{PhaseClock, Progress, Summary};
use kiln_output::Existing;
use kiln_revise::{Relaid, RelayoutRequest};
use kiln_tree::storage::{DataOrder, PathOrder};
use std::path::Path;
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
        let CommonArgs { uuid, force, keep_going, spool, threads, nice, progress: progress_args, json } = self.common;
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
        let hot_as = self.hot.map_or(Ok((HotMethod::Same, 0)), |hot| hot.choice(self.order))?;
        let nothing = PathOrder::default();
        let order = if let DataOrder::List(list) = self.order { list } else { &nothing };
        let request = RelayoutRequest {
            image: self.image,
            order,
            hot_method: hot_as,
            uuid: uuid.map(Uuid::into_bytes),
            keep_going: *keep_going,
            threads: threads.threads(),
            outputs: &outputs,
            scratch_dir: target.scratch_dir(),
            stop: signals.stop(),
        };
        let meter = progress_args.meter();
        let progress = |progress: Progress| meter.set(progress.done_bytes, progress.total_bytes);
        let built = request.build(target.out(), &progress);
        drop(meter);
        let built = built.map_err(|error| target.failure(failure(error, &signals, self.out)));
        let Relaid { mut summary, unmatched, hot_files, old_len } = built?;
        let after = PhaseClock::start();
        target.commit(&summary, &signals)?;
        after.finish("sync");
        summary.phases.extend(after.phases());
        let (src, order) = (self.image, self.order);
        let report = Report { src, image: &name, scan: None, order, summary: &summary };
        let exit = tell_left_out(&summary);
        if !quiet {
            tell_unmatched(&Unmatched { paths: unmatched, hints: Vec::new() });
            tell(&report, old_len);
            if let Some(hot) = self.hot {
                hot.tell(&hot_files);
            }
        }
        if *json {
            print_document(&PackJson::new(&report))?;
        }
        Ok(exit)
    }
}

/// Say what became of an image of `old_len` bytes.
fn tell(report: &Report<'_>, old_len: u64) {
    let Summary { files, image_bytes, bytes_in, reused_files, reused_bytes, copied_bytes, .. } = *report.summary;
    let (src, image) = (report.src.display(), report.image.display());
    note(format_args!(
        "{src}: {} became {image}: {}; {}",
        Human(old_len),
        Human(image_bytes),
        verifiable(report.summary)
    ));
    note(format_args!(
        "moved as stored: {reused_files} files, {} stored as {}; stored anew: {} files, {}",
        Human(reused_bytes),
        Human(copied_bytes),
        files - reused_files,
        Human(bytes_in - reused_bytes)
    ));
    let Summary { hot_start, hot_bytes, .. } = *report.summary;
    if hot_bytes > 0 {
        note(format_args!("what comes first: {} from byte {hot_start} on", Human(hot_bytes)));
    }
}
