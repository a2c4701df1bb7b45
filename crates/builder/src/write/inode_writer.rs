//! Encoding of nodes as inodes and directory blocks.

use kiln_format::chunk::{Chunk, ChunkFormat};
use kiln_format::inode::{FileType, IndexKind, Inode, InodeData};
use kiln_format::{Algorithm, Blkaddr, FormatError, xattr};
use std::ops::Range;

use crate::error::BuildError;
use crate::inodes::{mtime, nlink};
use crate::layout::lcluster_index;
use crate::layout::special::SpecialInode;
use crate::layout::view::View;
use crate::layout::{Layout, Region};
use crate::pack::chunks::{ChunkRun, ChunkRuns};
use crate::pack::inline_tails::TailRef;
use crate::pack::{Extents, Stored};
use crate::write::directory;
use kiln_tree::{Kind, NodeId};

/// No path leads to a special inode, so its mode never matters.
const SPECIAL_PERMISSIONS: u16 = 0o444;

/// Encodes nodes.
pub(crate) struct InodeWriter<'a> {
    view: &'a View<'a>,
    layout: &'a Layout,
    /// Start of [`Region::Blocks`].
    blocks_start: Blkaddr,
    /// Number of inodes so far.
    pub serial: u64,
}

impl<'a> InodeWriter<'a> {
    /// Starts before the first inode.
    pub(crate) fn new(view: &'a View<'a>, layout: &'a Layout, blocks_start: Blkaddr, serial: u64) -> Self {
        Self { view, layout, blocks_start, serial }
    }

    /// Appends a region of metadata.
    ///
    /// # Errors
    /// Values that do not fit, and lengths that differ from the measured ones: both are bugs.
    pub(crate) fn region(&mut self, region: &Region, out: &mut Vec<u8>) -> Result<(), BuildError> {
        match region {
            Region::Inode(node) => self.inode(*node, out),
            Region::Blocks(node) => self.blocks(*node, out),
            Region::SharedXattrs => {
                out.extend_from_slice(self.view.inodes.xattrs.shared_area());
                Ok(())
            }
        }
    }

    /// Appends an inode, with the next serial number, and all that follows it.
    fn inode(&mut self, id: NodeId, out: &mut Vec<u8>) -> Result<(), BuildError> {
        self.serial += 1;
        self.numbered_inode(id, self.serial as u32, out)
    }

    /// Appends an inode with a given serial number, and all that follows it.
    ///
    /// # Errors
    /// As [`InodeWriter::region`].
    pub(crate) fn numbered_inode(&self, id: NodeId, serial: u32, out: &mut Vec<u8>) -> Result<(), BuildError> {
        let view = self.view;
        let inode = self.record(id, serial)?;
        out.extend_from_slice(&inode.encode(view.inodes.epoch, view.inodes.compact_times, view.block_bits)?);
        let shared_base = u32::try_from(self.layout.shared_pos / 4)
            .map_err(|_| FormatError::does_not_fit("erofs_super_block", "xattr_blkaddr", self.layout.shared_pos))?;
        view.inodes.encode_xattrs(id, shared_base, out);
        match (&view.tree.node(id).kind, view.stored(id)) {
            (Kind::File { .. }, Some(Stored::Tail(len, off))) => {
                view.data.tails.get(TailRef { off: *off, len: *len }, out)?;
            }
            (Kind::File { .. }, Some(Stored::FlatTail(flat))) => view.data.tails.get(flat.1, out)?,
            (Kind::File { len, .. }, Some(Stored::Compressed(extents))) => {
                view.map_shape(*len, extents).encode(algorithm(view.algorithm_of(id))?, &extents.list, out)?;
                if let Some(inline) = extents.inline {
                    view.data.tails.get(inline, out)?;
                }
            }
            (Kind::File { .. }, Some(Stored::Fragment(off))) => lcluster_index::encode_fragment(*off, out)?,
            (Kind::File { len, .. }, Some(Stored::Chunks { chunk_bits, runs })) => {
                encode_chunks((*len, *chunk_bits), runs, view, out)?;
            }
            (Kind::Directory(_) | Kind::Symlink(_), _) => {
                if let Some(off) = self.layout.packed_off(id) {
                    lcluster_index::encode_fragment(off, out)?;
                }
                let (blocks, tail) = view.own_data(id);
                if tail > 0 {
                    let data = self.own_data(id)?;
                    out.extend_from_slice(&data[blocks as usize..]);
                }
            }
            _ => {}
        }
        let (measured, _) = view.measure(id)?;
        if out.len() as u64 != measured {
            return Err(internal(id, &format!("has {} bytes, {measured} were measured", out.len())));
        }
        Ok(())
    }

    /// Appends a special inode and all that follows it.
    ///
    /// # Errors
    /// As [`InodeWriter::region`].
    pub(crate) fn special(&mut self, contents: &SpecialInode, out: &mut Vec<u8>) -> Result<(), BuildError> {
        self.serial += 1;
        let (epoch, shape) = (self.view.inodes.epoch, contents.shape(self.view)?);
        let inode = Inode {
            form: contents.form(),
            data: InodeData::Compressed { index: shape.index_kind(), blocks: compressed_blocks(&contents.extents)? },
            omits_dot: false,
            implies_nlink: false,
            xattr_icount: 0,
            file_type: FileType::Regular,
            permissions: SPECIAL_PERMISSIONS,
            size: contents.len,
            ino: self.serial as u32,
            uid: 0,
            gid: 0,
            mtime: epoch.secs,
            mtime_nsec: epoch.nsec,
            nlink: 1,
        };
        out.extend_from_slice(&inode.encode(epoch, self.view.inodes.compact_times, self.view.block_bits)?);
        shape.encode(contents.algorithm, &contents.extents.list, out)
    }

    fn record(&self, id: NodeId, serial: u32) -> Result<Inode, BuildError> {
        let view = self.view;
        let node = view.tree.node(id);
        let time = mtime(&node.meta, view.format);
        let (file_type, size, data) = self.contents(id)?;
        Ok(Inode {
            form: view.inodes.forms[id.idx()],
            data,
            omits_dot: view.omits_dot && file_type == FileType::Directory,
            implies_nlink: false,
            xattr_icount: xattr::icount(view.inodes.xattr_len(id))?,
            file_type,
            permissions: node.meta.permissions,
            size,
            ino: serial,
            uid: node.meta.uid,
            gid: node.meta.gid,
            mtime: time.secs,
            mtime_nsec: time.nsec,
            nlink: nlink(view.tree, id),
        })
    }

    /// Returns type, size and data of a node.
    fn contents(&self, id: NodeId) -> Result<(FileType, u64, InodeData), BuildError> {
        let view = self.view;
        let fragment = InodeData::Compressed { index: IndexKind::Full, blocks: 0 };
        match &view.tree.node(id).kind {
            Kind::Fifo => Ok((FileType::Fifo, 0, InodeData::Nothing)),
            Kind::Socket => Ok((FileType::Socket, 0, InodeData::Nothing)),
            Kind::CharDevice(rdev) => Ok((FileType::CharDevice, 0, InodeData::Device(*rdev))),
            Kind::BlockDevice(rdev) => Ok((FileType::BlockDevice, 0, InodeData::Device(*rdev))),
            Kind::Directory(_) if self.layout.packed_off(id).is_some() => {
                Ok((FileType::Directory, view.directory_len(id), fragment))
            }
            Kind::Directory(_) => self.own_contents(id, FileType::Directory, view.directory_len(id)),
            Kind::Symlink(target) => self.own_contents(id, FileType::Symlink, target.len() as u64),
            Kind::File { len, .. } => {
                let data = match view.stored(id) {
                    None | Some(Stored::Nothing) => InodeData::FlatPlain(None),
                    Some(Stored::Flat(start)) => InodeData::FlatPlain(Some(*start)),
                    Some(Stored::Tail(..)) => InodeData::FlatInline(Blkaddr(0)),
                    Some(Stored::FlatTail(flat)) => InodeData::FlatInline(flat.0),
                    Some(Stored::Chunks { chunk_bits, .. }) => {
                        InodeData::ChunkBased(Ok(ChunkFormat { chunk_bits: *chunk_bits, entry: view.chunk_entry }))
                    }
                    Some(Stored::Compressed(extents)) => InodeData::Compressed {
                        index: view.map_shape(*len, extents).index_kind(),
                        blocks: compressed_blocks(extents)?,
                    },
                    Some(Stored::Fragment(_)) => fragment,
                };
                Ok((FileType::Regular, *len, data))
            }
        }
    }

    fn own_contents(
        &self,
        id: NodeId,
        file_type: FileType,
        size: u64,
    ) -> Result<(FileType, u64, InodeData), BuildError> {
        let (blocks, tail) = self.view.own_data(id);
        let start = match blocks {
            0 => Blkaddr(0),
            _ => {
                let pos = self.layout.blocks_pos(id).ok_or_else(|| internal(id, "has blocks nowhere"))?;
                Blkaddr(self.blocks_start.0 + self.view.block_bits.blocks_for(pos))
            }
        };
        let data = if tail > 0 { InodeData::FlatInline(start) } else { InodeData::FlatPlain(Some(start)) };
        Ok((file_type, size, data))
    }

    /// Appends the whole blocks of a directory or symbolic link.
    ///
    /// # Errors
    /// As [`InodeWriter::region`].
    pub(crate) fn blocks(&self, id: NodeId, out: &mut Vec<u8>) -> Result<(), BuildError> {
        let (blocks, _) = self.view.own_data(id);
        let mut data = self.own_data(id)?;
        data.resize(blocks as usize, 0);
        out.append(&mut data);
        Ok(())
    }

    /// Returns all bytes of a directory or symbolic link.
    fn own_data(&self, id: NodeId) -> Result<Vec<u8>, BuildError> {
        match &self.view.tree.node(id).kind {
            Kind::Symlink(target) => Ok(target.to_vec()),
            _ => directory::data(self.view, self.layout, id),
        }
    }
}

fn algorithm(of_file: Option<Algorithm>) -> Result<Algorithm, BuildError> {
    of_file.ok_or_else(|| BuildError::Internal("a file is compressed by nothing".to_owned()))
}

fn compressed_blocks(extents: &Extents) -> Result<u32, BuildError> {
    let refuse = |_| FormatError::does_not_fit("erofs_inode", "i_u (compressed_blocks)", extents.blocks);
    Ok(u32::try_from(extents.blocks).map_err(refuse)?)
}

/// Appends the table of a file of `len` bytes.
fn encode_chunks(
    (len, bits): (u64, u8),
    runs: &ChunkRuns,
    view: &View<'_>,
    out: &mut Vec<u8>,
) -> Result<(), BuildError> {
    let entry = view.chunk_entry;
    out.resize(out.len().next_multiple_of(entry.len() as usize), 0);
    let holes =
        |range: Range<u64>, out: &mut Vec<u8>| range.into_iter().try_for_each(|_| entry.encode(Chunk::Hole, out));
    let mut next = 0;
    for &ChunkRun { first, count, device, start } in runs {
        holes(next..first, out)?;
        for idx in 0..count {
            let start = Blkaddr(start.0 + (idx << (bits - view.block_bits.bits())));
            entry.encode(Chunk::At { device, start }, out)?;
        }
        next = first + count;
    }
    Ok(holes(next..len.div_ceil(1 << bits), out)?)
}

fn internal(node: NodeId, what: &str) -> BuildError {
    BuildError::Internal(format!("node {} {what}", node.0))
}
