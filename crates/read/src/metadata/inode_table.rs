//! Inodes: from nid to checked metadata.

use super::inode::Inode;
use super::reader::MetadataReader;
use super::space::MetadataSpace;
use crate::error::ReadError;
use crate::image::reader::Reader;
use kiln_format::Nid;
use kiln_format::inode::{COMPACT_LEN, EXTENDED_LEN, Epoch};
use kiln_parallel::{Threads, unordered};

/// Inodes that a thread looks up at once: in 100 microseconds or more, unless all are cached.
const INODES_OF_PART: usize = 64;

/// Reads inodes. It holds the metadata that it read last, so inodes beside each other are cheap.
pub(crate) struct InodeReader<'a> {
    reader: Reader<'a>,
    primary: MetadataReader<'a>,
    metabox: MetadataReader<'a>,
}

impl<'a> InodeReader<'a> {
    pub(crate) fn new(reader: Reader<'a>) -> Self {
        let primary = MetadataReader::new(reader, MetadataSpace::Primary);
        Self { reader, primary, metabox: MetadataReader::new(reader, MetadataSpace::Metabox) }
    }

    /// Implements `Image::inode`.
    pub(crate) fn read(&mut self, nid: Nid) -> Result<Inode, ReadError> {
        if let Some(root) = self.reader.special.root.filter(|root| root.nid == nid) {
            return Ok(root);
        }
        let reader = if nid.in_metabox() { &mut self.metabox } else { &mut self.primary };
        self.reader.read_inode(reader, nid).map_err(|error| error.at_nid(nid))
    }
}

impl<'a> Reader<'a> {
    /// Implements `Image::inode`.
    pub(crate) fn inode(self, nid: Nid) -> Result<Inode, ReadError> {
        InodeReader::new(self).read(nid)
    }

    /// Implements `Image::inodes`.
    pub(crate) fn inodes(self, nids: &[Nid], threads: Threads) -> Vec<Result<Inode, ReadError>> {
        let mut inodes: Vec<_> = nids.iter().map(|_| None).collect();
        let parts = nids.chunks(INODES_OF_PART).zip(inodes.chunks_mut(INODES_OF_PART)).collect();
        unordered::run(threads, parts, || {
            let mut reader = InodeReader::new(self);
            move |(nids, inodes): (&[Nid], &mut [Option<_>])| {
                for (nid, inode) in nids.iter().zip(inodes) {
                    *inode = Some(reader.read(*nid));
                }
            }
        });
        let missing = || Err(ReadError::Internal { what: "an inode that no thread has looked up".into() });
        inodes.into_iter().map(|inode| inode.unwrap_or_else(missing)).collect()
    }

    /// Implements `Image::st_ino`.
    pub(crate) fn st_ino(self, nid: Nid) -> u64 {
        match self.superblock().metabox_nid {
            Some(_) => nid.st_ino_beside_metabox(),
            None => nid.st_ino(),
        }
    }
}

impl<'a> Reader<'a> {
    fn read_inode(self, reader: &mut MetadataReader<'_>, nid: Nid) -> Result<Inode, ReadError> {
        let sb = self.superblock();
        let pos = self.inode_pos(nid)?;
        // The last inode of a space may be a compact one: its decoder finds out whether the bytes
        // suffice.
        let have = self.space_len(reader.space()).saturating_sub(pos).min(EXTENDED_LEN as u64) as usize;
        let mut bytes = [0; EXTENDED_LEN];
        let wanted = have.max(COMPACT_LEN);
        reader.fill("erofs_inode_compact", &mut bytes[..wanted], pos)?;
        let epoch = Epoch { secs: sb.epoch, nsec: sb.fixed_nsec };
        let meta = kiln_format::inode::Inode::decode(&bytes[..wanted], pos, epoch, sb.block_bits)?;
        Ok(Inode { nid, meta })
    }

    /// Returns the byte offset of an inode in its metadata space.
    pub(crate) fn inode_pos(self, nid: Nid) -> Result<u64, ReadError> {
        let sb = self.superblock();
        let outside = || ReadError::corrupt("erofs_inode_compact", 0, "nid", nid.0, "slot outside the metadata");
        if nid.in_metabox() {
            return nid.byte_off().filter(|_| self.special.metabox.is_some()).ok_or_else(outside);
        }
        sb.inode_place(nid).ok_or_else(outside)
    }

    /// Returns the byte offset behind an inode's xattr body in its metadata space.
    pub(crate) fn body_pos(self, inode: &Inode) -> Result<u64, ReadError> {
        let pos = self.inode_pos(inode.nid)?;
        // Below 2^63, as the inode has been read and no space is larger.
        Ok(pos + inode.meta.body_off())
    }
}
