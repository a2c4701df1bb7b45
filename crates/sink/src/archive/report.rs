//! Report of an export: counts, damage, and losses due to the format.

use super::damage::Damage;
use crate::SinkError;
use kiln_read::FileType;
use std::collections::BTreeMap;
use std::fmt;

/// Counts and problems of an export.
#[derive(Debug, Default)]
pub struct ExportReport {
    /// Number of regular files; an inode counts once if the format has hard links.
    pub files: u64,
    /// Number of directories, including the parents of selected entries.
    pub dirs: u64,
    /// Number of symbolic links, devices, FIFOs and sockets.
    pub others: u64,
    /// Number of names beyond the first of files with several names, if the format has hard links.
    pub hard_links: u64,
    /// Bytes of file contents, including holes.
    pub bytes: u64,
    /// Bytes of file contents that match a digest stored in the image.
    pub digested_bytes: u64,
    /// Properties that the format cannot represent, by kind.
    pub losses: BTreeMap<Loss, LossCount>,
    /// Paths that are not in the archive, with the reason: files of a composefs image whose
    /// contents are objects outside of it ([`SinkError::NeedsObject`]), and with
    /// [`keep_going`](super::ExportOptions::keep_going) entries that could not be read. Entries of
    /// a directory that cannot be listed are not included.
    pub skipped: Vec<(Vec<u8>, SinkError)>,
    /// Files with zeros in place of unreadable contents, by path, with the first error; empty
    /// without [`keep_going`](super::ExportOptions::keep_going).
    pub damaged: Vec<(Vec<u8>, SinkError)>,
    /// Files whose contents do not match the digests stored in the image. The archive holds the
    /// bytes as read. Empty without [`keep_going`](super::ExportOptions::keep_going).
    pub rotten: Vec<(Vec<u8>, SinkError)>,
}

/// Number of files affected by a loss.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LossCount {
    /// Number of names.
    pub count: u64,
    /// Path in the image of the first of them.
    pub first: Vec<u8>,
}

/// A property that a format cannot represent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Loss {
    /// Sockets, which are left out.
    Sockets,
    /// Devices, which are left out.
    Devices,
    /// FIFOs, which are left out.
    Fifos,
    /// Files that are too long for the format, which are left out.
    LargeFiles,
    /// Names or link targets that the format cannot hold; these files are left out.
    Names,
    /// Extended attributes.
    Xattrs,
    /// Hard links, which are stored as separate files.
    HardLinks,
    /// Times outside of the format's range, which are clamped.
    Times,
    /// Fractions of a second.
    Nanoseconds,
}

impl Loss {
    /// Returns true if the loss makes the archive incomplete. Fractions of a second do not count,
    /// because some formats never store them.
    pub fn is_missing(self) -> bool {
        self != Loss::Nanoseconds
    }

    /// Returns the key of the loss in JSON documents.
    pub fn key(self) -> &'static str {
        match self {
            Loss::Sockets => "sockets",
            Loss::Devices => "devices",
            Loss::Fifos => "fifos",
            Loss::LargeFiles => "large_files",
            Loss::Names => "names",
            Loss::Xattrs => "xattrs",
            Loss::HardLinks => "hard_links",
            Loss::Times => "times",
            Loss::Nanoseconds => "nanoseconds",
        }
    }
}

/// Formats the text that follows a count, as in "3 sockets left out".
impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Loss::Sockets => "sockets left out",
            Loss::Devices => "devices left out",
            Loss::Fifos => "FIFOs left out",
            Loss::LargeFiles => "files too long for the format left out",
            Loss::Names => "names that the format cannot hold left out",
            Loss::Xattrs => "files lost extended attributes",
            Loss::HardLinks => "hard links stored as separate files",
            Loss::Times => "times clamped to the range of the format",
            Loss::Nanoseconds => "times lost their fractions of a second",
        })
    }
}

impl ExportReport {
    /// Returns true if something that was selected is missing or wrong in the archive.
    pub fn is_incomplete(&self) -> bool {
        let is_damaged = !self.damaged.is_empty() || !self.rotten.is_empty();
        !self.skipped.is_empty() || is_damaged || self.losses.keys().any(|loss| loss.is_missing())
    }

    /// Adds the damage that the reader has found.
    pub(super) fn add_damage(&mut self, damage: &mut Damage) {
        self.skipped.append(&mut damage.left_out);
        self.rotten.append(&mut damage.rotten);
        for (path, error) in damage.zeroed.drain(..) {
            // A long file comes in several consecutive windows.
            if self.damaged.last().is_none_or(|(last, _)| *last != path) {
                self.damaged.push((path, error));
            }
        }
    }

    /// Counts a loss of the file at `path`.
    pub(super) fn lose(&mut self, loss: Loss, path: &[u8]) {
        let lost = self.losses.entry(loss).or_insert_with(|| LossCount { count: 0, first: path.to_vec() });
        lost.count += 1;
    }

    /// Counts a member of this type and length.
    pub(super) fn add(&mut self, file_type: FileType, len: u64) {
        match file_type {
            FileType::Regular => {
                self.files += 1;
                self.bytes = self.bytes.saturating_add(len);
            }
            FileType::Directory => self.dirs += 1,
            _ => self.others += 1,
        }
    }
}
