//! Options about file data: compression, packing, placement.

use kiln_codec::Spec;
use kiln_tree::NodeId;

use crate::options::hints::Hints;
use kiln_tree::storage::HotZone;

/// Compression of file data.
#[derive(Clone, Debug, Default)]
pub struct CompressionOptions {
    /// Compression of files without a hint; `None` stores them. Zstandard needs Linux 6.10, Deflate 6.6, LZMA 5.16, and
    /// pclusters of more than one block need 5.13.
    pub spec: Option<Spec>,
    /// Files with a compression of their own. They are packed only if the hint equals `spec`, and share data only with
    /// files of the same algorithm and pcluster length.
    pub hints: Hints,
    /// Compression that is tried for files without a hint.
    pub trial: Trial,
    /// True to describe compressed files by encoded extents, which are byte-granular and have no padding, instead of an
    /// index of whole blocks: images are smaller and built faster. Needs Linux 6.15. [`Spec::pcluster_len`] is then the
    /// length of plain text that is compressed as one piece.
    pub encoded_extents: bool,
    /// Length in bytes of the plain text of one extent at most; `None` has the limit of the format. The least is one
    /// block, or four where parts are deduplicated.
    pub extent_max_len: Option<u32>,
}

impl From<Option<Spec>> for CompressionOptions {
    /// Returns options that compress all files by `spec`, or none.
    fn from(spec: Option<Spec>) -> Self {
        Self { spec, ..Self::default() }
    }
}

impl From<Spec> for CompressionOptions {
    /// Returns options that compress all files by `spec`.
    fn from(spec: Spec) -> Self {
        Some(spec).into()
    }
}

impl CompressionOptions {
    /// Returns the compression of a file; `None` if it is stored.
    pub(crate) fn of(&self, file: NodeId) -> Option<Spec> {
        self.hints.get(file).unwrap_or(self.spec)
    }

    /// Returns all compression that files may have. Nothing is tried if files are not compressed.
    pub(crate) fn specs(&self) -> impl Iterator<Item = Spec> {
        let tried = self.trial.specs.iter().copied().filter(|_| self.spec.is_some());
        self.spec.into_iter().chain(tried).chain(self.hints.specs())
    }
}

/// Compression that is tried for each file.
#[derive(Clone, Debug, Default)]
pub struct Trial {
    /// Compression to try beside that of all files.
    pub specs: Vec<Spec>,
    /// Modelled CPU time of compression, trials included, in percent of that without trials.
    pub budget_percent: u32,
}

/// Files that lie in the packed inode, compressed together instead of one by one. They need Linux 6.1 and compression;
/// without either, nothing is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragments {
    /// None.
    Off,
    /// Files of at most this many bytes that look compressible.
    UpTo(u64),
    /// The same files, and the ends of longer files that do not fill a block. With encoded extents there are no such
    /// ends.
    Tails(u64),
}

/// Data and directories that are stored together with others.
#[derive(Clone, Debug)]
pub struct PackingOptions {
    /// Files in the packed inode. Needs Linux 6.1.
    pub fragments: Fragments,
    /// Length in bytes of the largest pcluster of the packed inode; `None` has that of files. Smaller ones make reads
    /// of single small files cheaper, larger ones make the image smaller.
    pub pcluster_len: Option<u32>,
    /// True to put large directories into the packed inode, too. Needs Linux 6.1 and compression; without either,
    /// directories lie among the inodes.
    pub directories: bool,
    /// True to put the end of a compressed file beside its inode if there is room, so that small files need one read.
    /// Needs Linux 5.17, and is left out for older kernels and with encoded extents.
    pub tail_packing: bool,
}

impl Default for PackingOptions {
    fn default() -> Self {
        Self { fragments: Fragments::Off, pcluster_len: None, directories: false, tail_packing: false }
    }
}

/// Entries of the chunk tables of uncompressed files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkEntries {
    /// Addresses of 4 bytes, if all data is in the image.
    Short,
    /// Indexes of 8 bytes, which can name a device.
    Indexes,
}

/// Placement and order of data.
#[derive(Clone, Debug)]
pub struct LayoutOptions {
    /// Alignment in bytes of each file's data: 1, or a multiple of the block size up to 1 GiB. For stores that keep
    /// equal blocks of several images once.
    pub data_align: u64,
    /// Alignment in bytes of the size of the image: 1, or a multiple of the block size up to 1 GiB.
    pub image_align: u64,
    /// Length of the chunks of uncompressed files, as a power of two from one block to 2^31 blocks; equal chunks are
    /// stored once. `None` stores these files contiguously, except for their holes. Chunks of more than 4 MiB are not
    /// compared. Needs Linux 5.15.
    pub chunk_bits: Option<u8>,
    /// Entries of chunk tables.
    pub chunk_entries: ChunkEntries,
    /// True to put the last bytes of uncompressed files beside their inodes if there is room.
    pub inline_tails: bool,
    /// Files whose data comes first, in this order, also among packed files. The others follow by path.
    pub order: Vec<NodeId>,
    /// Ranges of files, and metadata, that come first.
    pub hot: HotZone,
}

impl Default for LayoutOptions {
    fn default() -> Self {
        Self {
            data_align: 1,
            image_align: 1,
            chunk_bits: None,
            chunk_entries: ChunkEntries::Short,
            inline_tails: true,
            order: Vec::new(),
            hot: HotZone::default(),
        }
    }
}
