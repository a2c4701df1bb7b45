//! Ends of files that are left for the packed inode: they wait until all else is stored.

use kiln_codec::Spec;
use kiln_format::feature::Feature;
use kiln_format::zmap::HeadKind;
use std::collections::HashMap;
use std::sync::Arc;

use super::{PackCrew, Packing, Stored};
use crate::error::BuildError;
use crate::layout::lcluster_index::{self, ZExtent};
use crate::pack::inline_tails::Tails;
use crate::pack::jobs::{JobText, PackJob};
use crate::plan::pieces::steps;
use crate::plan::text::{TextSource, segment_len};

/// The end of a file.
#[derive(Clone, Copy)]
struct LeftEnd {
    file: u32,
    /// First byte of the file that is left.
    start: u64,
    /// Offset of its text.
    text: u64,
    /// Length of the text in bytes.
    len: u32,
}

/// Ends of files, in plan order. Their text is in memory, or in a scratch file.
pub(super) struct LeftEnds {
    ends: Vec<LeftEnd>,
    /// Index of each file's end.
    by_file: HashMap<u32, usize>,
    texts: Tails,
}

impl LeftEnds {
    pub(super) fn new(texts: Tails) -> Self {
        Self { ends: Vec::new(), by_file: HashMap::new(), texts }
    }

    /// Adds the end of a file, from byte `start` on.
    pub(super) fn push(&mut self, file: u32, start: u64, text: &[u8]) -> Result<(), BuildError> {
        self.by_file.insert(file, self.ends.len());
        let end = LeftEnd { file, start, text: self.texts.push_text(text)?, len: text.len() as u32 };
        self.ends.push(end);
        Ok(())
    }

    /// Returns the first byte of the end of a file, if that was left.
    pub(super) fn start(&self, file: u32) -> Option<u64> {
        self.by_file.get(&file).map(|&at| self.ends[at].start)
    }

    /// Appends the end of a file to `out`, if it was left.
    pub(super) fn get(&self, file: u32, out: &mut Vec<u8>) -> Result<(), BuildError> {
        let Some(&at) = self.by_file.get(&file) else { return Ok(()) };
        self.texts.get_text(self.ends[at].text, self.ends[at].len as usize, out)
    }
}

impl Packing<'_, '_> {
    /// Stores the ends of files in the packed inode, behind its first `len` bytes. Returns its length.
    pub(super) fn store_ends(&mut self, len: u64, spec: Spec, crew: &mut PackCrew<'_>) -> Result<u64, BuildError> {
        let ends = std::mem::take(&mut self.ends.ends);
        if ends.is_empty() {
            return Ok(len);
        }
        self.feature(Feature::Fragments);
        let mut end = len;
        for one in &ends {
            self.place_end(one, end);
            end += u64::from(one.len);
        }
        let padded = match self.context.format.packing.directories {
            true => lcluster_index::pack_start(end, self.block_bits)?,
            false => end,
        };
        let mut rest = ends.iter();
        let mut text = Vec::new();
        for range in steps(len..padded, segment_len(spec.pcluster_len)) {
            let wanted = (range.end - range.start) as usize;
            while text.len() < wanted {
                match rest.next() {
                    Some(one) => self.ends.texts.get_text(one.text, one.len as usize, &mut text)?,
                    None => text.resize(wanted, 0),
                }
            }
            let behind = text.split_off(wanted);
            let bytes = JobText::all(Arc::new(std::mem::replace(&mut text, behind)));
            self.submit([PackJob::segment(TextSource::Fragments, range, Some(spec), bytes)], crew)?;
        }
        self.take_all(crew)?;
        Ok(padded)
    }

    /// Gives the end of a file its place in the packed inode.
    fn place_end(&mut self, end: &LeftEnd, off: u64) {
        let LeftEnd { file, start, len: llen, .. } = *end;
        if start == 0 {
            self.stored[file as usize] = Stored::Fragment(off);
            return;
        }
        let extents = self.extents_mut(TextSource::File(file));
        let pa = extents.list.last().map_or(0, |extent| extent.pa + u64::from(extent.plen));
        let kind = HeadKind::Head1;
        extents.list.push(ZExtent { la: start, llen, plen: 0, pa, kind, partial: false });
        extents.fragment = Some(off);
    }
}
