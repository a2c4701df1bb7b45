//! From ranges of a file to bytes.
//!
//! Plain algorithm: look up the extent at the offset, take what is wanted of it, go on behind it. What is stored as it is
//! goes from the device straight into the destination. For an encoded extent there are four ways:
//!
//! 1. it is in the cache of decoded extents: copy;
//! 2. it is wanted whole: decode into the destination, and leave the cache to those who need it;
//! 3. a small part of its front is wanted: decode that prefix into the destination. Streams decode front to back, so this
//!    is cheap, and who reads on will take way 4 next time;
//! 4. else another part of it will most likely be wanted soon: decode it whole into the cache, once for all who ask
//!    meanwhile. An extent too long for the cache is decoded into scratch memory as far as it is wanted.

use crate::cache::Bytes;
use crate::map::{Extent, ExtentKind, Map};
use crate::meta::MetaReader;
use crate::{Image, Inode, ReadError, Space};
use kiln_codec::{DecodeLimits, Decoder, Want};
use kiln_format::compr_cfg::{EXTENT_MAX_LEN, PCLUSTER_MAX_LEN};
use kiln_format::inode::FileType;
use kiln_format::{Algorithm, Incompat};
use std::sync::{Mutex, PoisonError};

/// A head of at most this part of an extent is decoded alone.
const SMALL_HEAD: u64 = 8;
/// Scratch memory that is kept for the next reads; more threads than this make their own.
const WORKSPACES_MAX: usize = 64;
const PCLUSTER: &str = "pcluster";

/// An encoded extent, completely: whoever has an equal one gets equal bytes. The key of decoded data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stored {
    algorithm: Algorithm,
    device: u16,
    inline: Option<Space>,
    pa: u64,
    plen: u32,
    llen: u32,
    partial: bool,
}

/// What one decode needs: a thread takes it from the pool and puts it back.
struct Workspace {
    decoder: Decoder,
    /// The pcluster.
    source: Vec<u8>,
    /// Decoded bytes of which only a part is wanted.
    scratch: Vec<u8>,
}

/// Pool of workspaces: as many as ever were in use at once.
pub(crate) struct Workspaces {
    limits: DecodeLimits,
    free: Mutex<Vec<Workspace>>,
}

impl Workspaces {
    pub fn new(limits: DecodeLimits) -> Self {
        Self { limits, free: Mutex::default() }
    }

    /// Run `work` with a workspace. One that is lost in a panic is not missed.
    fn with<T>(&self, work: impl FnOnce(&mut Workspace) -> T) -> T {
        let free = || self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = free().pop();
        let new = || Workspace { decoder: Decoder::new(self.limits), source: Vec::new(), scratch: Vec::new() };
        let mut workspace = kept.unwrap_or_else(new);
        let result = work(&mut workspace);
        let mut free = free();
        if free.len() < WORKSPACES_MAX {
            free.push(workspace);
        }
        result
    }
}

impl Image {
    /// Read contents from byte `off` on into `buf`. Returns how many bytes: fewer than `buf` has only at the end of the file.
    ///
    /// # Errors
    /// A directory, something without contents, a damaged image, a failing source. What `buf` holds is then unspecified.
    pub fn read_at(&self, inode: &Inode, buf: &mut [u8], off: u64) -> Result<usize, ReadError> {
        if inode.meta.file_type == FileType::Directory {
            return Err(ReadError::IsADirectory { path: Vec::new() });
        }
        if !inode.has_contents() {
            return Err(ReadError::NoContents { nid: inode.nid });
        }
        let len = inode.meta.size.saturating_sub(off).min(buf.len() as u64) as usize;
        self.fill(inode, &mut buf[..len], off)?;
        Ok(len)
    }

    /// Fill `buf` with contents from byte `off` on; the range must be in the file.
    pub(crate) fn fill(&self, inode: &Inode, buf: &mut [u8], off: u64) -> Result<(), ReadError> {
        if buf.is_empty() {
            return Ok(());
        }
        self.fill_by(&mut Map::open(self, inode)?, buf, off, Fragments::Allowed)
            .map_err(|error| error.at_nid(inode.nid))
    }

    /// [`Image::fill`] for who has the file's map.
    pub(crate) fn fill_by(
        &self,
        map: &mut Map<'_>,
        buf: &mut [u8],
        off: u64,
        fragments: Fragments,
    ) -> Result<(), ReadError> {
        let (mut buf, mut off) = (buf, off);
        while !buf.is_empty() {
            let mut extent = map.extent_at(off)?;
            if extent.end() < off + buf.len() as u64 {
                join_raw(map, &mut extent, off + buf.len() as u64)?;
            }
            let len = (extent.end() - off).min(buf.len() as u64) as usize;
            let (part, rest) = buf.split_at_mut(len);
            self.read_extent(&extent, part, off - extent.la, fragments)?;
            (buf, off) = (rest, off + len as u64);
        }
        Ok(())
    }

    /// Fill `buf` from byte `skip` of an extent on.
    fn read_extent(&self, extent: &Extent, buf: &mut [u8], skip: u64, fragments: Fragments) -> Result<(), ReadError> {
        match extent.kind {
            ExtentKind::Hole => buf.fill(0),
            ExtentKind::Raw { device, pa } => self.read_raw("data", device, pa, skip, buf)?,
            ExtentKind::Meta { pa, in_metabox } => {
                let space = if in_metabox { Space::Metabox } else { Space::Primary };
                self.read_meta("inline data", space, pa, skip, buf)?;
            }
            ExtentKind::Plain { device, pa, plen, interlaced, inline } => {
                let plain = Plain { device, pa, plen, inline };
                if interlaced {
                    self.read_interlaced(plain, extent.la, skip, buf)?;
                } else {
                    self.read_plain(plain, skip, buf)?;
                }
            }
            ExtentKind::Encoded { .. } => self.read_encoded(&stored(extent)?, buf, skip)?,
            ExtentKind::Fragment { off } => self.read_fragment(off, skip, buf, fragments)?,
        }
        Ok(())
    }

    fn read_raw(
        &self,
        record: &'static str,
        device: u16,
        pa: u64,
        skip: u64,
        buf: &mut [u8],
    ) -> Result<(), ReadError> {
        let devices = &self.core.devices;
        let from = pa.saturating_add(skip);
        devices.check_range(record, device, from, buf.len() as u64)?;
        devices.read(device, buf, from)
    }

    fn read_meta(
        &self,
        record: &'static str,
        space: Space,
        pa: u64,
        skip: u64,
        buf: &mut [u8],
    ) -> Result<(), ReadError> {
        MetaReader::new(self, space).fill(record, buf, pa.saturating_add(skip))
    }

    /// Bytes from `skip` of a plain pcluster on.
    fn read_plain(&self, plain: Plain, skip: u64, buf: &mut [u8]) -> Result<(), ReadError> {
        match plain.inline {
            Some(space) => self.read_meta(PCLUSTER, space, plain.pa, skip, buf),
            None => self.read_raw(PCLUSTER, plain.device, plain.pa, skip, buf),
        }
    }

    /// The same for an interlaced pcluster: its last bytes are the extent's first, up to the block boundary of the file;
    /// what follows starts at the front of the pcluster.
    fn read_interlaced(&self, plain: Plain, la: u64, skip: u64, buf: &mut [u8]) -> Result<(), ReadError> {
        let block_bits = self.superblock().block_bits;
        let rotated = block_bits.len() - block_bits.within(la);
        let in_rotated = rotated.saturating_sub(skip).min(buf.len() as u64) as usize;
        let (first, rest) = buf.split_at_mut(in_rotated);
        if !first.is_empty() {
            self.read_plain(plain, u64::from(plain.plen) - rotated + skip, first)?;
        }
        if !rest.is_empty() {
            self.read_plain(plain, (skip + in_rotated as u64) - rotated, rest)?;
        }
        Ok(())
    }

    fn read_fragment(&self, off: u64, skip: u64, buf: &mut [u8], fragments: Fragments) -> Result<(), ReadError> {
        if fragments == Fragments::Refused {
            return Err(fragment_error(off, "a fragment inside the packed inode"));
        }
        let from = off.saturating_add(skip);
        let packed = self.packed_range(from, buf.len() as u64)?;
        let mut map = Map::open(self, packed)?;
        self.fill_by(&mut map, buf, from, Fragments::Refused).map_err(|error| error.at_nid(packed.nid))
    }

    /// The packed inode, which must hold the range.
    pub(crate) fn packed_range(&self, off: u64, len: u64) -> Result<&Inode, ReadError> {
        let packed = self.core.packed.as_ref().ok_or_else(|| fragment_error(off, "a fragment without a packed inode"))?;
        match off.checked_add(len) {
            Some(end) if end <= packed.meta.size => Ok(packed),
            _ => Err(fragment_error(off, "a fragment behind the end of the packed inode")),
        }
    }

    fn read_encoded(&self, stored: &Stored, buf: &mut [u8], skip: u64) -> Result<(), ReadError> {
        let cache = &self.core.decoded;
        let (llen, end) = (u64::from(stored.llen), skip + buf.len() as u64);
        let cached = llen <= cache.largest();
        let copy = |bytes: &[u8], buf: &mut [u8]| buf.copy_from_slice(&bytes[skip as usize..end as usize]);
        if let Some(bytes) = cached.then(|| cache.get(stored)).flatten() {
            copy(&bytes, buf);
            return Ok(());
        }
        let is_whole = buf.len() as u64 == llen;
        let is_small_head = skip == 0 && end * SMALL_HEAD <= llen;
        if is_whole || is_small_head {
            return self.core.workspaces.with(|w| self.decode(stored, buf, &mut w.decoder, &mut w.source));
        }
        if cached {
            let bytes = cache.get_or_load(stored, || {
                let mut bytes = vec![0; llen as usize].into_boxed_slice();
                self.core.workspaces.with(|w| self.decode(stored, &mut bytes, &mut w.decoder, &mut w.source))?;
                Ok(Bytes::new(bytes))
            })?;
            copy(&bytes, buf);
            return Ok(());
        }
        self.core.workspaces.with(|w| {
            let scratch = sized(&mut w.scratch, end as usize);
            self.decode(stored, scratch, &mut w.decoder, &mut w.source)?;
            copy(scratch, buf);
            Ok(())
        })
    }

    /// Decode an extent whole, to find out whether that is possible. Returns its length in bytes.
    pub(crate) fn verify_encoded(&self, extent: &Extent) -> Result<(), ReadError> {
        let stored = stored(extent)?;
        self.core.workspaces.with(|w| {
            let scratch = sized(&mut w.scratch, stored.llen as usize);
            self.decode(&stored, scratch, &mut w.decoder, &mut w.source)
        })
    }

    /// Decode the first `dst.len()` bytes of an extent.
    fn decode(
        &self,
        stored: &Stored,
        dst: &mut [u8],
        decoder: &mut Decoder,
        source: &mut Vec<u8>,
    ) -> Result<(), ReadError> {
        let source = sized(source, stored.plen as usize);
        let plain = Plain { device: stored.device, pa: stored.pa, plen: stored.plen, inline: stored.inline };
        self.read_plain(plain, 0, source)?;
        let failed = |error| ReadError::stream(stored.pa, stored.plen, error);
        if stored.algorithm == Algorithm::Lz4 && !self.superblock().incompat.contains(Incompat::LZ4_0PADDING) {
            return decoder.decode_lz4_unpadded(source, dst).map_err(failed);
        }
        let stream = self.stream(stored, source)?;
        let is_whole = dst.len() as u64 == u64::from(stored.llen) && !stored.partial;
        let want = if is_whole { Want::Whole } else { Want::Prefix };
        decoder.decode(stored.algorithm, stream, dst, want).map_err(failed)
    }

    /// The stream in a pcluster: behind the zeros in front, which end in its first block.
    fn stream<'s>(&self, stored: &Stored, source: &'s [u8]) -> Result<&'s [u8], ReadError> {
        let block_bits = self.superblock().block_bits;
        let in_block = (block_bits.len() - block_bits.within(stored.pa)) as usize;
        let first_block = &source[..in_block.min(source.len())];
        match first_block.iter().position(|&byte| byte != 0) {
            Some(start) => Ok(&source[start..]),
            None => Err(ReadError::corrupt(PCLUSTER, stored.pa, "length", stored.plen.into(), "only zeros in its first block")),
        }
    }
}

fn fragment_error(off: u64, reason: &'static str) -> ReadError {
    ReadError::corrupt("z_erofs_map_header", 0, "h_fragmentoff", off, reason)
}

/// Whether fragments may occur: not in the packed inode, which holds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fragments {
    Allowed,
    Refused,
}

/// Where a plain pcluster, or the bytes of an encoded one, are.
#[derive(Clone, Copy)]
struct Plain {
    device: u16,
    pa: u64,
    plen: u32,
    inline: Option<Space>,
}

/// Extend a raw extent by those that follow it in the file and on its device, up to byte `end` of the file: chunks are often
/// contiguous, and one large read is cheaper than many small ones.
fn join_raw(map: &mut Map<'_>, extent: &mut Extent, end: u64) -> Result<(), ReadError> {
    let ExtentKind::Raw { device, pa } = extent.kind else { return Ok(()) };
    while extent.end() < end {
        let next = map.extent_at(extent.end())?;
        let follows = ExtentKind::Raw { device, pa: pa.saturating_add(extent.llen) };
        if next.llen == 0 || next.kind != follows {
            break;
        }
        extent.llen += next.llen;
    }
    Ok(())
}

/// An encoded extent within the limits of kernels, which are the limits of our buffers.
fn stored(extent: &Extent) -> Result<Stored, ReadError> {
    let ExtentKind::Encoded { algorithm, device, pa, plen, partial, inline } = extent.kind else {
        return Err(ReadError::Internal { what: "decoding an extent that is not encoded".into() });
    };
    let unsupported = |field, value, reason| Err(ReadError::unsupported(PCLUSTER, pa, field, value, reason));
    if plen as usize > PCLUSTER_MAX_LEN {
        return unsupported("plen", plen.into(), "pclusters have at most 1 MiB");
    }
    match u32::try_from(extent.llen) {
        Ok(llen) if llen as usize <= EXTENT_MAX_LEN => {
            Ok(Stored { algorithm, device, inline, pa, plen, llen, partial })
        }
        _ => unsupported("llen", extent.llen, "extents have at most 12 MiB"),
    }
}

/// The first `len` bytes of a buffer that only grows. Their content is unspecified.
fn sized(buf: &mut Vec<u8>, len: usize) -> &mut [u8] {
    if buf.len() < len {
        buf.resize(len, 0);
    }
    &mut buf[..len]
}
