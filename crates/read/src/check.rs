//! Is an image whole? Everything reachable is read, decoded and compared with what the rest of the image says.

mod data;
mod features;
mod span;
mod tree;

use crate::error::ReadError;
use crate::image::Image;
use crate::metadata::reader::Space;
use kiln_format::Nid;
use kiln_format::superblock::SUPERBLOCK_OFF;
use kiln_format::{Compat, Incompat};
use span::Spans;
use std::fmt;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tree::Tree;

/// Problems that are reported; all of them are counted.
const PROBLEMS_MAX: usize = 1000;
/// Plain data that is read at a time, in bytes.
const PLAIN_STEP: u64 = 1 << 20;

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// Inodes that were checked, the packed inode and the metabox included.
    pub inodes: u64,
    /// Directories among them.
    pub directories: u64,
    /// Extents of their contents. A fragment is none of its own: it is part of an extent of the packed inode.
    pub extents: u64,
    /// Length in bytes of the contents of files, directories and symbolic links, each inode once, holes included. The packed inode
    /// and the metabox only hold contents of others.
    pub bytes: u64,
    /// The part of `bytes` that is contents of regular files.
    pub file_bytes: u64,
    /// The part of `file_bytes` that was compared with stored digests, and is right.
    pub digested_bytes: u64,
    /// Files of a composefs image whose contents are objects outside of it: they are no part of `file_bytes`.
    pub objects: u64,
    /// Whether the superblock has a checksum, which was compared. No other metadata of the format has one.
    pub has_checksum: bool,
    /// Digests that were not compared, because the contents are far longer than what the image has of them.
    pub unverified_digests: u64,
    /// What is wrong; at most 1000 problems.
    pub problems: Vec<CheckProblem>,
    /// How many problems there are.
    pub problem_count: u64,
    /// What is worth knowing, and no error.
    pub notes: Vec<Note>,
}

/// Something wrong in an image.
#[derive(Clone, Debug)]
pub struct CheckProblem {
    /// Path of the file it is about; empty where it is about the image.
    pub path: Vec<u8>,
    /// Inode it is about.
    pub nid: Option<Nid>,
    /// What is wrong.
    pub error: Finding,
}

/// What is wrong.
#[derive(Clone, Debug)]
pub enum Finding {
    /// Something cannot be read.
    Unreadable(ReadError),
    /// A field contradicts the rest of the image.
    Field {
        /// The kernel's name of the field.
        field: &'static str,
        /// Its value.
        stored: u64,
        /// What it should be.
        expected: u64,
    },
    /// An entry of a directory.
    Entry {
        /// The entry's name.
        name: Vec<u8>,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// An extended attribute.
    Xattr {
        /// The attribute's name.
        name: Vec<u8>,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The digest that is stored for a file's contents.
    Digest(&'static str),
    /// Bytes with two meanings.
    Overlap {
        /// Device number, `None` for the metabox.
        device: Option<u16>,
        /// What lies first: kind, byte address, length in bytes.
        first: (&'static str, u64, u64),
        /// What begins before its end.
        second: (&'static str, u64, u64),
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::Unreadable(error) => error.fmt(f),
            Finding::Field { field, stored, expected } => write!(f, "{field} = {stored}, should be {expected}"),
            Finding::Entry { name, reason } => write!(f, "entry {}: {reason}", name.escape_ascii()),
            Finding::Xattr { name, reason } => write!(f, "attribute {}: {reason}", name.escape_ascii()),
            Finding::Digest(reason) => write!(f, "stored digest: {reason}"),
            Finding::Overlap { device, first, second } => {
                let (kind, at, len) = first;
                write!(f, "{kind} ({len} bytes at byte {at}) overlaps ")?;
                let (kind, at, len) = second;
                write!(f, "{kind} ({len} bytes at byte {at})")?;
                match device {
                    Some(0) => Ok(()),
                    Some(device) => write!(f, " on device {device}"),
                    None => write!(f, " in the metabox"),
                }
            }
        }
    }
}

impl fmt::Display for CheckProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.escape_ascii();
        match (&self.error, self.nid) {
            // Such an error names its place itself.
            (Finding::Unreadable(error), _) => error.fmt(f),
            (error, Some(nid)) if self.path.is_empty() => write!(f, "nid {nid}: {error}"),
            (error, Some(nid)) => write!(f, "{path} (nid {nid}): {error}"),
            (error, None) if self.path.is_empty() => write!(f, "superblock: {error}"),
            (error, None) => write!(f, "{path}: {error}"),
        }
    }
}

/// Something that is no error, because the kernel reads the image nevertheless.
#[derive(Clone, Debug)]
pub enum Note {
    /// A feature that is used but not announced. Linux 6.18 reads the image; a kernel that is older than the feature
    /// misreads it instead of refusing it.
    Unannounced {
        /// The bit that should be set.
        missing: Incompat,
        /// What needs it.
        because: &'static str,
        /// The first inode that uses it.
        path: Vec<u8>,
        /// Its number.
        nid: Nid,
    },
    /// There are too many extents to remember where each of them lies.
    OverlapsUnknown {
        /// Ranges that were remembered, and compared with each other.
        compared: usize,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::Unannounced { missing, because, path, nid } => {
                let mut names = missing.iter_names().map(|(name, _)| name);
                let (path, bit) = (path.escape_ascii(), names.next().unwrap_or("a bit"));
                write!(f, "{path} (nid {nid}): feature_incompat lacks {bit}: {because}; older kernels would misread it")
            }
            Note::OverlapsUnknown { compared } => {
                write!(f, "more extents than the image has room for: overlaps were looked for among {compared} only")
            }
        }
    }
}

/// Check a whole image, decoding on `threads` threads.
///
/// What is damaged goes to the report. The checksum of the superblock is compared even if the image was opened without.
///
/// # Errors
/// A failing source, which says nothing about the image, a device that was not given, or our own mistake.
pub fn check(image: &Image, threads: usize) -> Result<CheckReport, ReadError> {
    check_with(image, threads, &|_| {})
}

/// [`check`], which tells `progress` of contents that come to be checked, in bytes as files have them, piece by piece: those of
/// regular files, the packed inode and the metabox.
///
/// # Errors
/// Those of [`check`].
pub fn check_with(image: &Image, threads: usize, progress: &dyn Fn(u64)) -> Result<CheckReport, ReadError> {
    let problems = Problems::default();
    // Inodes of the metabox have their places in its contents, whatever these compress to.
    let room = image.core.devices.total_len().saturating_add(image.space_len(Space::Metabox));
    let mut spans = Spans::new(room);
    check_superblock(image, &problems, &mut spans)?;
    let mut report = data::with_decoders(image, &problems, threads.max(1), |queue| {
        let mut tree = Tree::new(image, &problems, &mut spans, queue, progress);
        tree.check_all()?;
        Ok(tree.into_report())
    })?;
    report.has_checksum = image.superblock().compat.contains(Compat::SB_CHKSUM);
    report.notes.extend(spans.report_overlaps(&problems));
    spans.plain_data().try_for_each(|(device, bytes)| read_plain(image, device, bytes))?;
    let found = problems.0.into_inner().unwrap_or_else(PoisonError::into_inner);
    (report.problems, report.problem_count) = (found.list, found.count);
    Ok(report)
}

/// Read data that is stored as it is. Nothing in it can be wrong, but its source may fail.
fn read_plain(image: &Image, device: u16, bytes: Range<u64>) -> Result<(), ReadError> {
    let mut buf = vec![0; PLAIN_STEP.min(bytes.end - bytes.start) as usize];
    let mut at = bytes.start;
    while at < bytes.end {
        let len = PLAIN_STEP.min(bytes.end - at);
        image.core.devices.read(device, &mut buf[..len as usize], at)?;
        at += len;
    }
    Ok(())
}

/// The superblock's own fields, and the places of what hangs on it.
fn check_superblock(image: &Image, problems: &Problems, spans: &mut Spans) -> Result<(), ReadError> {
    let sb = image.superblock();
    problems.take(b"", image.verify_checksum())?;
    let blocks = sb.block_bits.blocks_for(image.source_len());
    if sb.blocks > blocks {
        problems.add(b"", None, Finding::Field { field: "blocks", stored: sb.blocks, expected: blocks });
    }
    let records =
        if sb.incompat.contains(Incompat::COMPR_CFGS) { image.compr_cfgs().encode()?.len() as u64 } else { 0 };
    spans.add_metadata(0, SUPERBLOCK_OFF, sb.record_len + records);
    spans.add_metadata(0, sb.devt_off, 128 * u64::from(sb.extra_devices));
    if let Some((start, end)) = image.core.prefixes.in_image {
        spans.add_metadata(0, start, end - start);
    }
    Ok(())
}

/// Problems found so far, by any thread.
#[derive(Default)]
struct Problems(Mutex<Found>);

#[derive(Default)]
struct Found {
    list: Vec<CheckProblem>,
    count: u64,
}

impl Problems {
    fn lock(&self) -> MutexGuard<'_, Found> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, path: &[u8], nid: Option<Nid>, error: Finding) {
        let mut found = self.lock();
        found.count += 1;
        if found.list.len() < PROBLEMS_MAX {
            found.list.push(CheckProblem { path: path.to_vec(), nid, error });
        }
    }

    /// The value of a result. An error of the image becomes a problem of the file at `path`, any other ends the check.
    fn take<T>(&self, path: &[u8], result: Result<T, ReadError>) -> Result<Option<T>, ReadError> {
        let error = match result {
            Ok(value) => return Ok(Some(value)),
            Err(error) if path.is_empty() => error,
            Err(error) => error.at_path(path),
        };
        match &error {
            ReadError::Corrupt { path, nid, .. } | ReadError::Unsupported { path, nid, .. } => {
                self.add(&path.clone().unwrap_or_default(), *nid, Finding::Unreadable(error.clone()));
                Ok(None)
            }
            _ => Err(error),
        }
    }
}
