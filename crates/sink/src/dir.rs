//! An image as a directory tree.
//!
//! One thread walks the image, makes the directories, and hands files to workers by a bounded queue: small ones whole, large
//! ones in ranges. What must wait until every file is there comes last: names of hard links, then the attributes of
//! directories, from the deepest up, since making a file in a directory changes its time.

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
use kiln_read::{Image, Nid};
use parking_lot::Mutex;
use run::Run;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use walk::Walker;
use work::Job;

/// Whether files get the owners that the image says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Owners {
    /// If the caller is root; others own what they extract, and suid and sgid bits for someone else are dropped.
    #[default]
    IfRoot,
    /// Always: a user who must not give files away gets an error.
    Restore,
    /// Never.
    Skip,
}

/// What may be at the target already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// Nothing: it is a new or empty directory.
    #[default]
    Refuse,
    /// Files of other names; directories of the same names are used.
    Keep,
    /// Anything; what has the same name is replaced, but never a directory by something else.
    Replace,
}

/// How to extract.
#[derive(Clone, Debug)]
pub struct ExtractOptions {
    /// Worker threads; 0 for one per core.
    pub threads: usize,
    /// Go on after an entry that cannot be read or written, and list it in the report.
    pub keep_going: bool,
    /// Make files of whose contents something cannot be read, with zeros in its place, and list what is lost in the report.
    pub zeros: bool,
    /// Owners.
    pub owners: Owners,
    /// Permission bits that no file gets, whatever the image says; 0 to restore all.
    pub umask: u16,
    /// Restore extended attributes.
    pub xattrs: bool,
    /// What may be there already.
    pub existing: Existing,
    /// What becomes the target: a directory of the image, whose paths are then those to select from, or any other file; `None`
    /// for the root.
    pub root: Option<Nid>,
}

impl Default for ExtractOptions {
    fn default() -> Self {
        let (owners, existing) = (Owners::default(), Existing::default());
        Self { threads: 0, keep_going: false, zeros: false, owners, umask: 0, xattrs: true, existing, root: None }
    }
}

/// What was extracted.
#[derive(Debug, Default)]
pub struct ExtractReport {
    /// Regular files, each inode once.
    pub files: u64,
    /// Directories, parents of selected entries included.
    pub dirs: u64,
    /// Symbolic links, devices, fifos and sockets.
    pub others: u64,
    /// Names beyond the first of files with several.
    pub hard_links: u64,
    /// Bytes of file contents, holes included.
    pub bytes: u64,
    /// Those of them that were compared with stored digests, and are right.
    pub digested_bytes: u64,
    /// What is missing, by path in the image, and why: files of a composefs image whose contents are objects outside of it
    /// ([`SinkError::NeedsObject`]), and with `keep_going` what could not be read or written.
    pub skipped: Vec<(Vec<u8>, SinkError)>,
    /// Files that have zeros instead of what could not be read, with `zeros`; by path.
    pub lost: Vec<LostContents>,
    /// Extended attributes that the caller may not set, or the target's filesystem does not have.
    pub unset_xattrs: u64,
    /// Path and attribute of the first of these.
    pub first_unset_xattr: Option<(Vec<u8>, Vec<u8>)>,
}

/// Write what `selection` names in `image` to the directory `target`, which is made if it does not exist. Where
/// `options.root` is not a directory, `target` becomes this file, whatever is selected.
///
/// Entries that were extracted before an error stay, except that no file is left with incomplete contents, or with
/// contents that do not match their digest in the image.
///
/// # Errors
/// The first entry that cannot be read or created, or does not have its digest (with `keep_going` only a full disk ends the work), a target that is not empty, a pattern that names nothing, or [`SinkError::Stopped`].
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
        let run = Run::new(image, root, &target, options, control);
        work(&run, |walker| walker.single(name));
        return run.into_report();
    }
    let mut resolved = selection.resolve(image, root)?;
    let target = target::Target::prepare(target, options.existing)?;
    let run = Run::new(image, root, &target, options, control);
    work(&run, |walker| walker.walk(&mut resolved));
    let report = run.into_report()?;
    resolved.check_all_matched()?;
    Ok(report)
}

/// Let `walk` find what is to be made, and workers make it.
fn work<'a>(run: &'a Run<'a>, walk: impl FnOnce(&mut Walker<'a>)) {
    let crew = Crew::new(run.options.threads);
    let (sender, receiver) = sync_channel(crew.queue_len);
    let mut walker = Walker::new(run, sender);
    thread::scope(|scope| {
        // The workers alone own the receiver: should they all be gone, the walker does not wait for them.
        let receiver = Arc::new(Mutex::new(receiver));
        for count in 0..crew.workers {
            let receiver = Arc::clone(&receiver);
            let started = thread::Builder::new().spawn_scoped(scope, move || work_all(run, &receiver));
            match started {
                // Fewer threads than wished for will do.
                Err(_) if count > 0 => break,
                Err(error) => run.fail_to_start(error),
                Ok(_) => {}
            }
        }
        drop(receiver);
        walk(&mut walker);
        walker.hang_up();
    });
    walker.finish();
}

/// A worker's life: one job after the other, until the walker hangs up.
fn work_all(run: &Run<'_>, jobs: &Mutex<Receiver<Job>>) {
    let mut buffer = content::buffer();
    loop {
        // The guard is dropped before the job is done.
        let job = jobs.lock().recv();
        match job {
            Ok(job) => work::work(run, job, &mut buffer),
            Err(_) => return,
        }
    }
}
