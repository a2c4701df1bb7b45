//! Records before the data: superblock, configuration records, device slots and the table of prefixes.

use kiln_codec::Spec;
use kiln_format::compr_cfg::{ComprCfgs, Lz4Cfg};
use kiln_format::device::{DEVICE_SLOT_LEN, DeviceSlot};
use kiln_format::feature::Feature;
use kiln_format::inode::CompactTimes;
use kiln_format::superblock::{self, BASE_LEN, ComprInfo, EXTSLOT_LEN, SUPERBLOCK_OFF, Superblock};
use kiln_format::{Algorithm, Blkaddr, Compat, FormatError, Incompat, Nid};
use zerocopy::IntoBytes;

use crate::error::BuildError;
use crate::format::Format;
use crate::inodes::xattr::Prefixes;
use crate::layout::Layout;
use crate::layout::view::View;
use crate::out::{Behind, Out};
use crate::pack::Stored;
use kiln_tree::NodeId;

/// Alignment of the table of prefixes in bytes.
const PREFIX_ALIGN: u64 = 4;

/// The inodes that no name leads to.
#[derive(Clone, Copy)]
pub(crate) struct SpecialNids {
    /// The packed inode, if there is one.
    pub packed: Option<Nid>,
    /// The metabox, if there is one.
    pub metabox: Option<Nid>,
}

/// Records before the data, except the table of prefixes.
pub(crate) struct HeaderRecords {
    /// The superblock, without UUID and checksum.
    pub superblock: Superblock,
    /// Configuration records of compression.
    pub compression: ComprCfgs,
    /// The extra devices.
    pub slots: Vec<DeviceSlot>,
}

/// Places of all records before the data, with room for whatever the options may need.
pub(crate) struct Header {
    /// Length of the superblock's record.
    record_len: u64,
    /// Number of extra devices.
    pub devices: u16,
    /// Byte of the device table, if there is one.
    devt_off: Option<u64>,
    prefixes: Prefixes,
    /// Byte of the table of prefixes.
    prefixes_off: u64,
    /// Blocks before the first data block.
    pub blocks: u64,
}

/// Superblock and configuration records, as they lie in the image from byte 1024 on.
#[derive(Clone, Debug)]
pub struct Head {
    /// The superblock, with its UUID. If the image goes behind an older one, its checksum is still to be computed.
    pub superblock: Superblock,
    /// The configuration records behind it.
    pub records: Vec<u8>,
    /// The root inode, if it lies beside these and not behind the previous image.
    pub root: Option<RootInode>,
}

/// Root inode beside the superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootInode {
    /// Byte of the image at which it begins.
    pub place: u64,
    /// Its record and its attributes.
    pub bytes: Vec<u8>,
}

impl Head {
    /// Returns the bytes of superblock and configuration records.
    ///
    /// # Errors
    /// As [`Superblock::encode`].
    pub fn encode(&self) -> Result<Vec<u8>, FormatError> {
        Ok([self.superblock.encode()?, self.records.clone()].concat())
    }
}

impl Header {
    /// Returns the header of an image behind an older one, whose superblock it replaces later. Only the table of
    /// prefixes has a place of its own, in front of the data.
    ///
    /// # Errors
    /// Compression whose configuration records do not fit into the older image; features that such an image cannot
    /// have.
    pub(crate) fn behind(behind: Behind<'_>, devices: usize, format: &Format) -> Result<Self, BuildError> {
        if devices > 0 {
            return Err(BuildError::Behind { what: "extra devices" });
        }
        let record_len = record_len(format);
        let specs = || format.compression.spec.into_iter().chain(format.metadata.metabox);
        let own = compr_cfgs(specs(), format);
        let is_big = specs().any(|spec| format.pcluster_blocks(spec) > 1);
        let needs_records =
            is_big || format.compression.encoded_extents || own.algorithms() & !Algorithm::Lz4.bit() != 0;
        check_room(needs_records.then_some(&own), record_len, behind.records_max_len)?;
        let prefixes = Prefixes::new(&format.metadata)?;
        let blocks = format.block_bits.blocks_for(behind.start + prefixes.table().len() as u64);
        Ok(Self { record_len, devices: 0, devt_off: None, prefixes, prefixes_off: behind.start, blocks })
    }

    /// Returns the header of an image with a number of extra devices, and with the compression of reused data.
    ///
    /// # Errors
    /// Prefixes that cannot be used; more devices than the format counts; options outside the kernel's limits, which
    /// is a bug.
    pub(crate) fn new(devices: usize, reused: ComprCfgs, format: &Format) -> Result<Self, BuildError> {
        let too_many = |_| FormatError::does_not_fit("erofs_super_block", "extra_devices", devices as u64);
        let devices = u16::try_from(devices).map_err(too_many)?;
        let record_len = record_len(format);
        let records = with_reused(compr_cfgs(format.specs(), format), reused, u16::MAX).encode()?;
        let records_end = SUPERBLOCK_OFF + record_len + records.len() as u64;
        let slot_len = DEVICE_SLOT_LEN as u64;
        let devt_off = (devices > 0).then(|| records_end.next_multiple_of(slot_len));
        let prefixes = Prefixes::new(&format.metadata)?;
        let prefixes_off =
            devt_off.map_or(records_end, |off| off + u64::from(devices) * slot_len).next_multiple_of(PREFIX_ALIGN);
        let blocks = format.block_bits.blocks_for(prefixes_off + prefixes.table().len() as u64);
        Ok(Self { record_len, devices, devt_off, prefixes, prefixes_off, blocks })
    }

    /// Returns the superblock without UUID and checksum, and without the values that depend on start and end of the
    /// metadata.
    ///
    /// # Errors
    /// A root without a place, features that have no bit: both are bugs.
    pub(crate) fn superblock(
        &self,
        view: &View<'_>,
        layout: &Layout,
        special: SpecialNids,
        records: &ComprCfgs,
    ) -> Result<Superblock, BuildError> {
        let format = view.format;
        let (mut incompat, compr_info) = incompat(view, special, records)?;
        let mut compat = compat(view, special.metabox.is_some());
        let (xattr_prefix_count, digest_id) = (self.prefixes.count(), self.prefixes.digest_id());
        if digest_id.is_some() {
            compat |= Compat::ISHARE_XATTRS;
        }
        if xattr_prefix_count > 0 {
            incompat |= Incompat::XATTR_PREFIXES;
            // Without special inodes, every kernel looks for prefixes in the image itself.
            if format.metadata.plain_xattr_prefixes || special.packed.is_some() || special.metabox.is_some() {
                compat |= Compat::PLAIN_XATTR_PFX;
            }
        }
        let epoch = view.inodes.epoch;
        let build_time = format.identity.build_time.or(format.identity.source_date_epoch);
        let build_time = build_time.and_then(|secs| u32::try_from(secs.checked_sub(epoch.secs)?).ok());
        Ok(Superblock {
            block_bits: view.block_bits,
            checksum: 0,
            compat,
            incompat,
            root_nid: layout.nid(NodeId::ROOT)?,
            inos: 0,
            epoch: epoch.secs,
            fixed_nsec: epoch.nsec,
            blocks: 0,
            meta_blkaddr: Blkaddr(0),
            xattr_blkaddr: Blkaddr(0),
            uuid: [0; 16],
            volume_name: format.identity.label,
            compr_info,
            extra_devices: self.devices,
            devt_off: self.devt_off.unwrap_or(0),
            xattr_prefix_count,
            xattr_prefix_off: if xattr_prefix_count > 0 { self.prefixes_off } else { 0 },
            xattr_filter_reserved: 0,
            ishare_xattr_prefix_id: digest_id.unwrap_or(0),
            packed_nid: special.packed,
            build_time: build_time.unwrap_or(0),
            metabox_nid: special.metabox,
            record_len: self.record_len,
        })
    }

    /// Writes all records, and returns superblock and configuration records, with UUID and checksum. Behind an older
    /// image these two are only returned, not written.
    ///
    /// # Errors
    /// An output that cannot be written.
    pub(crate) fn write(
        &self,
        records: HeaderRecords,
        mut digest: blake3::Hasher,
        out: Out<'_>,
        format: &Format,
    ) -> Result<Head, BuildError> {
        let HeaderRecords { mut superblock, compression, slots } = records;
        let table = self.prefixes.table();
        let slots = slots.iter().map(DeviceSlot::encode).collect::<Result<Vec<_>, _>>()?;
        digest.update(&superblock.encode()?);
        digest.update(slots.as_bytes());
        digest.update(&table);
        superblock.uuid = format.identity.uuid.unwrap_or_else(|| content_uuid(&digest));
        let records = match superblock.compr_info {
            ComprInfo::AvailableAlgs(_) => compression.encode()?,
            ComprInfo::Lz4MaxDistance(_) => Vec::new(),
        };
        if let Some(behind) = out.behind {
            check_room((!records.is_empty()).then_some(&compression), self.record_len, behind.records_max_len)?;
            out.write(&table, self.prefixes_off)?;
            return Ok(Head { superblock, records, root: None });
        }
        let block_bits = superblock.block_bits;
        let mut bytes = vec![0; (self.blocks * block_bits.len()) as usize];
        let mut put = |off: u64, piece: &[u8]| bytes[off as usize..][..piece.len()].copy_from_slice(piece);
        put(SUPERBLOCK_OFF + self.record_len, &records);
        if let Some(off) = self.devt_off {
            put(off, slots.as_bytes());
        }
        put(self.prefixes_off, &table);
        put(SUPERBLOCK_OFF, &superblock.encode()?);
        if format.identity.checksum {
            let covered = &bytes[SUPERBLOCK_OFF as usize..][..superblock::checksum_len(block_bits)];
            superblock.checksum = superblock::checksum(covered);
            let record = superblock.encode()?;
            bytes[SUPERBLOCK_OFF as usize..][..record.len()].copy_from_slice(&record);
        }
        out.write(&bytes, 0)?;
        Ok(Head { superblock, records, root: None })
    }
}

/// Returns the length of the superblock's record.
fn record_len(format: &Format) -> u64 {
    BASE_LEN as u64 + if format.metadata.metabox.is_some() { EXTSLOT_LEN } else { 0 }
}

/// Refuses configuration records that, with all of the superblock's record that is behind its first 128 bytes, take
/// more than `max_len` bytes.
fn check_room(cfgs: Option<&ComprCfgs>, record_len: u64, max_len: u64) -> Result<(), BuildError> {
    let records = cfgs.map(ComprCfgs::encode).transpose()?.unwrap_or_default();
    let len = record_len - BASE_LEN as u64 + records.len() as u64;
    if len <= max_len { Ok(()) } else { Err(BuildError::RecordsRoom { len, max_len }) }
}

/// Returns configuration records of the algorithms of `specs`. Those that suit larger pclusters and windows suit
/// smaller ones, too.
fn compr_cfgs(specs: impl Iterator<Item = Spec>, format: &Format) -> ComprCfgs {
    let mut cfgs = ComprCfgs::default();
    for spec in specs {
        match spec.method.algorithm() {
            Algorithm::Lz4 => {
                let blocks = format.pcluster_blocks(spec) as u16;
                let before = cfgs.lz4.map_or(0, |cfg| cfg.max_pclusterblks);
                cfgs.lz4 = Some(Lz4Cfg { max_distance: u16::MAX, max_pclusterblks: blocks.max(before) });
            }
            Algorithm::Lzma => cfgs.lzma_dict_size = cfgs.lzma_dict_size.max(Some(spec.lzma_dict_size())),
            Algorithm::Deflate => {
                cfgs.deflate_windowbits = cfgs.deflate_windowbits.max(Some(spec.deflate_window_bits()));
            }
            Algorithm::Zstd => cfgs.zstd_windowlog = cfgs.zstd_windowlog.max(Some(spec.zstd_window_log())),
        }
    }
    cfgs
}

/// Returns all compression in use: a hint that fits no file does not require a kernel that knows its algorithm.
fn specs_in_use<'a>(view: &View<'a>, special: SpecialNids) -> impl Iterator<Item = Spec> + use<'a> {
    let plan = view.plan;
    let files = view.data.stored.iter().zip(&plan.files);
    let files =
        files.filter(|(stored, _)| matches!(stored, Stored::Compressed(_))).filter_map(|(_, file)| file.compression);
    let packed = plan.fragment_compression.filter(|_| special.packed.is_some());
    files.chain(packed).chain(view.format.metadata.metabox.filter(|_| special.metabox.is_some()))
}

/// Returns the configuration records of all compression in use.
pub(crate) fn records(view: &View<'_>, special: SpecialNids) -> ComprCfgs {
    let reused = &view.data.reused;
    with_reused(compr_cfgs(specs_in_use(view, special), view.format), reused.cfgs, reused.algorithms)
}

/// Merges into `cfgs` those records of `reused` whose algorithms are in `algorithms`, a set as in
/// `available_compr_algs`.
fn with_reused(cfgs: ComprCfgs, reused: ComprCfgs, algorithms: u16) -> ComprCfgs {
    let is_in_use = |algorithm: Algorithm| algorithms & algorithm.bit() != 0;
    let lz4 = match (cfgs.lz4, reused.lz4.filter(|_| is_in_use(Algorithm::Lz4))) {
        (Some(one), Some(other)) => Some(Lz4Cfg {
            max_distance: one.max_distance.max(other.max_distance),
            max_pclusterblks: one.max_pclusterblks.max(other.max_pclusterblks),
        }),
        (one, other) => one.or(other),
    };
    let lzma = reused.lzma_dict_size.filter(|_| is_in_use(Algorithm::Lzma));
    let deflate = reused.deflate_windowbits.filter(|_| is_in_use(Algorithm::Deflate));
    let zstd = reused.zstd_windowlog.filter(|_| is_in_use(Algorithm::Zstd));
    ComprCfgs {
        lz4,
        lzma_dict_size: cfgs.lzma_dict_size.max(lzma),
        deflate_windowbits: cfgs.deflate_windowbits.max(deflate),
        zstd_windowlog: cfgs.zstd_windowlog.max(zstd),
    }
}

fn compat(view: &View<'_>, has_metabox: bool) -> Compat {
    let mut compat = Compat::MTIME;
    if view.format.identity.checksum {
        compat |= Compat::SB_CHKSUM;
    }
    if view.inodes.has_xattrs() {
        compat |= Compat::XATTR_FILTER;
    }
    if has_metabox && !view.inodes.xattrs.shared_area().is_empty() {
        compat |= Compat::SHARED_EA_IN_METABOX;
    }
    compat
}

/// Returns the compression as the superblock describes it. LZ4 in pclusters of one block needs no records, and so no
/// more than Linux 5.4.
fn compr_info(view: &View<'_>, records: &ComprCfgs) -> ComprInfo {
    let has_records = view.big || view.encoded || records.algorithms() & !Algorithm::Lz4.bit() != 0;
    match records.lz4 {
        Some(Lz4Cfg { max_distance, .. }) if !has_records => ComprInfo::Lz4MaxDistance(max_distance),
        _ if records.algorithms() == 0 => ComprInfo::Lz4MaxDistance(0),
        _ => ComprInfo::AvailableAlgs(records.algorithms()),
    }
}

fn incompat(view: &View<'_>, special: SpecialNids, records: &ComprCfgs) -> Result<(Incompat, ComprInfo), BuildError> {
    let mut incompat = Incompat::empty();
    let compr_info = compr_info(view, records);
    let any_special = special.packed.is_some() || special.metabox.is_some();
    if records.algorithms() != 0 {
        incompat |= Incompat::LZ4_0PADDING;
    }
    if let ComprInfo::AvailableAlgs(_) = compr_info {
        incompat |= Incompat::COMPR_CFGS;
    }
    for feature in &view.data.features {
        incompat |= match feature {
            Feature::ChunkedFile => Incompat::CHUNKED_FILE,
            Feature::DeviceTable => Incompat::DEVICE_TABLE,
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
    if records || view.omits_dot || view.inodes.compact_times == CompactTimes::Own {
        incompat |= Incompat::ADDR_48BIT;
    }
    Ok((incompat, compr_info))
}

/// Returns a UUID of version 8 (custom) from the digest of everything but the UUID itself.
fn content_uuid(digest: &blake3::Hasher) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest.finalize().as_bytes()[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid().into_bytes()
}
