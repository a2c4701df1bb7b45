//! Extraction of an image into a directory.
//!
//! One thread walks the image, creates the directories, and sends files to workers through a
//! bounded queue: small files whole, large files in ranges. Two things wait until all files exist:
//! hard links, and then the attributes of directories, deepest first, because creating a file in a
//! directory changes its modification time.

mod beneath;
mod content;
mod crew;
mod digest;
mod lost;
mod meta;
mod node;
mod run;
mod target;
mod walk;
mod work;

pub use crate::control::Control;
pub use lost::LostContents;

use crate::{Selection, SinkError};
use crew::Crew;
use kiln_parallel::channel::{Receiver, bounded};
use kiln_read::{Image, Nid};
use run::Extraction;
use std::path::Path;
use std::thread;
use walk::Walker;
use work::Job;

/// Policy for restoring the owners of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Owners {
    /// Restore owners if the caller is root. Otherwise files belong to the caller, and suid and
    /// sgid bits that would apply to another user or group are cleared.
    #[default]
    IfRoot,
    /// Restore owners always. A caller without the privilege to do so gets an error.
    Restore,
    /// Never restore owners.
    Skip,
}

/// Policy for files that exist in the target directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// The target must be new or empty.
    #[default]
    Refuse,
    /// Existing files are left alone, and existing directories are used. An existing file whose
    /// name is needed is an error.
    Keep,
    /// Existing files of the same name are replaced. A directory is never replaced by another type
    /// of file.
    Replace,
}

/// Options of an extraction.
#[derive(Clone, Debug)]
pub struct ExtractOptions {
    /// Number of worker threads; 0 for one per core.
    pub threads: usize,
    /// Continue after an entry that cannot be read or written, and list it in the report.
    pub keep_going: bool,
    /// Write zeros for contents that cannot be read, and list these files in the report.
    pub zeros: bool,
    /// Policy for owners.
    pub owners: Owners,
    /// Permission bits that are cleared in every file; 0 restores all bits of the image.
    pub umask: u16,
    /// True to restore extended attributes.
    pub xattrs: bool,
    /// Policy for existing files.
    pub existing: Existing,
    /// Inode that is extracted to the target; `None` for the root. If it is a directory, selected
    /// paths are relative to it.
    pub root: Option<Nid>,
}

impl Default for ExtractOptions {
    fn default() -> Self {
        let (owners, existing) = (Owners::default(), Existing::default());
        Self { threads: 0, keep_going: false, zeros: false, owners, umask: 0, xattrs: true, existing, root: None }
    }
}

/// Counts and problems of an extraction.
#[derive(Debug, Default)]
pub struct ExtractReport {
    /// Number of regular files; an inode with several names counts once.
    pub files: u64,
    /// Number of directories, including the parents of selected entries.
    pub dirs: u64,
    /// Number of symbolic links, devices, fifos and sockets.
    pub others: u64,
    /// Number of names beyond the first of files with several names.
    pub hard_links: u64,
    /// Bytes of file contents, including holes.
    pub bytes: u64,
    /// Bytes of file contents that match a digest stored in the image.
    pub digested_bytes: u64,
    /// Paths in the image that were not extracted, with the reason: files of a composefs image
    /// whose contents are objects outside of it ([`SinkError::NeedsObject`]), and with `keep_going`
    /// entries that could not be read or written.
    pub skipped: Vec<(Vec<u8>, SinkError)>,
    /// Files with zeros in place of unreadable contents, sorted by path; empty without `zeros`.
    pub lost: Vec<LostContents>,
    /// Number of extended attributes that the caller may not set or that the target's filesystem
    /// does not support.
    pub unset_xattrs: u64,
    /// Path and attribute name of the first of them.
    pub first_unset_xattr: Option<(Vec<u8>, Vec<u8>)>,
}

/// Extracts the part of `image` that `selection` names into the directory `target`, which is
/// created if it does not exist. If `options.root` is not a directory, it is written as the file
/// `target`, and `selection` is ignored.
///
/// Entries that were extracted before an error remain, but no file is left with incomplete
/// contents, or with contents that do not match their digest in the image.
///
/// # Errors
/// The first entry that cannot be read or created, or does not match its digest (with `keep_going`,
/// only a full or read-only target ends the work); a target that is not empty; a pattern that
/// matches nothing; or [`SinkError::Stopped`].
pub fn extract(
    image: &Image,
    target: &Path,
    selection: &Selection,
    options: &ExtractOptions,
    control: &Control<'_>,
) -> Result<ExtractReport, SinkError> {
    let root = image.inode(options.root.unwrap_or(image.root_nid()))?;
    if !root.is_dir() {
        let (target, name) = target::Target::around(target)?;
        let run = Extraction::new(image, root, &target, options, control);
        work(&run, |walker| walker.single(name));
        return run.into_report();
    }
    let mut resolved = selection.resolve(image, root)?;
    let target = target::Target::prepare(target, options.existing)?;
    let run = Extraction::new(image, root, &target, options, control);
    work(&run, |walker| walker.walk(&mut resolved));
    let report = run.into_report()?;
    resolved.check_all_matched()?;
    Ok(report)
}

/// Runs `walk` on this thread, and the jobs that it sends on worker threads.
fn work<'a>(run: &'a Extraction<'a>, walk: impl FnOnce(&mut Walker<'a>)) {
    let crew = Crew::new(run.options.threads);
    let (sender, receiver) = bounded(crew.queue_len);
    let mut walker = Walker::new(run, sender);
    thread::scope(|scope| {
        for count in 0..crew.workers {
            let receiver = receiver.clone();
            let started = thread::Builder::new().spawn_scoped(scope, move || work_all(run, receiver));
            match started {
                // Fewer threads than requested are enough.
                Err(_) if count > 0 => break,
                Err(error) => run.fail_to_start(error),
                Ok(_) => {}
            }
        }
        // Only the workers have receivers now, so that the walker does not wait if all of them are gone.
        drop(receiver);
        walk(&mut walker);
        walker.hang_up();
    });
    walker.finish();
}

/// Runs jobs until the walker closes the queue.
fn work_all(run: &Extraction<'_>, jobs: Receiver<Job>) {
    let mut buffer = content::buffer();
    for job in jobs {
        work::work(run, job, &mut buffer);
    }
}
