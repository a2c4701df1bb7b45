//! From the layout to bytes: the metadata zone front to back, the superblock last.

use kiln_format::addr::SLOT_LEN;
use kiln_format::compr_cfg::{ComprCfgs, Lz4Cfg};
use kiln_format::feature::Feature;
use kiln_format::inode::CompactTimes;
use kiln_format::superblock::{self, BASE_LEN, ComprInfo, EXTSLOT_LEN, SUPERBLOCK_OFF, Superblock};
use kiln_format::{Algorithm, Blkaddr, Compat, FormatError, Incompat, Nid};
use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::append::Appender;
use crate::emit::Emitter;
use crate::layout::{Layout, View};
use crate::metadata::{self, Contents, Metadata, WRITE_LEN};
use crate::pack::Stored;
use crate::tree::NodeId;
use crate::{BuildError, BuildOptions, Control};

/// What was written.
pub struct Written {
    /// Size of the image in blocks.
    pub blocks: u64,
    /// Blocks before the first data block.
    pub header_blocks: u64,
    /// Inodes that no name leads to.
    pub special_inodes: u64,
    /// Features of the image.
    pub features: Vec<Feature>,
    /// Its UUID.
    pub uuid: [u8; 16],
}

/// The inodes that no name leads to.
#[derive(Clone, Copy)]
pub struct SpecialNids {
    /// The packed inode, if there is one.
    pub packed: Option<Nid>,
    /// The metabox, if there is one.
    pub metabox: Option<Nid>,
}

/// Blocks that hold the superblock and the configuration records.
///
/// # Errors
/// Options outside the kernel's limits: our own mistake.
pub fn header_blocks(options: &BuildOptions) -> Result<u64, BuildError> {
    let records = compr_cfgs(options).encode()?.len();
    Ok(options.block_bits().blocks_for(SUPERBLOCK_OFF + record_len(options) + records as u64))
}

/// Write metadata and superblock.
///
/// # Errors
/// An output that cannot be written; features that the chosen kernel does not have.
pub fn write(
    view: &View<'_>,
    layout: &Layout,
    metadata: &Metadata,
    data: Appender<'_>,
    out: &File,
    options: &BuildOptions,
    control: &Control<'_>,
) -> Result<Written, BuildError> {
    let start = data.next_block();
    let mut zone = ZoneWriter { out, start: start.0 * view.block_bits.len(), len: 0, digest: data.digest };
    let inodes = metadata.metabox.as_ref().map_or(0, |metabox| metabox.inodes);
    let mut emitter = Emitter::new(view, layout, options, start, inodes);
    match metadata.metabox {
        // A nid of 0 would mean that there is no such inode.
        Some(_) => zone.put(&[0; SLOT_LEN as usize])?,
        None => {
            for piece in metadata::pieces(metadata::bytes(&layout.inodes, &mut emitter), WRITE_LEN) {
                control.check()?;
                zone.put(&piece?)?;
            }
        }
    }
    let mut special = |contents: &Contents| {
        let mut bytes = Vec::new();
        emitter.special(contents, &mut bytes)?;
        zone.put_at_slot(&bytes)
    };
    // No walk reads them.
    let packed = metadata.packed.as_ref().map(&mut special).transpose()?;
    let metabox = metadata.metabox.as_ref().map(|metabox| special(&metabox.contents)).transpose()?;
    let special = SpecialNids { packed, metabox };
    let inos = emitter.serial;
    zone.fill_to(view.block_bits.len())?;
    let end = Blkaddr(start.0 + view.block_bits.blocks_for(zone.len));
    if end >= Blkaddr::HOLE32 {
        return Err(FormatError::does_not_fit("erofs_super_block", "blocks_lo", end.0).into());
    }
    let superblock = Superblock {
        inos,
        blocks: end.0,
        meta_blkaddr: start,
        xattr_blkaddr: if special.metabox.is_some() { Blkaddr(0) } else { start },
        ..superblock(view, layout, special, options)?
    };
    let written = write_superblock(superblock, zone.digest, out, options)?;
    out.set_len(end.0 * view.block_bits.len())
        .map_err(|source| BuildError::Write { action: "set the size of the image", source })?;
    Ok(written)
}

/// Writes the metadata zone front to back.
struct ZoneWriter<'a> {
    out: &'a File,
    /// Byte offset in the image of the zone.
    start: u64,
    /// Bytes so far.
    len: u64,
    digest: blake3::Hasher,
}

impl ZoneWriter<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<(), BuildError> {
        self.digest.update(bytes);
        let write = self.out.write_all_at(bytes, self.start + self.len);
        write.map_err(|source| BuildError::Write { action: "write the image", source })?;
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// Zeros up to a multiple of `unit`.
    fn fill_to(&mut self, unit: u64) -> Result<(), BuildError> {
        self.put(&vec![0; (self.len.next_multiple_of(unit) - self.len) as usize])
    }

    /// An inode at the next slot. Its nid.
    fn put_at_slot(&mut self, inode: &[u8]) -> Result<Nid, BuildError> {
        self.fill_to(SLOT_LEN)?;
        let nid = Nid(self.len / SLOT_LEN);
        self.put(inode)?;
        Ok(nid)
    }
}

/// Length of the superblock's record.
fn record_len(options: &BuildOptions) -> u64 {
    BASE_LEN as u64 + if options.metabox.is_some() { EXTSLOT_LEN } else { 0 }
}

/// Configuration records of the algorithms.
fn compr_cfgs(options: &BuildOptions) -> ComprCfgs {
    let mut cfgs = ComprCfgs::default();
    for spec in options.specs() {
        // What suits the larger pclusters suits the smaller ones.
        match spec.method.algorithm() {
            Algorithm::Lz4 => {
                let max_pclusterblks = options.max_pcluster_blocks() as u16;
                cfgs.lz4 = Some(Lz4Cfg { max_distance: u16::MAX, max_pclusterblks });
            }
            Algorithm::Lzma => cfgs.lzma_dict_size = cfgs.lzma_dict_size.max(Some(spec.lzma_dict_size())),
            Algorithm::Deflate => cfgs.deflate_windowbits = Some(15),
            Algorithm::Zstd => cfgs.zstd_windowlog = cfgs.zstd_windowlog.max(Some(spec.zstd_window_log())),
        }
    }
    cfgs
}

/// The superblock, but for what depends on where metadata starts and ends, and for UUID and checksum.
///
/// # Errors
/// A root without a place, features that have no bit: our own mistake.
pub fn superblock(
    view: &View<'_>,
    layout: &Layout,
    special: SpecialNids,
    options: &BuildOptions,
) -> Result<Superblock, BuildError> {
    let (incompat, compr_info) = incompat(view, special, options)?;
    let epoch = view.facts.epoch;
    let build_time = options.source_date_epoch.and_then(|secs| u32::try_from(secs.checked_sub(epoch.secs)?).ok());
    Ok(Superblock {
        block_bits: view.block_bits,
        checksum: 0,
        compat: compat(view, special.metabox.is_some()),
        incompat,
        root_nid: layout.nid(NodeId::ROOT)?,
        inos: 0,
        epoch: epoch.secs,
        fixed_nsec: epoch.nsec,
        blocks: 0,
        meta_blkaddr: Blkaddr(0),
        xattr_blkaddr: Blkaddr(0),
        uuid: [0; 16],
        volume_name: options.label,
        compr_info,
        extra_devices: 0,
        devt_off: 0,
        xattr_prefix_count: 0,
        xattr_prefix_off: 0,
        xattr_filter_reserved: 0,
        ishare_xattr_prefix_id: 0,
        packed_nid: special.packed,
        build_time: build_time.unwrap_or(0),
        metabox_nid: special.metabox,
        record_len: record_len(options),
    })
}

fn compat(view: &View<'_>, has_metabox: bool) -> Compat {
    let mut compat = Compat::SB_CHKSUM | Compat::MTIME;
    if !view.facts.xattrs.is_empty() {
        compat |= Compat::XATTR_FILTER;
    }
    if has_metabox && !view.facts.xattrs.shared_area().is_empty() {
        compat |= Compat::SHARED_EA_IN_METABOX;
    }
    compat
}

fn incompat(
    view: &View<'_>,
    special: SpecialNids,
    options: &BuildOptions,
) -> Result<(Incompat, ComprInfo), BuildError> {
    let mut incompat = Incompat::empty();
    let mut compr_info = ComprInfo::Lz4MaxDistance(0);
    let is_compressed = |stored: &Stored| matches!(stored, Stored::Compressed(_));
    let any_special = special.packed.is_some() || special.metabox.is_some();
    if any_special || view.packed.stored.iter().any(is_compressed) {
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
    if special.packed.is_some() {
        incompat |= Incompat::FRAGMENTS;
    }
    if special.metabox.is_some() {
        // The root's nid has 64 bits.
        incompat |= Incompat::METABOX | Incompat::ADDR_48BIT;
    }
    let records = view.encoded && any_special;
    if records || view.facts.compact_times == CompactTimes::Own {
        incompat |= Incompat::ADDR_48BIT;
    }
    Ok((incompat, compr_info))
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
        header[start + superblock.record_len as usize..][..records.len()].copy_from_slice(&records);
    }
    let bytes = superblock.encode()?;
    header[start..][..bytes.len()].copy_from_slice(&bytes);
    superblock.checksum = superblock::checksum(&header[start..][..superblock::checksum_len(block_bits)]);
    header[start..][..bytes.len()].copy_from_slice(&superblock.encode()?);
    out.write_all_at(&header, 0).map_err(|source| BuildError::Write { action: "write the image", source })?;
    let special_inodes = [superblock.packed_nid, superblock.metabox_nid].iter().flatten().count() as u64;
    Ok(Written { blocks: superblock.blocks, header_blocks, special_inodes, features, uuid: superblock.uuid })
}

/// Version 8 (custom) from the digest of everything but the UUID itself.
fn content_uuid(digest: &blake3::Hasher) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest.finalize().as_bytes()[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid().into_bytes()
}
