//! State that all threads of one extraction share.

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
pub(super) struct Extraction<'a> {
    pub(super) image: &'a Image,
    /// Inode that is extracted to the target.
    pub(super) root: Inode,
    pub(super) target: &'a Target,
    pub(super) options: &'a ExtractOptions,
    /// True if owners are restored.
    pub(super) owners: bool,
    /// The calling process's user and group, which own what it creates.
    pub(super) euid: u32,
    pub(super) egid: u32,
    stop: &'a AtomicBool,
    progress: &'a (dyn Fn(u64) + Sync),
    /// Set by the first error that ends the extraction.
    failed: AtomicBool,
    outcome: Mutex<Outcome>,
}

#[derive(Default)]
struct Outcome {
    report: ExtractReport,
    lost: Lost,
    error: Option<SinkError>,
}

impl<'a> Extraction<'a> {
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

    /// Returns true if all threads must end.
    pub(super) fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.failed.load(Ordering::Relaxed)
    }

    /// Returns an error if all threads must end.
    pub(super) fn check(&self) -> Result<(), SinkError> {
        if self.is_over() { Err(SinkError::Stopped) } else { Ok(()) }
    }

    /// Reports progress of `bytes` of contents.
    pub(super) fn advance(&self, bytes: u64) {
        (self.progress)(bytes);
    }

    /// Updates the report.
    pub(super) fn count(&self, add: impl FnOnce(&mut ExtractReport)) {
        add(&mut self.outcome.lock().report);
    }

    /// Notes lost contents.
    pub(super) fn lose(&self, add: impl FnOnce(&mut Lost) -> Result<(), SinkError>) -> Result<(), SinkError> {
        add(&mut self.outcome.lock().lost)
    }

    /// Notes an attribute that was not set although the image is intact.
    pub(super) fn note_unset_xattr(&self, path: &[u8], name: &[u8]) {
        self.count(|report| {
            report.unset_xattrs += 1;
            report.first_unset_xattr.get_or_insert_with(|| (path.to_vec(), name.to_vec()));
        });
    }

    /// Notes that `path` was not extracted, and decides whether the extraction continues.
    pub(super) fn fail(&self, path: &[u8], error: SinkError) {
        let mut outcome = self.outcome.lock();
        // Contents outside the image are not a failure: nothing of the image is lost.
        let goes_on = self.options.keep_going || matches!(error, SinkError::NeedsObject { .. });
        if goes_on && !is_fatal(&error) {
            outcome.report.skipped.push((path.to_vec(), error));
        } else {
            // Workers that stop because of an error report theirs later.
            outcome.error.get_or_insert(error);
            self.failed.store(true, Ordering::Relaxed);
        }
    }

    /// Fails the extraction because no worker could be started.
    pub(super) fn fail_to_start(&self, source: io::Error) {
        let error = SinkError::Io { path: self.target.path_of(b""), action: "start a thread", source };
        self.outcome.lock().error.get_or_insert(error);
        self.failed.store(true, Ordering::Relaxed);
    }

    /// Returns the report, or the error that ended the extraction.
    pub(super) fn into_report(self) -> Result<ExtractReport, SinkError> {
        let Outcome { mut report, lost, error } = self.outcome.into_inner();
        report.lost = lost.into_list(&report.skipped);
        match error {
            Some(error) => Err(error),
            None if self.stop.load(Ordering::Relaxed) => Err(SinkError::Stopped),
            None => Ok(report),
        }
    }

    /// Returns a closure that turns an error number into an error that names the file.
    pub(super) fn io(&self, path: &[u8], action: &'static str) -> impl FnOnce(Errno) -> SinkError {
        let path = self.target.path_of(path);
        move |errno| SinkError::Io { path, action, source: io::Error::from(errno) }
    }
}

/// Returns true if every later entry would fail with the same error.
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
