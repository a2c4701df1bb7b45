//! Where an image has what: stored spans in the order of bytes, and the files that they are part of.

use kiln_read::{Algorithm, ExtentKind, Image, Inode, MetadataSpace, ReadError};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use xxhash_rust::xxh3::xxh3_64;

/// A regular file, or an inode without a name.
pub(crate) struct MapFile {
    pub inode: Inode,
    /// Hashes of its path, and of its path without digits: files of other versions have the same.
    pub path_key: u64,
    pub name_key: u64,
    /// What of its front is stored in spans, in bytes.
    pub in_spans: u64,
    /// Text that it has for itself, in order: neither holes nor what is in the packed inode.
    pub own_text: Vec<Range<u64>>,
    /// Where the rest of it is.
    pub tail: Tail,
}

/// Where the end of a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tail {
    /// With the rest.
    Stored,
    /// Encoded, or as it is, beside the inode.
    Inline,
    /// In the packed inode, from this byte on.
    Fragment(u64),
}

/// How a span is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    Encoded(Algorithm),
    /// As it is, among encoded extents.
    Plain,
    /// As it is.
    Raw,
    /// Encoded, beside the inode.
    Tail(Algorithm),
}

/// Stored bytes, and the text that they are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub pa: u64,
    pub plen: u64,
    pub file: u32,
    pub la: u64,
    pub llen: u64,
    pub stored: Stored,
}

impl Span {
    pub(crate) fn bytes(&self) -> Range<u64> {
        self.pa..self.pa + self.plen
    }

    pub(crate) fn text_end(&self) -> u64 {
        self.la + self.llen
    }
}

/// A file, or the end of one, in the packed inode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fragment {
    pub off: u64,
    pub len: u64,
    pub file: u32,
    /// First byte in the file.
    pub la: u64,
}

/// Where an image has what.
pub(crate) struct ImageMap {
    pub files: Vec<MapFile>,
    /// In the order of bytes, none over another.
    pub spans: Vec<Span>,
    /// In the order of the packed inode.
    pub fragments: Vec<Fragment>,
    pub packed: Option<u32>,
    pub paths: HashMap<u64, u32>,
    pub names: HashMap<u64, u32>,
    pub len: u64,
}

impl ImageMap {
    pub(crate) fn new(image: &Image) -> Result<Self, ReadError> {
        let len = image.source_len();
        let mut map = Self {
            files: Vec::new(),
            spans: Vec::new(),
            fragments: Vec::new(),
            packed: None,
            paths: HashMap::new(),
            names: HashMap::new(),
            len,
        };
        let sb = image.superblock();
        for (nid, name) in [(sb.packed_nid, &b"\0packed"[..]), (sb.metabox_nid, b"\0metabox")] {
            if let Some(nid) = nid {
                let file = map.add(image, image.inode(nid)?, name)?;
                map.packed = map.packed.or((name == b"\0packed").then_some(file));
            }
        }
        let mut seen = HashSet::new();
        let root = image.inode(image.root_nid())?;
        for entry in image.walk(&root, b"") {
            let entry = entry?;
            let inode = entry.inode;
            if inode.is_file() && inode.size() > 0 && seen.insert(inode.nid) {
                map.add(image, inode, &entry.path)?;
            }
        }
        // Of what several files refer to, the longest text first: it is all that is stored.
        map.spans.sort_by_key(|span| (span.pa, u64::MAX - span.llen, span.file, span.la));
        let mut end = 0;
        map.spans.retain(|span| {
            let is_apart = span.pa >= end && span.pa + span.plen <= len;
            end = if is_apart { span.pa + span.plen } else { end };
            is_apart
        });
        map.fragments.sort_by_key(|fragment| (fragment.off, fragment.file));
        Ok(map)
    }

    fn add(&mut self, image: &Image, inode: Inode, path: &[u8]) -> Result<u32, ReadError> {
        let idx = self.files.len() as u32;
        let (mut in_spans, mut tail) = (0, Tail::Stored);
        let mut own_text: Vec<Range<u64>> = Vec::new();
        for extent in image.extents(&inode) {
            let extent = extent?;
            if !matches!(extent.kind, ExtentKind::Hole | ExtentKind::Fragment { .. }) {
                match own_text.last_mut() {
                    Some(last) if last.end == extent.la => last.end = extent.end(),
                    _ => own_text.push(extent.la..extent.end()),
                }
            }
            let stored = match extent.kind {
                ExtentKind::Encoded { algorithm, device: 0, pa, plen, partial: false, inline: None } => {
                    Some((pa, plen.into(), Stored::Encoded(algorithm)))
                }
                ExtentKind::Plain { device: 0, pa, plen, interlaced: false, inline: None } => {
                    Some((pa, plen.into(), Stored::Plain))
                }
                ExtentKind::Raw { device: 0, pa } => Some((pa, extent.llen, Stored::Raw)),
                ExtentKind::Fragment { off } => {
                    tail = Tail::Fragment(off);
                    self.fragments.push(Fragment { off, len: extent.llen, file: idx, la: extent.la });
                    None
                }
                ExtentKind::Encoded {
                    algorithm,
                    pa,
                    plen,
                    partial: false,
                    inline: Some(MetadataSpace::Primary),
                    ..
                } => {
                    tail = Tail::Inline;
                    let stored = Stored::Tail(algorithm);
                    let span = Span { pa, plen: plen.into(), file: idx, la: extent.la, llen: extent.llen, stored };
                    self.spans.push(span);
                    None
                }
                ExtentKind::Encoded { inline: Some(_), .. } | ExtentKind::Plain { inline: Some(_), .. } => {
                    tail = Tail::Inline;
                    None
                }
                _ => None,
            };
            if let Some((pa, plen, stored)) = stored {
                in_spans = extent.end();
                self.spans.push(Span { pa, plen, file: idx, la: extent.la, llen: extent.llen, stored });
            }
        }
        let name: Vec<u8> = path.iter().copied().filter(|byte| !byte.is_ascii_digit()).collect();
        let (path_key, name_key) = (xxh3_64(path), xxh3_64(&name));
        self.paths.entry(path_key).or_insert(idx);
        self.names.entry(name_key).or_insert(idx);
        // Uncompressed ends beside inodes are metadata.
        let own_len = if tail == Tail::Inline { inode.size() } else { in_spans };
        own_text.retain_mut(|range| {
            range.end = range.end.min(own_len);
            !range.is_empty()
        });
        self.files.push(MapFile { inode, path_key, name_key, in_spans, own_text, tail });
        Ok(idx)
    }

    /// The file that is the same one in an older or newer version: by path, else by a path that differs in digits.
    pub(crate) fn counterpart(&self, file: &MapFile) -> Option<u32> {
        self.paths.get(&file.path_key).or_else(|| self.names.get(&file.name_key)).copied()
    }

    /// By file, from where to where its stored bytes reach.
    pub(crate) fn reaches(&self) -> Vec<Range<u64>> {
        let mut reaches = vec![Range { start: u64::MAX, end: 0 }; self.files.len()];
        for span in &self.spans {
            let reach = &mut reaches[span.file as usize];
            *reach = reach.start.min(span.pa)..reach.end.max(span.pa + span.plen);
        }
        reaches
    }

    /// Bytes in front of, between and behind the spans: metadata, and what nothing refers to.
    pub(crate) fn gaps(&self) -> Vec<Range<u64>> {
        let ends = std::iter::once(0).chain(self.spans.iter().map(|span| span.pa + span.plen));
        let starts = self.spans.iter().map(|span| span.pa).chain(std::iter::once(self.len));
        ends.zip(starts).filter(|(end, start)| end < start).map(|(end, start)| end..start).collect()
    }
}
