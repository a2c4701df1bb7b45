//! The header of a patch: the images that it is for, and what applying it needs.

use kiln_builder::{RefillForm, Spec};
use kiln_codec::Method;
use kiln_format::BlockBits;
use std::io::Read;
use std::ops::Range;

use crate::error::{DeltaError, PatchDefect};
use crate::format::front::{FRONT_LEN, HEADER_MAX_LEN, PatchFront, TREE_VERSION};
use crate::format::wire::{Fields, put, put_signed};

/// Maximum numbers of used ranges and of files, which are in memory while a patch is applied.
const RANGES_MAX: u64 = 1 << 20;
pub(crate) const TEXTS_MAX: u64 = 1 << 19;
/// Maximum number of encoders in a patch.
const ENCODERS_MAX: u64 = 64;
/// Longest root hash in bytes.
const ROOT_HASH_MAX_LEN: u64 = 64;
/// Compression level of the header.
const LEVEL: i32 = 19;
/// Maximum log2 of the window of the header's zstd frame, in bytes.
const WINDOW_LOG_MAX: u32 = 24;

/// An encoder that a patch uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncoderUse {
    /// Parameters of the encoder.
    pub form: RefillForm,
    /// [`Method::encoder_version`] of the program that made the patch.
    pub version: u64,
}

/// A file of the old image whose text the patch uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TextFile {
    pub nid: u64,
    /// Size of the file in bytes.
    pub len: u64,
}

/// Hash tree that lies behind the new image. A patch only describes it, since digests do not compress: whoever applies
/// the patch makes the tree again, and compares the root hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTree {
    /// Superblock of the tree, as it is stored. It is neither understood nor checked here.
    pub superblock: [u8; 512],
    /// Root hash.
    pub root_hash: Vec<u8>,
}

/// Header of a patch: the images that it is for, and what applying it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Length of the old image in bytes.
    pub old_len: u64,
    /// UUID of the old image.
    pub old_uuid: [u8; 16],
    /// BLAKE3 digest of the used ranges of the old image.
    pub old_digest: [u8; 32],
    /// Used ranges of the old image, in order, with gaps between them.
    pub old_used: Vec<Range<u64>>,
    /// Length of the new image in bytes.
    pub new_len: u64,
    /// BLAKE3 digest of the new image.
    pub new_digest: [u8; 32],
    /// Number of bytes of the new image in blocks of 4 KiB that differ from the old image at the
    /// same offset.
    pub changed_len: u64,
    /// Hash tree behind the new image, which does not count as part of it.
    pub new_tree: Option<NewTree>,
    /// Encoders that the patch uses.
    pub encoders: Vec<EncoderUse>,
    /// Files whose text the patch uses.
    pub(crate) texts: Vec<TextFile>,
}

impl Header {
    /// Reads the front and the header of a patch. Returns the header, and the number of bytes read.
    ///
    /// # Errors
    /// Input that is not a patch, has another version, is damaged, ends early or cannot be read.
    pub(crate) fn read(input: &mut impl Read) -> Result<(Self, u64), DeltaError> {
        let front = PatchFront::read(input)?;
        let stored = front.read_header(input)?;
        let mut bytes = Vec::new();
        let at = FRONT_LEN as u64;
        let mut frame = zstd::stream::read::Decoder::with_buffer(&stored[..])
            .map_err(|source| DeltaError::PatchRead { at, source })?;
        let read =
            frame.window_log_max(WINDOW_LOG_MAX).and_then(|()| frame.take(HEADER_MAX_LEN + 1).read_to_end(&mut bytes));
        if read.is_err() || bytes.len() as u64 > HEADER_MAX_LEN {
            let (record, field, value) = ("header", "frame", front.header_len);
            let reason = "is not a zstd frame, or exceeds the maximum when decompressed";
            return Err(PatchDefect { record, at, field, value, reason }.into());
        }
        Ok((Self::decode(front.version, &bytes)?, at + front.header_len))
    }

    /// Returns the front and the header of a patch as they are stored.
    ///
    /// # Errors
    /// A failure of the compressor.
    pub(crate) fn to_stored(&self) -> Result<Vec<u8>, DeltaError> {
        let stored = zstd::bulk::compress(&self.encode(), LEVEL);
        let stored = stored.map_err(DeltaError::write("compress the patch's header"))?;
        let mut bytes = Vec::with_capacity(FRONT_LEN + stored.len());
        let version = if self.new_tree.is_some() { TREE_VERSION } else { 1 };
        PatchFront::of(version, &stored).encode(&mut bytes);
        bytes.extend(stored);
        Ok(bytes)
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out, self.old_len);
        out.extend(self.old_uuid);
        out.extend(self.old_digest);
        put(&mut out, self.new_len);
        out.extend(self.new_digest);
        put(&mut out, self.changed_len);
        put(&mut out, self.encoders.len() as u64);
        for EncoderUse { form, version } in &self.encoders {
            put(&mut out, form.spec.method as u64);
            put(&mut out, *version);
            put_signed(&mut out, form.spec.level.into());
            put(&mut out, form.spec.pcluster_len.into());
            put(&mut out, form.spec.window_len.unwrap_or(0).into());
            put(&mut out, form.block_bits.bits().into());
            put(&mut out, form.encoded_extents.into());
            put(&mut out, form.extent_max_len.unwrap_or(0).into());
        }
        put(&mut out, self.old_used.len() as u64);
        let mut end = 0;
        for range in &self.old_used {
            put(&mut out, range.start - end);
            put(&mut out, range.end - range.start);
            end = range.end;
        }
        put(&mut out, self.texts.len() as u64);
        let mut last = 0;
        for text in &self.texts {
            put_signed(&mut out, text.nid.wrapping_sub(last) as i64);
            put(&mut out, text.len);
            last = text.nid;
        }
        if let Some(NewTree { superblock, root_hash }) = &self.new_tree {
            out.extend(superblock);
            put(&mut out, root_hash.len() as u64);
            out.extend(root_hash);
        }
        out
    }

    fn decode(version: u32, bytes: &[u8]) -> Result<Self, DeltaError> {
        let mut fields = Fields::new("header", bytes);
        let f = &mut fields;
        let old_len = f.number("old_len")?;
        let (old_uuid, old_digest) = (f.array("old_uuid")?, f.array("old_digest")?);
        let new_len = f.number_up_to("new_len", i64::MAX as u64)?;
        let (new_digest, changed_len) = (f.array("new_digest")?, f.number("changed_len")?);
        let encoders = (0..f.number_up_to("encoder_count", ENCODERS_MAX)?).map(|_| encoder(f));
        let encoders = encoders.collect::<Result<Vec<_>, DeltaError>>()?;
        let mut end = 0u64;
        let old_used = (0..f.number_up_to("used_count", RANGES_MAX)?).map(|_| {
            let start = end.checked_add(f.number("used_gap")?);
            let start = start.ok_or_else(|| f.defect("used_gap", end, "exceeds 64-bit offsets"))?;
            let len = f.number("used_len")?;
            let behind = start.checked_add(len).filter(|behind| *behind <= old_len && len > 0);
            end = behind.ok_or_else(|| f.defect("used_len", len, "is 0, or exceeds the old image"))?;
            Ok(start..end)
        });
        let old_used = old_used.collect::<Result<Vec<_>, PatchDefect>>()?;
        let (mut last, mut total) = (0u64, old_len);
        let texts = (0..f.number_up_to("text_count", TEXTS_MAX)?).map(|_| {
            last = last.wrapping_add(f.signed("text_nid")? as u64);
            let len = f.number("text_len")?;
            let longer = total.checked_add(len).filter(|total| *total <= i64::MAX as u64);
            total = longer.ok_or_else(|| f.defect("text_len", len, "exceeds 63-bit offsets"))?;
            Ok(TextFile { nid: last, len })
        });
        let texts = texts.collect::<Result<Vec<_>, PatchDefect>>()?;
        let new_tree = match version < TREE_VERSION {
            true => None,
            false => {
                let superblock = f.array("tree_superblock")?;
                let len = f.number_up_to("root_hash_len", ROOT_HASH_MAX_LEN)? as usize; // 64 at most
                Some(NewTree { superblock, root_hash: f.bytes("root_hash", len)?.to_vec() })
            }
        };
        if !fields.is_at_end() {
            return Err(fields.defect("header_len", bytes.len() as u64, "exceeds its fields").into());
        }
        let header = Self {
            old_len,
            old_uuid,
            old_digest,
            old_used,
            new_len,
            new_digest,
            changed_len,
            new_tree,
            encoders,
            texts,
        };
        Ok(header)
    }
}

fn encoder(f: &mut Fields<'_>) -> Result<EncoderUse, DeltaError> {
    let number = f.number("encoder_method")?;
    let method = usize::try_from(number).ok().and_then(|number| Method::ALL.get(number).copied());
    let method = method.ok_or_else(|| f.defect("encoder_method", number, "is not a known encoder"))?;
    let version = f.number("encoder_version")?;
    let level = i32::try_from(f.signed("encoder_level")?).unwrap_or(i32::MAX);
    let u32_max = u32::MAX.into();
    let pcluster_len = f.number_up_to("encoder_pcluster_len", u32_max)? as u32;
    let window_len = f.number_up_to("encoder_window_len", u32_max)? as u32;
    let bits = f.number("encoder_block_bits")?;
    let known = u8::try_from(bits).ok().and_then(BlockBits::new);
    let block_bits = known.ok_or_else(|| f.defect("encoder_block_bits", bits, "is not a block size of EROFS"))?;
    let encoded_extents = f.number_up_to("encoder_extents", 1)? == 1;
    let extent_max_len = f.number_up_to("encoder_extent_max_len", u32_max)? as u32;
    let refused = |f: &Fields<'_>| f.defect("encoder_level", level as u64, "is not a valid level, pcluster or window");
    let spec = Spec::new(method, Some(level), pcluster_len).map_err(|_| refused(f))?;
    let spec = if window_len > 0 { spec.with_window(window_len).map_err(|_| refused(f))? } else { spec };
    let extent_max_len = (extent_max_len > 0).then_some(extent_max_len);
    Ok(EncoderUse { form: RefillForm { spec, block_bits, encoded_extents, extent_max_len }, version })
}
