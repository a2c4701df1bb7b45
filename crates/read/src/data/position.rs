//! Positions of contents in stored order, the order to read them in.

use crate::error::ReadError;
use crate::image::reader::Reader;
use crate::map::data_part::DataPart;
use crate::map::extent::Pcluster;
use crate::map::file_map::FileMap;
use crate::metadata::inode::Inode;

/// Position of bytes in stored order: device, byte address, and for encoded ones the byte in the
/// extent.
pub(super) type DiskPosition = (u16, u64, u64);

/// Returns the position of a part. Bytes that are not stored come first.
pub(super) fn disk_position(part: &DataPart) -> DiskPosition {
    part.address().map_or_else(DiskPosition::default, |(device, pa)| (device, pa, part.skip()))
}

/// Position of the contents of a file in stored order. Files that are read in this order are read
/// forwards, and those that share a cluster one after the other.
///
/// ```
/// # fn main() -> Result<(), kiln_read::ReadError> {
/// # let image = kiln_read::Image::open_path("tests/golden/zstd.erofs".as_ref(), &[], &Default::default())?;
/// let mut files = Vec::new();
/// for entry in image.open_dir("/big")? {
///     let inode = image.inode(entry?.nid)?;
///     files.push((image.position(&inode)?, inode));
/// }
/// files.sort_by_key(|(position, _)| *position);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct FilePosition {
    /// 0 for the primary device, n for extra device n.
    pub device: u16,
    /// Byte address on the device of the first stored byte; of the first pcluster, if that is
    /// encoded. Of contents beside the inode, the byte in its metadata space. 0 if nothing is
    /// stored.
    pub address: u64,
    /// First byte of the file in its first decoded extent: the order among files that share a
    /// pcluster. 0 if the first extent is not encoded.
    pub offset: u64,
    /// Stored bytes that hold the contents: pclusters count whole, those that are shared for each
    /// file.
    pub stored_len: u64,
    /// The first pcluster of the packed inode, which several files share, that holds a part of this
    /// one.
    pub shared_cluster: Option<ClusterAddress>,
}

/// The address of a pcluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterAddress {
    /// 0 for the primary device, n for extra device n.
    pub device: u16,
    /// Byte address on the device.
    pub address: u64,
}

/// A position while the extents of a file are counted.
#[derive(Default)]
struct PositionSum {
    position: FilePosition,
    /// Something stored was met: the position has its start.
    has_start: bool,
    /// The pcluster that was counted last: two extents that follow each other may be in one.
    last: Option<Pcluster>,
}

impl PositionSum {
    fn add(&mut self, part: &DataPart) {
        let Some((device, address)) = part.address() else { return };
        let pcluster = part.pcluster();
        if part.is_fragment {
            let address = pcluster.map_or(address, |pcluster| pcluster.pa);
            self.position.shared_cluster.get_or_insert(ClusterAddress { device, address });
        }
        if pcluster.is_none() || pcluster != self.last {
            let stored_len = pcluster.map_or(part.len(), |pcluster| pcluster.plen.into());
            self.position.stored_len = self.position.stored_len.saturating_add(stored_len);
        }
        self.last = pcluster;
        if !self.has_start {
            self.has_start = true;
            let offset = if part.is_encoded() { part.skip() } else { 0 };
            self.position = FilePosition { device, address, offset, ..self.position };
        }
    }
}

impl<'a> Reader<'a> {
    /// Implements `Image::position`.
    pub(crate) fn position(self, inode: &Inode) -> Result<FilePosition, ReadError> {
        let mut sum = PositionSum::default();
        let summed = FileMap::open(self, inode)
            .and_then(|mut map| map.parts(0..inode.size()).try_for_each(|part| part.map(|part| sum.add(&part))));
        summed.map_err(|error| error.at_nid(inode.nid)).map(|()| sum.position)
    }
}
