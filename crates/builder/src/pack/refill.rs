//! Repetition of an encoding: returns the bytes of pclusters from their text.
//!
//! The output of a worker is a function of its text, of the [`RefillForm`], and of the kind of the text's end. So
//! another machine can make the same bytes, if its encoder is the same.

use kiln_codec::{Method, Spec};
use kiln_format::BlockBits;
use kiln_format::zmap::HeadKind;

use crate::error::BuildError;
use crate::layout::lcluster_index::{self, IndexShape, MapEnd};
use crate::pack::fill::{End, FillForm, Filled, PclusterWriter};
use crate::plan::text;

/// The form of pclusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RefillForm {
    /// The encoder, and the longest pcluster.
    pub spec: Spec,
    /// Block size of the image.
    pub block_bits: BlockBits,
    /// Extents are encoded: byte-granular, without padding.
    pub encoded_extents: bool,
    /// Most plain text of one extent, in bytes; `None` for the kernel's limit.
    pub extent_max_len: Option<u32>,
}

impl RefillForm {
    /// Returns the most plain text that a build fills front to back, in bytes: it cuts longer files at multiples of
    /// it.
    pub fn segment_len(&self) -> u64 {
        text::segment_len(self.spec.pcluster_len)
    }
}

/// The continuation of the text, and the place of its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefillEnd {
    /// Nothing follows, or something at a block boundary; the end goes into blocks of its own.
    Padded,
    /// Something follows in the same block of text.
    Open,
    /// The end goes into the packed inode.
    Fragments,
    /// The end goes beside the inode, if it fits this many bytes there.
    Inline(u32),
}

/// A filled extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefilledExtent {
    /// Bytes of plain text.
    pub llen: u32,
    /// Bytes stored.
    pub plen: u32,
    /// The extent is stored uncompressed.
    pub is_plain: bool,
}

/// Pclusters one behind the other.
#[derive(Debug, Default)]
pub struct Refilled {
    /// Their bytes.
    pub bytes: Vec<u8>,
    /// The pcluster that lies beside the inode, if there is one.
    pub inline: Vec<u8>,
}

/// Returns the bytes beside an inode with a body of `body_len` bytes that may hold the end of its file of `len`
/// bytes; `None` for block sizes without such ends.
pub fn inline_room(len: u64, body_len: u64, block_bits: BlockBits) -> Option<u32> {
    let shape = IndexShape { len, block_bits, big: true, scattered: false, end: MapEnd::Stored };
    let index_len = lcluster_index::len_behind(body_len, shape).ok()?;
    Some(lcluster_index::inline_room(body_len, index_len, block_bits) as u32)
}

/// Encodes text again; for one thread.
pub struct Refiller {
    writer: PclusterWriter,
    form: RefillForm,
}

impl Refiller {
    /// Creates an encoder of this form.
    ///
    /// # Errors
    /// An invalid spec, pclusters that are not whole blocks, an encoder that cannot be created.
    pub fn new(form: RefillForm) -> Result<Self, BuildError> {
        let RefillForm { spec, block_bits, encoded_extents, extent_max_len } = form;
        let block_len = block_bits.len();
        let is_whole = u64::from(spec.pcluster_len).is_multiple_of(block_len) || encoded_extents;
        if !is_whole || extent_max_len == Some(0) {
            let max_len = kiln_format::compr_cfg::PCLUSTER_MAX_LEN as u32;
            return Err(BuildError::PclusterLen { len: spec.pcluster_len, block_len, max_len });
        }
        let writer = PclusterWriter::new(&spec, FillForm { block_bits, encoded_extents, extent_max_len })?;
        Ok(Self { writer, form })
    }

    /// Fills pclusters with `text`, the first of them at byte `start` of the image. Before each, `go_on` gets the
    /// existing bytes and the last extent; if it returns false, the result ends there.
    ///
    /// # Errors
    /// A codec that fails.
    pub fn refill(
        &mut self,
        text: &[u8],
        end: RefillEnd,
        start: u64,
        go_on: &mut dyn FnMut(&[u8], RefilledExtent) -> bool,
    ) -> Result<Refilled, BuildError> {
        let (ends_stream, end) = match end {
            RefillEnd::Padded => (true, End::Padded),
            RefillEnd::Open => (false, End::Padded),
            RefillEnd::Fragments => (true, End::Fragments),
            RefillEnd::Inline(room) => (true, End::Inline(room as usize)),
        };
        let mut go_on = |filled: &Filled| {
            Ok(filled.extents.last().is_none_or(|last| {
                let is_plain = last.kind == HeadKind::Plain;
                go_on(&filled.bytes, RefilledExtent { llen: last.llen, plen: last.plen, is_plain })
            }))
        };
        let filled = self.writer.write_while(text, ends_stream, end, &mut go_on)?;
        let filled = match self.form.encoded_extents && self.form.spec.method == Method::Deflate {
            true => filled.with_deflate_ends_off_page_starts(start, self.form.block_bits),
            false => filled,
        };
        Ok(Refilled { bytes: filled.bytes, inline: filled.inline })
    }

    /// Encodes all of `text` into one pcluster, like ends of files beside inodes, given room for `room` bytes.
    /// Returns `None` if it does not fit.
    ///
    /// # Errors
    /// A codec that fails.
    pub fn encode(&mut self, text: &[u8], room: usize) -> Result<Option<Vec<u8>>, BuildError> {
        self.writer.encode_alone(text, room)
    }
}
