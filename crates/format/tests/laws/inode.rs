//! Inodes and device numbers.

use crate::{any_u16, any_u32, any_u64, config};
use kiln_format::chunk::ChunkFormat;
use kiln_format::inode::{CompactTimes, Epoch, FileType, Form, IndexKind, Inode, InodeData, Rdev};
use kiln_format::{Blkaddr, BlockBits};
use proptest::collection::vec;
use proptest::prelude::*;

/// Block size of all inodes here; only chunk sizes depend on it.
const BLOCK_BITS: BlockBits = BlockBits::DEFAULT;

fn file_type() -> impl Strategy<Value = FileType> {
    use FileType::*;
    prop::sample::select(vec![Regular, Directory, CharDevice, BlockDevice, Fifo, Socket, Symlink])
}

fn data() -> impl Strategy<Value = InodeData> {
    let index = prop_oneof![Just(IndexKind::Full), Just(IndexKind::Compact)];
    prop_oneof![
        prop::option::of(any_u64()).prop_map(|start| InodeData::FlatPlain(start.map(Blkaddr))),
        any_u64().prop_map(|start| InodeData::FlatInline(Blkaddr(start))),
        any_u32().prop_map(|i_u| InodeData::ChunkBased(ChunkFormat::decode(i_u, BLOCK_BITS))),
        (index, any_u32()).prop_map(|(index, blocks)| InodeData::Compressed { index, blocks }),
        (any_u32(), any_u32()).prop_map(|(major, minor)| InodeData::Device(Rdev { major, minor })),
        Just(InodeData::Nothing),
    ]
}

fn inode(form: impl Strategy<Value = Form>) -> impl Strategy<Value = Inode> {
    let kind = (form, data(), any::<[bool; 2]>(), file_type(), any_u16(), any_u16());
    let numbers = (any_u64(), any_u32(), any_u32(), any_u32(), any_u64(), any_u32(), any_u32());
    (kind, numbers).prop_map(|(kind, numbers)| {
        let (form, data, [omits_dot, implies_nlink], file_type, permissions, xattr_icount) = kind;
        let (size, ino, uid, gid, mtime, mtime_nsec, nlink) = numbers;
        let mtime = mtime as i64;
        Inode {
            form,
            data,
            omits_dot,
            implies_nlink,
            xattr_icount,
            file_type,
            permissions,
            size,
            ino,
            uid,
            gid,
            mtime,
            mtime_nsec,
            nlink,
        }
    })
}

fn any_inode() -> impl Strategy<Value = Inode> {
    inode(prop_oneof![Just(Form::Compact), Just(Form::Extended)])
}

/// Generates inodes with every value inside its field: they must encode.
pub fn fitting_inode() -> impl Strategy<Value = Inode> {
    any_inode().prop_map(|mut inode| {
        let is_dir = inode.file_type == FileType::Directory;
        inode.omits_dot &= is_dir;
        inode.implies_nlink &= !is_dir && inode.form == Form::Compact;
        inode.permissions &= 0o7777;
        inode.mtime_nsec %= 1_000_000_000;
        inode.size &= u64::MAX >> 1;
        if inode.form == Form::Compact {
            inode.size &= 0xFFFF_FFFF;
            (inode.uid, inode.gid) = (inode.uid & 0xFFFF, inode.gid & 0xFFFF);
            inode.nlink = if inode.implies_nlink { 1 } else { inode.nlink & 0xFFFF };
        }
        let is_wide = inode.form == Form::Extended || inode.implies_nlink;
        let fitting = |start: Blkaddr| Blkaddr(start.0 & if is_wide { (1 << 48) - 1 } else { 0xFFFF_FFFF });
        let hole = if is_wide && inode.size > 0 { Blkaddr::HOLE48 } else { Blkaddr::HOLE32 };
        inode.data = match (inode.file_type, inode.data) {
            (FileType::Fifo | FileType::Socket, _) => InodeData::Nothing,
            (FileType::CharDevice | FileType::BlockDevice, InodeData::Device(Rdev { major, minor })) => {
                InodeData::Device(Rdev { major: major & 0xFFF, minor: minor & 0xF_FFFF })
            }
            (FileType::CharDevice | FileType::BlockDevice, _) => InodeData::Device(Rdev::default()),
            (_, InodeData::Device(_) | InodeData::Nothing) => InodeData::FlatPlain(None),
            (_, InodeData::FlatPlain(start)) => InodeData::FlatPlain(start.map(fitting).filter(|start| *start != hole)),
            (_, InodeData::FlatInline(start)) => InodeData::FlatInline(fitting(start)),
            (_, data @ (InodeData::ChunkBased(_) | InodeData::Compressed { .. })) => data,
        };
        inode
    })
}

/// Generates inodes with one field that may have any value, so that an error can only be about that
/// field.
fn nearly_fitting_inode() -> impl Strategy<Value = Inode> {
    (fitting_inode(), any_inode(), 0..11).prop_map(|(mut inode, any, which)| {
        match which {
            0 => inode.size = any.size,
            1 => inode.uid = any.uid,
            2 => inode.gid = any.gid,
            3 => inode.nlink = any.nlink,
            4 => inode.data = any.data,
            5 => inode.permissions = any.permissions,
            6 => inode.mtime_nsec = any.mtime_nsec,
            7 => inode.omits_dot = any.omits_dot,
            8 => inode.implies_nlink = any.implies_nlink,
            9 => inode.file_type = any.file_type,
            _ => inode.xattr_icount = any.xattr_icount,
        }
        inode
    })
}

/// Returns the nanoseconds since 1970 of an extended inode: the sum of its two fields, as Linux
/// shows them. Seconds saturate at 64 bits.
fn time(bytes: &[u8]) -> i128 {
    const NSEC_PER_SEC: i128 = 1_000_000_000;
    let secs = i64::from_le_bytes(bytes[32..40].try_into().unwrap());
    let nsec = u32::from_le_bytes(bytes[40..44].try_into().unwrap());
    let carried = (i128::from(secs) + i128::from(nsec) / NSEC_PER_SEC).min(i64::MAX.into());
    carried * NSEC_PER_SEC + i128::from(nsec) % NSEC_PER_SEC
}

fn epoch_of(inode: &Inode) -> Epoch {
    Epoch { secs: inode.mtime, nsec: inode.mtime_nsec }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn inodes_encode_faithfully_or_not(
        inode in prop_oneof![1 => any_inode(), 9 => nearly_fitting_inode()],
        other in prop::bool::weighted(0.1),
        earlier in any_u64(),
        own in any::<bool>(),
    ) {
        let secs = inode.mtime.wrapping_sub(earlier as i64);
        let epoch = if other { Epoch { secs, nsec: inode.mtime_nsec } } else { epoch_of(&inode) };
        let times = if own { CompactTimes::Own } else { CompactTimes::Shared };
        if let Ok(bytes) = inode.encode(epoch, times, BLOCK_BITS) {
            prop_assert_eq!(bytes.len(), inode.form.len());
            prop_assert!(own || inode.form == Form::Extended || bytes[12..16] == [0; 4]);
            prop_assert_eq!(Inode::decode(&bytes, 0, epoch, BLOCK_BITS), Ok(inode));
        }
    }

    #[test]
    fn fitting_inodes_encode(inode in fitting_inode(), later in any_u32()) {
        let bytes = inode.encode(epoch_of(&inode), CompactTimes::Shared, BLOCK_BITS);
        prop_assert!(bytes.is_ok(), "{bytes:?}");
        prop_assert_eq!(Inode::decode(&bytes.unwrap(), 0, epoch_of(&inode), BLOCK_BITS), Ok(inode));
        let Some(mtime) = inode.mtime.checked_add(later.into()) else { return Ok(()) };
        let inode_later = Inode { mtime, ..inode };
        let bytes = inode_later.encode(epoch_of(&inode), CompactTimes::Own, BLOCK_BITS);
        prop_assert!(bytes.is_ok(), "{bytes:?}");
        prop_assert_eq!(Inode::decode(&bytes.unwrap(), 0, epoch_of(&inode), BLOCK_BITS), Ok(inode_later));
    }

    #[test]
    fn any_inode_bytes_decode(
        mut bytes in vec(any::<u8>(), 0..70),
        at in any_u64(),
        secs in any::<i64>(),
        nsec in any::<u32>(),
        plausible in any::<bool>(),
    ) {
        if plausible && bytes.len() > 6 {
            bytes[0] &= 0x1F;
            bytes[1] = 0;
            bytes[5] = [0x80, 0x40, 0x20, 0x60, 0x10, 0xC0, 0xA0][usize::from(bytes[5] % 7)];
        }
        if let Ok(inode) = Inode::decode(&bytes, at, Epoch { secs, nsec }, BLOCK_BITS) {
            let _ = (inode.body_off(), inode.layout(), inode.rdev(), inode.mode());
            if inode.form == Form::Extended {
                let encoded = inode.encode(Epoch::default(), CompactTimes::Shared, BLOCK_BITS).unwrap();
                prop_assert_eq!(Inode::decode(&encoded, at, Epoch::default(), BLOCK_BITS), Ok(inode));
                // Every field but those that have a meaning only for some types and layouts.
                prop_assert_eq!(&encoded[2..6], &bytes[2..6]);
                prop_assert_eq!(&encoded[8..16], &bytes[8..16]);
                prop_assert_eq!(&encoded[20..32], &bytes[20..32]);
                if let InodeData::FlatPlain(_) | InodeData::FlatInline(_) = inode.data {
                    prop_assert_eq!(encoded[0] & 0xF, bytes[0] & 0xF);
                    prop_assert_eq!((&encoded[6..8], &encoded[16..20]), (&bytes[6..8], &bytes[16..20]));
                }
                prop_assert_eq!(&encoded[44..48], &bytes[44..48]);
                prop_assert_eq!(time(&encoded), time(&bytes));
            }
            prop_assert!(inode.mtime_nsec < 1_000_000_000);
        }
    }

    #[test]
    fn device_numbers(major in any_u32(), minor in any_u32(), i_u in any_u32()) {
        let rdev = Rdev { major, minor };
        let fits = major < 1 << 12 && minor < 1 << 20;
        prop_assert_eq!(rdev.encode().ok().map(Rdev::decode), fits.then_some(rdev));
        prop_assert_eq!(Rdev::decode(i_u).encode(), Ok(i_u));
    }
}

/// Returns the data of an inode whose words are changed after encoding.
#[track_caller]
fn start_of(inode: &Inode, i_nb: u16, i_u: u32) -> InodeData {
    let mut bytes = inode.encode(Epoch::default(), CompactTimes::Shared, BLOCK_BITS).unwrap();
    bytes[6..8].copy_from_slice(&i_nb.to_le_bytes());
    bytes[16..20].copy_from_slice(&i_u.to_le_bytes());
    Inode::decode(&bytes, 0, Epoch::default(), BLOCK_BITS).unwrap().data
}

#[test]
fn a_hole_is_all_ones_in_the_width_in_use() {
    let extended = Inode {
        form: Form::Extended,
        data: InodeData::FlatPlain(None),
        omits_dot: false,
        implies_nlink: false,
        xattr_icount: 0,
        file_type: FileType::Regular,
        permissions: 0,
        size: 1,
        ino: 0,
        uid: 0,
        gid: 0,
        mtime: 0,
        mtime_nsec: 0,
        nlink: 1,
    };
    let narrow = Inode { form: Form::Compact, ..extended };
    let wide = Inode { implies_nlink: true, ..narrow };
    let at = |start: u64| InodeData::FlatPlain(Some(Blkaddr(start)));
    for inode in [extended, wide] {
        assert_eq!(start_of(&inode, 0xFFFF, u32::MAX), InodeData::FlatPlain(None));
        assert_eq!(start_of(&inode, 0, u32::MAX), at(0xFFFF_FFFF));
        assert_eq!(start_of(&inode, 7, 9), at(7 << 32 | 9));
        // The start block of an empty file has no meaning.
        assert_eq!(start_of(&Inode { size: 0, ..inode }, 0, u32::MAX), InodeData::FlatPlain(None));
    }
    assert_eq!(start_of(&narrow, 7, u32::MAX), InodeData::FlatPlain(None));
    assert_eq!(start_of(&narrow, 7, 9), at(9));
    let dir = Inode { file_type: FileType::Directory, omits_dot: true, ..narrow };
    assert_eq!(start_of(&dir, 7, u32::MAX), InodeData::FlatPlain(None));
}
