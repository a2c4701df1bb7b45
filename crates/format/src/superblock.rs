//! The superblock: the record at byte 1024.

use crate::compr_cfg::{Algorithm, ComprCfgs, Lz4Cfg};
use crate::feature::{Feature, KernelVersion, OLDEST_KERNEL};
use crate::{Blkaddr, BlockBits, Compat, FormatError, Incompat, Nid};
use zerocopy::byteorder::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Byte offset of the superblock, for any block size.
pub const SUPERBLOCK_OFF: u64 = 1024;
/// `EROFS_SUPER_MAGIC_V1`.
pub const MAGIC: u32 = 0xE0F5_E1E2;
/// Length in bytes of one extension slot after the record.
pub const EXTSLOT_LEN: u64 = 16;

const RECORD: &str = "erofs_super_block";

/// `struct erofs_super_block` with its first extension slot.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawSuperblock {
    /// [`MAGIC`].
    pub magic: U32,
    /// CRC-32C, see [`checksum`].
    pub checksum: U32,
    /// [`Compat`].
    pub feature_compat: U32,
    /// log2 of the block size.
    pub blkszbits: u8,
    /// Number of 16-byte slots after the 128 bytes.
    pub sb_extslots: u8,
    /// `rootnid_2b`, or `blocks_hi` if `rootnid_8b` is in use.
    pub rootnid_2b: U16,

    /// Number of inodes.
    pub inos: U64,
    /// Base of compact inodes' times, in seconds since 1970.
    pub epoch: I64,

    /// Nanoseconds of every compact inode's time.
    pub fixed_nsec: U32,
    /// Low half of the number of blocks.
    pub blocks_lo: U32,
    /// Block of nid 0.
    pub meta_blkaddr: U32,
    /// Block of shared xattr 0.
    pub xattr_blkaddr: U32,

    /// UUID.
    pub uuid: [u8; 16],

    /// Label.
    pub volume_name: [u8; 16],

    /// [`Incompat`].
    pub feature_incompat: U32,
    /// `available_compr_algs` with COMPR_CFGS, `lz4_max_distance` without.
    pub u1: U16,
    /// Number of device slots.
    pub extra_devices: U16,
    /// Device table position in units of 128 bytes.
    pub devt_slotoff: U16,
    /// Zero.
    pub dirblkbits: u8,
    /// Number of long xattr prefixes.
    pub xattr_prefix_count: u8,
    /// Prefix table position in units of 4 bytes.
    pub xattr_prefix_start: U32,

    /// Nid of the packed inode, 0 for none.
    pub packed_nid: U64,
    /// Non-zero disables name filters.
    pub xattr_filter_reserved: u8,
    /// Index of the prefix of the fingerprint xattr.
    pub ishare_xattr_prefix_id: u8,
    /// Zero.
    pub reserved: [u8; 2],
    /// Seconds from the epoch to the time of building.
    pub build_time: U32,

    /// Root nid with 48BIT, if not zero.
    pub rootnid_8b: U64,
    /// Zero.
    pub reserved2: U64,

    /// Extension slot 0: nid of the metabox inode.
    pub metabox_nid: U64,
    /// Zero.
    pub reserved3: U64,
}

/// Length of the record without extension slots, in bytes.
pub const BASE_LEN: usize = 128;

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<RawSuperblock>() == BASE_LEN + EXTSLOT_LEN as usize);
    assert!(offset_of!(RawSuperblock, magic) == 0);
    assert!(offset_of!(RawSuperblock, checksum) == 4);
    assert!(offset_of!(RawSuperblock, feature_compat) == 8);
    assert!(offset_of!(RawSuperblock, blkszbits) == 12);
    assert!(offset_of!(RawSuperblock, sb_extslots) == 13);
    assert!(offset_of!(RawSuperblock, rootnid_2b) == 14);
    assert!(offset_of!(RawSuperblock, inos) == 16);
    assert!(offset_of!(RawSuperblock, epoch) == 24);
    assert!(offset_of!(RawSuperblock, fixed_nsec) == 32);
    assert!(offset_of!(RawSuperblock, blocks_lo) == 36);
    assert!(offset_of!(RawSuperblock, meta_blkaddr) == 40);
    assert!(offset_of!(RawSuperblock, xattr_blkaddr) == 44);
    assert!(offset_of!(RawSuperblock, uuid) == 48);
    assert!(offset_of!(RawSuperblock, volume_name) == 64);
    assert!(offset_of!(RawSuperblock, feature_incompat) == 80);
    assert!(offset_of!(RawSuperblock, u1) == 84);
    assert!(offset_of!(RawSuperblock, extra_devices) == 86);
    assert!(offset_of!(RawSuperblock, devt_slotoff) == 88);
    assert!(offset_of!(RawSuperblock, dirblkbits) == 90);
    assert!(offset_of!(RawSuperblock, xattr_prefix_count) == 91);
    assert!(offset_of!(RawSuperblock, xattr_prefix_start) == 92);
    assert!(offset_of!(RawSuperblock, packed_nid) == 96);
    assert!(offset_of!(RawSuperblock, xattr_filter_reserved) == 104);
    assert!(offset_of!(RawSuperblock, ishare_xattr_prefix_id) == 105);
    assert!(offset_of!(RawSuperblock, reserved) == 106);
    assert!(offset_of!(RawSuperblock, build_time) == 108);
    assert!(offset_of!(RawSuperblock, rootnid_8b) == 112);
    assert!(offset_of!(RawSuperblock, reserved2) == 120);
    assert!(offset_of!(RawSuperblock, metabox_nid) == 128);
    assert!(offset_of!(RawSuperblock, reserved3) == 136);
};

/// Meaning of the 16 bits at byte 84.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComprInfo {
    /// Without COMPR_CFGS: LZ4's window in bytes, 0 for 65535. LZ4 is the only algorithm.
    Lz4MaxDistance(u16),
    /// With COMPR_CFGS: bit set of algorithms, each with a record after the superblock.
    AvailableAlgs(u16),
}

/// Checked form of the superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Block size.
    pub block_bits: BlockBits,
    /// CRC-32C as stored; meaningful with [`Compat::SB_CHKSUM`].
    pub checksum: u32,
    /// Compatible features.
    pub compat: Compat,
    /// Incompatible features.
    pub incompat: Incompat,
    /// Nid of the root directory.
    pub root_nid: Nid,
    /// Number of inodes; informative.
    pub inos: u64,
    /// Base of compact inodes' times, in seconds since 1970.
    pub epoch: i64,
    /// Nanoseconds of every compact inode's time.
    pub fixed_nsec: u32,
    /// Size of the primary device in blocks; informative.
    pub blocks: u64,
    /// Block of nid 0.
    pub meta_blkaddr: Blkaddr,
    /// Block of shared xattr 0.
    pub xattr_blkaddr: Blkaddr,
    /// UUID, all zero for none.
    pub uuid: [u8; 16],
    /// Label, zero-terminated.
    pub volume_name: [u8; 16],
    /// Compression.
    pub compr_info: ComprInfo,
    /// Number of device slots.
    pub extra_devices: u16,
    /// Byte offset of the device table.
    pub devt_off: u64,
    /// Number of long xattr prefixes.
    pub xattr_prefix_count: u8,
    /// Byte offset of the prefix table in the space that holds it: the image, the packed inode or
    /// the metabox.
    pub xattr_prefix_off: u64,
    /// Non-zero disables name filters.
    pub xattr_filter_reserved: u8,
    /// Index of the prefix of the fingerprint xattr; meaningful with [`Compat::ISHARE_XATTRS`].
    pub ishare_xattr_prefix_id: u8,
    /// Nid of the packed inode, which holds fragments.
    pub packed_nid: Option<Nid>,
    /// Seconds from the epoch to the time of building; informative.
    pub build_time: u32,
    /// Nid of the inode whose contents are the metabox.
    pub metabox_nid: Option<Nid>,
    /// Length of the record with its extension slots in bytes. The configuration records follow it.
    pub record_len: u64,
}

impl Superblock {
    /// Returns the byte of the image at which an inode begins; `None` if it lies in the metabox, or beyond 64 bits.
    pub fn inode_place(&self, nid: Nid) -> Option<u64> {
        let start = self.block_bits.byte_off(self.meta_blkaddr)?;
        nid.byte_off()?.checked_add(start).filter(|_| !nid.in_metabox())
    }

    /// Decodes the record in `bytes`, which begin at byte [`SUPERBLOCK_OFF`] of the image.
    ///
    /// # Errors
    /// A missing magic number, unknown incompatible features, or values outside the format. The
    /// checksum is not verified: it covers more than the record (see [`checksum`]).
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let corrupt = |field, value, reason| FormatError::corrupt(RECORD, SUPERBLOCK_OFF, field, value, reason);
        let unsupported = |field, value, reason| FormatError::unsupported(RECORD, SUPERBLOCK_OFF, field, value, reason);

        let mut whole = [0; size_of::<RawSuperblock>()];
        let have = bytes.len().min(whole.len());
        whole[..have].copy_from_slice(&bytes[..have]);
        let mut raw = RawSuperblock::read_from_bytes(&whole).expect("exact length");
        if raw.magic.get() != MAGIC {
            return Err(corrupt("magic", raw.magic.get().into(), "not an EROFS image"));
        }
        if have < BASE_LEN {
            return Err(corrupt("magic", raw.magic.get().into(), "the image ends inside its superblock"));
        }
        let block_bits = BlockBits::new(raw.blkszbits)
            .ok_or_else(|| unsupported("blkszbits", raw.blkszbits.into(), "block size must be 512 to 65536 bytes"))?;
        if raw.dirblkbits != 0 {
            return Err(unsupported("dirblkbits", raw.dirblkbits.into(), "must be 0"));
        }
        let incompat_bits = raw.feature_incompat.get();
        let incompat = Incompat::from_bits(incompat_bits)
            .ok_or_else(|| unsupported("feature_incompat", incompat_bits.into(), "unknown feature bits"))?;
        let record_len = BASE_LEN as u64 + EXTSLOT_LEN * u64::from(raw.sb_extslots);
        if raw.sb_extslots == 0 {
            raw.metabox_nid = U64::ZERO;
        }
        let metabox_nid = incompat.contains(Incompat::METABOX).then_some(Nid(raw.metabox_nid.get()));
        if let Some(nid) = metabox_nid
            && (raw.sb_extslots == 0 || nid.in_metabox())
        {
            return Err(corrupt("metabox_nid", nid.0, "must name an inode outside the metabox"));
        }
        let packed_nid =
            (incompat.contains(Incompat::FRAGMENTS) && raw.packed_nid.get() != 0).then_some(Nid(raw.packed_nid.get()));
        if let Some(nid) = packed_nid.filter(|nid| nid.in_metabox()) {
            return Err(corrupt("packed_nid", nid.0, "must name an inode outside the metabox"));
        }
        let wide = incompat.contains(Incompat::ADDR_48BIT) && raw.rootnid_8b.get() != 0;
        let (root_nid, blocks_hi) =
            if wide { (raw.rootnid_8b.get(), raw.rootnid_2b.get()) } else { (raw.rootnid_2b.get().into(), 0) };
        let compr_info = if incompat.contains(Incompat::COMPR_CFGS) {
            ComprInfo::AvailableAlgs(raw.u1.get())
        } else {
            ComprInfo::Lz4MaxDistance(raw.u1.get())
        };
        let has_devices = incompat.contains(Incompat::DEVICE_TABLE);
        Ok(Self {
            block_bits,
            checksum: raw.checksum.get(),
            compat: Compat::from_bits_retain(raw.feature_compat.get()),
            incompat,
            root_nid: Nid(root_nid),
            inos: raw.inos.get(),
            epoch: raw.epoch.get(),
            fixed_nsec: raw.fixed_nsec.get(),
            blocks: u64::from(raw.blocks_lo.get()) | u64::from(blocks_hi) << 32,
            meta_blkaddr: Blkaddr(raw.meta_blkaddr.get().into()),
            xattr_blkaddr: Blkaddr(raw.xattr_blkaddr.get().into()),
            uuid: raw.uuid,
            volume_name: raw.volume_name,
            compr_info,
            extra_devices: if has_devices { raw.extra_devices.get() } else { 0 },
            devt_off: u64::from(raw.devt_slotoff.get()) * 128,
            xattr_prefix_count: raw.xattr_prefix_count,
            xattr_prefix_off: u64::from(raw.xattr_prefix_start.get()) * 4,
            xattr_filter_reserved: raw.xattr_filter_reserved,
            ishare_xattr_prefix_id: raw.ishare_xattr_prefix_id,
            packed_nid,
            build_time: raw.build_time.get(),
            metabox_nid,
            record_len,
        })
    }

    /// Returns the record's bytes, without configuration records.
    ///
    /// # Errors
    /// A value that does not fit its field, for example a root nid over 65535 without 48BIT.
    pub fn encode(&self) -> Result<Vec<u8>, FormatError> {
        self.check_consistency()?;
        let small =
            |field, value: u64| u32::try_from(value).map_err(|_| FormatError::does_not_fit(RECORD, field, value));
        let wide = self.incompat.contains(Incompat::ADDR_48BIT) && (self.root_nid.0 > 0xFFFF || self.blocks >> 32 != 0);
        let (rootnid_2b, rootnid_8b, blocks_lo) = if wide {
            if self.root_nid.0 == 0 {
                // A zero there means that the wide fields are not in use.
                return Err(FormatError::does_not_fit(RECORD, "rootnid_8b", 0));
            }
            let hi = u16::try_from(self.blocks >> 32)
                .map_err(|_| FormatError::does_not_fit(RECORD, "blocks_hi", self.blocks))?;
            (hi, self.root_nid.0, self.blocks as u32)
        } else {
            let nid = u16::try_from(self.root_nid.0)
                .map_err(|_| FormatError::does_not_fit(RECORD, "rootnid_2b", self.root_nid.0))?;
            (nid, 0, small("blocks_lo", self.blocks)?)
        };
        let unit = |field, off: u64, unit: u64| match off.is_multiple_of(unit) {
            true => small(field, off / unit),
            false => Err(FormatError::does_not_fit(RECORD, field, off)),
        };
        let devt_slotoff = u16::try_from(unit("devt_slotoff", self.devt_off, 128)?)
            .map_err(|_| FormatError::does_not_fit(RECORD, "devt_slotoff", self.devt_off))?;
        let extslots = self
            .record_len
            .checked_sub(BASE_LEN as u64)
            .filter(|len| len.is_multiple_of(EXTSLOT_LEN))
            .and_then(|len| u8::try_from(len / EXTSLOT_LEN).ok())
            .ok_or_else(|| FormatError::does_not_fit(RECORD, "sb_extslots", self.record_len))?;
        let raw = RawSuperblock {
            magic: MAGIC.into(),
            checksum: self.checksum.into(),
            feature_compat: self.compat.bits().into(),
            blkszbits: self.block_bits.bits(),
            sb_extslots: extslots,
            rootnid_2b: rootnid_2b.into(),
            inos: self.inos.into(),
            epoch: self.epoch.into(),
            fixed_nsec: self.fixed_nsec.into(),
            blocks_lo: blocks_lo.into(),
            meta_blkaddr: small("meta_blkaddr", self.meta_blkaddr.0)?.into(),
            xattr_blkaddr: small("xattr_blkaddr", self.xattr_blkaddr.0)?.into(),
            uuid: self.uuid,
            volume_name: self.volume_name,
            feature_incompat: self.incompat.bits().into(),
            u1: match self.compr_info {
                ComprInfo::Lz4MaxDistance(bytes) => bytes.into(),
                ComprInfo::AvailableAlgs(bits) => bits.into(),
            },
            extra_devices: self.extra_devices.into(),
            devt_slotoff: devt_slotoff.into(),
            dirblkbits: 0,
            xattr_prefix_count: self.xattr_prefix_count,
            xattr_prefix_start: unit("xattr_prefix_start", self.xattr_prefix_off, 4)?.into(),
            packed_nid: self.packed_nid.map_or(0, |nid| nid.0).into(),
            xattr_filter_reserved: self.xattr_filter_reserved,
            ishare_xattr_prefix_id: self.ishare_xattr_prefix_id,
            reserved: [0; 2],
            build_time: self.build_time.into(),
            rootnid_8b: rootnid_8b.into(),
            reserved2: U64::ZERO,
            metabox_nid: self.metabox_nid.map_or(0, |nid| nid.0).into(),
            reserved3: U64::ZERO,
        };
        let mut bytes = raw.as_bytes()[..BASE_LEN + usize::from(extslots.min(1)) * EXTSLOT_LEN as usize].to_vec();
        bytes.resize(self.record_len as usize, 0);
        Ok(bytes)
    }

    /// Rejects fields that contradict the feature bits: decoding would not return them.
    fn check_consistency(&self) -> Result<(), FormatError> {
        let has = |bit| self.incompat.contains(bit);
        let refuse = |field, value| Err(FormatError::does_not_fit(RECORD, field, value));
        let special = [
            ("packed_nid", self.packed_nid, has(Incompat::FRAGMENTS)),
            ("metabox_nid", self.metabox_nid, has(Incompat::METABOX)),
        ];
        for (field, nid, announced) in special {
            if let Some(nid) = nid
                && (!announced || nid.in_metabox())
            {
                return refuse(field, nid.0);
            }
        }
        if self.packed_nid == Some(Nid(0)) {
            return refuse("packed_nid", 0);
        }
        if has(Incompat::METABOX) && (self.metabox_nid.is_none() || self.record_len == BASE_LEN as u64) {
            return refuse("sb_extslots", self.record_len);
        }
        if let ComprInfo::AvailableAlgs(bits) = self.compr_info
            && !has(Incompat::COMPR_CFGS)
        {
            return refuse("available_compr_algs", bits.into());
        }
        if let ComprInfo::Lz4MaxDistance(bytes) = self.compr_info
            && has(Incompat::COMPR_CFGS)
        {
            return refuse("lz4_max_distance", bytes.into());
        }
        if self.extra_devices != 0 && !has(Incompat::DEVICE_TABLE) {
            return refuse("extra_devices", self.extra_devices.into());
        }
        Ok(())
    }

    /// Decodes the configuration of the algorithms from `behind`, the bytes after the superblock's
    /// record.
    ///
    /// # Errors
    /// Same as [`ComprCfgs::decode`].
    pub fn compr_cfgs(&self, behind: &[u8]) -> Result<ComprCfgs, FormatError> {
        match self.compr_info {
            ComprInfo::AvailableAlgs(bits) => ComprCfgs::decode(bits, behind, SUPERBLOCK_OFF + self.record_len),
            // Images without records use LZ4 or no compression. If both fields are zero, it is the
            // latter.
            ComprInfo::Lz4MaxDistance(0) if !self.incompat.contains(Incompat::LZ4_0PADDING) => Ok(ComprCfgs::default()),
            ComprInfo::Lz4MaxDistance(bytes) => {
                let max_distance = if bytes == 0 { u16::MAX } else { bytes };
                Ok(ComprCfgs { lz4: Some(Lz4Cfg { max_distance, max_pclusterblks: 1 }), ..Default::default() })
            }
        }
    }

    /// Returns the features that the superblock announces, oldest kernel first.
    pub fn features(&self) -> Vec<Feature> {
        let has = |bit| self.incompat.contains(bit);
        let alg = |a: Algorithm| matches!(self.compr_info, ComprInfo::AvailableAlgs(bits) if bits & a.bit() != 0);
        let compressed = has(Incompat::LZ4_0PADDING) || self.compr_info != ComprInfo::Lz4MaxDistance(0);
        let sub_page = self.block_bits < BlockBits::DEFAULT;
        Feature::ALL
            .into_iter()
            .filter(|feature| match feature {
                Feature::Lz4 => alg(Algorithm::Lz4) || (compressed && !has(Incompat::COMPR_CFGS)),
                Feature::BigPcluster => has(Incompat::COMPR_CFGS),
                Feature::ChunkedFile => has(Incompat::CHUNKED_FILE),
                Feature::DeviceTable => has(Incompat::DEVICE_TABLE),
                Feature::Lzma => alg(Algorithm::Lzma),
                Feature::TailPacking => has(Incompat::ZTAILPACKING),
                Feature::Fragments => has(Incompat::FRAGMENTS),
                Feature::XattrPrefixes => has(Incompat::XATTR_PREFIXES),
                Feature::SubPageBlocks => sub_page,
                Feature::Deflate => alg(Algorithm::Deflate),
                Feature::SubPageCompressed => sub_page && compressed,
                Feature::Zstd => alg(Algorithm::Zstd),
                Feature::Addr48Bit => has(Incompat::ADDR_48BIT),
                Feature::Metabox => has(Incompat::METABOX),
                Feature::PlainXattrPrefixes => {
                    let plain = self.compat.contains(Compat::PLAIN_XATTR_PFX);
                    plain && self.xattr_prefix_count > 0 && self.packed_nid.is_some()
                }
            })
            .collect()
    }

    /// Returns the oldest kernel that mounts the image, as far as the superblock tells. The kernel
    /// must also have been built with the algorithm, and blocks must not be larger than its pages.
    pub fn oldest_kernel(&self) -> KernelVersion {
        self.features().into_iter().map(Feature::since).max().unwrap_or(OLDEST_KERNEL)
    }
}

/// Sets the number of blocks in the superblock at the beginning of `head`. Everything else stays as
/// it is, including the checksum.
///
/// # Errors
/// A head that is too short; a number that this form of superblock cannot hold.
pub fn set_blocks(head: &mut [u8], blocks: u64) -> Result<(), FormatError> {
    let does_not_fit = || FormatError::does_not_fit(RECORD, "blocks_lo", blocks);
    let record = head.get_mut(..BASE_LEN).ok_or_else(does_not_fit)?;
    let mut bytes = [0; size_of::<RawSuperblock>()];
    bytes[..BASE_LEN].copy_from_slice(record);
    let mut raw = RawSuperblock::read_from_bytes(&bytes).expect("exact length");
    let has_hi = raw.feature_incompat.get() & Incompat::ADDR_48BIT.bits() != 0 && raw.rootnid_8b.get() != 0;
    let hi = u16::try_from(blocks >> 32).ok().filter(|hi| has_hi || *hi == 0).ok_or_else(does_not_fit)?;
    raw.blocks_lo = (blocks as u32).into();
    if has_hi {
        raw.rootnid_2b = hi.into();
    }
    record.copy_from_slice(&raw.as_bytes()[..BASE_LEN]);
    Ok(())
}

/// Returns the number of bytes, from [`SUPERBLOCK_OFF`] on, that the checksum covers.
pub fn checksum_len(block_bits: BlockBits) -> usize {
    let len = block_bits.len();
    (if len > SUPERBLOCK_OFF { len - SUPERBLOCK_OFF } else { len }) as usize
}

/// Returns the CRC-32C, without final inversion, of `covered`: the [`checksum_len`] bytes from the
/// superblock's start, with the checksum field taken as zero.
pub fn checksum(covered: &[u8]) -> u32 {
    let crc = crc32c::crc32c(&covered[..4]);
    let crc = crc32c::crc32c_append(crc, &[0; 4]);
    !crc32c::crc32c_append(crc, &covered[8..])
}
