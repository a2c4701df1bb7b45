//! Inodes: the compact (32 bytes) and the extended (64 bytes) form.

use crate::{Blkaddr, FormatError};
use zerocopy::byteorder::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Length of a compact inode in bytes.
pub const COMPACT_LEN: usize = 32;
/// Length of an extended inode in bytes.
pub const EXTENDED_LEN: usize = 64;

const NSEC_PER_SEC: u32 = 1_000_000_000;

/// `struct erofs_inode_compact`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawInodeCompact {
    /// Form, layout and flag bit.
    pub i_format: U16,
    /// Size of the xattr body, encoded.
    pub i_xattr_icount: U16,
    /// Type and permissions.
    pub i_mode: U16,
    /// nlink, or high address bits with NLINK_1.
    pub i_nb: U16,
    /// Size in bytes.
    pub i_size: U32,
    /// Seconds from the epoch.
    pub i_mtime: U32,

    /// Layout-dependent.
    pub i_u: U32,
    /// Serial number.
    pub i_ino: U32,
    /// Owner.
    pub i_uid: U16,
    /// Group.
    pub i_gid: U16,
    /// Zero.
    pub i_reserved2: U32,
}

/// `struct erofs_inode_extended`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawInodeExtended {
    /// Form, layout and flag bit.
    pub i_format: U16,
    /// Size of the xattr body, encoded.
    pub i_xattr_icount: U16,
    /// Type and permissions.
    pub i_mode: U16,
    /// High address bits.
    pub i_nb: U16,
    /// Size in bytes.
    pub i_size: U64,

    /// Layout-dependent.
    pub i_u: U32,
    /// Serial number.
    pub i_ino: U32,
    /// Owner.
    pub i_uid: U32,
    /// Group.
    pub i_gid: U32,

    /// Seconds since 1970.
    pub i_mtime: I64,
    /// Nanoseconds.
    pub i_mtime_nsec: U32,
    /// Links.
    pub i_nlink: U32,

    /// Zero.
    pub i_reserved2: [u8; 16],
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<RawInodeCompact>() == COMPACT_LEN);
    assert!(size_of::<RawInodeExtended>() == EXTENDED_LEN);
    assert!(offset_of!(RawInodeCompact, i_size) == 8);
    assert!(offset_of!(RawInodeCompact, i_u) == 16);
    assert!(offset_of!(RawInodeCompact, i_uid) == 24);
    assert!(offset_of!(RawInodeExtended, i_size) == 8);
    assert!(offset_of!(RawInodeExtended, i_u) == 16);
    assert!(offset_of!(RawInodeExtended, i_mtime) == 32);
    assert!(offset_of!(RawInodeExtended, i_nlink) == 44);
};

/// How an inode's contents are stored (bits 1 to 3 of `i_format`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DataLayout {
    /// Contiguous blocks.
    FlatPlain = 0,
    /// Compressed, 8-byte indexes or encoded extents.
    CompressedFull = 1,
    /// Contiguous blocks, the last one beside the inode.
    FlatInline = 2,
    /// Compressed, packed indexes.
    CompressedCompact = 3,
    /// Fixed chunks anywhere.
    ChunkBased = 4,
}

impl DataLayout {
    /// What a person calls it.
    pub fn name(self) -> &'static str {
        match self {
            DataLayout::FlatPlain => "flat",
            DataLayout::CompressedFull => "compressed (full index)",
            DataLayout::FlatInline => "inline",
            DataLayout::CompressedCompact => "compressed (compact index)",
            DataLayout::ChunkBased => "chunk-based",
        }
    }

    /// Whether the contents are compressed.
    pub fn is_compressed(self) -> bool {
        matches!(self, DataLayout::CompressedFull | DataLayout::CompressedCompact)
    }
}

/// The type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FileType {
    /// Regular file.
    Regular,
    /// Directory.
    Directory,
    /// Character device.
    CharDevice,
    /// Block device.
    BlockDevice,
    /// Named pipe.
    Fifo,
    /// Socket.
    Socket,
    /// Symbolic link.
    Symlink,
}

impl FileType {
    /// The type in the upper bits of `st_mode`; `None` for a value that is no file type.
    pub fn from_mode(mode: u16) -> Option<Self> {
        Some(match mode & 0o170000 {
            0o100000 => FileType::Regular,
            0o040000 => FileType::Directory,
            0o020000 => FileType::CharDevice,
            0o060000 => FileType::BlockDevice,
            0o010000 => FileType::Fifo,
            0o140000 => FileType::Socket,
            0o120000 => FileType::Symlink,
            _ => return None,
        })
    }

    /// The upper bits of `st_mode`.
    pub fn mode_bits(self) -> u16 {
        match self {
            FileType::Regular => 0o100000,
            FileType::Directory => 0o040000,
            FileType::CharDevice => 0o020000,
            FileType::BlockDevice => 0o060000,
            FileType::Fifo => 0o010000,
            FileType::Socket => 0o140000,
            FileType::Symlink => 0o120000,
        }
    }

    /// The number in a dirent.
    pub fn dirent_number(self) -> u8 {
        match self {
            FileType::Regular => 1,
            FileType::Directory => 2,
            FileType::CharDevice => 3,
            FileType::BlockDevice => 4,
            FileType::Fifo => 5,
            FileType::Socket => 6,
            FileType::Symlink => 7,
        }
    }

    /// The first letter of `ls -l`.
    pub fn letter(self) -> char {
        match self {
            FileType::Regular => '-',
            FileType::Directory => 'd',
            FileType::CharDevice => 'c',
            FileType::BlockDevice => 'b',
            FileType::Fifo => 'p',
            FileType::Socket => 's',
            FileType::Symlink => 'l',
        }
    }
}

/// A device number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rdev {
    /// 12 bits.
    pub major: u32,
    /// 20 bits.
    pub minor: u32,
}

impl Rdev {
    /// From the field `i_u`.
    pub fn decode(i_u: u32) -> Self {
        Self { major: i_u >> 8 & 0xFFF, minor: (i_u & 0xFF) | (i_u >> 12 & !0xFF) }
    }

    /// For the field `i_u`.
    ///
    /// # Errors
    /// A major number over 12 bits or a minor number over 20 bits.
    pub fn encode(self) -> Result<u32, FormatError> {
        let refuse = |field, value: u32| Err(FormatError::does_not_fit("erofs_inode", field, value.into()));
        match self {
            Self { major: 0x1000.., .. } => refuse("rdev (major)", self.major),
            Self { minor: 0x10_0000.., .. } => refuse("rdev (minor)", self.minor),
            Self { major, minor } => Ok((minor & 0xFF) | major << 8 | (minor & !0xFF) << 12),
        }
    }
}

/// Which of the two forms an inode has on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// 32 bytes.
    Compact,
    /// 64 bytes.
    Extended,
}

impl Form {
    /// Length of the record in bytes.
    pub fn len(self) -> usize {
        match self {
            Form::Compact => COMPACT_LEN,
            Form::Extended => EXTENDED_LEN,
        }
    }

    /// The kernel's name of the record.
    fn record(self) -> &'static str {
        match self {
            Form::Compact => "erofs_inode_compact",
            Form::Extended => "erofs_inode_extended",
        }
    }
}

/// The time that compact inodes share, or count their seconds from: `epoch` and `fixed_nsec` of the superblock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Epoch {
    /// Seconds since 1970.
    pub secs: i64,
    /// Nanoseconds.
    pub nsec: u32,
}

/// What the mtime of a compact inode can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompactTimes {
    /// That of the superblock exactly: kernels before 6.15 ignore the inode's own `i_mtime`.
    Shared,
    /// Up to 2^32 - 1 seconds later, with the same nanoseconds. Needs 48BIT.
    Own,
}

impl CompactTimes {
    /// Seconds from `epoch` to `time`, as `i_mtime` holds them, if a compact inode can have that time.
    pub fn i_mtime(self, time: Epoch, epoch: Epoch) -> Option<u32> {
        let secs = u32::try_from(time.secs.checked_sub(epoch.secs)?).ok()?;
        (time.nsec == epoch.nsec && (secs == 0 || self == CompactTimes::Own)).then_some(secs)
    }
}

/// An inode, checked, whichever form it has on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Inode {
    /// Compact or extended.
    pub form: Form,
    /// How the contents are stored.
    pub layout: DataLayout,
    /// Bit 4 of `i_format`: no "." in a directory; NLINK_1 in a compact non-directory.
    pub bit4: bool,
    /// Encoded size of the xattr body, see [`Inode::xattr_len`].
    pub xattr_icount: u16,
    /// Type.
    pub file_type: FileType,
    /// Permissions with suid, sgid and sticky: the low 12 bits of `st_mode`.
    pub permissions: u16,
    /// Size in bytes.
    pub size: u64,
    /// Layout-dependent field.
    pub i_u: u32,
    /// High 16 bits of the start block, where the form has them.
    pub startblk_hi: u16,
    /// Serial number; informative.
    pub ino: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Modification time, seconds since 1970.
    pub mtime: i64,
    /// Nanoseconds of it, below 10^9.
    pub mtime_nsec: u32,
    /// Link count.
    pub nlink: u32,
}

impl Inode {
    /// Decode the inode at the start of `bytes`, which lie at byte `at` of their metadata space.
    ///
    /// # Errors
    /// An inode that is cut off, of unknown layout or file type, or of a size that no kernel accepts.
    pub fn decode(bytes: &[u8], at: u64, epoch: Epoch) -> Result<Self, FormatError> {
        let cut =
            || FormatError::corrupt("erofs_inode_compact", at, "i_format", 0, "cut off by the end of the metadata");
        let i_format = bytes.first_chunk::<2>().map(|b| u16::from_le_bytes(*b)).ok_or_else(cut)?;
        let form = if i_format & 1 == 0 { Form::Compact } else { Form::Extended };
        let head = Head::decode(i_format, at, form)?;
        match form {
            Form::Compact => {
                let raw = RawInodeCompact::ref_from_prefix(bytes).map_err(|_| cut())?.0;
                Self::from_compact(raw, head, at, epoch)
            }
            Form::Extended => {
                let raw = RawInodeExtended::ref_from_prefix(bytes).map_err(|_| cut())?.0;
                Self::from_extended(raw, head, at)
            }
        }
    }

    fn from_compact(raw: &RawInodeCompact, head: Head, at: u64, epoch: Epoch) -> Result<Self, FormatError> {
        let file_type = file_type(raw.i_mode.get(), at, Form::Compact)?;
        let nlink_1 = head.bit4 && file_type != FileType::Directory;
        let (nlink, startblk_hi) = if nlink_1 { (1, raw.i_nb.get()) } else { (raw.i_nb.get(), 0) };
        let (mtime, mtime_nsec) = instant(epoch.secs.wrapping_add(raw.i_mtime.get().into()), epoch.nsec);
        Ok(Self {
            form: Form::Compact,
            layout: head.layout,
            bit4: head.bit4,
            xattr_icount: raw.i_xattr_icount.get(),
            file_type,
            permissions: raw.i_mode.get() & 0o7777,
            size: raw.i_size.get().into(),
            i_u: raw.i_u.get(),
            startblk_hi,
            ino: raw.i_ino.get(),
            uid: raw.i_uid.get().into(),
            gid: raw.i_gid.get().into(),
            mtime,
            mtime_nsec,
            nlink: nlink.into(),
        })
    }

    fn from_extended(raw: &RawInodeExtended, head: Head, at: u64) -> Result<Self, FormatError> {
        let record = Form::Extended.record();
        let size = raw.i_size.get();
        if size >> 63 != 0 {
            return Err(FormatError::corrupt(record, at, "i_size", size, "must be below 2^63"));
        }
        let (mtime, mtime_nsec) = instant(raw.i_mtime.get(), raw.i_mtime_nsec.get());
        Ok(Self {
            form: Form::Extended,
            layout: head.layout,
            bit4: head.bit4,
            xattr_icount: raw.i_xattr_icount.get(),
            file_type: file_type(raw.i_mode.get(), at, Form::Extended)?,
            permissions: raw.i_mode.get() & 0o7777,
            size,
            i_u: raw.i_u.get(),
            startblk_hi: raw.i_nb.get(),
            ino: raw.i_ino.get(),
            uid: raw.i_uid.get(),
            gid: raw.i_gid.get(),
            mtime,
            mtime_nsec,
            nlink: raw.i_nlink.get(),
        })
    }

    /// The record's bytes, in the form that `self.form` says.
    ///
    /// # Errors
    /// A value that does not fit the form.
    pub fn encode(&self, epoch: Epoch, times: CompactTimes) -> Result<Vec<u8>, FormatError> {
        let refuse = |field, value| FormatError::does_not_fit(self.form.record(), field, value);
        let i_format = (self.form == Form::Extended) as u16 | (self.layout as u16) << 1 | u16::from(self.bit4) << 4;
        let i_mode = U16::new(self.file_type.mode_bits() | self.permissions);
        if self.permissions > 0o7777 {
            return Err(refuse("i_mode", self.permissions.into()));
        }
        if self.mtime_nsec >= NSEC_PER_SEC {
            return Err(refuse("i_mtime_nsec", self.mtime_nsec.into()));
        }
        match self.form {
            Form::Compact => {
                let u16_of = |field, value: u32| u16::try_from(value).map_err(|_| refuse(field, value.into()));
                let time = Epoch { secs: self.mtime, nsec: self.mtime_nsec };
                let i_mtime = times.i_mtime(time, epoch).ok_or_else(|| refuse("i_mtime", self.mtime as u64))?;
                let nlink_1 = self.bit4 && self.file_type != FileType::Directory;
                let i_nb = match (nlink_1, self.startblk_hi) {
                    (true, hi) if self.nlink == 1 => hi,
                    (false, 0) => u16_of("i_nlink", self.nlink)?,
                    _ => return Err(refuse("i_nb", self.startblk_hi.into())),
                };
                let raw = RawInodeCompact {
                    i_format: i_format.into(),
                    i_xattr_icount: self.xattr_icount.into(),
                    i_mode,
                    i_nb: i_nb.into(),
                    i_size: u32::try_from(self.size).map_err(|_| refuse("i_size", self.size))?.into(),
                    i_mtime: i_mtime.into(),
                    i_u: self.i_u.into(),
                    i_ino: self.ino.into(),
                    i_uid: u16_of("i_uid", self.uid)?.into(),
                    i_gid: u16_of("i_gid", self.gid)?.into(),
                    i_reserved2: U32::ZERO,
                };
                Ok(raw.as_bytes().to_vec())
            }
            Form::Extended => {
                if self.size >> 63 != 0 {
                    return Err(refuse("i_size", self.size));
                }
                let raw = RawInodeExtended {
                    i_format: i_format.into(),
                    i_xattr_icount: self.xattr_icount.into(),
                    i_mode,
                    i_nb: self.startblk_hi.into(),
                    i_size: self.size.into(),
                    i_u: self.i_u.into(),
                    i_ino: self.ino.into(),
                    i_uid: self.uid.into(),
                    i_gid: self.gid.into(),
                    i_mtime: self.mtime.into(),
                    i_mtime_nsec: self.mtime_nsec.into(),
                    i_nlink: self.nlink.into(),
                    i_reserved2: [0; 16],
                };
                Ok(raw.as_bytes().to_vec())
            }
        }
    }

    /// Length of the xattr body in bytes.
    pub fn xattr_len(&self) -> u64 {
        match self.xattr_icount {
            0 => 0,
            count => 12 + 4 * (u64::from(count) - 1),
        }
    }

    /// Bytes from the start of the inode to what its layout puts behind it.
    pub fn body_off(&self) -> u64 {
        self.form.len() as u64 + self.xattr_len()
    }

    /// Start of flat data; `None` where it is the hole value of the width in use.
    pub fn start_block(&self) -> Option<Blkaddr> {
        let wide = self.form == Form::Extended || self.bit4;
        let addr = Blkaddr(u64::from(self.i_u) | u64::from(self.startblk_hi) << 32);
        let hole = if wide { Blkaddr::HOLE48 } else { Blkaddr::HOLE32 };
        (addr != hole).then_some(addr)
    }

    /// Device number of a device inode, 0:0 for others.
    pub fn rdev(&self) -> Rdev {
        match self.file_type {
            FileType::CharDevice | FileType::BlockDevice => Rdev::decode(self.i_u),
            _ => Rdev::default(),
        }
    }

    /// `st_mode`.
    pub fn mode(&self) -> u16 {
        self.file_type.mode_bits() | self.permissions
    }
}

/// `i_format`, taken apart.
struct Head {
    layout: DataLayout,
    bit4: bool,
}

impl Head {
    fn decode(i_format: u16, at: u64, form: Form) -> Result<Self, FormatError> {
        let unsupported = |reason| FormatError::unsupported(form.record(), at, "i_format", i_format.into(), reason);
        let layout = match i_format >> 1 & 7 {
            0 => DataLayout::FlatPlain,
            1 => DataLayout::CompressedFull,
            2 => DataLayout::FlatInline,
            3 => DataLayout::CompressedCompact,
            4 => DataLayout::ChunkBased,
            _ => return Err(unsupported("unknown data layout")),
        };
        if i_format >> 5 != 0 {
            return Err(unsupported("unknown bits"));
        }
        Ok(Self { layout, bit4: i_format & 0x10 != 0 })
    }
}

/// A time with its nanoseconds below 10^9. Linux hands out what is stored, which programs add up; whole seconds among the
/// nanoseconds are carried here, so that the sum is the same and the parts are what `utimensat` and FUSE take.
fn instant(secs: i64, nsec: u32) -> (i64, u32) {
    (secs.saturating_add((nsec / NSEC_PER_SEC).into()), nsec % NSEC_PER_SEC)
}

fn file_type(i_mode: u16, at: u64, form: Form) -> Result<FileType, FormatError> {
    FileType::from_mode(i_mode)
        .ok_or_else(|| FormatError::corrupt(form.record(), at, "i_mode", i_mode.into(), "no such file type"))
}
