//! What was exported, and what the format could not say.

use super::damage::Damage;
use crate::SinkError;
use kiln_read::FileType;
use std::collections::BTreeMap;
use std::fmt;

/// What was exported.
#[derive(Debug, Default)]
pub struct ExportReport {
    /// Regular files, each inode once where the format has hard links.
    pub files: u64,
    /// Directories, parents of selected entries included.
    pub dirs: u64,
    /// Symbolic links, devices, FIFOs and sockets.
    pub others: u64,
    /// Names beyond the first of files with several, where the format has hard links.
    pub hard_links: u64,
    /// Bytes of contents of these files, holes included.
    pub bytes: u64,
    /// Those of them that were compared with stored digests, and are right.
    pub digested_bytes: u64,
    /// What the format cannot say, by kind.
    pub losses: BTreeMap<Loss, LossCount>,
    /// Files of a composefs image whose contents are objects outside of it, by path ([`SinkError::NeedsObject`]), and, with
    /// [`keep_going`](super::ExportOptions::keep_going), what could not be read; below a directory that cannot be listed nothing is.
    pub skipped: Vec<(Vec<u8>, SinkError)>,
    /// Files that have zeros for a part of their contents that could not be read, by path, with the first reason; with
    /// [`keep_going`](super::ExportOptions::keep_going).
    pub damaged: Vec<(Vec<u8>, SinkError)>,
    /// Files whose contents do not have the digests that the image stores for them: the archive has what was read, of which some bytes are wrong;
    /// with [`keep_going`](super::ExportOptions::keep_going).
    pub rotten: Vec<(Vec<u8>, SinkError)>,
}

/// How often a format could not say something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LossCount {
    /// How many names.
    pub count: u64,
    /// The path of the first of them in the image.
    pub first: Vec<u8>,
}

/// What a format cannot say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Loss {
    /// Sockets, which are left out.
    Sockets,
    /// Devices, which are left out.
    Devices,
    /// FIFOs, which are left out.
    Fifos,
    /// Files that are too long, which are left out.
    LargeFiles,
    /// Names or targets of symbolic links, which are left out with what they name.
    Names,
    /// Extended attributes.
    Xattrs,
    /// Hard links, which became files of their own.
    HardLinks,
    /// Times before or after those that there are, which became the nearest.
    Times,
    /// Fractions of seconds.
    Nanoseconds,
}

impl Loss {
    /// Whether something of a tree is missing. Fractions of seconds are not: what has none in any archive would never be whole.
    pub fn is_missing(self) -> bool {
        self != Loss::Nanoseconds
    }

    /// Its name in documents for programs.
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

/// Behind a count, as in "3 sockets left out".
impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Loss::Sockets => "sockets left out",
            Loss::Devices => "devices left out",
            Loss::Fifos => "FIFOs left out",
            Loss::LargeFiles => "files too long for the format left out",
            Loss::Names => "names that the format cannot hold left out",
            Loss::Xattrs => "files lost extended attributes",
            Loss::HardLinks => "hard links became files of their own",
            Loss::Times => "times moved into the range of the format",
            Loss::Nanoseconds => "times lost their fractions of seconds",
        })
    }
}

impl ExportReport {
    /// Whether something that was asked for is not in the archive.
    pub fn is_incomplete(&self) -> bool {
        let is_damaged = !self.damaged.is_empty() || !self.rotten.is_empty();
        !self.skipped.is_empty() || is_damaged || self.losses.keys().any(|loss| loss.is_missing())
    }

    /// What the reader met.
    pub(super) fn add_damage(&mut self, damage: &mut Damage) {
        self.skipped.append(&mut damage.left_out);
        self.rotten.append(&mut damage.rotten);
        for (path, error) in damage.zeroed.drain(..) {
            // A long file comes in several windows, one behind the other.
            if self.damaged.last().is_none_or(|(last, _)| *last != path) {
                self.damaged.push((path, error));
            }
        }
    }

    /// `path` lost something.
    pub(super) fn lose(&mut self, loss: Loss, path: &[u8]) {
        let lost = self.losses.entry(loss).or_insert_with(|| LossCount { count: 0, first: path.to_vec() });
        lost.count += 1;
    }

    /// A file of this type and length is in the archive.
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
