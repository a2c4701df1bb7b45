//! What all threads of one extraction share.

use super::lost::Lost;
use super::target::Target;
use super::{ExtractOptions, ExtractReport, Owners};
use crate::SinkError;
use crate::control::Control;
use kiln_read::{Image, Inode};
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// One extraction.
pub(super) struct Run<'a> {
    pub(super) image: &'a Image,
    /// What becomes the target.
    pub(super) root: Inode,
    pub(super) target: &'a Target,
    pub(super) options: &'a ExtractOptions,
    /// Whether owners are restored.
    pub(super) owners: bool,
    /// The owner of what is made.
    pub(super) euid: u32,
    pub(super) egid: u32,
    stop: &'a AtomicBool,
    progress: &'a (dyn Fn(u64) + Sync),
    /// Set with the first error that ends everything.
    failed: AtomicBool,
    outcome: Mutex<Outcome>,
}

#[derive(Default)]
struct Outcome {
    report: ExtractReport,
    lost: Lost,
    error: Option<SinkError>,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        image: &'a Image,
        root: Inode,
        target: &'a Target,
        options: &'a ExtractOptions,
        control: &Control<'a>,
    ) -> Self {
        let Control { stop, progress } = *control;
        let (euid, egid) = (geteuid().as_raw(), getegid().as_raw());
        let owners = match options.owners {
            Owners::IfRoot => euid == 0,
            Owners::Restore => true,
            Owners::Skip => false,
        };
        let (failed, outcome) = (AtomicBool::new(false), Mutex::default());
        Self { image, root, target, options, owners, euid, egid, stop, progress, failed, outcome }
    }

    /// Whether to do nothing more.
    pub(super) fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.failed.load(Ordering::Relaxed)
    }

    /// An error if there is nothing more to do.
    pub(super) fn check(&self) -> Result<(), SinkError> {
        if self.is_over() { Err(SinkError::Stopped) } else { Ok(()) }
    }

    /// `bytes` of contents are done.
    pub(super) fn advance(&self, bytes: u64) {
        (self.progress)(bytes);
    }

    /// Count something that is done.
    pub(super) fn count(&self, add: impl FnOnce(&mut ExtractReport)) {
        add(&mut self.outcome.lock().report);
    }

    /// Note contents that are lost.
    pub(super) fn lose(&self, add: impl FnOnce(&mut Lost) -> Result<(), SinkError>) -> Result<(), SinkError> {
        add(&mut self.outcome.lock().lost)
    }

    /// An attribute that was not set, for a reason that is no fault of the image.
    pub(super) fn note_unset_xattr(&self, path: &[u8], name: &[u8]) {
        self.count(|report| {
            report.unset_xattrs += 1;
            report.first_unset_xattr.get_or_insert_with(|| (path.to_vec(), name.to_vec()));
        });
    }

    /// `path` was not extracted. Whether the whole extraction goes on is decided here.
    pub(super) fn fail(&self, path: &[u8], error: SinkError) {
        let mut outcome = self.outcome.lock();
        // Contents that are not in the image are no failure: nothing of the image is lost.
        let goes_on = self.options.keep_going || matches!(error, SinkError::NeedsObject { .. });
        if goes_on && !is_fatal(&error) {
            outcome.report.skipped.push((path.to_vec(), error));
        } else {
            // Workers that merely stop because of an error come after it.
            outcome.error.get_or_insert(error);
            self.failed.store(true, Ordering::Relaxed);
        }
    }

    /// Not one worker could be started: nothing can be done.
    pub(super) fn fail_to_start(&self, source: io::Error) {
        let error = SinkError::Io { path: self.target.path_of(b""), action: "start a thread", source };
        self.outcome.lock().error.get_or_insert(error);
        self.failed.store(true, Ordering::Relaxed);
    }

    /// The report, or the error that has ended the extraction.
    pub(super) fn into_report(self) -> Result<ExtractReport, SinkError> {
        let Outcome { mut report, lost, error } = self.outcome.into_inner();
        report.lost = lost.into_list(&report.skipped);
        match error {
            Some(error) => Err(error),
            None if self.stop.load(Ordering::Relaxed) => Err(SinkError::Stopped),
            None => Ok(report),
        }
    }

    /// A closure that turns the system's answer into an error that names the file.
    pub(super) fn io(&self, path: &[u8], action: &'static str) -> impl FnOnce(Errno) -> SinkError {
        let path = self.target.path_of(path);
        move |errno| SinkError::Io { path, action, source: io::Error::from(errno) }
    }
}

/// Whether every later entry would fail the same way.
fn is_fatal(error: &SinkError) -> bool {
    match error {
        SinkError::Stopped => true,
        SinkError::Io { source, .. } => {
            let full = [Errno::NOSPC, Errno::DQUOT, Errno::ROFS].map(|errno| Some(errno.raw_os_error()));
            full.contains(&source.raw_os_error())
        }
        _ => false,
    }
}
