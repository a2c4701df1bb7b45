//! Inodes: the compact (32 bytes) and the extended (64 bytes) form.

mod data;
mod file_type;
mod raw;

pub use data::{DataLayout, IndexKind, InodeData, Rdev};
pub use file_type::FileType;
pub use raw::{COMPACT_LEN, EXTENDED_LEN, Form, RawInodeCompact, RawInodeExtended};

use crate::{Blkaddr, BlockBits, FormatError};
use data::DataWords;
use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, IntoBytes};

const NSEC_PER_SEC: u32 = 1_000_000_000;

/// Time base of compact inodes: `epoch` and `fixed_nsec` of the superblock. They share this time or
/// count their seconds from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Epoch {
    /// Seconds since 1970.
    pub secs: i64,
    /// Nanoseconds.
    pub nsec: u32,
}

/// Rule for the mtimes that compact inodes can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompactTimes {
    /// Exactly the time of the superblock: kernels before 6.15 ignore the inode's own `i_mtime`.
    Shared,
    /// The time of the superblock or up to 2^32 - 1 seconds later, with the same nanoseconds. Needs
    /// 48BIT.
    Own,
}

impl CompactTimes {
    /// Returns the seconds from `epoch` to `time`, as `i_mtime` holds them; `None` if a compact
    /// inode cannot have that time.
    pub fn i_mtime(self, time: Epoch, epoch: Epoch) -> Option<u32> {
        let secs = u32::try_from(time.secs.checked_sub(epoch.secs)?).ok()?;
        (time.nsec == epoch.nsec && (secs == 0 || self == CompactTimes::Own)).then_some(secs)
    }
}

/// Checked inode of either form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Inode {
    /// Compact or extended.
    pub form: Form,
    /// Location of the data.
    pub data: InodeData,
    /// True for a directory that does not store its ".".
    pub omits_dot: bool,
    /// True with NLINK_1: a compact inode whose link count is 1 and not stored, which leaves room
    /// for a 48-bit start block.
    pub implies_nlink: bool,
    /// Encoded length of the xattr body, see [`Inode::xattr_len`].
    pub xattr_icount: u16,
    /// Type.
    pub file_type: FileType,
    /// Permissions with suid, sgid and sticky: the low 12 bits of `st_mode`.
    pub permissions: u16,
    /// Size in bytes.
    pub size: u64,
    /// Serial number; informative.
    pub ino: u32,
    /// Owner's user id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Modification time, seconds since 1970.
    pub mtime: i64,
    /// Nanoseconds of the modification time, below 10^9.
    pub mtime_nsec: u32,
    /// Link count.
    pub nlink: u32,
}

impl Inode {
    /// Decodes the inode at the start of `bytes`, which begin at byte `at` of their metadata space.
    ///
    /// Bits without a meaning for the inode's type and layout are dropped: bit 4 of an extended
    /// file, address and layout of a pipe.
    ///
    /// # Errors
    /// An inode that is cut off, has an unknown layout or file type, or a size that no kernel
    /// accepts.
    pub fn decode(bytes: &[u8], at: u64, epoch: Epoch, block_bits: BlockBits) -> Result<Self, FormatError> {
        let cut =
            || FormatError::corrupt("erofs_inode_compact", at, "i_format", 0, "cut off by the end of the metadata");
        let i_format = bytes.first_chunk::<2>().map(|b| u16::from_le_bytes(*b)).ok_or_else(cut)?;
        let form = if i_format & 1 == 0 { Form::Compact } else { Form::Extended };
        let head = Head::decode(i_format, at, form)?;
        match form {
            Form::Compact => {
                let raw = RawInodeCompact::ref_from_prefix(bytes).map_err(|_| cut())?.0;
                Self::from_compact(raw, head, at, epoch, block_bits)
            }
            Form::Extended => {
                let raw = RawInodeExtended::ref_from_prefix(bytes).map_err(|_| cut())?.0;
                Self::from_extended(raw, head, at, block_bits)
            }
        }
    }

    fn from_compact(
        raw: &RawInodeCompact,
        head: Head,
        at: u64,
        epoch: Epoch,
        block_bits: BlockBits,
    ) -> Result<Self, FormatError> {
        let (file_type, size) = (file_type(raw.i_mode.get(), at, Form::Compact)?, raw.i_size.get().into());
        let is_dir = file_type == FileType::Directory;
        let implies_nlink = head.bit4 && !is_dir;
        let (nlink, startblk_hi) = if implies_nlink { (1, raw.i_nb.get()) } else { (raw.i_nb.get(), 0) };
        let words = DataWords { layout: head.layout, i_u: raw.i_u.get(), startblk_hi };
        let width = if implies_nlink { Width::Bits48 } else { Width::Bits32 };
        let (mtime, mtime_nsec) = instant(epoch.secs.wrapping_add(raw.i_mtime.get().into()), epoch.nsec);
        Ok(Self {
            form: Form::Compact,
            data: InodeData::decode(&words, file_type, width.hole(size), block_bits),
            omits_dot: head.bit4 && is_dir,
            implies_nlink,
            xattr_icount: raw.i_xattr_icount.get(),
            file_type,
            permissions: raw.i_mode.get() & 0o7777,
            size,
            ino: raw.i_ino.get(),
            uid: raw.i_uid.get().into(),
            gid: raw.i_gid.get().into(),
            mtime,
            mtime_nsec,
            nlink: nlink.into(),
        })
    }

    fn from_extended(raw: &RawInodeExtended, head: Head, at: u64, block_bits: BlockBits) -> Result<Self, FormatError> {
        let record = Form::Extended.record();
        let size = raw.i_size.get();
        if size >> 63 != 0 {
            return Err(FormatError::corrupt(record, at, "i_size", size, "must be below 2^63"));
        }
        let file_type = file_type(raw.i_mode.get(), at, Form::Extended)?;
        let words = DataWords { layout: head.layout, i_u: raw.i_u.get(), startblk_hi: raw.i_nb.get() };
        let (mtime, mtime_nsec) = instant(raw.i_mtime.get(), raw.i_mtime_nsec.get());
        Ok(Self {
            form: Form::Extended,
            data: InodeData::decode(&words, file_type, Width::Bits48.hole(size), block_bits),
            omits_dot: head.bit4 && file_type == FileType::Directory,
            implies_nlink: false,
            xattr_icount: raw.i_xattr_icount.get(),
            file_type,
            permissions: raw.i_mode.get() & 0o7777,
            size,
            ino: raw.i_ino.get(),
            uid: raw.i_uid.get(),
            gid: raw.i_gid.get(),
            mtime,
            mtime_nsec,
            nlink: raw.i_nlink.get(),
        })
    }

    /// Returns the record's bytes in the form `self.form`.
    ///
    /// # Errors
    /// A value that does not fit the form, data that does not suit the file type, or `omits_dot`
    /// for anything but a directory.
    pub fn encode(&self, epoch: Epoch, times: CompactTimes, block_bits: BlockBits) -> Result<Vec<u8>, FormatError> {
        let refuse = |field, value| FormatError::does_not_fit(self.form.record(), field, value);
        let is_dir = self.file_type == FileType::Directory;
        let may_imply = self.form == Form::Compact && !is_dir;
        if (self.omits_dot && !is_dir) || (self.implies_nlink && !may_imply) {
            return Err(refuse("i_format (bit 4)", 1));
        }
        if !self.data.suits(self.file_type) {
            return Err(refuse("i_mode (for this data)", self.mode().into()));
        }
        let width = if self.form == Form::Extended || self.implies_nlink { Width::Bits48 } else { Width::Bits32 };
        let data = self.data.encode(width.hole(self.size), block_bits, self.form.record())?;
        let bit4 = self.omits_dot || self.implies_nlink;
        let i_format = (self.form == Form::Extended) as u16 | (data.layout as u16) << 1 | u16::from(bit4) << 4;
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
                let i_nb = match (self.implies_nlink, data.startblk_hi) {
                    (true, hi) if self.nlink == 1 => hi,
                    (true, _) => return Err(refuse("i_nlink", self.nlink.into())),
                    (false, 0) => u16_of("i_nlink", self.nlink)?,
                    (false, hi) => return Err(refuse("i_nb", hi.into())),
                };
                let raw = RawInodeCompact {
                    i_format: i_format.into(),
                    i_xattr_icount: self.xattr_icount.into(),
                    i_mode,
                    i_nb: i_nb.into(),
                    i_size: u32::try_from(self.size).map_err(|_| refuse("i_size", self.size))?.into(),
                    i_mtime: i_mtime.into(),
                    i_u: data.i_u.into(),
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
                    i_nb: data.startblk_hi.into(),
                    i_size: self.size.into(),
                    i_u: data.i_u.into(),
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

    /// Returns the length of the xattr body in bytes.
    pub fn xattr_len(&self) -> u64 {
        match self.xattr_icount {
            0 => 0,
            count => 12 + 4 * (u64::from(count) - 1),
        }
    }

    /// Returns the offset in bytes from the start of the inode to the part that follows its xattrs,
    /// such as inline data or a map.
    pub fn body_off(&self) -> u64 {
        self.form.len() as u64 + self.xattr_len()
    }

    /// Returns how the contents are stored, see [`InodeData::layout`].
    pub fn layout(&self) -> DataLayout {
        self.data.layout()
    }

    /// Returns the device number of a device inode; 0:0 for others.
    pub fn rdev(&self) -> Rdev {
        match self.data {
            InodeData::Device(rdev) => rdev,
            _ => Rdev::default(),
        }
    }

    /// Returns the number of blocks of compressed data, see [`InodeData::Compressed`]; `None` if
    /// the data is not compressed.
    pub fn compressed_blocks(&self) -> Option<u32> {
        match self.data {
            InodeData::Compressed { blocks, .. } => Some(blocks),
            _ => None,
        }
    }

    /// Returns `st_mode`.
    pub fn mode(&self) -> u16 {
        self.file_type.mode_bits() | self.permissions
    }
}

/// Width of a start block.
#[derive(Clone, Copy)]
enum Width {
    Bits32,
    Bits48,
}

impl Width {
    /// Returns the start block that marks a file of `size` bytes as a hole. The start block of an
    /// empty file has no meaning; mkfs.erofs writes 32 ones there in either width, and so does this
    /// crate.
    fn hole(self, size: u64) -> Blkaddr {
        match self {
            Width::Bits48 if size > 0 => Blkaddr::HOLE48,
            Width::Bits32 | Width::Bits48 => Blkaddr::HOLE32,
        }
    }
}

/// Parts of `i_format`.
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

/// Returns a time with its nanoseconds below 10^9. Linux passes on what is stored, and programs add
/// up seconds and nanoseconds. Carrying whole seconds here keeps the sum, and gives parts that
/// `utimensat` and FUSE accept.
fn instant(secs: i64, nsec: u32) -> (i64, u32) {
    (secs.saturating_add((nsec / NSEC_PER_SEC).into()), nsec % NSEC_PER_SEC)
}

fn file_type(i_mode: u16, at: u64, form: Form) -> Result<FileType, FormatError> {
    FileType::from_mode(i_mode)
        .ok_or_else(|| FormatError::corrupt(form.record(), at, "i_mode", i_mode.into(), "no such file type"))
}
