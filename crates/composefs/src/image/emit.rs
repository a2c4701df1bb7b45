//! Bytes of an image, from front to back.

use super::entries::{Entry, Filling, entries};
use super::place::{Place, Places, chunks, size};
use super::prepare::{Contents, Item, Prepared};
use super::xattrs::Xattrs;
use crate::error::ImageError;
use kiln_digest::fsverity::{BLOCK_LEN, FsVerity};
use kiln_digest::{Algorithm, Digest};
use kiln_format::composefs::{COMPOSEFS_HEADER_VERSION, COMPOSEFS_MAGIC, RawComposefsHeader};
use kiln_format::dirent::{Dirent, encode_block};
use kiln_format::inode::{DataLayout, Form, RawInodeCompact, RawInodeExtended};
use kiln_format::superblock::{BASE_LEN, ComprInfo, SUPERBLOCK_OFF, Superblock};
use kiln_format::{Blkaddr, BlockBits, Compat, FormatError, Incompat, Nid};
use std::io::Write;
use zerocopy::IntoBytes;

const BLOCK: u64 = BLOCK_LEN as u64;
const SLOT: u64 = kiln_format::addr::SLOT_LEN;
/// Flag of the header: the image has ACLs.
const HAS_ACL: u32 = 1;
/// Bytes that are collected before they are written.
const FLUSH_LEN: usize = 256 << 10;

/// Output with the digest of what it gets.
pub(super) struct Output<'w, W> {
    out: &'w mut W,
    buf: Vec<u8>,
    /// Number of bytes before those in `buf`.
    flushed: u64,
    hasher: Option<FsVerity>,
}

impl<'w, W: Write> Output<'w, W> {
    pub(super) fn new(out: &'w mut W, algorithm: Option<Algorithm>) -> Self {
        Self { out, buf: Vec::new(), flushed: 0, hasher: algorithm.map(FsVerity::new) }
    }

    /// Returns the buffer, to which the next bytes are to be appended.
    fn buf(&mut self) -> Result<&mut Vec<u8>, ImageError> {
        if self.buf.len() >= FLUSH_LEN {
            self.flush()?;
        }
        Ok(&mut self.buf)
    }

    fn flush(&mut self) -> Result<(), ImageError> {
        if let Some(hasher) = &mut self.hasher {
            hasher.update(&self.buf);
        }
        self.out.write_all(&self.buf)?;
        self.flushed += self.buf.len() as u64;
        self.buf.clear();
        Ok(())
    }

    /// Appends zeros up to the byte `pos` of the image, which is less than some blocks away.
    fn pad(&mut self, pos: u64) -> Result<(), ImageError> {
        let flushed = self.flushed;
        let buf = self.buf()?;
        debug_assert!(pos >= flushed + buf.len() as u64, "parts overlap");
        let flushed = self.flushed;
        self.buf.resize((pos - flushed) as usize, 0);
        Ok(())
    }

    /// Returns the length and the digest of the image.
    pub(super) fn finish(mut self) -> Result<(u64, Option<Digest>), ImageError> {
        self.flush()?;
        self.out.flush()?;
        Ok((self.flushed, self.hasher.map(FsVerity::finish)))
    }
}

/// Writes an image.
pub(super) fn image<W: Write>(
    prepared: &Prepared<'_>,
    xattrs: &Xattrs<'_>,
    places: &Places,
    version: u32,
    out: &mut Output<'_, W>,
) -> Result<(), ImageError> {
    let header = RawComposefsHeader {
        magic: COMPOSEFS_MAGIC.into(),
        version: COMPOSEFS_HEADER_VERSION.into(),
        flags: if xattrs.has_acl { HAS_ACL } else { 0 }.into(),
        composefs_version: version.into(),
        unused: Default::default(),
    };
    out.buf()?.extend_from_slice(header.as_bytes());
    out.pad(SUPERBLOCK_OFF)?;
    let superblock = superblock(places).encode()?;
    out.buf()?.extend_from_slice(&superblock);
    inodes(prepared, xattrs, places, out)?;
    out.pad(places.inodes_end)?;
    xattrs.encode_table(|entry| -> Result<(), ImageError> {
        out.buf()?.extend_from_slice(entry);
        Ok(())
    })?;
    out.pad(places.data_start)?;
    data(prepared, places, out)
}

fn superblock(places: &Places) -> Superblock {
    Superblock {
        block_bits: BlockBits::DEFAULT,
        checksum: 0,
        compat: Compat::MTIME | Compat::XATTR_FILTER,
        incompat: Incompat::empty(),
        root_nid: Nid(places.inodes[0].pos / SLOT),
        inos: places.inodes.len() as u64,
        epoch: places.time.0,
        fixed_nsec: places.time.1,
        blocks: places.data_start / BLOCK + places.data_blocks,
        meta_blkaddr: Blkaddr(0),
        xattr_blkaddr: Blkaddr(places.inodes_end / BLOCK),
        uuid: [0; 16],
        volume_name: [0; 16],
        compr_info: ComprInfo::Lz4MaxDistance(0),
        extra_devices: 0,
        devt_off: 0,
        xattr_prefix_count: 0,
        xattr_prefix_off: 0,
        xattr_filter_reserved: 0,
        ishare_xattr_prefix_id: 0,
        packed_nid: None,
        build_time: 0,
        metabox_nid: None,
        record_len: BASE_LEN as u64,
    }
}

/// Writes inodes with their attributes and tails.
fn inodes<W: Write>(
    prepared: &Prepared<'_>,
    xattrs: &Xattrs<'_>,
    places: &Places,
    out: &mut Output<'_, W>,
) -> Result<(), ImageError> {
    let mut next_block = places.data_start / BLOCK;
    let mut list = Vec::new();
    for (number, (&item, place)) in prepared.order.iter().zip(&places.inodes).enumerate() {
        out.pad(place.pos)?;
        let start = if place.blocks > 0 { next_block } else { 0 };
        next_block += u64::from(place.blocks);
        let buf = out.buf()?;
        inode(prepared, number, place, start, buf)?;
        xattrs.encode_body(number, places.inodes_end % BLOCK, buf)?;
        if place.tail == 0 {
            continue;
        }
        match prepared.contents(item) {
            Contents::Directory => {
                dirents(prepared, places, item, &mut list);
                let group = groups(&list).last().unwrap_or_default();
                let at = buf.len();
                buf.resize(at + place.tail as usize, 0);
                encode_block(group, &mut buf[at..])?;
            }
            Contents::Inline(bytes) => buf.extend_from_slice(&bytes[bytes.len() - place.tail as usize..]),
            Contents::Symlink(target) => buf.extend_from_slice(target),
            // Holes.
            _ => buf.resize(buf.len() + place.tail as usize, 0xFF),
        }
    }
    Ok(())
}

/// Appends the record of an inode, whose first block of data is `start`.
fn inode(
    prepared: &Prepared<'_>,
    number: usize,
    place: &Place,
    start: u64,
    out: &mut Vec<u8>,
) -> Result<(), ImageError> {
    let item = prepared.order[number];
    let (attributes, contents) = (prepared.attributes(item), prepared.contents(item));
    let start = u32::try_from(start).map_err(|_| FormatError::does_not_fit("erofs_inode", "i_u (startblk)", start))?;
    let i_u = match contents {
        Contents::Device(rdev) => rdev,
        // The chunk format takes the place of the low half.
        Contents::External { size } => start & 0xFFFF_0000 | chunks(size).encode(BlockBits::DEFAULT)?,
        _ => start,
    };
    let layout = match contents {
        Contents::External { .. } => DataLayout::ChunkBased,
        _ if place.tail > 0 => DataLayout::FlatInline,
        _ => DataLayout::FlatPlain,
    };
    let i_format = (layout as u16) << 1 | (place.form == Form::Extended) as u16;
    let i_mode = prepared.file_type(item).mode_bits() | attributes.permissions;
    let size = size(&contents, place.blocks, place.tail as usize);
    let nlink = prepared.nlink(item);
    match place.form {
        Form::Compact => {
            let raw = RawInodeCompact {
                i_format: i_format.into(),
                i_xattr_icount: place.icount.into(),
                i_mode: i_mode.into(),
                i_nb: (nlink as u16).into(),
                i_size: (size as u32).into(),
                i_mtime: 0.into(),
                i_u: i_u.into(),
                i_ino: (number as u32).into(),
                i_uid: (attributes.uid as u16).into(),
                i_gid: (attributes.gid as u16).into(),
                i_reserved2: 0.into(),
            };
            out.extend_from_slice(raw.as_bytes());
        }
        Form::Extended => {
            let raw = RawInodeExtended {
                i_format: i_format.into(),
                i_xattr_icount: place.icount.into(),
                i_mode: i_mode.into(),
                i_nb: 0.into(),
                i_size: size.into(),
                i_u: i_u.into(),
                i_ino: (number as u32).into(),
                i_uid: attributes.uid.into(),
                i_gid: attributes.gid.into(),
                i_mtime: attributes.mtime.into(),
                i_mtime_nsec: attributes.mtime_nsec.into(),
                i_nlink: nlink.into(),
                i_reserved2: [0; 16],
            };
            out.extend_from_slice(raw.as_bytes());
        }
    }
    Ok(())
}

/// Writes blocks of data, in the order of the inodes.
fn data<W: Write>(prepared: &Prepared<'_>, places: &Places, out: &mut Output<'_, W>) -> Result<(), ImageError> {
    let mut list = Vec::new();
    for (&item, place) in prepared.order.iter().zip(&places.inodes).filter(|(_, place)| place.blocks > 0) {
        match prepared.contents(item) {
            Contents::Directory => {
                dirents(prepared, places, item, &mut list);
                for group in groups(&list).take(place.blocks as usize) {
                    let buf = out.buf()?;
                    let at = buf.len();
                    buf.resize(at + BLOCK_LEN, 0);
                    encode_block(group, &mut buf[at..])?;
                }
            }
            Contents::Inline(bytes) => block(&bytes[..bytes.len() - place.tail as usize], out)?,
            Contents::Symlink(target) => block(target, out)?,
            _ => block(&[0xFF; BLOCK_LEN], out)?,
        }
    }
    Ok(())
}

/// Writes bytes, and zeros up to the end of their last block.
fn block<W: Write>(bytes: &[u8], out: &mut Output<'_, W>) -> Result<(), ImageError> {
    let buf = out.buf()?;
    let at = buf.len();
    buf.extend_from_slice(bytes);
    buf.resize(at + bytes.len().next_multiple_of(BLOCK_LEN), 0);
    Ok(())
}

/// Replaces `list` by the entries of a directory.
fn dirents<'a>(prepared: &'a Prepared<'_>, places: &Places, dir: Item, list: &mut Vec<Dirent<'a>>) {
    list.clear();
    list.extend(entries(prepared, dir).map(|Entry { name, target }| Dirent {
        nid: Nid(places.inodes[prepared.number(target) as usize].pos / SLOT),
        file_type: prepared.file_type(target).dirent_number(),
        name,
    }));
}

/// Returns the entries of each block.
fn groups<'l, 'a>(mut list: &'l [Dirent<'a>]) -> impl Iterator<Item = &'l [Dirent<'a>]> {
    std::iter::from_fn(move || {
        let mut filling = Filling::default();
        let len = list.iter().position(|entry| filling.add(entry.name)).unwrap_or(list.len());
        let (group, rest) = list.split_at(len);
        list = rest;
        (!group.is_empty()).then_some(group)
    })
}
