//! The history of one read that began with empty caches.

use crate::cache::access_pattern::AccessPattern;
use crate::cache::admission::PastAccesses;
use crate::data::plan::{DecodePlan, DecodeTarget, ReadHistory, plan};
use crate::image::reader::Reader;
use crate::map::encoded_extent::EncodedExtent;
use std::ops::Range;

/// A model of the caches and the access history. It holds extents that a read wants in part: the
/// first and the last one of a range, of a file and of the packed inode.
pub(super) struct ColdHistory<'a> {
    reader: Reader<'a>,
    cached: Vec<EncodedExtent>,
    /// Extents with the byte behind the last access.
    accessed: Vec<(EncodedExtent, u64)>,
}

impl<'a> ColdHistory<'a> {
    /// Returns a history in which nothing is cached and nothing was read.
    pub(super) fn new(reader: Reader<'a>) -> Self {
        Self { reader, cached: Vec::new(), accessed: Vec::new() }
    }

    /// Returns the plan for bytes `wanted` of an extent. An extent that the plan decodes into the
    /// cache is there for the next plan. The pattern is sequential: the detector does not call one
    /// read random.
    pub(super) fn plan(&mut self, encoded: &EncodedExtent, wanted: &Range<u64>) -> DecodePlan<()> {
        let plan = plan(self, encoded, wanted, AccessPattern::Sequential);
        if let DecodePlan::Decode { target: DecodeTarget::Cache, .. } = plan {
            self.cached.push(*encoded);
        }
        plan
    }
}

impl ReadHistory for ColdHistory<'_> {
    type Cached = ();

    fn fits_cache(&self, encoded: &EncodedExtent) -> bool {
        self.reader.volume.state().fits_cache(encoded)
    }

    fn cached(&self, encoded: &EncodedExtent) -> Option<()> {
        self.cached.contains(encoded).then_some(())
    }

    fn record(&mut self, encoded: &EncodedExtent, wanted: &Range<u64>) -> Option<PastAccesses> {
        match self.accessed.iter_mut().find(|(accessed, _)| accessed == encoded) {
            // A model has no consumer that bytes are counted for.
            Some((_, end)) => Some(PastAccesses { end: std::mem::replace(end, wanted.end), len: 0 }),
            None => {
                self.accessed.push((*encoded, wanted.end));
                None
            }
        }
    }
}
