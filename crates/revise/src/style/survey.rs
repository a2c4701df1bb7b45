//! Survey of an image's inodes.

use kiln_digest::contents::ContentHash;
use kiln_format::Algorithm;
use kiln_format::inode::{Form, InodeData};
use kiln_read::{ExtentKind, FileType, Image, Inode, Nid, ReadError};
use std::collections::HashSet;

use super::Depth;

/// Maximum number of names in a sample.
const ENTRIES_MAX: usize = 4096;
/// Maximum number of compressed files in a sample.
const FILES_MAX: u64 = 64;
/// Maximum number of extents of each of them.
const EXTENTS_MAX: usize = 256;

/// Properties that were found in inodes.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    /// Number of compressed files that are not completely in the packed inode.
    pub compressed_files: u64,
    /// Length in bytes of the longest file stored completely in the packed inode.
    pub packed_max_len: u64,
    /// True if ends of longer files are in the packed inode.
    pub packs_ends: bool,
    pub packs_directories: bool,
    pub has_compact: bool,
    pub omits_dot: bool,
    pub has_inline: bool,
    /// True if uncompressed files end within a block without inline data.
    pub has_padded: bool,
    /// log2 of the chunk size of files without holes.
    pub chunk_bits: Option<u8>,
    /// Function of the first digest of contents.
    pub digest_hash: Option<ContentHash>,
    pub has_encoded_extents: bool,
}

/// Lengths of the pclusters of one algorithm.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lens {
    /// Text in bytes.
    text_bytes: u64,
    /// The longest ones that others follow in their file.
    pub full: Longest,
    /// The longest of all.
    pub any: Longest,
}

/// Length in bytes of the longest pcluster, and of the longest text of one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Longest {
    pub pcluster_len: u64,
    pub text_len: u64,
}

impl Longest {
    fn add(&mut self, llen: u64, plen: u32) {
        self.pcluster_len = self.pcluster_len.max(plen.into());
        self.text_len = self.text_len.max(llen);
    }
}

impl Lens {
    fn add(&mut self, llen: u64, plen: u32, is_full: bool) {
        self.text_bytes = self.text_bytes.saturating_add(llen);
        self.any.add(llen, plen);
        if is_full {
            self.full.add(llen, plen);
        }
    }
}

/// Survey of an image.
#[derive(Default)]
pub(super) struct Survey {
    algorithms: [Lens; Algorithm::ALL.len()],
    found: Found,
}

impl Survey {
    /// Examines the inodes that have names.
    ///
    /// # Errors
    /// The first unreadable one, with its path.
    pub(super) fn walk(&mut self, image: &Image, depth: Depth) -> Result<(), ReadError> {
        let root = image.inode(image.root_nid())?;
        // Inodes with several names are counted once.
        let mut linked: HashSet<Nid> = HashSet::new();
        for (at, entry) in image.walk(&root, b"").enumerate() {
            let is_sample = depth == Depth::Sample;
            if is_sample && (at >= ENTRIES_MAX || self.found.compressed_files >= FILES_MAX) {
                break;
            }
            let entry = entry?;
            let inode = entry.inode;
            if inode.is_dir() {
                self.directory(&inode);
            } else if inode.meta.nlink == 1 || linked.insert(inode.nid) {
                let extents_max = if is_sample { EXTENTS_MAX } else { usize::MAX };
                self.file(image, &inode, extents_max).map_err(|error| error.at_path(&entry.path))?;
            }
        }
        Ok(())
    }

    fn directory(&mut self, inode: &Inode) {
        self.found.has_compact |= inode.meta.form == Form::Compact;
        self.found.omits_dot |= inode.meta.omits_dot;
        self.found.packs_directories |= matches!(inode.meta.data, InodeData::Compressed { .. });
    }

    /// Examines a file of any type but a directory.
    fn file(&mut self, image: &Image, inode: &Inode, extents_max: usize) -> Result<(), ReadError> {
        let (found, size) = (&mut self.found, inode.size());
        if inode.meta.file_type != FileType::Regular {
            return Ok(());
        }
        found.has_compact |= inode.meta.form == Form::Compact;
        if size == 0 {
            return Ok(());
        }
        if found.digest_hash.is_none() {
            found.digest_hash = image.content_digest(inode)?.map(|digest| digest.hash());
        }
        match inode.meta.data {
            InodeData::FlatInline(_) => found.has_inline = true,
            InodeData::FlatPlain(Some(_)) => found.has_padded |= image.superblock().block_bits.within(size) != 0,
            InodeData::ChunkBased(Ok(format)) if found.chunk_bits.is_none() => {
                let has_holes =
                    image.extents(inode).any(|extent| !matches!(extent, Ok(one) if one.kind != ExtentKind::Hole));
                found.chunk_bits = (!has_holes).then_some(format.chunk_bits);
            }
            InodeData::Compressed { .. } => self.compressed(image, inode, extents_max)?,
            _ => {}
        }
        Ok(())
    }

    fn compressed(&mut self, image: &Image, inode: &Inode, extents_max: usize) -> Result<(), ReadError> {
        let (mut has_encoded, mut has_pclusters) = (false, false);
        for extent in image.extents(inode).take(extents_max) {
            let extent = extent?;
            match extent.kind {
                ExtentKind::Encoded { algorithm, plen, .. } => {
                    has_encoded = true;
                    self.algorithms[algorithm as usize].add(extent.llen, plen, extent.end() < inode.size());
                }
                ExtentKind::Fragment { .. } if extent.la == 0 => {
                    self.found.packed_max_len = self.found.packed_max_len.max(inode.size());
                }
                ExtentKind::Fragment { .. } => self.found.packs_ends = true,
                _ => {}
            }
            has_pclusters |= matches!(extent.kind, ExtentKind::Encoded { .. } | ExtentKind::Plain { .. });
        }
        self.found.compressed_files += u64::from(has_encoded);
        if has_pclusters && !self.found.has_encoded_extents {
            self.found.has_encoded_extents = image.has_encoded_extents(inode)?;
        }
        Ok(())
    }

    /// Examines an inode without a name. Returns the lengths of its pclusters, if it is compressed.
    ///
    /// # Errors
    /// An unreadable inode or map.
    pub(super) fn special(&mut self, image: &Image, nid: Nid) -> Result<Option<(Algorithm, Lens)>, ReadError> {
        let inode = image.inode(nid)?;
        self.found.has_encoded_extents |= inode.size() > 0 && image.has_encoded_extents(&inode)?;
        let mut found: Option<(Algorithm, Lens)> = None;
        for extent in image.extents(&inode) {
            let extent = extent?;
            if let ExtentKind::Encoded { algorithm, plen, .. } = extent.kind {
                let is_full = extent.end() < inode.size();
                found.get_or_insert((algorithm, Lens::default())).1.add(extent.llen, plen, is_full);
            }
        }
        Ok(found)
    }

    /// Returns the algorithm of most text of files.
    pub(super) fn most_used(&self) -> Option<Algorithm> {
        let used = |one: &Algorithm| self.algorithms[*one as usize].text_bytes;
        Algorithm::ALL.into_iter().filter(|one| used(one) > 0).max_by_key(|one| (used(one), *one as u8))
    }

    /// Returns the lengths of the pclusters of files.
    pub(super) fn lens(&self, algorithm: Algorithm) -> Lens {
        self.algorithms[algorithm as usize]
    }

    pub(super) fn into_found(self) -> Found {
        self.found
    }
}
