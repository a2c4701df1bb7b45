//! The tree: every inode, every name, every attribute, every extent.

use super::data::DecodeQueue;
use super::features::Features;
use super::problems::Problems;
use super::report::{CheckReport, Finding};
use super::span::Spans;
use crate::error::ReadError;
use crate::image::reader::Reader;
use crate::map::extent::{Extent, ExtentKind};
use crate::map::file_map::fragment_error;
use crate::map::inode_map::Map;
use crate::metadata::inode::Inode;
use crate::metadata::reader::MetadataReader;
use crate::metadata::space::MetadataSpace;
use crate::tree::digest::DigestCheck;
use crate::tree::dir::DirReader;
use crate::tree::resolve::TARGET_MAX_LEN;
use crate::tree::walk::joined;
use kiln_format::Nid;
use kiln_format::dirent::{Dirent, PATH_MAX_LEN};
use kiln_format::inode::FileType;
use kiln_format::xattr;
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

/// Path under which the packed inode is reported; no tree has it.
const PACKED: &[u8] = b"<packed inode>";
/// The same for the metabox.
const METABOX: &[u8] = b"<metabox>";

/// The check of a tree.
pub(super) struct TreeCheck<'c> {
    reader: Reader<'c>,
    problems: &'c Problems,
    spans: &'c mut Spans,
    queue: &'c DecodeQueue,
    progress: &'c dyn Fn(u64),
    features: Features,
    report: CheckReport,
    directories: HashSet<Nid>,
    others: HashMap<Nid, NameCount>,
    shared_xattrs: HashSet<u32>,
    /// Addresses of pclusters that digests could not be made of. Many small files may be packed into one.
    damaged: HashSet<u64>,
    pending: Vec<Pending>,
}

/// A directory still to be listed.
struct Pending {
    dir: Inode,
    parent: Nid,
    path: Vec<u8>,
}

/// Names of something that is no directory.
struct NameCount {
    names: u32,
    nlink: u32,
    /// First path, where one name will not be enough.
    path: Option<Box<[u8]>>,
}

/// Summary of a directory's entries.
#[derive(Default)]
struct Listing {
    previous: Vec<u8>,
    subdirs: u64,
    dot: bool,
    dotdot: bool,
}

impl<'c> TreeCheck<'c> {
    pub(super) fn new(
        reader: Reader<'c>,
        problems: &'c Problems,
        spans: &'c mut Spans,
        queue: &'c DecodeQueue,
        progress: &'c dyn Fn(u64),
    ) -> Self {
        Self {
            reader,
            problems,
            spans,
            queue,
            progress,
            features: Features::new(reader),
            report: CheckReport::default(),
            directories: HashSet::new(),
            others: HashMap::new(),
            shared_xattrs: HashSet::new(),
            damaged: HashSet::new(),
            pending: Vec::new(),
        }
    }

    pub(super) fn into_report(self) -> CheckReport {
        CheckReport { notes: self.features.into_notes(), ..self.report }
    }

    /// Checks everything that can be reached from the superblock.
    pub(super) fn check_all(&mut self) -> Result<(), ReadError> {
        for (inode, path) in [(self.reader.special.packed, PACKED), (self.reader.special.metabox, METABOX)] {
            if let Some(inode) = inode {
                self.check_inode(path, &inode)?;
            }
        }
        let root = self.reader.inode(self.reader.superblock().root_nid)?;
        self.directories.insert(root.nid);
        self.check_inode(b"/", &root)?;
        self.pending.push(Pending { dir: root, parent: root.nid, path: b"/".to_vec() });
        while let Some(next) = self.pending.pop() {
            let listed = self.check_directory(&next);
            self.problems.take(&next.path, listed.map_err(|error| error.at_nid(next.dir.nid)))?;
        }
        self.check_links();
        self.check_inos();
        Ok(())
    }

    fn add(&self, path: &[u8], inode: &Inode, finding: Finding) {
        self.problems.add(path, Some(inode.nid), finding);
    }

    fn check_directory(&mut self, Pending { dir, parent, path }: &Pending) -> Result<(), ReadError> {
        let block_len = self.reader.superblock().block_bits.len();
        let mut reader = DirReader::open(self.reader, dir)?;
        let mut listing = Listing::default();
        for idx in 0..reader.blocks() {
            let bytes = reader.block(idx)?;
            for entry in bytes.parse(idx * block_len)?.entries() {
                let entry = entry?;
                if entry.name <= &listing.previous[..] {
                    self.add(path, dir, entry_finding(entry.name, "not in ascending order: lookups will miss names"));
                }
                listing.previous = entry.name.to_vec();
                match entry.name {
                    b"." => listing.dot = self.check_dot(path, dir, &entry, dir.nid),
                    b".." => listing.dotdot = self.check_dot(path, dir, &entry, *parent),
                    _ => listing.subdirs += u64::from(self.check_entry(path, dir, &entry)?),
                }
            }
        }
        self.check_listing(path, dir, &listing);
        Ok(())
    }

    fn check_listing(&self, path: &[u8], dir: &Inode, listing: &Listing) {
        if listing.dot == dir.meta.omits_dot {
            let reason = if listing.dot { "stored although the inode says it is omitted" } else { "missing" };
            self.add(path, dir, entry_finding(b".", reason));
        }
        if !listing.dotdot {
            self.add(path, dir, entry_finding(b"..", "missing"));
        }
        let (stored, expected) = (dir.meta.nlink.into(), 2 + listing.subdirs);
        if stored != expected {
            self.add(path, dir, Finding::Field { field: "i_nlink", stored, expected });
        }
    }

    fn check_dot(&self, path: &[u8], dir: &Inode, entry: &Dirent<'_>, expected: Nid) -> bool {
        if entry.nid != expected {
            self.add(path, dir, entry_finding(entry.name, "names the wrong directory"));
        }
        if entry.file_type != FileType::Directory.dirent_number() {
            self.add(path, dir, entry_finding(entry.name, "file_type is not that of a directory"));
        }
        true
    }

    /// Checks an entry and, the first time, what it names. Returns whether that is a directory.
    fn check_entry(&mut self, dir_path: &[u8], dir: &Inode, entry: &Dirent<'_>) -> Result<bool, ReadError> {
        let path = joined(dir_path, entry.name);
        if path.len() > PATH_MAX_LEN {
            self.add(dir_path, dir, entry_finding(entry.name, "path over 64 KiB: not checked"));
            // Its inode is not looked at: what the entry says counts as a link.
            return Ok(entry.file_type == FileType::Directory.dirent_number());
        }
        let Some(inode) = self.problems.take(&path, self.reader.inode(entry.nid))? else { return Ok(false) };
        if entry.file_type != inode.meta.file_type.dirent_number() {
            self.add(dir_path, dir, entry_finding(entry.name, "file_type is not the inode's"));
        }
        if inode.is_dir() {
            if self.directories.insert(inode.nid) {
                self.check_inode(&path, &inode)?;
                self.pending.push(Pending { dir: inode, parent: dir.nid, path });
            } else {
                self.add(dir_path, dir, entry_finding(entry.name, "a directory with another name"));
            }
            return Ok(true);
        }
        match self.others.get_mut(&inode.nid) {
            Some(links) => links.names = links.names.saturating_add(1),
            None => {
                self.check_inode(&path, &inode)?;
                let nlink = inode.meta.nlink;
                let path = (nlink != 1).then(|| path.into());
                self.others.insert(inode.nid, NameCount { names: 1, nlink, path });
            }
        }
        Ok(false)
    }

    fn check_links(&self) {
        let mut wrong: Vec<_> = self.others.iter().filter(|(_, links)| links.names != links.nlink).collect();
        wrong.sort_by_key(|(nid, _)| **nid);
        for (nid, links) in wrong {
            let (stored, expected) = (links.nlink.into(), links.names.into());
            let path = links.path.as_deref().unwrap_or_default();
            self.problems.add(path, Some(*nid), Finding::Field { field: "i_nlink", stored, expected });
        }
    }

    /// Compares the number of inodes with the superblock's count, which is for statfs only; one
    /// that is too small shows that inodes were added without it.
    fn check_inos(&self) {
        let (stored, expected) = (self.reader.superblock().inos, (self.directories.len() + self.others.len()) as u64);
        if stored < expected {
            self.problems.add(b"", None, Finding::Field { field: "inos", stored, expected });
        }
    }

    /// Checks an inode that was not met before: fields, attributes, contents.
    fn check_inode(&mut self, path: &[u8], inode: &Inode) -> Result<(), ReadError> {
        self.report.inodes += 1;
        self.report.directories += u64::from(inode.is_dir());
        self.features.of_inode(path, inode);
        let size = inode.meta.size;
        if !inode.has_contents() && size != 0 {
            self.add(path, inode, Finding::Field { field: "i_size", stored: size, expected: 0 });
        }
        if inode.meta.file_type == FileType::Symlink && !(1..=TARGET_MAX_LEN).contains(&size) {
            let expected = size.clamp(1, TARGET_MAX_LEN);
            self.add(path, inode, Finding::Field { field: "i_size", stored: size, expected });
        }
        let xattrs = self.check_xattrs(path, inode).map_err(|error| error.at_nid(inode.nid));
        self.problems.take(path, xattrs)?;
        let contents = self.check_contents(path, inode).map_err(|error| error.at_nid(inode.nid));
        self.problems.take(path, contents)?;
        let digest = self.check_digest(path, inode)?;
        self.count_contents(inode, digest);
        Ok(())
    }

    /// Compares the contents with their stored digest. Returns `None` if they cannot be read.
    fn check_digest(&mut self, path: &[u8], inode: &Inode) -> Result<Option<DigestCheck>, ReadError> {
        // Each file would decode the damaged pcluster again.
        if !self.damaged.is_empty() && self.is_packed_into_damaged(inode).unwrap_or(false) {
            return Ok(None);
        }
        let digest = match self.reader.check_digest(inode) {
            // The decoding threads report what cannot be read.
            Err(error) if error.is_corrupt() => {
                self.damaged.extend(error.stream_pa());
                None
            }
            digest => self.problems.take(path, digest)?,
        };
        match digest {
            Some(DigestCheck::Different) => self.add(path, inode, Finding::Digest("the contents have another digest")),
            Some(DigestCheck::TooLong) => self.report.unverified_digests += 1,
            _ => {}
        }
        Ok(digest)
    }

    /// Returns true if a part of the contents lies in a pcluster of the packed inode that is known to be damaged.
    fn is_packed_into_damaged(&self, inode: &Inode) -> Result<bool, ReadError> {
        let Some(packed) = self.reader.special.packed.filter(|_| inode.has_contents()) else { return Ok(false) };
        let (mut map, mut packed) = (Map::open(self.reader, inode)?, Map::open(self.reader, &packed)?);
        let mut off = 0;
        while off < inode.meta.size {
            let extent = map.extent_at(off)?;
            if let ExtentKind::Fragment { off: start } = extent.kind {
                let mut at = start;
                while at < start.saturating_add(extent.llen) {
                    let part = packed.extent_at(at)?;
                    if matches!(part.kind, ExtentKind::Encoded { pa, .. } if self.damaged.contains(&pa)) {
                        return Ok(true);
                    }
                    at = part.end().max(at + 1);
                }
            }
            off = extent.end().max(off + 1);
        }
        Ok(false)
    }

    fn count_contents(&mut self, inode: &Inode, digest: Option<DigestCheck>) {
        let is_store = [self.reader.special.packed, self.reader.special.metabox].contains(&Some(*inode));
        if is_store || !inode.has_contents() {
            return;
        }
        // Holes may add up to anything.
        let add = |sum: &mut u64| *sum = sum.saturating_add(inode.meta.size);
        add(&mut self.report.bytes);
        if inode.meta.file_type != FileType::Regular {
            return;
        }
        // Attributes that cannot be read are a problem already.
        if matches!(self.reader.object_of(inode), Ok(Some(_))) {
            self.report.objects += 1;
            return;
        }
        add(&mut self.report.file_bytes);
        if digest == Some(DigestCheck::Equal) {
            add(&mut self.report.digested_bytes);
        }
    }

    fn check_xattrs(&mut self, path: &[u8], inode: &Inode) -> Result<(), ReadError> {
        let mut long_prefix = false;
        let mut seen = HashSet::new();
        self.reader.each_xattr(inode, &mut |entry| {
            long_prefix |= entry.is_long;
            let name = entry.name();
            let add = |name, reason| self.problems.add(path, Some(inode.nid), Finding::Xattr { name, reason });
            if name.len() > xattr::NAME_MAX_LEN {
                add(name.clone(), "a name over 255 bytes cannot be read");
            }
            if !seen.insert(name.clone()) {
                add(name, "stored twice");
            }
            ControlFlow::Continue(())
        })?;
        if long_prefix {
            self.features.of_long_prefix(path, inode);
        }
        if let Some(name) = self.reader.denied_by_filter(inode)? {
            self.add(path, inode, Finding::Xattr { name, reason: "hidden by the inode's name filter" });
        }
        for id in self.reader.shared_xattr_ids(inode)? {
            if self.shared_xattrs.insert(id) {
                let (at, len) = self.reader.shared_range(id)?;
                match self.reader.shared_xattr_space() {
                    MetadataSpace::Primary => self.spans.add_metadata(0, at, len),
                    MetadataSpace::Metabox => self.spans.add_in_metabox(at, len),
                }
            }
        }
        Ok(())
    }

    fn check_contents(&mut self, path: &[u8], inode: &Inode) -> Result<(), ReadError> {
        let pos = self.reader.inode_pos(inode.nid)?;
        if !inode.has_contents() {
            return self.add_metadata(inode, pos, self.reader.body_pos(inode)?);
        }
        let mut map = Map::open(self.reader, inode)?;
        self.add_metadata(inode, pos, map.metadata_end()?)?;
        if let Some(compressed) = map.compressed() {
            compressed.verify()?;
        }
        let mut queue = self.queue.file(path, inode.nid);
        let mut off = 0;
        while off < inode.meta.size {
            let extent = map.extent_at(off)?;
            if extent.la != off || extent.llen == 0 {
                return Err(ReadError::corrupt(
                    "erofs_inode",
                    pos,
                    "extent",
                    extent.la,
                    "extents overlap or leave gaps",
                ));
            }
            off = extent.end();
            self.report.extents += u64::from(!matches!(extent.kind, ExtentKind::Fragment { .. }));
            self.features.of_extent(path, inode, &mut map, &extent)?;
            if inode.meta.file_type == FileType::Regular {
                (self.progress)(extent.llen);
            }
            // A damaged extent does not hide those behind it.
            let checked = self.check_extent(inode, &extent).map_err(|error| error.at_nid(inode.nid));
            if self.problems.take(path, checked)? == Some(Decode::Wanted) {
                queue.push(extent);
            }
        }
        Ok(())
    }

    /// # Errors
    /// A range that is not wholly in the inode's space: a table may be as long as a hostile size
    /// makes it.
    fn add_metadata(&mut self, inode: &Inode, start: u64, end: u64) -> Result<(), ReadError> {
        let len = end.saturating_sub(start);
        MetadataReader::new(self.reader, inode.space()).check_range("erofs_inode", start, len)?;
        match inode.space() {
            MetadataSpace::Primary => self.spans.add_metadata(0, start, len),
            MetadataSpace::Metabox => self.spans.add_in_metabox(start, len),
        }
        Ok(())
    }

    /// Checks that an extent lies where data may lie. Returns the need to decode it.
    fn check_extent(&mut self, inode: &Inode, extent: &Extent) -> Result<Decode, ReadError> {
        let devices = &self.reader.volume.devices;
        match extent.kind {
            ExtentKind::Hole | ExtentKind::Meta { .. } => {}
            ExtentKind::Raw { device, pa } => {
                devices.check_range("data", device, pa, extent.llen)?;
                self.spans.add_data(device, pa, extent.llen);
            }
            ExtentKind::Plain { device, pa, plen, inline: None, .. } => {
                devices.check_range("pcluster", device, pa, plen.into())?;
                self.spans.add_data(device, pa, plen.into());
            }
            ExtentKind::Encoded { device, pa, plen, inline: None, .. } => {
                devices.check_range("pcluster", device, pa, plen.into())?;
                self.spans.add_pcluster(device, pa, plen.into());
                return Ok(Decode::Wanted);
            }
            ExtentKind::Encoded { inline: Some(_), .. } => return Ok(Decode::Wanted),
            ExtentKind::Plain { inline: Some(_), .. } => {}
            // Objects that are not at hand are counted.
            ExtentKind::Object if self.reader.is_merged() => return Ok(Decode::Wanted),
            ExtentKind::Object => {}
            ExtentKind::Fragment { off } if self.reader.special.packed == Some(*inode) => {
                return Err(fragment_error(off, "a fragment inside the packed inode"));
            }
            ExtentKind::Fragment { off } => {
                self.reader.packed_range(off, extent.llen)?;
            }
        }
        Ok(Decode::Needless)
    }
}

/// Need to decode an extent to find out if it is sound.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Decode {
    Wanted,
    Needless,
}

fn entry_finding(name: &[u8], reason: &'static str) -> Finding {
    Finding::Entry { name: name.to_vec(), reason }
}
