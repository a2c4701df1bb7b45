//! Encoding of extents as the index behind a compressed inode.

use kiln_format::addr::align_up;
use kiln_format::inode::Form;
use kiln_format::zmap::{
    Advise, COMPACT_INDEX_OFF, CompactLayout, FULL_ENTRY_LEN, FULL_INDEX_OFF, HeadKind, Lcluster, MAP_HEADER_LEN,
    MapHeader, ZmapHeader,
};
use kiln_format::{Algorithm, Blkaddr, BlockBits};

use crate::error::BuildError;

/// Entries in the largest pack of a compact index.
const PACK_MAX_ENTRIES: u64 = 16;

/// An extent of a compressed file, in the order of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ZExtent {
    /// Byte offset in the file.
    pub la: u64,
    /// Length of the plain text in bytes.
    pub llen: u32,
    /// Length of the stored data in bytes.
    pub plen: u32,
    /// Byte address of the stored data.
    pub pa: u64,
    /// Kind of encoding.
    pub kind: HeadKind,
    /// The stream decodes to more than `llen` bytes.
    pub partial: bool,
}

impl ZExtent {
    /// Returns the end of the extent as a byte offset in the file.
    pub(crate) fn end(&self) -> u64 {
        self.la + u64::from(self.llen)
    }
}

/// Returns whether the stored data of extents is contiguous.
pub(crate) fn lie_in_a_row(extents: &[ZExtent]) -> bool {
    extents.windows(2).all(|w| w[0].pa + u64::from(w[0].plen) == w[1].pa)
}

/// Returns whether the packs of an index behind a body at `body_off` can express the places of `extents`:
/// contiguous, except where a pack starts.
///
/// # Errors
/// As [`len_behind`].
pub(crate) fn lie_in_packs(extents: &[ZExtent], shape: IndexShape, body_off: u64) -> Result<bool, BuildError> {
    if shape.is_full() {
        return Ok(false);
    }
    let compact = shape.compact(compact_off(body_off))?;
    let follows = |a: &ZExtent, b: &ZExtent| a.pa + u64::from(a.plen) == b.pa;
    let starts_pack =
        |b: &ZExtent| shape.block_bits.within(b.la) == 0 && compact.starts_pack(b.la >> shape.block_bits.bits());
    let fit = extents.windows(2).all(|w| follows(&w[0], &w[1]) || starts_pack(&w[1]));
    Ok(fit && !extents.iter().any(|extent| extent.partial))
}

/// Returns the least length from `len` on behind which a pack starts, whatever follows, in an index right behind its
/// inode.
///
/// # Errors
/// As [`len_behind`].
pub(crate) fn pack_start(len: u64, block_bits: BlockBits) -> Result<u64, BuildError> {
    let longer = len + ((2 * PACK_MAX_ENTRIES) << block_bits.bits());
    let shape = IndexShape { len: longer, block_bits, big: true, scattered: false, end: MapEnd::Stored };
    if shape.is_full() {
        return Ok(block_bits.blocks_for(len) << block_bits.bits());
    }
    let compact = shape.compact(compact_off(Form::Compact.len() as u64))?;
    let first = (block_bits.blocks_for(len)..).find(|lcn| compact.starts_pack(*lcn));
    Ok(first.unwrap_or_default() << block_bits.bits())
}

/// Returns the greatest length up to `len` behind which a pack starts, whatever follows.
///
/// # Errors
/// As [`len_behind`].
pub(crate) fn last_pack_start(len: u64, block_bits: BlockBits) -> Result<u64, BuildError> {
    let pack_len = PACK_MAX_ENTRIES << block_bits.bits();
    let mut start = len.saturating_sub(pack_len);
    loop {
        let next = pack_start(start + 1, block_bits)?;
        if next > len {
            return Ok(if pack_start(start, block_bits)? == start { start } else { 0 });
        }
        start = next;
    }
}

/// Returns the offset from an inode at a slot boundary to its compact index, behind a body at `body_off`.
fn compact_off(body_off: u64) -> u64 {
    align_up(body_off, 8).expect("a small offset") + COMPACT_INDEX_OFF
}

/// The properties of an index that determine its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexShape {
    /// Size of the file in bytes.
    pub len: u64,
    /// Block size, also the size of an lcluster.
    pub block_bits: BlockBits,
    /// Pclusters may have several blocks.
    pub big: bool,
    /// Pclusters are not contiguous, or are referenced in part: the full index is needed.
    pub scattered: bool,
    /// Place of the last extent.
    pub end: MapEnd,
}

/// Place of the last extent of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MapEnd {
    /// In blocks, like all others.
    Stored,
    /// Behind the index: a pcluster of this many bytes.
    Inline(u16),
    /// In the packed inode, from this byte on.
    Fragment(u64),
}

/// log2 of the largest lclusters that dense packs of the compact index support, and that any pack supports.
const DENSE_MAX_BITS: u8 = 12;
const COMPACT_MAX_BITS: u8 = 14;

impl IndexShape {
    /// Returns whether the file has the full index.
    pub(crate) fn is_full(self) -> bool {
        self.scattered || self.block_bits.bits() > COMPACT_MAX_BITS
    }

    /// Returns the bits of the header that tell which index this is.
    fn advise(self) -> Advise {
        let dense = match !self.is_full() && self.block_bits.bits() <= DENSE_MAX_BITS {
            true => Advise::COMPACTED_2B_OR_EXTENTS,
            false => Advise::empty(),
        };
        // In the full index, kernels look at the second bit for plain extents, which we keep to one block. In the
        // compact index both bits must be equal.
        let big = match (self.big, self.is_full()) {
            (false, _) => Advise::empty(),
            (true, true) => Advise::BIG_PCLUSTER_1,
            (true, false) => Advise::BIG_PCLUSTER_1 | Advise::BIG_PCLUSTER_2,
        };
        dense | big
    }

    fn lclusters(self) -> u64 {
        self.block_bits.blocks_for(self.len)
    }

    /// Returns the compact layout `off` bytes behind a slot boundary. Slots are aligned to 32 bytes, as packs
    /// require.
    fn compact(self, off: u64) -> Result<CompactLayout, BuildError> {
        let count = self.lclusters();
        Ok(CompactLayout::new(off, count, count, self.block_bits.bits(), self.advise())?)
    }
}

/// Returns the most bytes of header and index behind an inode with a body of any length: their length behind a slot
/// boundary, where the largest number of small packs precedes the first large one.
///
/// # Errors
/// As [`len_behind`].
pub(crate) fn index_len(shape: IndexShape) -> Result<u64, BuildError> {
    len_behind(0, shape)
}

/// Returns the bytes from the end of the body at `body_off` of its inode to the end of the index, including
/// alignment.
///
/// # Errors
/// Block sizes that the compact index cannot have.
pub(crate) fn len_behind(body_off: u64, shape: IndexShape) -> Result<u64, BuildError> {
    let header = align_up(body_off, 8).expect("a small offset");
    let end = if shape.is_full() {
        header + FULL_INDEX_OFF + FULL_ENTRY_LEN * shape.lclusters()
    } else {
        shape.compact(compact_off(body_off))?.end_off()
    };
    Ok(end - body_off)
}

/// Most additional bytes of a file's index if another inode shares its data and the index follows that one.
const INDEX_SLACK: u64 = 32;

/// Returns the bytes that an inode of `inode_len` bytes and its index leave in a block for the end of the file.
pub(crate) fn inline_room(inode_len: u64, index_len: u64, block_bits: BlockBits) -> u64 {
    block_bits.len().saturating_sub(inode_len + index_len + INDEX_SLACK)
}

/// Returns the bytes from the end of the body at `body_off` of an inode to the end of the header that names a
/// fragment.
pub(crate) fn fragment_len_behind(body_off: u64) -> u64 {
    align_up(body_off, 8).expect("a small offset") + MAP_HEADER_LEN - body_off
}

/// Appends the header of a file that lies in the packed inode from byte `off` on.
///
/// # Errors
/// An offset over 63 bits.
pub(crate) fn encode_fragment(off: u64, out: &mut Vec<u8>) -> Result<(), BuildError> {
    out.resize(out.len().next_multiple_of(8), 0);
    out.extend_from_slice(&ZmapHeader::encode_fragment(off)?);
    Ok(())
}

/// Appends header and index of a file to `out`, which holds its inode and body so far.
///
/// # Errors
/// Extents that contradict the format, which is a bug.
pub(crate) fn encode(
    shape: IndexShape,
    algorithm: Algorithm,
    extents: &[ZExtent],
    out: &mut Vec<u8>,
) -> Result<(), BuildError> {
    if let Some(run) = runs(shape, extents).find(|run| !run.has_room(shape)) {
        return Err(BuildError::Internal(format!(
            "{:?} has no room in the index of a file of {} bytes",
            run.extent, shape.len
        )));
    }
    out.resize(out.len().next_multiple_of(8), 0);
    let mut advise = shape.advise();
    let (mut fragment_off, mut idata_len) = (0, 0);
    match shape.end {
        MapEnd::Stored => {}
        MapEnd::Inline(len) => (advise, idata_len) = (advise | Advise::INLINE_PCLUSTER, len),
        // The high half is in the entry of its head.
        MapEnd::Fragment(off) => (advise, fragment_off) = (advise | Advise::FRAGMENT_PCLUSTER, off as u32),
    }
    let header = MapHeader {
        advise,
        algorithms: [algorithm as u8, 0],
        lcluster_bits: shape.block_bits.bits(),
        fragment_off,
        idata_len,
        extent_count: 0,
    };
    let index_off = out.len() as u64 + COMPACT_INDEX_OFF;
    out.extend_from_slice(&header.encode(shape.block_bits)?);
    if shape.is_full() {
        out.resize(out.len() + (FULL_INDEX_OFF - COMPACT_INDEX_OFF) as usize, 0);
        for entry in lclusters(shape, extents) {
            out.extend_from_slice(&entry.encode_full()?);
        }
    } else {
        shape.compact(index_off)?.encode(lclusters(shape, extents), out)?;
    }
    Ok(())
}

/// Returns the entries of the index, one for each lcluster.
fn lclusters(shape: IndexShape, extents: &[ZExtent]) -> impl Iterator<Item = Lcluster> {
    runs(shape, extents).flat_map(move |run| run.lclusters(shape))
}

/// Returns the lclusters of all extents.
fn runs(shape: IndexShape, extents: &[ZExtent]) -> impl Iterator<Item = LclusterRun> {
    let bits = shape.block_bits.bits();
    let count = shape.lclusters();
    let mut rest = extents.iter().peekable();
    std::iter::from_fn(move || {
        let extent = *rest.next()?;
        let head = extent.la >> bits;
        let last = rest.peek().is_none();
        // An end marker follows the last extent if the file ends inside an lcluster in which nothing starts.
        let marker = last && shape.block_bits.within(shape.len) != 0 && head + 1 < count;
        let next = if !last { extent.end() >> bits } else { count - u64::from(marker) };
        Some(LclusterRun { extent, head, next, marker })
    })
}

/// The lclusters of an extent.
struct LclusterRun {
    extent: ZExtent,
    /// First lcluster.
    head: u64,
    /// First lcluster of the next extent, or the end marker.
    next: u64,
    /// An end marker follows.
    marker: bool,
}

impl LclusterRun {
    /// Returns whether there is an entry for its head, and one for the number of its blocks if it has several.
    fn has_room(&self, shape: IndexShape) -> bool {
        let is_big = self.extent.plen >> shape.block_bits.bits() > 1;
        self.next > self.head + u64::from(is_big) && (shape.big || !is_big)
    }

    /// Returns the head, the nonheads behind it and the end marker.
    fn lclusters(self, shape: IndexShape) -> impl Iterator<Item = Lcluster> {
        let Self { extent, head, next, marker } = self;
        let blkaddr = match shape.end {
            MapEnd::Fragment(off) if shape.is_full() && extent.end() == shape.len => off >> 32,
            _ => extent.pa >> shape.block_bits.bits(),
        };
        let first = Lcluster::Head {
            kind: extent.kind,
            clusterofs: shape.block_bits.within(extent.la) as u32,
            blkaddr: Blkaddr(blkaddr),
            partial: extent.partial,
        };
        // An inline pcluster and a fragment have no blocks, but the entry must have a count.
        let blocks = (extent.plen >> shape.block_bits.bits()).max(1);
        let nonheads = (head + 1..next).map(move |lcn| Lcluster::Nonhead {
            back: (lcn - head).min(u64::from(u32::MAX)) as u32,
            forward: (next - lcn).min(u64::from(u32::MAX)) as u32,
            cblkcnt: (shape.big && lcn == head + 1).then_some(blocks),
        });
        let marker = marker.then_some(Lcluster::Head {
            kind: HeadKind::Plain,
            clusterofs: shape.block_bits.within(shape.len) as u32,
            blkaddr: Blkaddr(0),
            partial: false,
        });
        std::iter::once(first).chain(nonheads).chain(marker)
    }
}

#[cfg(test)]
mod tests;
