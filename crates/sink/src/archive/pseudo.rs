//! Pseudo file definitions of squashfs-tools, as in its manual and as written by `unsquashfs -pf`:
//! lines that define files, a marker line, and the contents of all files one after the other.
//!
//! Definitions state where contents begin, so the image is walked twice: for the lines, and for the
//! contents.

use super::member::{Body, Links, Member, Rules};
use super::output::Output;
use super::report::Loss;
use super::writer::MemberWriter;
use crate::SinkError;
use kiln_read::{FileType, Inode, Nid};
use std::collections::HashSet;

/// Rules of the first walk, which writes definitions.
pub(super) const DEFINITION_RULES: Rules =
    Rules { sparse: false, links: Links::ToFirst, contents: false, file_max_len: u64::MAX, left_out: |_| None };
/// Rules of the second walk, which writes contents.
pub(super) const CONTENT_RULES: Rules = Rules { contents: true, ..DEFINITION_RULES };

/// Maximum length of a line in bytes; mksquashfs reads at most 16 KiB.
const LINE_MAX_LEN: usize = 16_000;
const MARK: &[u8] = b"#\n# START OF DATA - DO NOT MODIFY\n#\n";

/// Writer of definitions.
#[derive(Default)]
pub(super) struct DefinitionWriter {
    /// Offset of the next contents after the marker.
    data_off: u64,
    /// Inodes that no line can define, whose further names are left out, too.
    lost: HashSet<Nid>,
}

impl MemberWriter for DefinitionWriter {
    fn begin(&mut self, member: &Member, out: &mut Output<'_>) -> Result<(), SinkError> {
        let inode = &member.inode;
        // The second walk writes contents even if no line refers to them.
        let data_off = self.data_off;
        if matches!(member.body, Body::Data(_)) {
            self.data_off = data_off.saturating_add(inode.size());
        }
        if self.lost.contains(&inode.nid) || !can_be_said(member) {
            return self.lose(member, out);
        }
        let name = if member.path.is_empty() { b"/".to_vec() } else { escaped(&member.path) };
        if let Body::LinkTo(first) = &member.body {
            let line = [&name[..], b" L ", &escaped(first), b"\n"].concat();
            return if line.len() <= LINE_MAX_LEN { out.write(&line) } else { self.lose(member, out) };
        }
        let (line, target) = match inode.file_type() {
            // The target is the rest of its line.
            FileType::Symlink => (format!("{} ", common('S', inode)), member.target()),
            FileType::Directory => (common('D', inode), &[][..]),
            FileType::CharDevice => (format!("{} {}", common('C', inode), device(inode)), &[][..]),
            FileType::BlockDevice => (format!("{} {}", common('B', inode), device(inode)), &[][..]),
            FileType::Fifo => (format!("{} f", common('I', inode)), &[][..]),
            FileType::Socket => (format!("{} s", common('I', inode)), &[][..]),
            // The last number is the flag that turns runs of zeros into holes.
            FileType::Regular => (format!("{} {} {data_off} 1", common('R', inode), inode.size()), &[][..]),
        };
        let line = [&name[..], b" ", line.as_bytes(), target, b"\n"].concat();
        if line.len() > LINE_MAX_LEN {
            return self.lose(member, out);
        }
        if time(inode) != inode.mtime() {
            out.report.lose(Loss::Times, &member.path);
        }
        if inode.mtime_nsec() != 0 {
            out.report.lose(Loss::Nanoseconds, &member.path);
        }
        out.write(&line)?;
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
    /// Leaves out a member and all its further names.
    fn lose(&mut self, member: &Member, out: &mut Output<'_>) -> Result<(), SinkError> {
        self.lost.insert(member.inode.nid);
        out.report.lose(Loss::Names, &member.path);
        Ok(())
    }

    /// Writes extended attributes. SquashFS has three classes of them; their names end at the first
    /// `=`, and mksquashfs refuses empty values.
    fn xattrs(&self, member: &Member, name: &[u8], out: &mut Output<'_>) -> Result<(), SinkError> {
        let mut is_lost = false;
        for xattr in &member.xattrs {
            let has_class =
                [&b"user."[..], b"trusted.", b"security."].iter().any(|class| xattr.name.starts_with(class));
            let is_odd = xattr.value.is_empty() || xattr.name.iter().any(|byte| matches!(byte, b'=' | b'\n' | 0));
            // Base64, because mksquashfs 4.7 writes out of bounds for the hexadecimal form.
            let line = [name, b" x ", &xattr.name, b"=0s", base64(&xattr.value).as_bytes(), b"\n"].concat();
            if !has_class || is_odd || line.len() > LINE_MAX_LEN {
                is_lost = true;
            } else {
                out.write(&line)?;
            }
        }
        if is_lost {
            out.report.lose(Loss::Xattrs, &member.path);
        }
        Ok(())
    }
}

/// Writer of contents.
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

/// Returns true if lines can hold the name and the target. A line ends at a line feed, even an
/// escaped one, and spaces before a target are skipped.
fn can_be_said(member: &Member) -> bool {
    let (path, target) = (&member.path, member.target());
    !path.contains(&b'\n') && !target.contains(&b'\n') && !target.first().is_some_and(u8::is_ascii_whitespace)
}

/// Returns type, time, mode and owner.
fn common(letter: char, inode: &Inode) -> String {
    format!("{letter} {} {:o} {} {}", time(inode), inode.permissions(), inode.uid(), inode.gid())
}

/// Returns the modification time, clamped to the 32 bits that SquashFS has.
fn time(inode: &Inode) -> i64 {
    inode.mtime().clamp(0, u32::MAX.into())
}

fn device(inode: &Inode) -> String {
    format!("{} {}", inode.rdev().major, inode.rdev().minor)
}

/// Returns the name with a backslash before characters that would end it.
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

/// Encodes bytes in Base64 (RFC 4648).
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits = (0..3).fold(0_u32, |bits, nth| bits << 8 | u32::from(group.get(nth).copied().unwrap_or(0)));
        for nth in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * nth) & 63) as usize];
            text.push(if nth <= group.len() { digit.into() } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_rfc() {
        let pairs = [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")];
        for (bytes, text) in pairs {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(b"\xff\xff\xfe"), "///+");
    }

    #[test]
    fn special_characters_in_names_are_escaped() {
        assert_eq!(escaped(b"a b\"c\\d"), b"a\\ b\\\"c\\\\d");
    }
}
