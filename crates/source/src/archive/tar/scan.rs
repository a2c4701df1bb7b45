//! Scanner that adds the members of an archive to a tree.

mod data;

use kiln_tree::Kind;
use std::io;

use super::header::{Header, RECORD_LEN, Record, SIZE, is_header, until_zero};
use super::member::{Member, MemberKind};
use super::options::{DotDot, TarData, TarOptions};
use super::path::without_steps_up;
use super::pax::{Extended, Scope};
use crate::archive::members::Members;
use crate::error::SourceError;
use crate::input::tape::Tape;

/// Maximum length in bytes of a path or target in a header of GNU tar.
const LONG_NAME_MAX_LEN: u64 = 1 << 20;
/// Maximum length in bytes of an extended header, which may hold attributes or a sparse map.
const EXTENDED_MAX_LEN: u64 = 32 << 20;
/// Maximum length in bytes of a global extended header. Each member gets a copy of it.
const GLOBAL_MAX_LEN: u64 = 1 << 16;
/// Number of records of zeros that end an archive.
const MARK_RECORDS: u32 = 2;
/// Length in bytes of the pieces in which data after the end mark are read.
const PIECE_LEN: usize = 1 << 16;

/// Adds all members of the archive in `tape` to `members`.
///
/// # Errors
/// Input that is not an archive; members that do not fit into a tree, unless the scan keeps going;
/// [`SourceError::Interrupted`].
pub(super) fn scan(tape: &mut Tape, members: &mut Members<'_>, options: TarOptions) -> Result<(), SourceError> {
    let mut scan = Scan { tape, members, options, global: Extended::default(), found: None, end: End::Missing };
    let mut is_archive = false;
    loop {
        match scan.next_member() {
            Ok(true) => is_archive = true,
            Ok(false) => return scan.tell_end(),
            Err(error) if !is_archive => return Err(error),
            Err(error) => {
                scan.members.leave_out_part(error)?;
                if !scan.find_header()? {
                    return Ok(());
                }
            }
        }
    }
}

struct Scan<'s, 'a> {
    tape: &'s mut Tape,
    members: &'s mut Members<'a>,
    options: TarOptions,
    /// Fields of global headers, which apply to all following members.
    global: Extended,
    /// Next header after a damaged place, if `find_header` found one.
    found: Option<(u64, Record)>,
    end: End,
}

/// Kind of end mark most recently read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// No end mark.
    Missing,
    /// One record of zeros, at the end of the input.
    Short,
    /// Two records of zeros.
    Mark,
}

impl Scan<'_, '_> {
    /// Reads a member. Returns `false` at the end of the archive.
    fn next_member(&mut self) -> Result<bool, SourceError> {
        let Some((offset, record)) = self.next_header()? else { return Ok(false) };
        let header = self.header(offset, &record)?;
        self.end = End::Missing;
        self.member(offset, header).map(|()| true)
    }

    /// Skips from a damaged place to the next record that is a header. Returns `false` if there is
    /// none.
    fn find_header(&mut self) -> Result<bool, SourceError> {
        if self.found.is_some() {
            return Ok(true);
        }
        let mut record = [0; RECORD_LEN];
        // The damaged place may be the end of the archive or of the stream.
        if self.tape.skip(self.tape.offset().wrapping_neg() % RECORD_LEN as u64).is_err() {
            return Ok(false);
        }
        loop {
            let offset = self.tape.offset();
            self.members.begin(offset)?;
            match self.tape.fill(&mut record) {
                Ok(RECORD_LEN) if is_header(&record) => {
                    self.found = Some((offset, record));
                    return Ok(true);
                }
                Ok(RECORD_LEN) => {}
                Ok(_) => return Ok(false),
                Err(error) => {
                    return self.members.leave_out_part(self.members.unreadable(offset, &error)).map(|()| false);
                }
            }
        }
    }

    /// Returns the next header and its offset in bytes, or `None` at the end of the archive.
    fn next_header(&mut self) -> Result<Option<(u64, Record)>, SourceError> {
        if let Some(found) = self.found.take() {
            return Ok(Some(found));
        }
        let mut zeros = 0;
        while let Some((offset, record)) = self.next_record()? {
            let is_zero = record.iter().all(|&byte| byte == 0);
            if !is_zero && zeros == 1 && !self.options.concatenated {
                // GNU tar, bsdtar and Python stop here, mkfs.erofs reads on, and Go fails: they
                // disagree about the tree.
                self.found = is_header(&record).then_some((offset, record));
                let reason =
                    "a single record of zeros followed by more data; the end of an archive is two such records";
                return Err(self.members.malformed(offset - RECORD_LEN as u64, reason));
            }
            if !is_zero {
                return Ok(Some((offset, record)));
            }
            zeros += 1;
            self.end = if zeros < MARK_RECORDS { End::Short } else { End::Mark };
            if self.end == End::Mark && !self.options.concatenated {
                break;
            }
        }
        Ok(None)
    }

    /// Returns the next record and its offset in bytes, or `None` at the end of the input.
    fn next_record(&mut self) -> Result<Option<(u64, Record)>, SourceError> {
        let (offset, mut record) = (self.tape.offset(), [0; RECORD_LEN]);
        self.members.begin(offset)?;
        match self.tape.fill(&mut record).map_err(|error| self.members.unreadable(offset, &error))? {
            0 => Ok(None),
            RECORD_LEN => Ok(Some((offset, record))),
            _ => Err(self.members.malformed(offset, "the archive ends within a header")),
        }
    }

    /// Notes what is unusual about the end of the archive.
    fn tell_end(&mut self) -> Result<(), SourceError> {
        match self.end {
            End::Missing => self.members.note("it has no end mark, so it may be truncated"),
            End::Short => {}
            End::Mark => {
                if let Err(error) = self.pass_rest() {
                    self.members.leave_out_part(error)?;
                }
            }
        }
        Ok(())
    }

    /// Reads the data after the end mark. A stream is read to its end because its checksum comes
    /// last, and because the program that writes it may be waiting to finish.
    fn pass_rest(&mut self) -> Result<(), SourceError> {
        let mut piece = vec![0; PIECE_LEN];
        let mut begin = None;
        loop {
            let offset = self.tape.offset();
            self.members.begin(offset)?;
            let len = self.tape.fill(&mut piece).map_err(|error| self.members.unreadable(offset, &error))?;
            let used = || piece[..len].iter().position(|&byte| byte != 0);
            begin = begin.or_else(|| used().map(|at| offset + at as u64));
            if len < PIECE_LEN {
                break;
            }
        }
        if let Some(begin) = begin {
            let len = self.tape.offset() - begin;
            self.members.note(format!("ignored {len} bytes after the end mark, from byte {begin} on"));
        }
        Ok(())
    }

    /// Reads a record that must exist.
    fn record(&mut self) -> Result<Record, SourceError> {
        let (offset, mut record) = (self.tape.offset(), [0; RECORD_LEN]);
        self.tape.read_exact(&mut record).map_err(|error| self.members.unreadable(offset, &error))?;
        Ok(record)
    }

    /// Returns true if the archive has headers only, without data between them.
    fn omits_data(&self) -> bool {
        self.options.data == TarData::Omitted
    }

    fn header<'h>(&self, offset: u64, record: &'h Record) -> Result<Header<'h>, SourceError> {
        Header::new(record).map_err(|reason| self.members.malformed(offset, reason))
    }

    /// Reads the member whose first header, which may be an extended one, starts at `offset`.
    fn member(&mut self, offset: u64, first: Header<'_>) -> Result<(), SourceError> {
        let mut extended = self.global.clone();
        let (mut path, mut target) = (None, None);
        // Extended headers come first. Their length is that in their own header; `size` records do
        // not apply to it.
        let (mut header_offset, mut record) = (offset, *first.record());
        loop {
            let header = self.header(header_offset, &record)?;
            match header.type_flag() {
                // Solaris used `X` before POSIX defined `x`.
                b'x' | b'X' => self.extend(&header, &mut extended, Scope::Next)?,
                b'g' if header_offset != offset => {
                    return Err(self
                        .members
                        .malformed(header_offset, "a global header between a file and its extended header"));
                }
                b'g' => return self.extend(&header, &mut extended, Scope::All).map(|()| self.global = extended),
                b'L' => path = Some(self.long_name(&header)?),
                b'K' => target = Some(self.long_name(&header)?),
                _ => {
                    let path = extended.sparse.path.take().or(extended.path.take()).or(path);
                    let target = extended.link_path.take().or(target);
                    let path = path.unwrap_or_else(|| header.path());
                    let target = target.unwrap_or_else(|| header.link_name().to_vec());
                    return self.insert(Member { offset, header, extended, path, target });
                }
            }
            match self.next_record()? {
                Some((_, next)) if next == [0; RECORD_LEN] => {}
                Some(next) => {
                    (header_offset, record) = next;
                    continue;
                }
                None => {}
            }
            return Err(self.members.malformed(header_offset, "an extended header that no file follows"));
        }
    }

    /// Reads the data of `header`, of at most `max_len` bytes, and skips the padding after them.
    /// Returns their offset in bytes, too.
    fn payload(&mut self, header: &Header<'_>, max_len: u64) -> Result<(u64, Vec<u8>), SourceError> {
        let at = self.tape.offset();
        let wrong = |scan: &Self, reason| scan.members.malformed(at - RECORD_LEN as u64, reason);
        let len: u64 = header.number_as(SIZE).map_err(|reason| wrong(self, reason))?;
        if len > max_len {
            let flag = char::from(header.type_flag());
            return Err(wrong(self, format!("size = {len} of a header of type {flag}: more than {max_len}")));
        }
        let payload = self.tape.read_vec(len).map_err(|error| self.members.unreadable(at, &error))?;
        self.skip_padding(len)?;
        Ok((at, payload))
    }

    fn extend(&mut self, header: &Header<'_>, extended: &mut Extended, scope: Scope) -> Result<(), SourceError> {
        let max_len = if scope == Scope::All { GLOBAL_MAX_LEN } else { EXTENDED_MAX_LEN };
        let (at, payload) = self.payload(header, max_len)?;
        extended.add(at, &payload, scope).map_err(|(byte, reason)| self.members.malformed(byte, reason))
    }

    fn long_name(&mut self, header: &Header<'_>) -> Result<Vec<u8>, SourceError> {
        let (_, payload) = self.payload(header, LONG_NAME_MAX_LEN)?;
        Ok(until_zero(&payload).to_vec())
    }

    /// Skips the padding after data of `len` bytes.
    fn skip_padding(&mut self, len: u64) -> Result<(), SourceError> {
        let at = self.tape.offset();
        let passed = self.tape.skip(len.wrapping_neg() % RECORD_LEN as u64);
        passed.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                let reason = format!("the archive ends within a record, after its {len} bytes of data");
                self.members.malformed(at, reason)
            }
            _ => self.members.unreadable(at, &error),
        })
    }

    /// Skips the data of a member and adds it to the tree.
    fn insert(&mut self, mut member: Member<'_>) -> Result<(), SourceError> {
        let (offset, what) = (member.offset, member.what());
        let data = self.data(&member, what);
        let Some(file) = self.members.survive(&member.path, data)? else { return Ok(()) };
        let (mut path, mut target) = (std::mem::take(&mut member.path), std::mem::take(&mut member.target));
        if self.options.dot_dot == DotDot::Up {
            path = without_steps_up(&path).into_owned();
            // The target of a symbolic link is resolved by programs that follow it.
            target = if what == MemberKind::HardLink { without_steps_up(&target).into_owned() } else { target };
        }
        let kind = match what {
            MemberKind::Nothing => return Ok(()),
            MemberKind::HardLink => return self.members.hard_link(offset, &path, &target),
            MemberKind::Refused(reason) => Err(format!("type {}: {reason}", member.header.type_flag().escape_ascii())),
            MemberKind::File | MemberKind::OldSparseFile => file,
            MemberKind::Directory => Ok(Kind::Directory(Box::default())),
            MemberKind::Symlink if target.is_empty() || target.contains(&0) => {
                Err(format!("invalid target of a symbolic link: \"{}\"", target.escape_ascii()))
            }
            MemberKind::Symlink => Ok(Kind::Symlink(target.into())),
            MemberKind::CharDevice => member.rdev().map(Kind::CharDevice),
            MemberKind::BlockDevice => member.rdev().map(Kind::BlockDevice),
            MemberKind::Fifo => Ok(Kind::Fifo),
        };
        match kind.and_then(|kind| member.into_node(kind)) {
            Ok((node, problems)) => {
                for (byte, reason) in problems {
                    self.members.leave_out(byte, &path, io::Error::other(reason))?;
                }
                self.members.insert(offset, &path, node).map(drop)
            }
            Err(reason) => self.members.leave_out(offset, &path, io::Error::other(reason)),
        }
    }
}
