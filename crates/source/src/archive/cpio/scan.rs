//! From the members of archives to those of a tree.

use kiln_format::inode::Rdev;
use kiln_tree::{Kind, Node, ThinSlice};
use std::io;

use super::header::{Format, Header, MAGIC_LEN};
use super::links::Links;
use crate::archive::members::Members;
use crate::error::SourceError;
use crate::input::spool::SpoolPlace;
use crate::input::stream_format::StreamFormat;
use crate::input::tape::Tape;

/// The longest name with the zero that ends it, and the longest target of a symbolic link, in bytes.
const NAME_MAX_LEN: u64 = 64 << 10;
/// Names the end of an archive.
const TRAILER: &[u8] = b"TRAILER!!!";
/// Bytes of data that are looked at together.
const PIECE_LEN: usize = 1 << 16;
/// Bytes between archives that are looked at together.
const ZEROS_LEN: usize = 1 << 12;
/// No header is longer.
const HEADER_MAX_LEN: usize = 128;
/// What tells a compressed stream: its first bytes, of which the .lzma format needs most.
const HEAD_LEN: usize = 16;

/// Put all members of the archives in `tape` in `members`. Later ones replace earlier ones, as where the kernel unpacks them.
///
/// # Errors
/// What is no archive; members that no tree can hold, unless the scan keeps going; [`SourceError::Interrupted`].
pub(super) fn scan(tape: &mut Tape, members: &mut Members<'_>, spool_place: &SpoolPlace) -> Result<(), SourceError> {
    let mut scan = Scan { tape, members, spool_place, archive_off: 0, links: Links::default() };
    let (mut is_in_archive, mut is_first) = (false, true);
    loop {
        let step = if is_in_archive { scan.next_member() } else { scan.next_archive() };
        match step {
            Ok(false) if !is_in_archive => return Ok(()),
            Ok(goes_on) => (is_in_archive, is_first) = (goes_on, false),
            Err(error) if is_first => return Err(error),
            Err(error) => {
                scan.members.leave_out_part(error)?;
                is_in_archive = scan.find_header()?;
            }
        }
    }
}

struct Scan<'s, 'a> {
    tape: &'s mut Tape,
    members: &'s mut Members<'a>,
    spool_place: &'s SpoolPlace,
    /// Where the archive begins.
    archive_off: u64,
    /// Inode numbers count in one archive only.
    links: Links,
}

impl Scan<'_, '_> {
    /// Go on with the next member behind a damaged place; `false`: there is none before the end of what is compressed together, or of all.
    fn find_header(&mut self) -> Result<bool, SourceError> {
        let mut piece = vec![0; PIECE_LEN];
        loop {
            let offset = self.tape.offset();
            self.members.begin(offset)?;
            let found = self.tape.peek(&mut piece).and_then(|len| {
                let is_aligned = |at: usize, format: Format| {
                    (offset + at as u64 - self.archive_off).is_multiple_of(format.alignment())
                };
                let at = (0..len).find(|&at| header_at(&piece[at..len]).is_some_and(|format| is_aligned(at, format)));
                // A header may begin in what is left and end behind it.
                let passed = at.unwrap_or(if len == PIECE_LEN { len - HEADER_MAX_LEN } else { len });
                self.tape.skip(passed as u64).map(|()| (at.is_some(), len < PIECE_LEN))
            });
            match found {
                Ok((true, _)) => return Ok(true),
                Ok((false, true)) => return Ok(false),
                Ok((false, false)) => {}
                Err(error) => {
                    let error = self.members.unreadable(offset, &error);
                    return self.members.leave_out_part(error).map(|()| false);
                }
            }
        }
    }

    /// Go to the next archive, into what is compressed and out of it; `false`: there is none.
    fn next_archive(&mut self) -> Result<bool, SourceError> {
        loop {
            self.skip_zeros()?;
            let offset = self.tape.offset();
            let mut head = [0; HEAD_LEN];
            let len = self.tape.peek(&mut head).map_err(|error| self.members.unreadable(offset, &error))?;
            let head = &head[..len];
            (self.archive_off, self.links) = (offset, Links::default());
            if Format::of(head).is_some() {
                return Ok(true);
            }
            if head.is_empty() {
                match self.tape.leave_compressed() {
                    Some(byte) => self.members.place.leave(offset, byte),
                    None if offset > 0 => return Ok(false),
                    None => return Err(self.members.malformed(offset, "there is no archive")),
                }
                continue;
            }
            let Some(compression) = StreamFormat::of(head).filter(|_| self.members.place.can_enter()) else {
                let reason = format!("\"{}\" where an archive should begin", head.escape_ascii());
                return Err(self.members.malformed(offset, reason));
            };
            let switched = self.tape.decompress_from_here(compression, self.spool_place);
            switched.map_err(|error| self.members.unreadable(offset, &error))?;
            self.members.place.enter(compression, offset);
        }
    }

    /// Pass the zeros between two archives.
    fn skip_zeros(&mut self) -> Result<(), SourceError> {
        let mut piece = [0; ZEROS_LEN];
        loop {
            let offset = self.tape.offset();
            self.members.begin(offset)?;
            let passed = self.tape.peek(&mut piece).and_then(|len| {
                let zeros = piece[..len].iter().position(|&byte| byte != 0).unwrap_or(len);
                self.tape.skip(zeros as u64).map(|()| zeros)
            });
            match passed {
                Ok(ZEROS_LEN) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(self.members.unreadable(offset, &error)),
            }
        }
    }

    /// Read a member; `false`: the archive ends.
    fn next_member(&mut self) -> Result<bool, SourceError> {
        let offset = self.tape.offset();
        self.members.begin(offset)?;
        let cut = |scan: &Self, error: io::Error| scan.members.unreadable(offset, &error);
        let mut magic = [0; MAGIC_LEN];
        let len = self.tape.fill(&mut magic).map_err(|error| cut(self, error))?;
        if len == 0 {
            let error = io::Error::other("the archive ends without it, so more may be missing");
            return self.members.leave_out(offset, TRAILER, error).map(|()| false);
        }
        let Some(format) = Format::of(&magic[..len]) else {
            let reason = format!("magic = \"{}\": no member begins so", magic[..len].escape_ascii());
            return Err(self.members.malformed(offset, reason));
        };
        let fields = self.tape.read_vec(format.fields_len()).map_err(|error| cut(self, error))?;
        let header = Header::parse(format, &fields).map_err(|reason| self.members.malformed(offset, reason))?;
        let name = self.name(offset, &header)?;
        match name == TRAILER {
            true => self.pass_data(offset, &header).map(|()| false),
            false => self.member(offset, &header, &name).map(|()| true),
        }
    }

    fn name(&mut self, offset: u64, header: &Header) -> Result<Vec<u8>, SourceError> {
        let len = header.name_len;
        if !(1..=NAME_MAX_LEN).contains(&len) {
            let reason = format!("namesize = {len}: not from 1 to {NAME_MAX_LEN}");
            return Err(self.members.malformed(offset, reason));
        }
        let name = self.tape.read_vec(len);
        let mut name = name.map_err(|error| self.behind_end(offset, ("namesize", len), &error))?;
        if name.last() != Some(&0) {
            let reason = format!("name = \"{}\": no zero ends it", name.escape_ascii());
            return Err(self.members.malformed(offset, reason));
        }
        // Some programs put more zeros behind a name, so that data begin where a file system has blocks.
        name.truncate(name.iter().position(|&byte| byte == 0).unwrap_or(name.len()));
        self.pass_padding(offset, header)?;
        Ok(name)
    }

    /// The member `name` at byte `offset`, of which the data follow.
    fn member(&mut self, offset: u64, header: &Header, name: &[u8]) -> Result<(), SourceError> {
        let kind = self.kind(offset, header);
        let Some(kind) = self.members.survive(name, kind)? else { return Ok(()) };
        let kind = kind.and_then(|kind| if name.is_empty() { Err("it has no name".into()) } else { Ok(kind) });
        match kind {
            Ok(kind) => {
                let node = Node { meta: header.metadata(), xattrs: ThinSlice::default(), kind };
                self.links.insert(self.members, (offset, name), header, node)
            }
            Err(reason) => self.members.leave_out(offset, name, io::Error::other(reason)),
        }
    }

    /// What a member is, of which the data are passed; or why it is nothing.
    fn kind(&mut self, offset: u64, header: &Header) -> Result<Result<Kind, String>, SourceError> {
        Ok(match header.file_type() {
            0o100_000 => return self.file(offset, header),
            0o120_000 => return self.symlink(offset, header),
            file_type => {
                self.pass_data(offset, header)?;
                match file_type {
                    0o040_000 => Ok(Kind::Directory(Box::default())),
                    0o020_000 => rdev(header).map(Kind::CharDevice),
                    0o060_000 => rdev(header).map(Kind::BlockDevice),
                    0o010_000 => Ok(Kind::Fifo),
                    0o140_000 => Ok(Kind::Socket),
                    _ => Err(format!("mode = {:#o}: no type of file", header.mode)),
                }
            }
        })
    }

    /// A regular file; or why it is none.
    fn file(&mut self, offset: u64, header: &Header) -> Result<Result<Kind, String>, SourceError> {
        let start = self.tape.offset();
        // Names without data have no sum, or the sum of the data that another name has.
        if header.format == Format::Crc && header.size > 0 {
            let sum = self.sum(offset, header)?;
            if sum != header.check {
                return Ok(Err(format!("check = {:#010x}: the sum of its bytes is {sum:#010x}", header.check)));
            }
        } else {
            self.pass_data(offset, header)?;
        }
        Ok(Ok(self.members.whole_file(start..start + header.size)))
    }

    /// The sum of all bytes of a member's data, which are passed.
    fn sum(&mut self, offset: u64, header: &Header) -> Result<u32, SourceError> {
        let (mut sum, mut rest, mut piece) = (0_u32, header.size, vec![0; PIECE_LEN]);
        while rest > 0 {
            self.members.begin(self.tape.offset())?;
            let piece = &mut piece[..rest.min(PIECE_LEN as u64) as usize];
            let read = self.tape.read_exact(piece);
            read.map_err(|error| self.behind_end(offset, ("filesize", header.size), &error))?;
            sum = piece.iter().fold(sum, |sum, &byte| sum.wrapping_add(byte.into()));
            rest -= piece.len() as u64;
        }
        self.pass_padding(offset, header)?;
        Ok(sum)
    }

    /// A symbolic link, whose data are its target; or why it is none.
    fn symlink(&mut self, offset: u64, header: &Header) -> Result<Result<Kind, String>, SourceError> {
        if header.size >= NAME_MAX_LEN {
            let reason = format!("filesize = {}: longer than any target of a symbolic link", header.size);
            return self.pass_data(offset, header).map(|()| Err(reason));
        }
        let target = self.tape.read_vec(header.size);
        let mut target = target.map_err(|error| self.behind_end(offset, ("filesize", header.size), &error))?;
        self.pass_padding(offset, header)?;
        // Some programs count a zero behind it.
        if target.last() == Some(&0) {
            target.pop();
        }
        Ok(match target.is_empty() || target.contains(&0) {
            true => Err(format!("a symbolic link to \"{}\"", target.escape_ascii())),
            false => Ok(Kind::Symlink(target.into())),
        })
    }

    fn pass_data(&mut self, offset: u64, header: &Header) -> Result<(), SourceError> {
        let passed = self.tape.skip(header.size);
        passed.map_err(|error| self.behind_end(offset, ("filesize", header.size), &error))?;
        self.pass_padding(offset, header)
    }

    /// Pass what is behind a name or data up to the next multiple of the format's alignment. It may be missing at the very end.
    fn pass_padding(&mut self, offset: u64, header: &Header) -> Result<(), SourceError> {
        let alignment = header.format.alignment();
        let passed = self.tape.offset() - self.archive_off;
        match self.tape.skip(passed.next_multiple_of(alignment) - passed) {
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(self.members.unreadable(offset, &error)),
            _ => Ok(()),
        }
    }

    /// That what the field of the header at byte `offset` says is not there.
    fn behind_end(&self, offset: u64, (field, value): (&str, u64), error: &io::Error) -> SourceError {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                self.members.malformed(offset, format!("{field} = {value}: behind the end of the archive"))
            }
            _ => self.members.unreadable(offset, error),
        }
    }
}

/// The format of the header that these bytes begin with, if it is whole and one that members have.
fn header_at(bytes: &[u8]) -> Option<Format> {
    let format = Format::of(bytes.get(..MAGIC_LEN)?)?;
    let fields = bytes.get(MAGIC_LEN..MAGIC_LEN + format.fields_len() as usize)?;
    let header = Header::parse(format, fields).ok()?;
    (1..=NAME_MAX_LEN).contains(&header.name_len).then_some(format)
}

/// The numbers of a device.
fn rdev(header: &Header) -> Result<Rdev, String> {
    let rdev = header.rdev;
    match rdev.major < 1 << 12 && rdev.minor < 1 << 20 {
        true => Ok(rdev),
        false => Err(format!("rdevmajor = {}, rdevminor = {}: no device has such numbers", rdev.major, rdev.minor)),
    }
}
