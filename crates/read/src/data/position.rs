//! Where contents are stored, as an order to read them in.

use super::pieces::PackedMap;
use crate::error::ReadError;
use crate::image::Image;
use crate::map::extent::{Extent, ExtentKind};
use crate::map::extents::extent_over;
use crate::map::inode_map::Map;
use crate::metadata::inode::Inode;
use crate::metadata::space::MetadataSpace;

/// Where bytes are stored: device, byte address, and for encoded ones the byte in the extent.
pub(super) type DiskPosition = (u16, u64, u64);

/// Where byte `off` of a file is stored, which is in the extent. For holes and inline data the order does not matter.
pub(super) fn disk_position(extent: &Extent, off: u64) -> DiskPosition {
    let skip = off - extent.la;
    let (device, pa) = address(&extent.kind);
    match extent.kind {
        ExtentKind::Encoded { .. } => (device, pa, skip),
        _ => (device, pa.saturating_add(skip), skip),
    }
}

/// Device and byte address of an extent's first stored byte.
fn address(kind: &ExtentKind) -> (u16, u64) {
    match *kind {
        ExtentKind::Raw { device, pa } => (device, pa),
        ExtentKind::Plain { device, pa, inline: None, .. } | ExtentKind::Encoded { device, pa, inline: None, .. } => {
            (device, pa)
        }
        ExtentKind::Meta { pa, .. } | ExtentKind::Plain { pa, .. } | ExtentKind::Encoded { pa, .. } => (0, pa),
        ExtentKind::Hole | ExtentKind::Fragment { .. } => (0, 0),
    }
}

/// Where the contents of a file are stored. Positions sort by stored order: files that are read in this order are read forwards, and
/// those that share a cluster one after the other.
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
    /// Byte address on the device of the first stored byte; of the first pcluster, if that is encoded. Of contents beside the inode,
    /// the byte in its metadata space. 0 if nothing is stored.
    pub address: u64,
    /// Which byte of its first decoded extent the file begins with: the order among files that share a pcluster. 0 if the first extent
    /// is not encoded.
    pub offset: u64,
    /// Stored bytes that hold the contents: pclusters count whole, those that are shared for each file.
    pub stored_len: u64,
    /// The first pcluster of the packed inode, which several files share, that holds a part of this one.
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
    last: Option<(u16, u64, Option<MetadataSpace>)>,
}

impl PositionSum {
    /// Count the bytes of an extent from byte `off` of the file on, up to `end`.
    fn add(&mut self, extent: &Extent, off: u64, end: u64) {
        let (device, pa, skip) = disk_position(extent, off);
        let (stored_len, cluster) = match extent.kind {
            ExtentKind::Hole | ExtentKind::Fragment { .. } => return,
            ExtentKind::Raw { .. } | ExtentKind::Meta { .. } => (end - off, None),
            ExtentKind::Plain { plen, inline, .. } | ExtentKind::Encoded { plen, inline, .. } => {
                let (device, pa) = address(&extent.kind);
                (u64::from(plen), Some((device, pa, inline)))
            }
        };
        if cluster.is_none() || cluster != self.last {
            self.position.stored_len = self.position.stored_len.saturating_add(stored_len);
        }
        self.last = cluster;
        if !self.has_start {
            self.has_start = true;
            let offset = if matches!(extent.kind, ExtentKind::Encoded { .. }) { skip } else { 0 };
            self.position = FilePosition { device, address: pa, offset, ..self.position };
        }
    }

    /// The same for a part of the packed inode.
    fn add_shared(&mut self, extent: &Extent, off: u64, end: u64) {
        let (device, address) = address(&extent.kind);
        self.position.shared_cluster.get_or_insert(ClusterAddress { device, address });
        self.add(extent, off, end);
    }
}

impl Image {
    /// Where the contents of a file are stored. Reads metadata only, in time linear in the count of the file's extents.
    ///
    /// # Errors
    /// Something without contents, a damaged map, a failing source.
    pub fn position(&self, inode: &Inode) -> Result<FilePosition, ReadError> {
        self.sum_extents(inode).map_err(|error| error.at_nid(inode.nid))
    }

    fn sum_extents(&self, inode: &Inode) -> Result<FilePosition, ReadError> {
        let mut map = Map::open(self, inode)?;
        let (mut sum, mut off, mut packed) = (PositionSum::default(), 0, PackedMap::new(self));
        while off < inode.size() {
            let extent = extent_over(&mut map, inode, off)?;
            let end = extent.end();
            match extent.kind {
                ExtentKind::Fragment { .. } => {
                    self.each_piece(&mut map, &mut packed, off..end, &mut |piece, part| {
                        sum.add_shared(piece, part.start, part.end);
                        Ok(())
                    })?;
                }
                _ => sum.add(&extent, off, end),
            }
            off = end;
        }
        Ok(sum.position)
    }
}
