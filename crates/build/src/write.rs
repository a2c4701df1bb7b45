//! From the layout to bytes: the metadata zone front to back, the superblock last.

use kiln_format::addr::SLOT_LEN;
use kiln_format::compr_cfg::{ComprCfgs, Lz4Cfg};
use kiln_format::feature::Feature;
use kiln_format::superblock::{self, BASE_LEN, ComprInfo, SUPERBLOCK_OFF, Superblock};
use kiln_format::{Algorithm, Compat, Incompat, Nid};
use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::emit::Emitter;
use crate::layout::{Layout, Region, View};
use crate::pack::Stored;
use crate::tree::NodeId;
use crate::{BuildError, BuildOptions, Control};

/// Metadata gathered before it goes to the file.
const WRITE_LEN: usize = 1 << 20;

/// What was written.
pub struct Written {
    /// Size of the image in blocks.
    pub blocks: u64,
    /// Blocks before the first data block.
    pub header_blocks: u64,
    /// Features of the image.
    pub features: Vec<Feature>,
    /// Its UUID.
    pub uuid: [u8; 16],
}

/// Blocks that hold the superblock and the configuration records.
///
/// # Errors
/// Options outside the kernel's limits: our own mistake.
pub fn header_blocks(options: &BuildOptions) -> Result<u64, BuildError> {
    let records = compr_cfgs(options).encode()?.len();
    Ok(options.block_bits().blocks_for(SUPERBLOCK_OFF + (BASE_LEN + records) as u64))
}

/// Write metadata and superblock.
///
/// # Errors
/// An output that cannot be written; features that the chosen kernel does not have.
pub fn write(
    view: &View<'_>,
    layout: &Layout,
    out: &File,
    options: &BuildOptions,
    control: &Control<'_>,
) -> Result<Written, BuildError> {
    let off = layout.start.0 * view.block_bits.len();
    let mut zone = ZoneWriter { out, off, pos: 0, buf: Vec::new(), digest: view.packed.digest.clone() };
    let mut emitter = Emitter::new(view, layout, options);
    let mut bytes = Vec::new();
    for (pos, region) in &layout.regions {
        control.check()?;
        bytes.clear();
        match *region {
            Region::Inode(node) => emitter.inode(node, &mut bytes)?,
            Region::Blocks(node) => emitter.blocks(node, &mut bytes)?,
            Region::PackedInode => emitter.packed_inode(&mut bytes)?,
            Region::SharedXattrs => bytes.extend_from_slice(view.facts.xattrs.shared_area()),
        }
        zone.put(*pos, &bytes, region)?;
    }
    let digest = zone.finish(layout.len)?;
    let blocks = layout.start.0 + view.block_bits.blocks_for(layout.len);
    let superblock = superblock(view, layout, options, blocks, emitter.serial)?;
    let written = write_superblock(superblock, digest, out, options)?;
    out.set_len(blocks * view.block_bits.len())
        .map_err(|source| BuildError::Write { action: "set the size of the image", source })?;
    Ok(written)
}

/// Writes the metadata zone front to back, zeros between its regions.
struct ZoneWriter<'a> {
    out: &'a File,
    /// Byte offset in the image of what is gathered.
    off: u64,
    /// Position in the zone behind what is gathered.
    pos: u64,
    buf: Vec<u8>,
    digest: blake3::Hasher,
}

impl ZoneWriter<'_> {
    fn put(&mut self, pos: u64, bytes: &[u8], region: &Region) -> Result<(), BuildError> {
        let gap = pos
            .checked_sub(self.pos)
            .ok_or_else(|| BuildError::Internal(format!("{region:?} at {pos} overlaps what ends at {}", self.pos)))?;
        self.buf.resize(self.buf.len() + gap as usize, 0);
        self.buf.extend_from_slice(bytes);
        self.pos = pos + bytes.len() as u64;
        if self.buf.len() >= WRITE_LEN { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), BuildError> {
        self.digest.update(&self.buf);
        self.out
            .write_all_at(&self.buf, self.off)
            .map_err(|source| BuildError::Write { action: "write the image", source })?;
        self.off += self.buf.len() as u64;
        self.buf.clear();
        Ok(())
    }

    /// Fill up to the zone's end.
    fn finish(mut self, len: u64) -> Result<blake3::Hasher, BuildError> {
        let gap = len
            .checked_sub(self.pos)
            .ok_or_else(|| BuildError::Internal(format!("the metadata zone ends at {}, not {len}", self.pos)))?;
        self.buf.resize(self.buf.len() + gap as usize, 0);
        self.flush()?;
        Ok(self.digest)
    }
}

/// Configuration records of the chosen algorithm.
fn compr_cfgs(options: &BuildOptions) -> ComprCfgs {
    let mut cfgs = ComprCfgs::default();
    // What suits the larger pclusters suits the smaller ones.
    let Some(spec) = options.specs().max_by_key(|spec| spec.pcluster_len) else { return cfgs };
    match spec.method.algorithm() {
        Algorithm::Lz4 => {
            let max_pclusterblks = options.max_pcluster_blocks() as u16;
            cfgs.lz4 = Some(Lz4Cfg { max_distance: u16::MAX, max_pclusterblks });
        }
        Algorithm::Lzma => cfgs.lzma_dict_size = Some(spec.lzma_dict_size()),
        Algorithm::Deflate => cfgs.deflate_windowbits = Some(15),
        Algorithm::Zstd => cfgs.zstd_windowlog = Some(spec.zstd_window_log()),
    }
    cfgs
}

/// The superblock, but for UUID and checksum.
///
/// # Errors
/// Features or addresses that it cannot express: our own mistake.
pub fn superblock(
    view: &View<'_>,
    layout: &Layout,
    options: &BuildOptions,
    blocks: u64,
    inos: u64,
) -> Result<Superblock, BuildError> {
    let mut incompat = Incompat::empty();
    let mut compr_info = ComprInfo::Lz4MaxDistance(0);
    let is_compressed = |stored: &Stored| matches!(stored, Stored::Compressed(_));
    if layout.packed_pos.is_some() || view.packed.stored.iter().any(is_compressed) {
        incompat |= Incompat::LZ4_0PADDING | Incompat::COMPR_CFGS;
        compr_info = ComprInfo::AvailableAlgs(compr_cfgs(options).algorithms());
    }
    for feature in &view.packed.features {
        incompat |= match feature {
            Feature::ChunkedFile => Incompat::CHUNKED_FILE,
            Feature::TailPacking => Incompat::ZTAILPACKING,
            Feature::Fragments => Incompat::FRAGMENTS,
            Feature::Addr48Bit => Incompat::ADDR_48BIT,
            other => return Err(BuildError::Internal(format!("no bit is known for {}", other.name()))),
        };
    }
    let mut compat = Compat::SB_CHKSUM | Compat::MTIME;
    if !view.facts.xattrs.is_empty() {
        compat |= Compat::XATTR_FILTER;
    }
    let epoch = view.facts.epoch;
    let build_time = options.source_date_epoch.and_then(|secs| u32::try_from(secs.checked_sub(epoch.secs)?).ok());
    Ok(Superblock {
        block_bits: view.block_bits,
        checksum: 0,
        compat,
        incompat,
        root_nid: layout.nid(NodeId::ROOT)?,
        inos,
        epoch: epoch.secs,
        fixed_nsec: epoch.nsec,
        blocks,
        meta_blkaddr: layout.start,
        xattr_blkaddr: layout.start,
        uuid: [0; 16],
        volume_name: options.label,
        compr_info,
        extra_devices: 0,
        devt_off: 0,
        xattr_prefix_count: 0,
        xattr_prefix_off: 0,
        xattr_filter_reserved: 0,
        ishare_xattr_prefix_id: 0,
        packed_nid: layout.packed_pos.map(|pos| Nid(pos / SLOT_LEN)),
        build_time: build_time.unwrap_or(0),
        metabox_nid: None::<Nid>,
        record_len: BASE_LEN as u64,
    })
}

/// Give the superblock its UUID and checksum, and write the blocks before the data.
fn write_superblock(
    mut superblock: Superblock,
    mut digest: blake3::Hasher,
    out: &File,
    options: &BuildOptions,
) -> Result<Written, BuildError> {
    let features = superblock.features();
    if let Some(kernel) = options.kernel
        && let Some(feature) = features.iter().find(|feature| feature.since() > kernel)
    {
        return Err(BuildError::Kernel { feature: feature.name(), needs: feature.since(), kernel });
    }
    digest.update(&superblock.encode()?);
    superblock.uuid = options.uuid.unwrap_or_else(|| content_uuid(&digest));
    let block_bits = superblock.block_bits;
    let header_blocks = header_blocks(options)?;
    let mut header = vec![0; (header_blocks * block_bits.len()) as usize];
    let start = SUPERBLOCK_OFF as usize;
    if matches!(superblock.compr_info, ComprInfo::AvailableAlgs(_)) {
        let records = compr_cfgs(options).encode()?;
        header[start + BASE_LEN..][..records.len()].copy_from_slice(&records);
    }
    let bytes = superblock.encode()?;
    header[start..][..bytes.len()].copy_from_slice(&bytes);
    superblock.checksum = superblock::checksum(&header[start..][..superblock::checksum_len(block_bits)]);
    header[start..][..bytes.len()].copy_from_slice(&superblock.encode()?);
    out.write_all_at(&header, 0).map_err(|source| BuildError::Write { action: "write the image", source })?;
    Ok(Written { blocks: superblock.blocks, header_blocks, features, uuid: superblock.uuid })
}

/// Version 8 (custom) from the digest of everything but the UUID itself.
fn content_uuid(digest: &blake3::Hasher) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest.finalize().as_bytes()[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid().into_bytes()
}
