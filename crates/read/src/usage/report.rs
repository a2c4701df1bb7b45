//! Report of what an image contains, as numbers.

use super::blocks::{BlockReads, InPlace};
use super::counts::{Count, ExtentCount, Histogram, StoredAs, entry};
use kiln_format::inode::{DataLayout, FileType};
use std::collections::BTreeMap;

/// Counts of the contents of an image. All counts are of inodes: further names of one count as hard
/// links only.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// Inodes by type, with their sizes.
    pub types: Vec<(FileType, Count)>,
    /// Inodes with contents by layout, with their sizes; packed inode and metabox included.
    pub layouts: Vec<(DataLayout, Count)>,
    /// Names beyond the first of an inode.
    pub hard_links: u64,
    /// Regular files by size.
    pub sizes: Histogram,
    /// Extents of everything that is no directory, packed inode and metabox included.
    pub extents: Vec<(StoredAs, ExtentCount)>,
    /// Compressed extents by the length of their pcluster in bytes.
    pub pcluster_lens: Histogram,
    /// Compressed extents by their decoded length in bytes.
    pub extent_lens: Histogram,
    /// LZ4 extents that can be decoded in place.
    pub in_place: InPlace,
    /// Aligned blocks of regular files by the number of pclusters that a read of the block needs, those of fragments
    /// included. Blocks that need none are not counted.
    pub block_reads: BTreeMap<u64, u64>,
    /// Bytes on devices that hold data of files: of a pcluster all, zeros in front of its stream
    /// included, which only the bytes themselves would tell.
    pub data: Sharing,
    /// Bytes of the packed inode's contents that files are made of.
    pub fragments: Sharing,
    /// Bytes in the same blocks as [`Usage::data`] that belong to no data: ends of blocks behind
    /// tails and plain data.
    pub padding: u64,
    /// Everything else.
    pub metadata: MetadataUsage,
}

/// Bytes that extents name, some of them more than once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sharing {
    /// Sum over all extents that name them.
    pub named: u64,
    /// The same bytes, each counted once.
    pub stored: u64,
}

impl Sharing {
    /// Returns the bytes that deduplication has saved.
    pub fn saved(&self) -> u64 {
        self.named - self.stored
    }
}

/// Bytes of metadata. Those in a metabox are counted as they are in its contents; what the metabox
/// takes is part of [`Usage::data`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MetadataUsage {
    /// Superblock, configurations of algorithms, device table.
    pub superblock: u64,
    /// Inodes alone.
    pub inodes: u64,
    /// Xattr bodies behind inodes.
    pub xattrs: u64,
    /// Shared xattrs.
    pub shared_xattrs: u64,
    /// Chunk tables and compression indexes, with the bytes that align them.
    pub indexes: u64,
    /// Contents of files that lie beside their inodes: tails, inline pclusters.
    pub inline: u64,
    /// Contents of directories, wherever they lie.
    pub directories: u64,
}

impl Usage {
    pub(super) fn empty() -> Self {
        use DataLayout::{ChunkBased, CompressedCompact, CompressedFull, FlatInline, FlatPlain};
        use FileType::{BlockDevice, CharDevice, Directory, Fifo, Regular, Socket, Symlink};
        let types = [Regular, Directory, Symlink, CharDevice, BlockDevice, Fifo, Socket];
        let layouts = [FlatPlain, FlatInline, ChunkBased, CompressedFull, CompressedCompact];
        Self {
            types: types.map(|key| (key, Count::default())).to_vec(),
            layouts: layouts.map(|key| (key, Count::default())).to_vec(),
            hard_links: 0,
            sizes: Histogram::default(),
            extents: StoredAs::ALL.map(|key| (key, ExtentCount::default())).to_vec(),
            pcluster_lens: Histogram::default(),
            extent_lens: Histogram::default(),
            in_place: InPlace::default(),
            block_reads: BlockReads::new(),
            data: Sharing::default(),
            fragments: Sharing::default(),
            padding: 0,
            metadata: MetadataUsage::default(),
        }
    }

    /// Returns the counts of inodes of one type.
    pub fn of_type(&self, file_type: FileType) -> Count {
        self.types.iter().find(|(key, _)| *key == file_type).map_or(Count::default(), |(_, count)| *count)
    }

    /// Returns the counts of inodes of all types.
    pub fn inodes(&self) -> u64 {
        self.types.iter().map(|(_, count)| count.count).sum()
    }

    /// Returns extents of one kind.
    pub fn stored_as(&self, kind: StoredAs) -> ExtentCount {
        self.extents.iter().find(|(key, _)| *key == kind).map_or(ExtentCount::default(), |(_, count)| *count)
    }

    /// Returns all compressed extents.
    pub fn compressed(&self) -> ExtentCount {
        let mut sum = ExtentCount::default();
        let encoded = |kind: &StoredAs| matches!(kind, StoredAs::Encoded(_));
        self.extents.iter().filter(|(kind, _)| encoded(kind)).for_each(|(_, count)| sum.merge(count));
        sum
    }

    /// Adds the counts of another part of the image. Ranges are not part of it.
    pub(super) fn merge(&mut self, other: &Usage) {
        other.types.iter().for_each(|(key, count)| entry(&mut self.types, *key).merge(count));
        other.layouts.iter().for_each(|(key, count)| entry(&mut self.layouts, *key).merge(count));
        other.extents.iter().for_each(|(key, count)| entry(&mut self.extents, *key).merge(count));
        self.sizes.merge(&other.sizes);
        self.pcluster_lens.merge(&other.pcluster_lens);
        self.extent_lens.merge(&other.extent_lens);
        self.in_place.merge(&other.in_place);
        other.block_reads.iter().for_each(|(n, blocks)| *self.block_reads.entry(*n).or_default() += blocks);
        self.metadata.merge(&other.metadata);
    }
}

impl MetadataUsage {
    fn merge(&mut self, other: &MetadataUsage) {
        let pairs = [
            (&mut self.superblock, other.superblock),
            (&mut self.inodes, other.inodes),
            (&mut self.xattrs, other.xattrs),
            (&mut self.shared_xattrs, other.shared_xattrs),
            (&mut self.indexes, other.indexes),
            (&mut self.inline, other.inline),
            (&mut self.directories, other.directories),
        ];
        pairs.into_iter().for_each(|(sum, value)| *sum = sum.saturating_add(value));
    }
}
