//! Laws of the records, over the whole range of their integers:
//!
//! * what `encode` takes, `decode` gives back; so `encode` never masks, it refuses;
//! * what fits is taken;
//! * `encode(decode(golden)) == golden`;
//! * `decode` of any bytes returns.

use kiln_format::addr::{SLOT_LEN, align_up};
use kiln_format::chunk::{Chunk, ChunkEntry, ChunkFormat, encode_block_map};
use kiln_format::compr_cfg::{ComprCfgs, Lz4Cfg};
use kiln_format::device::{DEVICE_SLOT_LEN, DeviceSlot, RawDeviceSlot};
use kiln_format::dirent::{DirBlock, Dirent, encode_block, entry_len};
use kiln_format::inode::{DataLayout, Epoch, FileType, Form, Inode, Rdev};
use kiln_format::superblock::{BASE_LEN, ComprInfo, MAGIC, SUPERBLOCK_OFF, Superblock, checksum, checksum_len};
use kiln_format::xattr;
use kiln_format::zmap::{
    Advise, CBLKCNT_MAX, CompactLayout, DELTA_MAX, ExtentRecord, HeadKind, Lcluster, MapHeader, Pack, PlenWord,
    RecordSize, ZmapHeader,
};
use kiln_format::{Algorithm, Blkaddr, BlockBits, Compat, Incompat, KernelVersion, Nid};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use std::path::Path;
use zerocopy::FromBytes;

fn config() -> ProptestConfig {
    ProptestConfig { cases: 2048, rng_seed: RngSeed::Fixed(0xE0F5), failure_persistence: None, ..Default::default() }
}

// ---- generators: every value of the type, the edges of narrower fields as likely as the rest

fn any_u16() -> impl Strategy<Value = u16> {
    any_u64().prop_map(|x| x as u16)
}

fn any_u32() -> impl Strategy<Value = u32> {
    any_u64().prop_map(|x| x as u32)
}

/// Uniform in the number of bits, and next to each power of two.
fn any_u64() -> impl Strategy<Value = u64> {
    prop_oneof![
        (any::<u64>(), 0..64u32).prop_map(|(x, shift)| x >> shift),
        (0..64u32, -1..=1i64).prop_map(|(bit, off)| (1u64 << bit).wrapping_add_signed(off)),
    ]
}

fn block_bits() -> impl Strategy<Value = BlockBits> {
    (9..=16u8).prop_map(|bits| BlockBits::new(bits).unwrap())
}

fn superblock() -> impl Strategy<Value = Superblock> {
    let features = (any::<u32>(), 0..=0x1FFu32, block_bits(), any_u32(), any::<bool>(), any_u16());
    let numbers = (any_u64(), any_u64(), any_u64(), any_u32(), any_u64(), any_u64(), any_u64());
    let tables = (any_u16(), any_u64(), any::<u8>(), any_u64(), any_u64(), any_u64(), any_u64());
    let rest = (any::<[u8; 16]>(), any::<[u8; 16]>(), any::<u8>(), any::<u8>(), any_u32(), any::<[bool; 3]>());
    (features, numbers, tables, rest).prop_map(|(features, numbers, tables, rest)| {
        let (compat, incompat, block_bits, checksum, has_cfgs, u1) = features;
        let (root_nid, inos, epoch, fixed_nsec, blocks, meta_blkaddr, xattr_blkaddr) = numbers;
        let (extra_devices, devt, xattr_prefix_count, prefix, packed_nid, metabox_nid, record) = tables;
        let (uuid, volume_name, xattr_filter_reserved, ishare_xattr_prefix_id, build_time, aligned) = rest;
        // Half of the offsets are multiples of their unit, or nearly none would be.
        let unit = |off: u64, unit: u64, aligned| if aligned { off / unit * unit } else { off };
        Superblock {
            block_bits,
            checksum,
            compat: Compat::from_bits_retain(compat),
            incompat: Incompat::from_bits(incompat).unwrap(),
            root_nid: Nid(root_nid),
            inos,
            epoch: epoch as i64,
            fixed_nsec,
            blocks,
            meta_blkaddr: Blkaddr(meta_blkaddr),
            xattr_blkaddr: Blkaddr(xattr_blkaddr),
            uuid,
            volume_name,
            compr_info: if has_cfgs { ComprInfo::AvailableAlgs(u1) } else { ComprInfo::Lz4MaxDistance(u1) },
            extra_devices,
            devt_off: unit(devt, 128, aligned[0]),
            xattr_prefix_count,
            xattr_prefix_off: unit(prefix, 4, aligned[1]),
            xattr_filter_reserved,
            ishare_xattr_prefix_id,
            packed_nid: (packed_nid % 3 != 0).then_some(Nid(packed_nid)),
            build_time,
            metabox_nid: (metabox_nid % 3 != 0).then_some(Nid(metabox_nid)),
            record_len: if aligned[2] { BASE_LEN as u64 + record % 20 * 16 } else { record },
        }
    })
}

/// The same with every value inside its field, and the parts in agreement: must encode.
fn fitting_superblock() -> impl Strategy<Value = Superblock> {
    superblock().prop_map(|mut sb| {
        let (has, nid) = (sb.incompat, |nid: Nid| Nid(nid.0.max(1) & (u64::MAX >> 1)));
        let u1 = match sb.compr_info {
            ComprInfo::Lz4MaxDistance(u1) | ComprInfo::AvailableAlgs(u1) => u1,
        };
        let cfgs = has.contains(Incompat::COMPR_CFGS);
        sb.compr_info = if cfgs { ComprInfo::AvailableAlgs(u1) } else { ComprInfo::Lz4MaxDistance(u1) };
        if has.contains(Incompat::ADDR_48BIT) {
            sb.root_nid = Nid(sb.root_nid.0.max(1));
            sb.blocks &= 0xFFFF_FFFF_FFFF;
        } else {
            sb.root_nid.0 &= 0xFFFF;
            sb.blocks &= 0xFFFF_FFFF;
        }
        sb.meta_blkaddr.0 &= 0xFFFF_FFFF;
        sb.xattr_blkaddr.0 &= 0xFFFF_FFFF;
        sb.extra_devices = if has.contains(Incompat::DEVICE_TABLE) { sb.extra_devices } else { 0 };
        sb.devt_off = sb.devt_off / 128 % 0x1_0000 * 128;
        sb.xattr_prefix_off = sb.xattr_prefix_off / 4 % (1 << 32) * 4;
        sb.packed_nid = sb.packed_nid.filter(|_| has.contains(Incompat::FRAGMENTS)).map(nid);
        sb.metabox_nid = has.contains(Incompat::METABOX).then(|| nid(sb.metabox_nid.unwrap_or(Nid(0))));
        let slots = sb.record_len % 256;
        sb.record_len = BASE_LEN as u64 + 16 * slots.max(sb.metabox_nid.is_some().into());
        sb
    })
}

fn file_type() -> impl Strategy<Value = FileType> {
    use FileType::*;
    prop::sample::select(vec![Regular, Directory, CharDevice, BlockDevice, Fifo, Socket, Symlink])
}

fn layout() -> impl Strategy<Value = DataLayout> {
    use DataLayout::*;
    prop::sample::select(vec![FlatPlain, CompressedFull, FlatInline, CompressedCompact, ChunkBased])
}

fn inode(form: impl Strategy<Value = Form>) -> impl Strategy<Value = Inode> {
    let kind = (form, layout(), any::<bool>(), file_type(), any_u16(), any_u16(), any_u16());
    let numbers = (any_u64(), any_u32(), any_u32(), any_u32(), any_u32(), any_u64(), any_u32(), any_u32());
    (kind, numbers).prop_map(|(kind, numbers)| {
        let (form, layout, bit4, file_type, permissions, xattr_icount, startblk_hi) = kind;
        let (size, i_u, ino, uid, gid, mtime, mtime_nsec, nlink) = numbers;
        let mtime = mtime as i64;
        Inode {
            form, layout, bit4, xattr_icount, file_type, permissions, size, i_u, startblk_hi, ino, uid, gid, mtime,
            mtime_nsec, nlink,
        }
    })
}

fn any_inode() -> impl Strategy<Value = Inode> {
    inode(prop_oneof![Just(Form::Compact), Just(Form::Extended)])
}

/// The same with every value inside its field: must encode.
fn fitting_inode() -> impl Strategy<Value = Inode> {
    any_inode().prop_map(|mut inode| {
        inode.permissions &= 0o7777;
        inode.mtime_nsec %= 1_000_000_000;
        inode.size &= u64::MAX >> 1;
        if inode.form == Form::Compact {
            inode.size &= 0xFFFF_FFFF;
            (inode.uid, inode.gid) = (inode.uid & 0xFFFF, inode.gid & 0xFFFF);
            if inode.bit4 && inode.file_type != FileType::Directory {
                inode.nlink = 1;
            } else {
                (inode.nlink, inode.startblk_hi) = (inode.nlink & 0xFFFF, 0);
            }
        }
        inode
    })
}

fn epoch_of(inode: &Inode) -> Epoch {
    Epoch { secs: inode.mtime, nsec: inode.mtime_nsec }
}

fn head_kind() -> impl Strategy<Value = HeadKind> {
    prop::sample::select(vec![HeadKind::Plain, HeadKind::Head1, HeadKind::Head2])
}

// ---- addresses

proptest! {
    #![proptest_config(config())]

    #[test]
    fn addresses_come_apart_and_together(block_bits in block_bits(), off in any_u64(), nid in any_u64()) {
        prop_assert_eq!(block_bits.floor(off) + block_bits.within(off), off);
        prop_assert!(block_bits.within(off) < block_bits.len());
        prop_assert_eq!(u128::from(block_bits.blocks_for(off)), u128::from(off).div_ceil(block_bits.len().into()));
        let byte_off = u128::from(off) * u128::from(block_bits.len());
        prop_assert_eq!(block_bits.byte_off(Blkaddr(off)), u64::try_from(byte_off).ok());
        let aligned = u128::from(off).next_multiple_of(block_bits.len().into());
        prop_assert_eq!(align_up(off, block_bits.len()), u64::try_from(aligned).ok());
        let low48 = Blkaddr(off & 0xFFFF_FFFF_FFFF);
        prop_assert_eq!(u64::from(low48.lo()) | u64::from(low48.hi()) << 32, low48.0);
        let slot = u128::from(nid & (u64::MAX >> 1)) * u128::from(SLOT_LEN);
        prop_assert_eq!(Nid(nid).byte_off(), u64::try_from(slot).ok());
    }

    #[test]
    fn device_numbers(major in any_u32(), minor in any_u32(), i_u in any_u32()) {
        let rdev = Rdev { major, minor };
        let fits = major < 1 << 12 && minor < 1 << 20;
        prop_assert_eq!(rdev.encode().ok().map(Rdev::decode), fits.then_some(rdev));
        prop_assert_eq!(Rdev::decode(i_u).encode(), Ok(i_u));
    }

    #[test]
    fn kernel_versions(major in any_u16(), minor in any_u16(), text in "[0-9.\\-é]{0,9}|\\PC*") {
        let version = KernelVersion::new(major, minor);
        prop_assert_eq!(version.to_string().parse(), Ok(version));
        let _ = text.parse::<KernelVersion>();
    }
}

// ---- superblock and configuration records

proptest! {
    #![proptest_config(config())]

    #[test]
    fn superblocks_encode_faithfully_or_not(sb in superblock()) {
        if let Ok(bytes) = sb.encode() {
            prop_assert_eq!(Superblock::decode(&bytes), Ok(sb));
        }
    }

    #[test]
    fn fitting_superblocks_encode(sb in fitting_superblock()) {
        let bytes = sb.encode();
        prop_assert!(bytes.is_ok(), "{bytes:?}");
        let bytes = bytes.unwrap();
        prop_assert_eq!(bytes.len() as u64, sb.record_len);
        prop_assert_eq!(Superblock::decode(&bytes), Ok(sb));
    }

    #[test]
    fn any_superblock_bytes_decode(mut bytes in vec(any::<u8>(), 0..200), magic in any::<bool>(), flags in 0..0x200u32) {
        if magic && bytes.len() >= 84 {
            bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
            bytes[12] = 9 + bytes[12] % 8;
            bytes[80..84].copy_from_slice(&flags.to_le_bytes());
        }
        if let Ok(sb) = Superblock::decode(&bytes) {
            let _ = (sb.compr_cfgs(&bytes), sb.features(), sb.oldest_kernel(), sb.encode());
        }
    }

    #[test]
    fn configurations_come_back(
        lz4 in prop::option::of((1..=u16::MAX, 1..=2048u16)),
        lzma_dict_size in prop::option::of(4096..=8u32 << 20),
        deflate_windowbits in prop::option::of(0..=15u8),
        zstd_windowlog in prop::option::of(10..=20u8),
    ) {
        let lz4 = lz4.map(|(max_distance, max_pclusterblks)| Lz4Cfg { max_distance, max_pclusterblks });
        let cfgs = ComprCfgs { lz4, lzma_dict_size, deflate_windowbits, zstd_windowlog };
        prop_assert_eq!(ComprCfgs::decode(cfgs.algorithms(), &cfgs.encode(), 1152), Ok(cfgs));
    }

    #[test]
    fn any_configuration_bytes_decode(available in any_u16(), bytes in vec(any::<u8>(), 0..100), lens in any::<bool>()) {
        let mut bytes = bytes;
        if lens && bytes.len() >= 2 {
            bytes[..2].copy_from_slice(&14u16.to_le_bytes());
        }
        let _ = ComprCfgs::decode(available, &bytes, 1152);
        let _ = ComprCfgs::decode(available & 0xF, &bytes, u64::MAX / 2);
    }
}

// ---- inodes

proptest! {
    #![proptest_config(config())]

    #[test]
    fn inodes_encode_faithfully_or_not(inode in any_inode(), other in any::<bool>(), secs in any::<i64>()) {
        let epoch = if other { Epoch { secs, nsec: inode.mtime_nsec } } else { epoch_of(&inode) };
        if let Ok(bytes) = inode.encode(epoch) {
            prop_assert_eq!(bytes.len(), inode.form.len());
            prop_assert_eq!(Inode::decode(&bytes, 0, epoch), Ok(inode));
        }
    }

    #[test]
    fn fitting_inodes_encode(inode in fitting_inode()) {
        let bytes = inode.encode(epoch_of(&inode));
        prop_assert!(bytes.is_ok(), "{bytes:?}");
        prop_assert_eq!(Inode::decode(&bytes.unwrap(), 0, epoch_of(&inode)), Ok(inode));
    }

    #[test]
    fn any_inode_bytes_decode(mut bytes in vec(any::<u8>(), 0..70), at in any_u64(), secs in any::<i64>(), nsec in any::<u32>(), plausible in any::<bool>()) {
        if plausible && bytes.len() > 6 {
            bytes[0] &= 0x1F;
            bytes[1] = 0;
            bytes[5] = [0x80, 0x40, 0x20, 0x60, 0x10, 0xC0, 0xA0][usize::from(bytes[5] % 7)];
        }
        if let Ok(inode) = Inode::decode(&bytes, at, Epoch { secs, nsec }) {
            let _ = (inode.body_off(), inode.start_block(), inode.rdev(), inode.mode());
            if inode.form == Form::Extended {
                prop_assert_eq!(inode.encode(Epoch::default()).unwrap()[..48].to_vec(), bytes[..48].to_vec());
            }
        }
    }
}

// ---- directories, xattrs, chunks, devices

proptest! {
    #![proptest_config(config())]

    #[test]
    fn directory_blocks_come_back(
        entries in vec((any_u64(), any::<u8>(), vec(any::<u8>(), 0..300)), 1..20),
        clean in any::<bool>(),
        room in 0..40usize,
    ) {
        let entries: Vec<(u64, u8, Vec<u8>)> = entries
            .into_iter()
            .map(|(nid, kind, name)| match clean {
                true => (nid, kind, name.iter().map(|&b| if b == 0 || b == b'/' { b'x' } else { b }).collect()),
                false => (nid, kind, name),
            })
            .collect();
        let dirents: Vec<Dirent> =
            entries.iter().map(|(nid, file_type, name)| Dirent { nid: Nid(*nid), file_type: *file_type, name }).collect();
        let used: usize = dirents.iter().map(|d| entry_len(d.name.len())).sum();
        let fits = dirents.iter().all(|d| matches!(d.name.len(), 1..=255)) && used < 0x1_0000;
        let mut block = vec![0; used + room];
        let done = encode_block(&dirents, &mut block);
        prop_assert!(done.is_ok() || !(fits && clean), "{done:?}");
        if done.is_ok() {
            let read: Result<Vec<Dirent>, _> = DirBlock::new(&block, 0).unwrap().entries().collect();
            prop_assert_eq!(read, Ok(dirents));
        }
    }

    #[test]
    fn any_directory_bytes_decode(mut bytes in vec(any::<u8>(), 0..600), at in 0..u64::MAX / 2, count in 1..40u16) {
        for plausible in [false, true] {
            if plausible && bytes.len() >= 10 {
                bytes[8..10].copy_from_slice(&(12 * count).to_le_bytes());
            }
            if let Ok(block) = DirBlock::new(&bytes, at) {
                prop_assert_eq!(block.entries().count(), block.len());
            }
        }
    }

    #[test]
    fn xattr_names_come_apart_and_together(name in "(user\\.|trusted\\.|security\\.|system\\.posix_acl_(access|default))?[a-z.]{0,9}") {
        if let Some((index, rest)) = xattr::split_name(name.as_bytes()) {
            prop_assert_eq!([xattr::prefix(index).unwrap(), rest].concat(), name.as_bytes());
            prop_assert!(xattr::filter_bit(index, rest).is_power_of_two());
        }
    }

    #[test]
    fn xattr_entries_are_their_parts(index in any::<u8>(), name in vec(any::<u8>(), 0..300), len in prop_oneof![0..99usize, 65500..65600usize]) {
        let value: Vec<u8> = (0..len).map(|i| i as u8).collect();
        let mut out = vec![0xEE; 4];
        let fits = name.len() <= 255 && len <= xattr::VALUE_MAX_LEN;
        prop_assert_eq!(xattr::encode_entry(index, &name, &value, &mut out).is_ok(), fits);
        if fits {
            let (raw, rest) = xattr::RawXattrEntry::read_from_prefix(&out[4..]).unwrap();
            prop_assert_eq!((raw.e_name_index, usize::from(raw.e_name_len), usize::from(raw.e_value_size.get())), (index, name.len(), len));
            prop_assert_eq!(&rest[..name.len()], &name);
            prop_assert_eq!(&rest[name.len()..][..len], &value);
            prop_assert_eq!(out.len() - 4, xattr::entry_len(name.len(), len));
        }
    }

    #[test]
    fn xattr_body_lengths_come_back(words in 0..70_000usize, mut inode in fitting_inode()) {
        let len = xattr::BODY_HEADER_LEN + 4 * words;
        let icount = xattr::icount(len);
        prop_assert_eq!(icount.is_ok(), len <= xattr::BODY_MAX_LEN);
        if let Ok(icount) = icount {
            inode.xattr_icount = icount;
            prop_assert_eq!(inode.xattr_len(), len as u64);
        }
    }

    #[test]
    fn chunk_formats_come_back(chunk_bits in any::<u8>(), block_bits in block_bits(), kind in 0..3usize, i_u in any_u32()) {
        let entry = [ChunkEntry::BlockMap, ChunkEntry::Index, ChunkEntry::WideIndex][kind];
        let format = ChunkFormat { chunk_bits, entry };
        let fits = (block_bits.bits()..=block_bits.bits() + 31).contains(&chunk_bits);
        let back = format.encode(block_bits).map(|i_u| ChunkFormat::decode(i_u, block_bits, 0).unwrap());
        prop_assert_eq!(back.ok(), fits.then_some(format));
        if let Ok(format) = ChunkFormat::decode(i_u, block_bits, 0) {
            let _ = format.count(u64::MAX);
            prop_assert!(format.encode(block_bits).is_ok());
        }
    }

    #[test]
    fn chunks_are_what_their_bytes_say(start in any_u64(), hole in any::<bool>(), bytes in any::<[u8; 8]>()) {
        let format = |entry| ChunkFormat { chunk_bits: 12, entry };
        let start = (!hole).then_some(Blkaddr(start));
        let chunk = start.map_or(Chunk::Hole, |start| Chunk::At { device: 0, start });
        let fits = start.is_none_or(|start| start < Blkaddr::HOLE32);
        let back = encode_block_map(start).map(|bytes| format(ChunkEntry::BlockMap).decode_entry(&bytes));
        prop_assert_eq!(back.ok(), fits.then_some(chunk));

        let [hi0, hi1, dev0, dev1, lo @ ..] = bytes;
        let device = u16::from_le_bytes([dev0, dev1]);
        let lo = u64::from(u32::from_le_bytes(lo));
        let wide = lo | u64::from(u16::from_le_bytes([hi0, hi1])) << 32;
        let at = |start, hole| if start == hole { Chunk::Hole } else { Chunk::At { device, start } };
        prop_assert_eq!(format(ChunkEntry::Index).decode_entry(&bytes), at(Blkaddr(lo), Blkaddr::HOLE32));
        prop_assert_eq!(format(ChunkEntry::WideIndex).decode_entry(&bytes), at(Blkaddr(wide), Blkaddr::HOLE48));
    }

    #[test]
    fn any_device_slot_decodes(bytes in vec(any::<u8>(), DEVICE_SLOT_LEN), flags in 0..0x200u32) {
        let raw = RawDeviceSlot::read_from_bytes(&bytes).unwrap();
        let slot = DeviceSlot::decode(&raw, Incompat::from_bits(flags).unwrap());
        prop_assert_eq!(slot.blocks as u32, raw.blocks_lo.get());
        let hi = if flags & 0x80 == 0 { 0 } else { raw.blocks_hi.get() };
        prop_assert_eq!(slot.blocks >> 32, u64::from(hi));
    }
}

// ---- maps

fn map_header() -> impl Strategy<Value = (BlockBits, MapHeader)> {
    (block_bits(), any_u16(), any::<[u8; 2]>(), any::<u8>(), any_u32(), any_u16(), any_u64()).prop_map(
        |(block_bits, advise, algorithms, lcluster_bits, fragment_off, idata_len, extent_count)| {
            let advise = Advise::from_bits_retain(advise);
            (block_bits, MapHeader { advise, algorithms, lcluster_bits, fragment_off, idata_len, extent_count })
        },
    )
}

/// A header as `decode` gives it: the two readings of the first word agree.
fn fitting_map_header() -> impl Strategy<Value = (BlockBits, MapHeader)> {
    (map_header(), 0..16u8).prop_map(|((block_bits, mut map), shift)| {
        if map.advise.contains(Advise::INLINE_PCLUSTER) {
            map.fragment_off &= 0xFFFF_0000;
        }
        map.idata_len = (map.fragment_off >> 16) as u16;
        map.algorithms = map.algorithms.map(|number| number & 0xF);
        map.lcluster_bits = (block_bits.bits() + shift).min(30);
        map.extent_count = 0;
        (block_bits, map)
    })
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn map_headers_come_back((block_bits, map) in fitting_map_header()) {
        prop_assert_eq!(ZmapHeader::decode(&map.encode(block_bits), 0, block_bits, false), Ok(ZmapHeader::Map(map)));
    }

    #[test]
    fn any_map_header_decodes(bytes in any::<[u8; 8]>(), block_bits in block_bits(), full in any::<bool>()) {
        let _ = ZmapHeader::decode(&bytes, u64::MAX, block_bits, full);
    }

    #[test]
    fn full_heads_come_back(kind in head_kind(), clusterofs in any_u32(), blkaddr in any_u64(), partial in any::<bool>()) {
        let head = Lcluster::Head { kind, clusterofs, blkaddr: Blkaddr(blkaddr), partial };
        let fits = clusterofs < 1 << 16 && blkaddr < 1 << 32;
        let back = head.encode_full().map(|bytes| Lcluster::decode_full(&bytes));
        prop_assert_eq!(back.ok(), fits.then_some(head));
    }

    #[test]
    fn full_nonheads_come_back_clipped(back in any_u32(), forward in any_u32(), cblkcnt in prop::option::of(any_u32())) {
        let entry = Lcluster::Nonhead { back, forward, cblkcnt };
        let fits = cblkcnt.is_none_or(|blocks| (1..=CBLKCNT_MAX).contains(&blocks));
        let back = if cblkcnt.is_some() { 1 } else { back.min(DELTA_MAX) };
        let clipped = Lcluster::Nonhead { back, forward: forward.min(DELTA_MAX), cblkcnt };
        let got = entry.encode_full().map(|bytes| Lcluster::decode_full(&bytes));
        prop_assert_eq!(got.ok(), fits.then_some(clipped));
    }

    #[test]
    fn any_full_entry_decodes(bytes in any::<[u8; 8]>()) {
        let _ = Lcluster::decode_full(&bytes);
    }

    #[test]
    fn extent_records_are_what_their_bytes_say(bytes in any::<[u8; 32]>(), advise in any_u16()) {
        let size = RecordSize::from_advise(Advise::from_bits_retain(advise));
        let record = ExtentRecord::decode(&bytes[..size.len() as usize], size);
        // The 32-byte record as one number, of which smaller records are prefixes.
        let all = u128::from_le_bytes(bytes[..16].try_into().unwrap());
        let la64 = (all >> 96) as u64 | u64::from(u32::from_le_bytes(bytes[16..20].try_into().unwrap())) << 32;
        let pa64 = (all >> 32) as u64;
        let (pa, la) = match size {
            RecordSize::Four => (None, None),
            RecordSize::Eight => (Some(pa64 & 0xFFFF_FFFF), None),
            RecordSize::Sixteen => (Some(pa64), Some(la64 & 0xFFFF_FFFF)),
            RecordSize::ThirtyTwo => (Some(pa64), Some(la64)),
        };
        prop_assert_eq!(record, ExtentRecord { plen: PlenWord(all as u32), pa, la });
        prop_assert!(record.plen.plen() < 1 << 21);
        if let Ok(Some(algorithm)) = record.plen.algorithm() {
            prop_assert_eq!(Algorithm::from_number((record.plen.0 >> 28) as u8 - 1), Some(algorithm));
        }
    }
}

// ---- the compact index against the full one

/// A file's index: its entries, and how they are to be packed.
#[derive(Clone, Debug)]
struct Index {
    layout: CompactLayout,
    table_off: u64,
    dense: bool,
    entries: Vec<Lcluster>,
}

/// Extents as (kind, lclusters, offset of the start, blocks), one behind the other on disk.
fn index() -> impl Strategy<Value = Index> {
    let length = prop_oneof![6 => 1..5u32, 3 => 1..40u32, 1 => 2040..2060u32];
    let extents = vec((head_kind(), length, any::<u32>(), 1..=CBLKCNT_MAX), 1..40);
    let shape = (any::<bool>(), any::<bool>(), 9..=14u8, (0..1u64 << 40).prop_map(|slot| 8 * slot));
    (extents, shape, 1..=u32::MAX - 40 * CBLKCNT_MAX, prop::option::of(any::<u32>())).prop_map(
        |(extents, (dense, big, bits, table_off), start, end_marker)| {
            let lcluster_bits = if dense { bits.min(12) } else { bits };
            let clusterofs = |random: u32| random & ((1 << lcluster_bits) - 1);
            let mut entries = Vec::new();
            let mut addr = start;
            for (kind, lclusters, random, blocks) in extents {
                // A pcluster of several blocks needs a second lcluster for their count.
                let blocks = if big && lclusters > 1 { blocks } else { 1 };
                let blkaddr = Blkaddr(addr.into());
                entries.push(Lcluster::Head { kind, clusterofs: clusterofs(random), blkaddr, partial: false });
                entries.extend((1..lclusters).map(|back| {
                    let cblkcnt = (big && back == 1).then_some(blocks);
                    Lcluster::Nonhead { back, forward: lclusters - back, cblkcnt }
                }));
                addr += blocks;
            }
            entries.extend(end_marker.map(|random| {
                let (kind, blkaddr) = (HeadKind::Plain, Blkaddr(0));
                Lcluster::Head { kind, clusterofs: clusterofs(random), blkaddr, partial: false }
            }));
            let count = entries.len() as u64;
            let layout = CompactLayout::new(table_off, count, count, lcluster_bits, dense, big).unwrap();
            Index { layout, table_off, dense, entries }
        },
    )
}

/// What a compact index can say of an entry at `slot` of `pack`: of both distances only one is stored, except that
/// the way back of the last entry follows from the one before.
fn through_pack(entry: Lcluster, pack: Pack, slot: usize) -> Lcluster {
    let full = Lcluster::decode_full(&entry.encode_full().unwrap());
    match full {
        Lcluster::Nonhead { back, forward, cblkcnt: None } if slot + 1 == pack.entries => {
            Lcluster::Nonhead { back, forward, cblkcnt: None }
        }
        Lcluster::Nonhead { back, cblkcnt, .. } => Lcluster::Nonhead { back, forward: 1, cblkcnt },
        head => head,
    }
}

fn clipped(entry: Lcluster) -> Lcluster {
    match entry {
        Lcluster::Nonhead { back, forward, cblkcnt } => Lcluster::Nonhead { back: back.min(DELTA_MAX), forward, cblkcnt },
        head => head,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..config() })]

    #[test]
    fn compact_packs_say_what_the_full_index_says(index in index()) {
        let mut bytes = Vec::new();
        index.layout.encode(index.entries.iter().copied(), &mut bytes).unwrap();
        prop_assert_eq!(index.table_off + bytes.len() as u64, index.layout.end_off());
        for (lcn, &entry) in index.entries.iter().enumerate() {
            let pack = index.layout.pack_of(lcn as u64);
            let off = (pack.off - index.table_off) as usize;
            let slot = lcn - pack.first as usize;
            let got = index.layout.decode_pack(pack, &bytes[off..off + pack.len]).unwrap().get(slot);
            let expected = through_pack(entry, pack, slot);
            match (got, expected) {
                // The end marker has no pcluster: a full index says 0, a pack counts on.
                (Lcluster::Head { kind, clusterofs, .. }, Lcluster::Head { kind: k, clusterofs: c, blkaddr: Blkaddr(0), .. }) => {
                    prop_assert_eq!((kind, clusterofs), (k, c));
                }
                _ => prop_assert_eq!(clipped(got), expected, "lcluster {} in {:?}", lcn, pack),
            }
        }
    }

    #[test]
    fn packs_lie_one_behind_the_other(index in index()) {
        let (mut off, mut lcn) = (index.table_off, 0);
        while lcn < index.entries.len() as u64 {
            let pack = index.layout.pack_of(lcn);
            prop_assert_eq!((pack.off, pack.first), (off, lcn));
            prop_assert!(matches!((pack.len, pack.entries), (8, 2) | (32, 16)));
            prop_assert!(pack.len == 8 || (index.dense && pack.off % 32 == 0));
            for within in lcn..lcn + pack.entries as u64 {
                prop_assert_eq!(index.layout.pack_of(within), pack);
            }
            (off, lcn) = (off + pack.len as u64, lcn + pack.entries as u64);
        }
        prop_assert_eq!(index.layout.end_off(), off);
    }

    #[test]
    fn sequences_that_no_pack_can_say_are_refused(index in index(), at in any::<prop::sample::Index>(), what in 0..4) {
        let mut entries = index.entries.clone();
        let idx = at.index(entries.len());
        match (what, &mut entries[idx]) {
            (0, Lcluster::Head { partial, .. }) => *partial = true,
            (1, Lcluster::Head { clusterofs, .. }) => *clusterofs = 1 << 14,
            (2, Lcluster::Head { blkaddr, .. }) if idx > 0 && blkaddr.0 != 0 => blkaddr.0 += 1,
            _ => drop(entries.pop()),
        }
        prop_assert!(index.layout.encode(entries.into_iter(), &mut Vec::new()).is_err());
    }

    #[test]
    fn any_pack_decodes(bytes in any::<[u8; 32]>(), off in any_u64(), bits in 9..=14u8, big in any::<bool>(), dense in any::<bool>()) {
        let bits = if dense { bits.min(12) } else { bits };
        let layout = CompactLayout::new(off & 0xFFFF_FFFF_FFF8, 1 << 30, 1 << 30, bits, dense, big).unwrap();
        for lcn in [0, 1, 5, 100, (1 << 30) - 1] {
            let pack = layout.pack_of(lcn);
            if let Ok(entries) = layout.decode_pack(pack, &bytes[..pack.len]) {
                let _ = (0..pack.entries).map(|slot| entries.get(slot)).count();
            }
        }
    }

    /// Whatever a map header and an inode may say: files are below 2^63 bytes, so below 2^54 lclusters, and tables lie in a device.
    #[test]
    fn any_compact_layout_answers(off in 0..1u64 << 63, blocks in any_u64(), count in 1..1u64 << 54, bits in any::<u8>(), flags in any::<[bool; 2]>(), at in any::<u64>()) {
        if let Ok(layout) = CompactLayout::new(off / 8 * 8, blocks, count, bits, flags[0], flags[1]) {
            let (end, pack) = (layout.end_off(), layout.pack_of(at % count));
            prop_assert!(pack.off >= off / 8 * 8 && pack.off + pack.len as u64 <= end);
        }
    }
}
