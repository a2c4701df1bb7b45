//! Map of an image: its stored spans in address order, and their files.

use kiln_read::{Algorithm, ExtentKind, Image, Inode, MetadataSpace, ReadError};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use xxhash_rust::xxh3::xxh3_64;

/// A regular file, or an inode without a name.
pub(crate) struct MapFile {
    pub inode: Inode,
    /// Hashes of its path, and of its path without digits, which is often the same in other
    /// versions.
    pub path_key: u64,
    pub name_key: u64,
    /// Number of first bytes that are stored in spans.
    pub in_spans: u64,
    /// Ranges of text stored separately, in order: neither holes nor in the packed inode.
    pub own_text: Vec<Range<u64>>,
    /// TextPlace of the rest.
    pub tail: Tail,
}

/// TextPlace of the end of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tail {
    /// In the spans.
    Stored,
    /// Beside the inode, encoded or not.
    Inline,
    /// In the packed inode, from this byte on.
    Fragment(u64),
}

/// Storage of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpanStorage {
    Encoded(Algorithm),
    /// Unencoded, among encoded extents.
    Plain,
    /// Unencoded.
    Raw,
    /// Encoded, beside the inode.
    Tail(Algorithm),
}

/// SpanStorage bytes and their text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub pa: u64,
    pub plen: u64,
    pub file: u32,
    pub la: u64,
    pub llen: u64,
    pub stored: SpanStorage,
}

impl Span {
    pub(crate) fn bytes(&self) -> Range<u64> {
        self.pa..self.pa + self.plen
    }

    pub(crate) fn text_end(&self) -> u64 {
        self.la + self.llen
    }
}

/// A file, or the end of a file, in the packed inode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fragment {
    pub off: u64,
    pub len: u64,
    pub file: u32,
    /// Offset in the file.
    pub la: u64,
}

/// Map of an image.
pub(crate) struct ImageMap {
    pub files: Vec<MapFile>,
    /// Spans in address order, without overlaps.
    pub spans: Vec<Span>,
    /// Fragments in the order of the packed inode.
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
        // If several files share stored bytes, the span with the longest text comes first and
        // covers them all.
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
                    Some((pa, plen.into(), SpanStorage::Encoded(algorithm)))
                }
                ExtentKind::Plain { device: 0, pa, plen, interlaced: false, inline: None } => {
                    Some((pa, plen.into(), SpanStorage::Plain))
                }
                ExtentKind::Raw { device: 0, pa } => Some((pa, extent.llen, SpanStorage::Raw)),
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
                    let stored = SpanStorage::Tail(algorithm);
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
        // Unencoded ends beside inodes are metadata.
        let own_len = if tail == Tail::Inline { inode.size() } else { in_spans };
        own_text.retain_mut(|range| {
            range.end = range.end.min(own_len);
            !range.is_empty()
        });
        self.files.push(MapFile { inode, path_key, name_key, in_spans, own_text, tail });
        Ok(idx)
    }

    /// Returns the same file in another version of the image: the one with the same path, or else
    /// with a path that differs only in digits.
    pub(crate) fn counterpart(&self, file: &MapFile) -> Option<u32> {
        self.paths.get(&file.path_key).or_else(|| self.names.get(&file.name_key)).copied()
    }

    /// Returns, for each file, the smallest range that contains its stored bytes.
    pub(crate) fn reaches(&self) -> Vec<Range<u64>> {
        let mut reaches = vec![Range { start: u64::MAX, end: 0 }; self.files.len()];
        for span in &self.spans {
            let reach = &mut reaches[span.file as usize];
            *reach = reach.start.min(span.pa)..reach.end.max(span.pa + span.plen);
        }
        reaches
    }

    /// Returns the ranges before, between and after the spans: metadata and unreferenced bytes.
    pub(crate) fn gaps(&self) -> Vec<Range<u64>> {
        let ends = std::iter::once(0).chain(self.spans.iter().map(|span| span.pa + span.plen));
        let starts = self.spans.iter().map(|span| span.pa).chain(std::iter::once(self.len));
        ends.zip(starts).filter(|(end, start)| end < start).map(|(end, start)| end..start).collect()
    }
}
