//! From the layout to bytes: the metadata zone front to back, the superblock last.

use kiln_format::addr::SLOT_LEN;
use kiln_format::compr_cfg::{ComprCfgs, Lz4Cfg};
use kiln_format::device::{DEVICE_SLOT_LEN, DeviceSlot};
use kiln_format::feature::Feature;
use kiln_format::superblock::{self, BASE_LEN, ComprInfo, SUPERBLOCK_OFF, Superblock};
use kiln_format::{Algorithm, Blkaddr, Compat, Incompat, Nid};
use zerocopy::IntoBytes;

use crate::emit::Emitter;
use crate::layout::{Layout, Region, View};
use crate::pack::Stored;
use crate::tree::NodeId;
use crate::xattr::Prefixes;
use crate::{BuildError, BuildOptions, Control, Out};

/// Metadata gathered before it goes to the file.
const WRITE_LEN: usize = 1 << 20;

/// Where the table of prefixes may lie, in bytes.
const PREFIX_ALIGN: u64 = 4;

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

/// The table of long xattr prefixes.
struct PrefixTable {
    table: Vec<u8>,
    /// Its byte in the image.
    off: u64,
    /// How many prefixes there are.
    count: u8,
    /// Number of the one that names digests of contents, if there are any.
    digest_id: Option<u8>,
}

/// What lies before the data.
pub struct Header {
    /// Configuration records, behind the superblock.
    records: Vec<u8>,
    /// Byte of the device table behind them, if there is one.
    devt_off: Option<u64>,
    prefixes: PrefixTable,
    /// Length in blocks.
    pub blocks: u64,
}

impl Header {
    /// The superblock with the place of the prefixes. Without a packed inode every kernel looks for them in the image itself.
    fn with_prefixes(&self, mut superblock: Superblock, options: &BuildOptions) -> Superblock {
        let PrefixTable { off, count, digest_id, .. } = self.prefixes;
        if let Some(id) = digest_id {
            superblock.compat |= Compat::ISHARE_XATTRS;
            superblock.ishare_xattr_prefix_id = id;
        }
        if count > 0 {
            (superblock.xattr_prefix_count, superblock.xattr_prefix_off) = (count, off);
            superblock.incompat |= Incompat::XATTR_PREFIXES;
            if options.plain_xattr_prefixes || superblock.packed_nid.is_some() {
                superblock.compat |= Compat::PLAIN_XATTR_PFX;
            }
        }
        superblock
    }
}

/// What lies before the data of an image at `out`.
///
/// # Errors
/// Prefixes that cannot be had; options outside the kernel's limits: our own mistake.
pub fn header(options: &BuildOptions, out: Out<'_>) -> Result<Header, BuildError> {
    let records = compr_cfgs(options).encode()?;
    let mut len = SUPERBLOCK_OFF + (BASE_LEN + records.len()) as u64;
    let slot_len = DEVICE_SLOT_LEN as u64;
    let devt_off = out.blob.map(|_| len.next_multiple_of(slot_len));
    len = devt_off.map_or(len, |off| off + slot_len).next_multiple_of(PREFIX_ALIGN);
    let prefixes = Prefixes::new(options)?;
    let (off, table) = (len, prefixes.table());
    len += table.len() as u64;
    let prefixes = PrefixTable { table, off, count: prefixes.count(), digest_id: prefixes.digest_id() };
    Ok(Header { records, devt_off, prefixes, blocks: options.block_bits.blocks_for(len) })
}

/// Write metadata and superblock.
///
/// # Errors
/// An output that cannot be written; features that the chosen kernel does not have.
pub fn write(
    view: &View<'_>,
    layout: &Layout,
    out: Out<'_>,
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
    let len = (layout.start.0 << view.block_bits.bits()) + layout.len;
    let blocks = view.block_bits.blocks_for(len.next_multiple_of(options.image_align));
    let header = header(options, out)?;
    let superblock = superblock(view, layout, options, blocks, emitter.serial)?;
    let superblock = Superblock {
        extra_devices: header.devt_off.is_some().into(),
        devt_off: header.devt_off.unwrap_or(0),
        ..superblock
    };
    let superblock = header.with_prefixes(superblock, options);
    let slot = view.packed.blob_blocks.zip(out.blob).map(|(blob_blocks, blob)| DeviceSlot {
        tag: blob.tag,
        blocks: blob_blocks,
        uniaddr: Some(Blkaddr(blocks)),
    });
    let written = write_header(header, superblock, slot, digest, out, options)?;
    out.set_len(blocks * view.block_bits.len())?;
    Ok(written)
}

/// Writes the metadata zone front to back, zeros between its regions.
struct ZoneWriter<'a> {
    out: Out<'a>,
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
        self.out.write(&self.buf, self.off)?;
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

fn superblock(
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
            Feature::DeviceTable => Incompat::DEVICE_TABLE,
            Feature::TailPacking => Incompat::ZTAILPACKING,
            Feature::Fragments => Incompat::FRAGMENTS,
            Feature::Addr48Bit => Incompat::ADDR_48BIT,
            other => return Err(BuildError::Internal(format!("no bit is known for {}", other.name()))),
        };
    }
    let mut compat = Compat::MTIME;
    if options.checksum {
        compat |= Compat::SB_CHKSUM;
    }
    if options.omit_dot {
        incompat |= Incompat::ADDR_48BIT;
    }
    if view.facts.has_xattrs() {
        compat |= Compat::XATTR_FILTER;
    }
    let epoch = view.facts.epoch;
    let build_time = options.build_time.or(options.source_date_epoch);
    let build_time = build_time.and_then(|secs| u32::try_from(secs.checked_sub(epoch.secs)?).ok());
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
fn write_header(
    header: Header,
    mut superblock: Superblock,
    slot: Option<DeviceSlot>,
    mut digest: blake3::Hasher,
    out: Out<'_>,
    options: &BuildOptions,
) -> Result<Written, BuildError> {
    let features = superblock.features();
    if let Some(kernel) = options.kernel
        && let Some(feature) = features.iter().find(|feature| feature.since() > kernel)
    {
        return Err(BuildError::Kernel { feature: feature.name(), needs: feature.since(), kernel });
    }
    digest.update(&superblock.encode()?);
    let slot = slot.map(|slot| slot.encode()).transpose()?;
    digest.update(slot.as_ref().map_or(&[], |slot| slot.as_bytes()));
    digest.update(&header.prefixes.table);
    superblock.uuid = options.uuid.unwrap_or_else(|| content_uuid(&digest));
    let block_bits = superblock.block_bits;
    let mut bytes = vec![0; (header.blocks * block_bits.len()) as usize];
    let start = SUPERBLOCK_OFF as usize;
    if matches!(superblock.compr_info, ComprInfo::AvailableAlgs(_)) {
        bytes[start + BASE_LEN..][..header.records.len()].copy_from_slice(&header.records);
    }
    if let (Some(off), Some(slot)) = (header.devt_off, slot) {
        bytes[off as usize..][..DEVICE_SLOT_LEN].copy_from_slice(slot.as_bytes());
    }
    let PrefixTable { table, off, .. } = &header.prefixes;
    bytes[*off as usize..][..table.len()].copy_from_slice(table);
    let record = superblock.encode()?;
    bytes[start..][..record.len()].copy_from_slice(&record);
    if options.checksum {
        superblock.checksum = superblock::checksum(&bytes[start..][..superblock::checksum_len(block_bits)]);
    }
    bytes[start..][..record.len()].copy_from_slice(&superblock.encode()?);
    out.write(&bytes, 0)?;
    Ok(Written { blocks: superblock.blocks, header_blocks: header.blocks, features, uuid: superblock.uuid })
}

/// Version 8 (custom) from the digest of everything but the UUID itself.
fn content_uuid(digest: &blake3::Hasher) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest.finalize().as_bytes()[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid().into_bytes()
}
