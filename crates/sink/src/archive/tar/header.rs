//! The `ustar` header block of POSIX.1-1988, with which every member begins.

use super::pax::{self, Records};
use kiln_read::{FileType, Inode};
use std::ops::Range;

/// Length in bytes of a header; contents are padded to a multiple of it.
pub(super) const BLOCK_LEN: u64 = 512;

const NAME: Range<usize> = 0..100;
const MODE: Range<usize> = 100..108;
const UID: Range<usize> = 108..116;
const GID: Range<usize> = 116..124;
const SIZE: Range<usize> = 124..136;
const MTIME: Range<usize> = 136..148;
const CHKSUM: Range<usize> = 148..156;
const TYPEFLAG: usize = 156;
const LINKNAME: Range<usize> = 157..257;
const MAGIC: Range<usize> = 257..265;
const DEVMAJOR: Range<usize> = 329..337;
const DEVMINOR: Range<usize> = 337..345;
const PREFIX: Range<usize> = 345..500;

/// A header under construction.
pub(super) struct Header([u8; BLOCK_LEN as usize]);

impl Header {
    /// Returns a header with type, mode and device number.
    pub(super) fn new(inode: &Inode) -> Self {
        let mut header = Self::of_type(match inode.file_type() {
            FileType::Regular | FileType::Socket => b'0',
            FileType::Symlink => b'2',
            FileType::CharDevice => b'3',
            FileType::BlockDevice => b'4',
            FileType::Directory => b'5',
            FileType::Fifo => b'6',
        });
        header.set_octal(MODE, inode.permissions().into());
        // Images have at most 12 and 20 bits for these.
        header.set_octal(DEVMAJOR, inode.rdev().major.into());
        header.set_octal(DEVMINOR, inode.rdev().minor.into());
        header
    }

    /// Returns the header of `len` bytes of PAX records, which are a member before the one that
    /// they describe.
    pub(super) fn of_records(len: u64) -> Self {
        let mut header = Self::of_type(b'x');
        header.put(NAME, b"./PaxHeaders/@");
        header.set_octal(MODE, 0o644);
        for field in [UID, GID, MTIME, DEVMAJOR, DEVMINOR] {
            header.set_octal(field, 0);
        }
        header.set_octal(SIZE, len);
        header
    }

    fn of_type(typeflag: u8) -> Self {
        let mut header = Self([0; BLOCK_LEN as usize]);
        header.put(MAGIC, b"ustar\x0000");
        header.0[TYPEFLAG] = typeflag;
        header.set_octal(SIZE, 0);
        header
    }

    /// Makes the member a hard link.
    pub(super) fn set_hard_link(&mut self) {
        self.0[TYPEFLAG] = b'1';
    }

    /// Sets the name, split at a slash if necessary.
    pub(super) fn set_name(&mut self, name: &[u8], records: &mut Records) {
        if name.len() <= NAME.len() {
            return self.put(NAME, name);
        }
        // The part after the slash must not be empty or too long.
        let is_split = |&at: &usize| name[at] == b'/' && (1..=NAME.len()).contains(&(name.len() - at - 1));
        match (1..=PREFIX.len().min(name.len() - 1)).find(is_split) {
            Some(at) => {
                self.put(PREFIX, &name[..at]);
                self.put(NAME, &name[at + 1..]);
            }
            None => {
                self.put(NAME, &name[..NAME.len()]);
                records.add_name(b"path", name);
            }
        }
    }

    /// Sets the target of a hard or symbolic link.
    pub(super) fn set_link(&mut self, target: &[u8], records: &mut Records) {
        self.put(LINKNAME, &target[..target.len().min(LINKNAME.len())]);
        if target.len() > LINKNAME.len() {
            records.add_name(b"linkpath", target);
        }
    }

    /// Sets the number of bytes that follow.
    pub(super) fn set_size(&mut self, size: u64, records: &mut Records) {
        if !self.set_octal(SIZE, size) {
            records.add(b"size", size.to_string().as_bytes());
        }
    }

    /// Sets the owner.
    pub(super) fn set_ids(&mut self, inode: &Inode, records: &mut Records) {
        for (field, key, id) in [(UID, &b"uid"[..], inode.uid()), (GID, b"gid", inode.gid())] {
            if !self.set_octal(field, id.into()) {
                records.add(key, id.to_string().as_bytes());
            }
        }
    }

    /// Sets the modification time.
    pub(super) fn set_time(&mut self, inode: &Inode, records: &mut Records) {
        let (secs, nsec) = (inode.mtime(), inode.mtime_nsec());
        let fits = self.set_octal(MTIME, u64::try_from(secs).unwrap_or(0));
        if !fits || secs < 0 || nsec != 0 {
            records.add(b"mtime", pax::time(secs, nsec).as_bytes());
        }
    }

    /// Returns the block with its checksum: the sum of all its bytes, with spaces in place of the
    /// checksum.
    pub(super) fn finish(mut self) -> [u8; BLOCK_LEN as usize] {
        self.put(CHKSUM, b"        ");
        let sum: u32 = self.0.iter().map(|&byte| u32::from(byte)).sum();
        self.put(CHKSUM, format!("{sum:06o}\0 ").as_bytes());
        self.0
    }

    fn put(&mut self, field: Range<usize>, bytes: &[u8]) {
        self.0[field][..bytes.len()].copy_from_slice(bytes);
    }

    /// Writes a number in octal digits with a terminating zero byte. If it does not fit, writes the
    /// largest that does and returns false.
    fn set_octal(&mut self, field: Range<usize>, value: u64) -> bool {
        let digits = field.len() - 1;
        let max = (1_u64 << (3 * digits)) - 1;
        self.put(field, format!("{:0digits$o}", value.min(max)).as_bytes());
        value <= max
    }
}
