//! A specification for mtree(5): one line per name, with digests in place of contents.

use super::member::{Links, Member, Rules};
use super::output::Output;
use super::report::Loss;
use super::writer::MemberWriter;
use crate::SinkError;
use kiln_format::Hex;
use kiln_read::FileType;
use sha2::{Digest, Sha256};
use std::fmt::Write;

pub(super) const RULES: Rules =
    Rules { sparse: false, links: Links::Copied, contents: true, file_max_len: u64::MAX, left_out: |_| None };

/// Writer of mtree specifications.
#[derive(Default)]
pub(super) struct MtreeWriter {
    is_begun: bool,
    digest: Sha256,
}

impl MemberWriter for MtreeWriter {
    fn begin(&mut self, member: &Member, out: &mut Output<'_>) -> Result<(), SinkError> {
        self.begin_file(out)?;
        if !member.xattrs.is_empty() {
            out.report.lose(Loss::Xattrs, &member.path);
        }
        self.digest = Sha256::new();
        Ok(())
    }

    fn data(&mut self, bytes: &[u8], _: &mut Output<'_>) -> Result<(), SinkError> {
        self.digest.update(bytes);
        Ok(())
    }

    fn end(&mut self, member: &Member, out: &mut Output<'_>) -> Result<(), SinkError> {
        let inode = &member.inode;
        let mut line = match &member.path[..] {
            b"" => ".".to_owned(),
            path => format!("./{}", escaped(path)),
        };
        let file_type = match inode.file_type() {
            FileType::Regular => "file",
            FileType::Directory => "dir",
            FileType::CharDevice => "char",
            FileType::BlockDevice => "block",
            FileType::Fifo => "fifo",
            FileType::Socket => "socket",
            FileType::Symlink => "link",
        };
        let (mode, uid, gid) = (inode.permissions(), inode.uid(), inode.gid());
        let (nlink, secs, nsec) = (inode.nlink(), inode.mtime(), inode.mtime_nsec());
        // Programs read the digits after the dot as a number of nanoseconds. Writing to a string
        // cannot fail.
        let _ =
            write!(line, " type={file_type} mode={mode:04o} uid={uid} gid={gid} nlink={nlink} time={secs}.{nsec:09}");
        let _ = match inode.file_type() {
            FileType::Regular => {
                let digest = std::mem::take(&mut self.digest).finalize();
                write!(line, " size={} sha256digest={}", inode.size(), Hex(&digest))
            }
            FileType::Symlink => write!(line, " link={}", escaped(member.target())),
            FileType::CharDevice | FileType::BlockDevice => {
                let rdev = inode.rdev();
                write!(line, " device=native,{},{}", rdev.major, rdev.minor)
            }
            _ => Ok(()),
        };
        line.push('\n');
        out.write(line.as_bytes())
    }

    fn finish(&mut self, out: &mut Output<'_>) -> Result<(), SinkError> {
        self.begin_file(out)
    }
}

impl MtreeWriter {
    /// Writes the signature line by which programs recognize the format.
    fn begin_file(&mut self, out: &mut Output<'_>) -> Result<(), SinkError> {
        match std::mem::replace(&mut self.is_begun, true) {
            true => Ok(()),
            false => out.write(b"#mtree\n"),
        }
    }
}

/// Encodes a name as vis(3) does: unprintable and special characters become `\` and three octal
/// digits. `=` is encoded because some programs do not accept it everywhere.
fn escaped(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for &byte in name {
        match byte {
            b'\\' | b'#' | b'=' | b'*' | b'?' | b'[' | b']' => text += &format!("\\{byte:03o}"),
            b'!'..=b'~' => text.push(byte.into()),
            _ => text += &format!("\\{byte:03o}"),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_printable_and_have_no_spaces() {
        assert_eq!(escaped(b"a b\\c#\n\xff/d=e"), r"a\040b\134c\043\012\377/d\075e");
    }
}
