//! Inodes and device numbers.

use crate::{any_u16, any_u32, any_u64, config};
use kiln_format::inode::{CompactTimes, DataLayout, Epoch, FileType, Form, Inode, Rdev};
use proptest::collection::vec;
use proptest::prelude::*;

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
            form,
            layout,
            bit4,
            xattr_icount,
            file_type,
            permissions,
            size,
            i_u,
            startblk_hi,
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

/// The same with every value inside its field: must encode.
pub fn fitting_inode() -> impl Strategy<Value = Inode> {
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

/// The same with one field that may have any value: what is refused is refused for its sake alone.
fn nearly_fitting_inode() -> impl Strategy<Value = Inode> {
    (fitting_inode(), any_inode(), 0..8).prop_map(|(mut inode, any, which)| {
        match which {
            0 => inode.size = any.size,
            1 => inode.uid = any.uid,
            2 => inode.gid = any.gid,
            3 => inode.nlink = any.nlink,
            4 => inode.startblk_hi = any.startblk_hi,
            5 => inode.permissions = any.permissions,
            6 => inode.mtime_nsec = any.mtime_nsec,
            _ => inode.xattr_icount = any.xattr_icount,
        }
        inode
    })
}

/// Nanoseconds since 1970 of an extended inode, as Linux shows its two fields and programs add them up. Seconds end with
/// their 64 bits.
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
        if let Ok(bytes) = inode.encode(epoch, times) {
            prop_assert_eq!(bytes.len(), inode.form.len());
            prop_assert!(own || inode.form == Form::Extended || bytes[12..16] == [0; 4]);
            prop_assert_eq!(Inode::decode(&bytes, 0, epoch), Ok(inode));
        }
    }

    #[test]
    fn fitting_inodes_encode(inode in fitting_inode(), later in any_u32()) {
        let bytes = inode.encode(epoch_of(&inode), CompactTimes::Shared);
        prop_assert!(bytes.is_ok(), "{bytes:?}");
        prop_assert_eq!(Inode::decode(&bytes.unwrap(), 0, epoch_of(&inode)), Ok(inode));
        let Some(mtime) = inode.mtime.checked_add(later.into()) else { return Ok(()) };
        let inode_later = Inode { mtime, ..inode };
        let bytes = inode_later.encode(epoch_of(&inode), CompactTimes::Own);
        prop_assert!(bytes.is_ok(), "{bytes:?}");
        prop_assert_eq!(Inode::decode(&bytes.unwrap(), 0, epoch_of(&inode)), Ok(inode_later));
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
        if let Ok(inode) = Inode::decode(&bytes, at, Epoch { secs, nsec }) {
            let _ = (inode.body_off(), inode.start_block(), inode.rdev(), inode.mode());
            if inode.form == Form::Extended {
                let encoded = inode.encode(Epoch::default(), CompactTimes::Shared).unwrap();
                prop_assert_eq!(&encoded[..32], &bytes[..32]);
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
