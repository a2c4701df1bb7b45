//! ZIP as specified by APPNOTE.TXT 6.3, with the extra fields of Info-ZIP.
//!
//! A file that fits into one window is deflated before its header is written, and stored if that is
//! shorter. A longer file is deflated while it is read; a descriptor after it holds its lengths and
//! checksum. All files of a window are deflated together, in chunks on several threads. The chunks
//! of a file are joined as RFC 1951 permits: each ends with an empty block at a byte boundary.

mod deflate;
mod records;

use super::member::{Body, Links, Member, Rules};
use super::output::Output;
use super::report::Loss;
use super::window::{Part, Window};
use super::writer::ArchiveWriter;
use crate::SinkError;
use deflate::{DeflatePiece, Deflated, deflate_all};
use kiln_parallel::Threads;
use kiln_read::FileType;
use records::{Central, Entry, Method};

pub(super) const RULES: Rules = Rules {
    sparse: false,
    links: Links::Copied,
    contents: true,
    file_max_len: u64::MAX,
    left_out: |file_type| match file_type {
        FileType::Socket => Some(Loss::Sockets),
        FileType::Fifo => Some(Loss::Fifos),
        FileType::CharDevice | FileType::BlockDevice => Some(Loss::Devices),
        _ => None,
    },
};

/// Default compression level.
pub(super) const DEFAULT_LEVEL: u32 = 6;
/// Highest compression level.
pub(super) const LEVEL_MAX: u32 = 9;

/// Writer of ZIP archives.
pub(super) struct ZipWriter {
    level: u32,
    threads: Threads,
    central: Central,
    /// The file that continues in the next window.
    current: Option<Entry>,
}

impl ZipWriter {
    pub(super) fn new(level: u32, threads: Threads) -> Self {
        Self { level: level.min(LEVEL_MAX), threads, central: Central::default(), current: None }
    }

    /// Writes a member that is whole in its window.
    fn whole(
        &mut self,
        member: &Member,
        bytes: &[u8],
        deflated: &Deflated,
        out: &mut Output<'_>,
    ) -> Result<(), SinkError> {
        let (method, stored) = match deflated.bytes.len() < bytes.len() {
            true => (Method::Deflate, &deflated.bytes[..]),
            false => (Method::Store, bytes),
        };
        let Some(mut entry) = self.entry(member, method, out) else { return Ok(()) };
        (entry.crc, entry.len, entry.stored_len) = (deflated.crc.sum(), bytes.len() as u64, stored.len() as u64);
        out.write(&entry.local_header())?;
        out.write(stored)?;
        self.central.add(&entry);
        Ok(())
    }

    /// Writes a part of a member that is longer than a window.
    fn part(&mut self, part: &Part, deflated: &Deflated, out: &mut Output<'_>) -> Result<(), SinkError> {
        if part.is_first {
            self.current = self.entry(&part.member, Method::DeflateStreamed, out);
            if let Some(entry) = &self.current {
                out.write(&entry.local_header())?;
            }
        }
        let Some(entry) = &mut self.current else { return Ok(()) };
        out.write(&deflated.bytes)?;
        entry.append(&deflated.crc, part.range.len() as u64, deflated.bytes.len() as u64);
        if part.is_last
            && let Some(entry) = self.current.take()
        {
            out.write(&entry.descriptor())?;
            self.central.add(&entry);
        }
        Ok(())
    }

    /// Returns the entry of a member, and notes its losses; `None` for the root and for a name that
    /// is too long.
    fn entry(&self, member: &Member, method: Method, out: &mut Output<'_>) -> Option<Entry> {
        let entry = Entry::new(member, method, out.off);
        if entry.is_none() && !member.path.is_empty() {
            out.report.lose(Loss::Names, &member.path);
        }
        if !member.xattrs.is_empty() {
            out.report.lose(Loss::Xattrs, &member.path);
        }
        let is_time = i32::try_from(member.inode.mtime()).is_ok();
        if entry.is_some() && !is_time {
            out.report.lose(Loss::Times, &member.path);
        }
        if entry.is_some() && member.inode.mtime_nsec() != 0 {
            out.report.lose(Loss::Nanoseconds, &member.path);
        }
        entry
    }
}

impl ArchiveWriter for ZipWriter {
    fn window(&mut self, window: &Window, out: &mut Output<'_>) -> Result<(), SinkError> {
        let pieces: Vec<DeflatePiece<'_>> = window.parts.iter().map(|part| piece(window, part)).collect();
        let deflated = deflate_all(&pieces, self.level, self.threads)?;
        for ((part, piece), deflated) in window.parts.iter().zip(&pieces).zip(&deflated) {
            match part.is_first && part.is_last {
                true => self.whole(&part.member, piece.bytes, deflated, out)?,
                false => self.part(part, deflated, out)?,
            }
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut Output<'_>) -> Result<(), SinkError> {
        let end = self.central.end(out.off);
        out.write(self.central.records())?;
        out.write(&end)
    }
}

/// Returns the contents of a part as stored: link targets or data.
fn piece<'a>(window: &'a Window, part: &'a Part) -> DeflatePiece<'a> {
    let bytes = match &part.member.body {
        Body::Target(target) => target,
        _ => window.bytes(part),
    };
    DeflatePiece { bytes, is_last: part.is_last }
}
