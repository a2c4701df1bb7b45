//! Plain text into pclusters, front to back.

use kiln_codec::{Encoder, Spec, probe};
use kiln_format::BlockBits;
use kiln_format::compr_cfg::EXTENT_MAX_LEN;
use kiln_format::zmap::HeadKind;

use crate::context::progress::Control;
use crate::error::BuildError;
use crate::format::{Format, REST_MAX_BLOCKS};
use crate::options::data::CompressionOptions;

/// An extent relative to the stored bytes of its part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PartExtent {
    /// Bytes of plain text.
    pub llen: u32,
    /// Bytes stored.
    pub plen: u32,
    /// Kind of encoding.
    pub kind: HeadKind,
}

/// Result of filling pclusters with plain text.
#[derive(Debug, Default)]
pub(crate) struct Filled {
    /// The pclusters, one behind the other.
    pub bytes: Vec<u8>,
    /// Extents, one behind the other.
    pub extents: Vec<PartExtent>,
    /// The pcluster of the last extent, if it is to lie beside the inode; it is then not among the bytes.
    pub inline: Vec<u8>,
    /// Bytes at the end of the text that are left for the packed stream.
    pub left: usize,
}

/// Place for the end of a whole file that does not fill its last block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Into a block of its own.
    Padded,
    /// Beside the inode, where there is room for this many bytes; else into a block.
    Inline(usize),
    /// Into the packed stream.
    Fragments,
}

/// An empty DEFLATE block that is not the last, its unused bits such that the first byte is not zero.
const EMPTY_DEFLATE_BLOCK: [u8; 5] = [0x08, 0x00, 0x00, 0xFF, 0xFF];
/// Bytes that the end of a DEFLATE stream, which gives no more text, may take.
const DEFLATE_END_MAX_LEN: u64 = 3;

impl Filled {
    /// Lengthens DEFLATE streams that would end in the first bytes of a page if the part starts at byte `start`.
    ///
    /// Linux (6.18 at least) goes from page to page of a stream only while text is missing, and reports EUCLEAN if
    /// nothing but the end of the stream lies in the next one. An empty block in front moves the end on. Only
    /// streams that do not end with a block are concerned. Pages are blocks here; larger ones begin where blocks
    /// begin.
    pub(crate) fn with_deflate_ends_off_page_starts(mut self, start: u64, block_bits: BlockBits) -> Self {
        let ends_badly = |pa: u64, plen: u32| {
            let behind = block_bits.within(pa + u64::from(plen));
            (1..=DEFLATE_END_MAX_LEN).contains(&behind) && u64::from(plen) > behind
        };
        let (mut pa, mut off) = (start, 0);
        for extent in &mut self.extents {
            if extent.kind != HeadKind::Plain && ends_badly(pa, extent.plen) {
                self.bytes.splice(off..off, EMPTY_DEFLATE_BLOCK);
                extent.plen += EMPTY_DEFLATE_BLOCK.len() as u32;
            }
            pa += u64::from(extent.plen);
            off += extent.plen as usize;
        }
        self
    }

    /// Adds the last extent, which lies beside the inode.
    fn push_inline(&mut self, pcluster: &[u8], llen: usize, kind: HeadKind) {
        self.inline = pcluster.to_vec();
        self.push(llen, pcluster.len(), kind);
    }

    /// Adds a stream in whole blocks. Padding precedes it: the stream ends where its pcluster ends.
    fn push_aligned(&mut self, stream: &[u8], llen: usize, block_len: usize) {
        let plen = stream.len().next_multiple_of(block_len);
        self.bytes.resize(self.bytes.len() + plen - stream.len(), 0);
        self.bytes.extend_from_slice(stream);
        self.push(llen, plen, HeadKind::Head1);
    }

    fn push(&mut self, llen: usize, plen: usize, kind: HeadKind) {
        self.extents.push(PartExtent { llen: llen as u32, plen: plen as u32, kind });
    }
}

/// Decides before each pcluster whether to continue.
pub(crate) type GoOn<'a> = dyn FnMut(&Filled) -> Result<bool, BuildError> + 'a;

/// Most multiples of the room beside the inode for text that is tried there.
const RATIO_MAX: usize = 16;

/// Properties common to all pclusters of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FillForm {
    pub block_bits: BlockBits,
    /// Extents are encoded: byte-granular.
    pub encoded_extents: bool,
    /// Most plain text of one extent, in bytes; `None` for the kernel's limit.
    pub extent_max_len: Option<u32>,
}

impl FillForm {
    /// Returns the form for an image with these options.
    pub(crate) fn of(format: &Format) -> Self {
        let CompressionOptions { encoded_extents, extent_max_len, .. } = format.compression;
        Self { block_bits: format.block_bits, encoded_extents, extent_max_len }
    }
}

/// Fills pclusters; one for each thread.
pub(crate) struct PclusterWriter {
    encoder: Encoder,
    spec: Spec,
    block_bits: BlockBits,
    /// Extents are encoded: byte-granular.
    encoded_extents: bool,
    /// Most plain text of one extent, in bytes.
    extent_max_len: usize,
    /// Most bytes of a pcluster.
    room: usize,
    pcluster: Vec<u8>,
}

impl PclusterWriter {
    /// Creates a writer for `spec`.
    ///
    /// # Errors
    /// An encoder that cannot be made.
    pub(crate) fn new(spec: &Spec, form: FillForm) -> Result<Self, BuildError> {
        let pcluster = vec![0; spec.pcluster_len as usize];
        let FillForm { block_bits, encoded_extents, extent_max_len } = form;
        let extent_max_len = extent_max_len.map_or(EXTENT_MAX_LEN, |len| EXTENT_MAX_LEN.min(len as usize));
        let room = pcluster.len();
        let encoder = Encoder::new(spec)?;
        Ok(Self { encoder, spec: *spec, block_bits, encoded_extents, extent_max_len, room, pcluster })
    }

    /// Fills one pcluster, of at most `room` bytes, with the front of `text`. The rest of it, if there is any, can
    /// stand alone.
    ///
    /// # Errors
    /// A codec that fails.
    pub(crate) fn write_one(&mut self, text: &[u8], ends_stream: bool, room: usize) -> Result<Filled, BuildError> {
        let longest = self.spec.pcluster_len as usize;
        self.room = room.min(longest);
        let filled = self.write_while(text, ends_stream, End::Padded, &mut |filled| Ok(filled.extents.is_empty()));
        self.room = longest;
        filled
    }

    /// Turns `text` into pclusters: encoded extents, or whole blocks with the end as `end` says.
    ///
    /// # Errors
    /// A codec that fails; an interruption.
    pub(crate) fn write(
        &mut self,
        text: &[u8],
        ends_stream: bool,
        end: End,
        control: &Control<'_>,
    ) -> Result<Filled, BuildError> {
        let mut go_on = |_: &Filled| control.check().map(|()| true);
        match self.encoded_extents {
            true => self.units(text, &mut go_on),
            false => self.blocks(text, ends_stream, end, &mut go_on),
        }
    }

    /// Writes like [`PclusterWriter::write`], but calls `go_on` with the existing pclusters before each one to
    /// decide whether to continue.
    ///
    /// # Errors
    /// A codec that fails; those of `go_on`.
    pub(crate) fn write_while(
        &mut self,
        text: &[u8],
        ends_stream: bool,
        end: End,
        go_on: &mut GoOn<'_>,
    ) -> Result<Filled, BuildError> {
        match self.encoded_extents {
            true => self.units(text, go_on),
            false => self.blocks(text, ends_stream, end, go_on),
        }
    }

    /// Returns the length of a unit of [`PclusterWriter::units`] in bytes.
    fn unit_len(&self) -> usize {
        (self.spec.pcluster_len as usize).min(self.extent_max_len)
    }

    /// Fills whole blocks with `text`: the longest prefix that fits, then the longest of the rest, and so on. Unless
    /// the text ends its stream, no extent becomes too short for any place in an index (see [`crate::cuts`]). `end`
    /// concerns whole files.
    ///
    /// # Errors
    /// A codec that fails; an interruption.
    fn blocks(&mut self, text: &[u8], ends_stream: bool, end: End, go_on: &mut GoOn<'_>) -> Result<Filled, BuildError> {
        self.encoder.reset();
        let mut filled = Filled { bytes: Vec::with_capacity(text.len() / 2), ..Filled::default() };
        let mut rest = text;
        // A part takes many seconds with slow compression: an interruption is checked before each pcluster.
        while !rest.is_empty() && go_on(&filled)? {
            let is_done = match end {
                End::Padded => false,
                End::Inline(room) => room > 0 && self.tail(rest, room, &mut filled)?,
                End::Fragments => self.leave(rest, &mut filled)?,
            };
            if is_done {
                break;
            }
            let taken = match self.encoded(rest, ends_stream, &mut filled)? {
                0 => self.plain(rest, ends_stream, &mut filled)?,
                taken => taken,
            };
            rest = &rest[taken..];
        }
        Ok(filled)
    }

    /// Stores all of `rest` if one pcluster holds it: whole blocks as far as it fills them, the rest inline. Returns
    /// whether it did, which it does not if nothing would be gained.
    fn tail(&mut self, rest: &[u8], room: usize, filled: &mut Filled) -> Result<bool, BuildError> {
        let block_len = self.block_bits.len() as usize;
        if self.encode_tail(rest, room, filled)? {
            return Ok(true);
        }
        let Some(produced) = self.last_pcluster(rest)? else { return Ok(false) };
        let before = (filled.bytes.len(), filled.extents.len());
        let Some(taken) = self.front(rest, produced / block_len, filled)? else { return Ok(false) };
        if self.encode_tail(&rest[taken..], room, filled)? {
            return Ok(true);
        }
        filled.bytes.truncate(before.0);
        filled.extents.truncate(before.1);
        Ok(false)
    }

    /// Leaves the end of `rest` for the packed stream, if one pcluster holds all of it and does not fill its last
    /// block. Stores the whole blocks before it. Returns whether it did.
    fn leave(&mut self, rest: &[u8], filled: &mut Filled) -> Result<bool, BuildError> {
        let block_len = self.block_bits.len() as usize;
        let Some(produced) = self.last_pcluster(rest)? else { return Ok(false) };
        let taken = if produced < block_len { Some(0) } else { self.front(rest, produced / block_len, filled)? };
        filled.left = taken.map_or(0, |taken| rest.len() - taken);
        Ok(taken.is_some())
    }

    /// Returns the length of the pcluster that holds all of `rest`, if there is one and its last block is not full.
    fn last_pcluster(&mut self, rest: &[u8]) -> Result<Option<usize>, BuildError> {
        let block_len = self.block_bits.len() as usize;
        let pcluster = self.pcluster(rest)?;
        let holds_all =
            |(consumed, produced): &(usize, usize)| *consumed == rest.len() && !produced.is_multiple_of(block_len);
        Ok(pcluster.filter(holds_all).map(|(_, produced)| produced))
    }

    /// Stores the front of `rest` that fills whole blocks. Returns its length; `None` if that would save no block,
    /// or if the rest would begin too early for the index.
    fn front(&mut self, rest: &[u8], blocks: usize, filled: &mut Filled) -> Result<Option<usize>, BuildError> {
        let block_len = self.block_bits.len() as usize;
        let front = self.encoder.fill(rest, &mut self.pcluster[..blocks * block_len])?;
        let far_enough = front.consumed >= (blocks.min(2) + 1) * block_len && front.consumed < rest.len();
        let saves = front.produced.next_multiple_of(block_len) < front.consumed;
        if !far_enough || !saves {
            return Ok(None);
        }
        filled.push_aligned(&self.pcluster[..front.produced], front.consumed, block_len);
        Ok(Some(front.consumed))
    }

    /// Stores all of `rest` beside the inode, encoded or plain, if it fits `room` bytes there.
    fn encode_tail(&mut self, rest: &[u8], room: usize, filled: &mut Filled) -> Result<bool, BuildError> {
        let room = room.min(self.pcluster.len());
        let smaller = room.min(rest.len().saturating_sub(1));
        if smaller > 0
            && rest.len() <= (room * RATIO_MAX).min(self.extent_max_len)
            && let Some(produced) = self.encoder.encode(rest, &mut self.pcluster[..smaller])?
        {
            filled.push_inline(&self.pcluster[..produced], rest.len(), HeadKind::Head1);
            return Ok(true);
        }
        let fits = rest.len() <= room && rest.len() < self.block_bits.len() as usize;
        if fits {
            filled.push_inline(rest, rest.len(), HeadKind::Plain);
        }
        Ok(fits)
    }

    /// Encodes all of `text` in one pcluster of at most `room` bytes, if it fits.
    ///
    /// # Errors
    /// A codec that fails.
    pub(crate) fn encode_alone(&mut self, text: &[u8], room: usize) -> Result<Option<Vec<u8>>, BuildError> {
        self.encoder.reset();
        let room = room.min(self.pcluster.len());
        let produced = self.encoder.encode(text, &mut self.pcluster[..room])?;
        Ok(produced.map(|len| self.pcluster[..len].to_vec()))
    }

    /// Fills a pcluster with the front of `rest`. Returns the bytes taken; 0 if that would not save a block.
    fn encoded(&mut self, rest: &[u8], ends_stream: bool, filled: &mut Filled) -> Result<usize, BuildError> {
        let block_len = self.block_bits.len() as usize;
        let Some(mut taken) = self.pcluster(rest)? else { return Ok(0) };
        if !ends_stream && self.is_too_short(rest.len() - taken.0) {
            if rest.len() < 4 * block_len {
                return self.all(rest, filled);
            }
            // Less, so that the rest can stand alone.
            match self.pcluster(&rest[..rest.len() - 2 * block_len])? {
                Some(less) => taken = less,
                None => return Ok(0),
            }
        }
        let (consumed, produced) = taken;
        filled.push_aligned(&self.pcluster[..produced], consumed, block_len);
        Ok(consumed)
    }

    /// Stores the front of `rest` in plain blocks, at most a pcluster's length. Returns its length.
    fn plain(&mut self, rest: &[u8], ends_stream: bool, filled: &mut Filled) -> Result<usize, BuildError> {
        let block_len = self.block_bits.len() as usize;
        let unit = rest.len().min(self.spec.pcluster_len as usize);
        let mut taken = unit;
        if !ends_stream {
            taken -= unit % block_len;
            while taken > 0 && self.is_too_short(rest.len() - taken) {
                taken -= block_len;
            }
            if taken == 0 {
                return self.all(rest, filled);
            }
        }
        for block in rest[..taken].chunks(block_len) {
            filled.bytes.extend_from_slice(block);
            filled.bytes.resize(filled.bytes.len().next_multiple_of(block_len), 0);
            filled.push(block.len(), block_len, HeadKind::Plain);
        }
        Ok(taken)
    }

    /// Returns whether `len` bytes before other extents are neither plain blocks nor long enough for any pcluster.
    fn is_too_short(&self, len: usize) -> bool {
        let block_len = self.block_bits.len() as usize;
        !len.is_multiple_of(block_len) && len < 2 * block_len
    }

    /// Encodes all of `rest`, two to four blocks, as one pcluster even if it saves nothing.
    fn all(&mut self, rest: &[u8], filled: &mut Filled) -> Result<usize, BuildError> {
        let block_len = self.block_bits.len() as usize;
        let room = REST_MAX_BLOCKS as usize * block_len;
        if self.pcluster.len() < room {
            self.pcluster.resize(room, 0);
        }
        let Some(produced) = self.encoder.encode(rest, &mut self.pcluster[..room])? else {
            return Err(BuildError::Internal(format!("{} bytes do not fit {room}", rest.len())));
        };
        filled.push_aligned(&self.pcluster[..produced], rest.len(), block_len);
        Ok(rest.len())
    }

    /// Cuts `text` into units of the pcluster length and encodes each, without padding.
    ///
    /// # Errors
    /// As [`PclusterWriter::blocks`].
    fn units(&mut self, text: &[u8], go_on: &mut GoOn<'_>) -> Result<Filled, BuildError> {
        self.encoder.reset();
        let mut filled = Filled { bytes: Vec::with_capacity(text.len() / 2), ..Filled::default() };
        for unit in text.chunks(self.unit_len()) {
            if !go_on(&filled)? {
                break;
            }
            let encoded = match probe::is_incompressible(unit) {
                true => None,
                false => self.encoder.encode(unit, &mut self.pcluster[..unit.len() - 1])?,
            };
            match encoded {
                Some(len) => {
                    filled.bytes.extend_from_slice(&self.pcluster[..len]);
                    filled.push(unit.len(), len, HeadKind::Head1);
                }
                None => {
                    filled.bytes.extend_from_slice(unit);
                    filled.push(unit.len(), unit.len(), HeadKind::Plain);
                }
            }
        }
        Ok(filled)
    }

    /// Fills one pcluster with the front of `rest`. Returns the bytes consumed and produced, if that saves a block.
    fn pcluster(&mut self, rest: &[u8]) -> Result<Option<(usize, usize)>, BuildError> {
        let block_len = self.block_bits.len() as usize;
        let max_len = self.room;
        let unit = rest.len().min(max_len);
        // Text that fits one block saves none.
        if rest.len() <= block_len || unit > block_len && probe::is_incompressible(&rest[..unit]) {
            return Ok(None);
        }
        let text = &rest[..rest.len().min(self.extent_max_len)];
        let filled = self.encoder.fill(text, &mut self.pcluster[..max_len])?;
        // Then, too, its index has an entry for its count of blocks.
        let saves = filled.produced.next_multiple_of(block_len) < filled.consumed;
        Ok(saves.then_some((filled.consumed, filled.produced)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deflate_streams_end_off_page_starts() {
        let bits = BlockBits::DEFAULT;
        for start in 4090..4100 {
            let mut filled = Filled::default();
            for plen in [4096, 3, 4091, 5000, 4090, 8192] {
                filled.bytes.extend(vec![plen as u8; plen]);
                let kind = if plen == 5000 { HeadKind::Plain } else { HeadKind::Head1 };
                filled.push(3 * plen, plen, kind);
            }
            let moved = filled.with_deflate_ends_off_page_starts(start, bits);
            let (mut pa, mut off) = (start, 0);
            for (extent, plen) in moved.extents.iter().zip([4096, 3, 4091, 5000, 4090, 8192]) {
                let (end, bytes) = (pa + u64::from(extent.plen), &moved.bytes[off..][..extent.plen as usize]);
                let (pad, stream) = bytes.split_at(bytes.len() - plen);
                assert!(pad.is_empty() || pad == EMPTY_DEFLATE_BLOCK);
                assert!(stream.iter().all(|&byte| byte == plen as u8));
                let within_a_page = pa >> bits.bits() == (end - 1) >> bits.bits();
                assert!(extent.kind == HeadKind::Plain || within_a_page || !(1..=3).contains(&bits.within(end)));
                (pa, off) = (end, off + bytes.len());
            }
            assert_eq!(off, moved.bytes.len());
        }
    }
}
