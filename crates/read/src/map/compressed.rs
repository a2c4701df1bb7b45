//! Maps of compressed files: lcluster indexes and encoded extents.
//!
//! A lookup reads the few entries that it needs: it goes back from the wanted lcluster to the head
//! of its extent and forward to the next head, both in strides of up to 2047 lclusters, or finds
//! its record directly or by bisection.

use super::compressed_file::{CompressedFile, HEADER, inline_len};
use super::encoded_extents::ExtentRecords;
use super::extent::{Extent, ExtentKind};
use super::lcluster_index::LclusterIndex;
use crate::error::{ReadError, aligned, too_far};
use crate::image::reader::Reader;
use crate::metadata::inode::Inode;
use crate::metadata::reader::MetadataReader;
use kiln_format::Incompat;
use kiln_format::inode::IndexKind;
use kiln_format::zmap::{Advise, HeadKind, MAP_HEADER_LEN, MapHeader, ZmapHeader};

/// The map of one compressed inode.
pub(crate) struct CompressedMap<'a> {
    file: CompressedFile<'a>,
    index: CompressedIndex,
}

#[allow(clippy::large_enum_variant)] // on the stack, see `MapKind`
enum CompressedIndex {
    /// The whole file is a fragment.
    Fragment(u64),
    Lclusters(MapHeader, LclusterIndex),
    Records(MapHeader, ExtentRecords),
}

impl<'a> CompressedMap<'a> {
    /// Returns the map of `inode`, which is compressed and not empty.
    pub(super) fn open(reader: Reader<'a>, inode: &Inode, index: IndexKind) -> Result<Self, ReadError> {
        let mut meta = MetadataReader::new(reader, inode.space());
        let header_off = aligned(reader.body_pos(inode)?, MAP_HEADER_LEN)?;
        let bytes = meta.array(HEADER, header_off)?;
        let block_bits = reader.superblock().block_bits;
        let header = ZmapHeader::decode(&bytes, header_off, block_bits, index)?;
        let file = CompressedFile { reader, inode: *inode, header_off, meta };
        let is_full = index == IndexKind::Full;
        let index = match header {
            ZmapHeader::Fragment(off) => CompressedIndex::Fragment(off),
            ZmapHeader::Map(header) if is_full && header.advise.contains(Advise::COMPACTED_2B_OR_EXTENTS) => {
                CompressedIndex::Records(header, ExtentRecords::new(&file, &header)?)
            }
            ZmapHeader::Map(header) => {
                check_big_pclusters(reader, &header, header_off, is_full)?;
                CompressedIndex::Lclusters(header, LclusterIndex::new(&file, &header)?)
            }
        };
        Ok(Self { file, index })
    }

    /// Returns true if the map is made of encoded extents.
    pub(crate) fn has_records(&self) -> bool {
        matches!(self.index, CompressedIndex::Records(..))
    }

    /// Returns the extent that holds byte `off`, which must be in the file.
    pub(super) fn extent_at(&mut self, off: u64) -> Result<Extent, ReadError> {
        let size = self.file.inode.meta.size;
        match &mut self.index {
            CompressedIndex::Fragment(start) => {
                Ok(Extent { la: 0, llen: size, kind: ExtentKind::Fragment { off: *start } })
            }
            CompressedIndex::Records(header, records) => records.extent_at(&mut self.file, header, off),
            CompressedIndex::Lclusters(header, lclusters) => {
                let found = lclusters.find(&mut self.file, header, off)?;
                let kind = self.file.resolve(header, lclusters.end_off(), &found)?;
                Ok(Extent { la: found.la, llen: found.end - found.la, kind })
            }
        }
    }

    /// Returns true if the extent at `off` has a head of type HEAD2, the second algorithm's.
    pub(crate) fn uses_head2(&mut self, off: u64) -> Result<bool, ReadError> {
        match &mut self.index {
            CompressedIndex::Lclusters(header, lclusters) => {
                Ok(lclusters.find(&mut self.file, header, off)?.kind == HeadKind::Head2)
            }
            _ => Ok(false),
        }
    }

    /// Checks the whole index for contradictions that single lookups do not see. The index must be
    /// in the metadata space.
    pub(crate) fn verify(&mut self) -> Result<(), ReadError> {
        match &mut self.index {
            CompressedIndex::Fragment(_) => Ok(()),
            CompressedIndex::Records(_, records) => records.verify(&mut self.file),
            CompressedIndex::Lclusters(_, lclusters) => lclusters.verify(&mut self.file),
        }
    }

    /// Returns the byte offset in the metadata space behind the index and an inline pcluster.
    pub(super) fn metadata_end(&mut self) -> Result<u64, ReadError> {
        match &self.index {
            CompressedIndex::Fragment(_) => Ok(self.file.header_off + MAP_HEADER_LEN),
            CompressedIndex::Records(_, records) => records.end_off(),
            CompressedIndex::Lclusters(header, lclusters) => {
                let inline = inline_len(header).map_or(0, u64::from);
                lclusters.end_off().checked_add(inline).ok_or_else(|| too_far(HEADER, self.file.header_off))
            }
        }
    }
}

fn check_big_pclusters(reader: Reader<'_>, header: &MapHeader, at: u64, full: bool) -> Result<(), ReadError> {
    let (one, two) = (header.advise.contains(Advise::BIG_PCLUSTER_1), header.advise.contains(Advise::BIG_PCLUSTER_2));
    let corrupt = |reason| Err(ReadError::corrupt(HEADER, at, "h_advise", header.advise.bits().into(), reason));
    if (one || two) && !reader.superblock().incompat.contains(Incompat::COMPR_CFGS) {
        return corrupt("big pclusters that the superblock does not announce");
    }
    if !full && one != two {
        return corrupt("the two BIG_PCLUSTER bits must be equal in a compact index");
    }
    Ok(())
}
