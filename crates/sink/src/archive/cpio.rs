//! The `newc` format of cpio. Numbers are 8 hexadecimal digits; headers and contents are aligned to
//! 4 bytes.

use super::member::{Body, Links, Member, Rules};
use super::output::Output;
use super::report::Loss;
use super::writer::MemberWriter;
use crate::SinkError;
use kiln_read::Nid;
use std::collections::HashMap;

pub(super) const RULES: Rules = Rules {
    sparse: false,
    links: Links::DataWithLast,
    contents: true,
    file_max_len: u32::MAX as u64,
    left_out: |_| None,
};

const MAGIC: &[u8] = b"070701";
const TRAILER: &[u8] = b"TRAILER!!!";
/// Length in bytes of the blocks that programs read.
const BLOCK_LEN: u64 = 512;

/// Writer of cpio archives.
#[derive(Default)]
pub(super) struct CpioWriter {
    /// Last inode number assigned.
    last_ino: u32,
    /// Numbers of inodes with several names.
    linked: HashMap<Nid, u32>,
}

impl MemberWriter for CpioWriter {
    fn begin(&mut self, member: &Member, out: &mut Output<'_>) -> Result<(), SinkError> {
        let inode = &member.inode;
        let ino = self.ino(member);
        let nlink = if inode.is_dir() { inode.nlink() } else { member.names_count };
        let mtime = inode.mtime().clamp(0, u32::MAX.into()) as u32;
        if !matches!(member.body, Body::LinkTo(_)) {
            if i64::from(mtime) != inode.mtime() {
                out.report.lose(Loss::Times, &member.path);
            }
            if inode.mtime_nsec() != 0 {
                out.report.lose(Loss::Nanoseconds, &member.path);
            }
            if !member.xattrs.is_empty() {
                out.report.lose(Loss::Xattrs, &member.path);
            }
        }
        // Files with a length above 32 bits were left out.
        let len = member.data_len() as u32 + member.target().len() as u32;
        let (rdev, mode) = (inode.rdev(), u32::from(inode.mode()));
        let name: &[u8] = if member.path.is_empty() { b"." } else { &member.path };
        let fields = [ino, mode, inode.uid(), inode.gid(), nlink, mtime, len, 0, 0, rdev.major, rdev.minor];
        header(&fields, name, out)?;
        out.write(member.target())
    }

    fn data(&mut self, bytes: &[u8], out: &mut Output<'_>) -> Result<(), SinkError> {
        out.write(bytes)
    }

    fn end(&mut self, _: &Member, out: &mut Output<'_>) -> Result<(), SinkError> {
        out.align(4)
    }

    fn finish(&mut self, out: &mut Output<'_>) -> Result<(), SinkError> {
        header(&[0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0], TRAILER, out)?;
        out.align(BLOCK_LEN)
    }
}

impl CpioWriter {
    /// Returns the number that all names of the inode share. Numbers wrap around after 2^32 inodes,
    /// which matters only for files with several names.
    fn ino(&mut self, member: &Member) -> u32 {
        let new = self.last_ino.wrapping_add(1);
        let ino = match member.names_count {
            0 | 1 => new,
            _ => *self.linked.entry(member.inode.nid).or_insert(new),
        };
        self.last_ino = if ino == new { new } else { self.last_ino };
        ino
    }
}

/// Writes a header. `fields` are all except the length of the name and the checksum, which `newc`
/// leaves at 0.
fn header(fields: &[u32; 11], name: &[u8], out: &mut Output<'_>) -> Result<(), SinkError> {
    let name_len = name.len() as u32 + 1;
    let mut header = MAGIC.to_vec();
    for field in fields.iter().chain(&[name_len, 0]) {
        header.extend(format!("{field:08x}").as_bytes());
    }
    header.extend_from_slice(name);
    header.push(0);
    out.write(&header)?;
    out.align(4)
}
