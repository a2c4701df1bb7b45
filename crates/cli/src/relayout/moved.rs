//! An image of which the stored data lies elsewhere in a new one.

use super::Args;
use crate::console::report::{note, print_document};
use crate::console::size::Human;
use crate::exit::{Exit, Failure};
use crate::pack::output::Destination;
use crate::pack::target::Target;
use crate::pack::{PackJson, Report, failure, tell_left_out, tell_unmatched, verifiable};
use crate::process::signals::Signals;
use crate::verity::{Hashing, has_tree, tell_not_carried};
use kiln_builder::{HotMethod, PhaseClock, Progress, Summary};
use kiln_revise::{Relaid, RelayoutRequest, ReviseError};
use kiln_tree::storage::{DataOrder, PathOrder};
use kilnfs::Unmatched;
use uuid::Uuid;

/// A new image of the same tree, to be made.
pub(super) struct Moved<'a> {
    pub args: &'a Args,
    pub order: &'a DataOrder,
}

impl Moved<'_> {
    /// Makes it.
    pub(super) fn make(&self) -> Result<Exit, Failure> {
        let Args { image: src, out, hot, verity, require_verity, force, spool, work, quiet, .. } = self.args;
        work.apply_nice()?;
        let destination = Destination::find(out)?;
        if work.json {
            destination.refuse_json("image")?;
        }
        let name = destination.name(out);
        let quiet_end = quiet.quiet || destination.is_stderr();
        let signals = Signals::catch()?;
        let (existing, wanted) = (force.existing(), verity.wanted());
        let target = Target::create(destination, existing, 0, spool.asked())?.with_tree(wanted, out, existing)?;
        let had_tree = wanted.is_none() && has_tree(src);
        if had_tree {
            require_verity.refuse(src)?;
        }
        let hot_as = hot.choice(self.order)?;
        let built = work.watch(quiet.quiet, |progress| self.build(&target, hot_as, &signals, progress));
        let built = built.map_err(|error| target.failure(failure(error, &signals, out)));
        let Relaid { mut summary, unmatched, hot_files, old_len } = built?;
        let tree =
            target.seal(&mut summary, out, Hashing { work: Some(work), quiet: quiet.quiet, signals: &signals })?;
        let after = PhaseClock::start();
        target.commit(&summary, &signals)?;
        after.finish("sync");
        summary.phases.extend(after.phases());
        let report =
            Report { src, image: &name, scan: None, order: self.order, summary: &summary, tree: tree.as_ref() };
        let exit = tell_left_out(&summary);
        if !quiet_end {
            tell_unmatched(&Unmatched { paths: unmatched, hints: Vec::new() });
            tell(&report, old_len);
            hot.tell(&hot_files);
            match &tree {
                Some(tree) => tree.tell_all(&name),
                None if had_tree => tell_not_carried(src),
                None => {}
            }
        }
        if work.json {
            print_document(&PackJson::new(&report))?;
        }
        Ok(exit)
    }

    fn build(
        &self,
        target: &Target,
        hot_as: (HotMethod, u64),
        signals: &Signals,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<Relaid, ReviseError> {
        let Args { image, uuid, keep_going, work, .. } = self.args;
        let nothing = PathOrder::default();
        let request = RelayoutRequest {
            image,
            order: if let DataOrder::List(list) = self.order { list } else { &nothing },
            hot_method: hot_as,
            uuid: uuid.map(Uuid::into_bytes),
            keep_going: *keep_going,
            threads: work.threads(),
            outputs: &target.ids(),
            scratch_dir: target.scratch_dir(),
            stop: signals.stop(),
        };
        request.build(target.out(), progress)
    }
}

/// Notes the sizes of an image that had `old_len` bytes.
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
