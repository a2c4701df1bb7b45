//! Pseudo-file definitions of squashfs-tools, as its manual describes them and `unsquashfs -pf` writes them: lines that define files,
//! and behind a mark the contents of all of them, one after the other.
//!
//! Definitions say where contents begin, so the image is walked twice: once for the lines, and once for the contents.

use super::member::{Body, Links, Member, Rules};
use super::output::Output;
use super::report::Loss;
use super::writer::MemberWriter;
use crate::SinkError;
use kiln_read::{FileType, Inode, Nid};
use std::collections::HashSet;
use std::fmt::Write;

/// Of the first walk, which defines files.
pub(super) const DEFINITION_RULES: Rules =
    Rules { sparse: false, links: Links::ToFirst, contents: false, file_max_len: u64::MAX, left_out: |_| None };
/// Of the second one, which writes contents.
pub(super) const CONTENT_RULES: Rules = Rules { contents: true, ..DEFINITION_RULES };

const MARK: &[u8] = b"#\n# START OF DATA - DO NOT MODIFY\n#\n";

/// Writes definitions.
#[derive(Default)]
pub(super) struct DefinitionWriter {
    /// Where the next contents begin, behind the mark.
    data_off: u64,
    /// What no line can hold, of which other names may follow.
    lost: HashSet<Nid>,
}

impl MemberWriter for DefinitionWriter {
    fn begin(&mut self, member: &Member, out: &mut Output<'_>) -> Result<(), SinkError> {
        let inode = &member.inode;
        // Contents are written, whether a line refers to them or not.
        let data_off = self.data_off;
        if matches!(member.body, Body::Data(_)) {
            self.data_off = data_off.saturating_add(inode.size());
        }
        // A line ends where a name or the target of a link has a line feed, whatever stands before that.
        let has_line_feed = member.path.contains(&b'\n') || member.target().contains(&b'\n');
        if has_line_feed || self.lost.contains(&inode.nid) {
            self.lost.insert(inode.nid);
            out.report.lose(Loss::Names, &member.path);
            return Ok(());
        }
        let name = if member.path.is_empty() { b"/".to_vec() } else { escaped(&member.path) };
        if let Body::LinkTo(first) = &member.body {
            return out.write(&[&name[..], b" L ", &escaped(first), b"\n"].concat());
        }
        let (line, target) = match inode.file_type() {
            // The target is the rest of its line.
            FileType::Symlink => (format!("{} ", common('S', inode)), member.target()),
            FileType::Directory => (common('D', inode), &[][..]),
            FileType::CharDevice => (format!("{} {}", common('C', inode), device(inode)), &[][..]),
            FileType::BlockDevice => (format!("{} {}", common('B', inode), device(inode)), &[][..]),
            FileType::Fifo => (format!("{} f", common('I', inode)), &[][..]),
            FileType::Socket => (format!("{} s", common('I', inode)), &[][..]),
            // The last number: runs of zeros become holes.
            FileType::Regular => (format!("{} {} {data_off} 1", common('R', inode), inode.size()), &[][..]),
        };
        if time(inode) != inode.mtime() {
            out.report.lose(Loss::Times, &member.path);
        }
        if inode.mtime_nsec() != 0 {
            out.report.lose(Loss::Nanoseconds, &member.path);
        }
        out.write(&[&name[..], b" ", line.as_bytes(), target, b"\n"].concat())?;
        self.xattrs(member, &name, out)
    }

    fn data(&mut self, _: &[u8], _: &mut Output<'_>) -> Result<(), SinkError> {
        Ok(())
    }

    fn end(&mut self, _: &Member, _: &mut Output<'_>) -> Result<(), SinkError> {
        Ok(())
    }

    fn finish(&mut self, out: &mut Output<'_>) -> Result<(), SinkError> {
        out.write(MARK)
    }
}

impl DefinitionWriter {
    /// SquashFS has attributes of three classes, and their names end at the first `=`.
    fn xattrs(&self, member: &Member, name: &[u8], out: &mut Output<'_>) -> Result<(), SinkError> {
        let mut is_lost = false;
        for xattr in &member.xattrs {
            let has_class =
                [&b"user."[..], b"trusted.", b"security."].iter().any(|class| xattr.name.starts_with(class));
            // mksquashfs refuses values of no bytes.
            if !has_class || xattr.value.is_empty() || xattr.name.iter().any(|byte| matches!(byte, b'=' | b'\n' | 0)) {
                is_lost = true;
                continue;
            }
            let mut value = String::from("0x");
            for byte in &xattr.value {
                // Writing to a string cannot fail.
                let _ = write!(value, "{byte:02x}");
            }
            out.write(&[name, b" x ", &xattr.name, b"=", value.as_bytes(), b"\n"].concat())?;
        }
        if is_lost {
            out.report.lose(Loss::Xattrs, &member.path);
        }
        Ok(())
    }
}

/// Writes contents.
pub(super) struct ContentWriter;

impl MemberWriter for ContentWriter {
    fn begin(&mut self, _: &Member, _: &mut Output<'_>) -> Result<(), SinkError> {
        Ok(())
    }

    fn data(&mut self, bytes: &[u8], out: &mut Output<'_>) -> Result<(), SinkError> {
        out.write(bytes)
    }

    fn end(&mut self, _: &Member, _: &mut Output<'_>) -> Result<(), SinkError> {
        Ok(())
    }

    fn finish(&mut self, _: &mut Output<'_>) -> Result<(), SinkError> {
        Ok(())
    }
}

/// Type, time, mode and owner.
fn common(letter: char, inode: &Inode) -> String {
    format!("{letter} {} {:o} {} {}", time(inode), inode.permissions(), inode.uid(), inode.gid())
}

/// SquashFS has times of 32 bits.
fn time(inode: &Inode) -> i64 {
    inode.mtime().clamp(0, u32::MAX.into())
}

fn device(inode: &Inode) -> String {
    format!("{} {}", inode.rdev().major, inode.rdev().minor)
}

/// A name with a backslash before what would end it.
fn escaped(name: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(name.len());
    for &byte in name {
        if matches!(byte, b'\\' | b'"') || byte.is_ascii_whitespace() || byte == 0x0b {
            text.push(b'\\');
        }
        text.push(byte);
    }
    text
}
