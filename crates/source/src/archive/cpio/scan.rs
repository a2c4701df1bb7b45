//! Scanner that adds the members of archives to a tree.

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

/// Maximum length in bytes of a name, including its zero byte, and of a symbolic link's target.
const NAME_MAX_LEN: u64 = 64 << 10;
/// Name of the member that ends an archive.
const TRAILER: &[u8] = b"TRAILER!!!";
/// Length in bytes of the pieces in which data are read.
const PIECE_LEN: usize = 1 << 16;
/// Length in bytes of the pieces in which zeros between archives are read.
const ZEROS_LEN: usize = 1 << 12;
/// Upper bound of the length of a header in bytes.
const HEADER_MAX_LEN: usize = 128;
/// Number of bytes needed to recognise a compressed stream; the .lzma format needs the most.
const HEAD_LEN: usize = 16;

/// Adds all members of the archives in `tape` to `members`. Later members replace earlier ones of
/// the same name, as when the kernel unpacks an initramfs.
///
/// # Errors
/// Input that is not an archive; members that do not fit into a tree, unless the scan keeps going;
/// [`SourceError::Interrupted`].
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
    /// Offset at which the current archive begins.
    archive_off: u64,
    /// Links of the current archive; inode numbers are unique within one archive only.
    links: Links,
}

impl Scan<'_, '_> {
    /// Skips from a damaged place to the next member header. Returns `false` if there is none
    /// before the end of the compressed stream or of the input.
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
                // A header may start in the last bytes of this piece and end in the next one.
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

    /// Moves to the next archive, entering and leaving compressed streams on the way. Returns
    /// `false` at the end of the input.
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
                    None => return Err(self.members.malformed(offset, "it holds no archive")),
                }
                continue;
            }
            let Some(compression) = StreamFormat::of(head).filter(|_| self.members.place.can_enter()) else {
                let reason = format!("expected an archive, found \"{}\"", head.escape_ascii());
                return Err(self.members.malformed(offset, reason));
            };
            let switched = self.tape.decompress_from_here(compression, self.spool_place);
            switched.map_err(|error| self.members.unreadable(offset, &error))?;
            self.members.place.enter(compression, offset);
        }
    }

    /// Skips the zeros between two archives.
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

    /// Reads a member. Returns `false` at the end of the archive.
    fn next_member(&mut self) -> Result<bool, SourceError> {
        let offset = self.tape.offset();
        self.members.begin(offset)?;
        let cut = |scan: &Self, error: io::Error| scan.members.unreadable(offset, &error);
        let mut magic = [0; MAGIC_LEN];
        let len = self.tape.fill(&mut magic).map_err(|error| cut(self, error))?;
        if len == 0 {
            let error = io::Error::other("the archive ends without this member, so it may be truncated");
            return self.members.leave_out(offset, TRAILER, error).map(|()| false);
        }
        let Some(format) = Format::of(&magic[..len]) else {
            let reason = format!("magic = \"{}\": not the magic number of a member", magic[..len].escape_ascii());
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
            let reason = format!("namesize = {len}: not in the range 1 to {NAME_MAX_LEN}");
            return Err(self.members.malformed(offset, reason));
        }
        let name = self.tape.read_vec(len);
        let mut name = name.map_err(|error| self.behind_end(offset, ("namesize", len), &error))?;
        if name.last() != Some(&0) {
            let reason = format!("name = \"{}\": does not end with a zero byte", name.escape_ascii());
            return Err(self.members.malformed(offset, reason));
        }
        // Some programs pad a name with more zeros to align the data to the blocks of a filesystem.
        name.truncate(name.iter().position(|&byte| byte == 0).unwrap_or(name.len()));
        self.pass_padding(offset, header)?;
        Ok(name)
    }

    /// Adds the member `name` at byte `offset`. Its data come next on the tape.
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

    /// Returns the kind of a member and skips its data; the inner error says why it is not a file
    /// of any kind.
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
                    _ => Err(format!("mode = {:#o}: not a file type", header.mode)),
                }
            }
        })
    }

    /// Returns the regular file at the current position; the inner error says why it is invalid.
    fn file(&mut self, offset: u64, header: &Header) -> Result<Result<Kind, String>, SourceError> {
        let start = self.tape.offset();
        // Hard links without data have no checksum, or that of the data stored with another name.
        if header.format == Format::Crc && header.size > 0 {
            let sum = self.sum(offset, header)?;
            if sum != header.check {
                return Ok(Err(format!("check = {:#010x}: the bytes of the file add up to {sum:#010x}", header.check)));
            }
        } else {
            self.pass_data(offset, header)?;
        }
        Ok(Ok(self.members.whole_file(start..start + header.size)))
    }

    /// Reads the data of a member and returns the sum of its bytes.
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

    /// Returns a symbolic link, whose data are its target; the inner error says why it is invalid.
    fn symlink(&mut self, offset: u64, header: &Header) -> Result<Result<Kind, String>, SourceError> {
        if header.size >= NAME_MAX_LEN {
            let reason = format!("filesize = {}: too long for the target of a symbolic link", header.size);
            return self.pass_data(offset, header).map(|()| Err(reason));
        }
        let target = self.tape.read_vec(header.size);
        let mut target = target.map_err(|error| self.behind_end(offset, ("filesize", header.size), &error))?;
        self.pass_padding(offset, header)?;
        // Some programs include a terminating zero byte in the size.
        if target.last() == Some(&0) {
            target.pop();
        }
        Ok(match target.is_empty() || target.contains(&0) {
            true => Err(format!("invalid target of a symbolic link: \"{}\"", target.escape_ascii())),
            false => Ok(Kind::Symlink(target.into())),
        })
    }

    fn pass_data(&mut self, offset: u64, header: &Header) -> Result<(), SourceError> {
        let passed = self.tape.skip(header.size);
        passed.map_err(|error| self.behind_end(offset, ("filesize", header.size), &error))?;
        self.pass_padding(offset, header)
    }

    /// Skips the padding after a name or data. It may be missing at the end of the input.
    fn pass_padding(&mut self, offset: u64, header: &Header) -> Result<(), SourceError> {
        let alignment = header.format.alignment();
        let passed = self.tape.offset() - self.archive_off;
        match self.tape.skip(passed.next_multiple_of(alignment) - passed) {
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(self.members.unreadable(offset, &error)),
            _ => Ok(()),
        }
    }

    /// Returns the error for data that a header field at byte `offset` announces and the archive
    /// lacks.
    fn behind_end(&self, offset: u64, (field, value): (&str, u64), error: &io::Error) -> SourceError {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                self.members.malformed(offset, format!("{field} = {value}: beyond the end of the archive"))
            }
            _ => self.members.unreadable(offset, error),
        }
    }
}

/// Returns the format of the header at the start of `bytes`, or `None` if they are not a complete,
/// valid header.
fn header_at(bytes: &[u8]) -> Option<Format> {
    let format = Format::of(bytes.get(..MAGIC_LEN)?)?;
    let fields = bytes.get(MAGIC_LEN..MAGIC_LEN + format.fields_len() as usize)?;
    let header = Header::parse(format, fields).ok()?;
    (1..=NAME_MAX_LEN).contains(&header.name_len).then_some(format)
}

/// Returns the device number of a member.
fn rdev(header: &Header) -> Result<Rdev, String> {
    let rdev = header.rdev;
    match rdev.major < 1 << 12 && rdev.minor < 1 << 20 {
        true => Ok(rdev),
        false => Err(format!("rdevmajor = {}, rdevminor = {}: not a valid device number", rdev.major, rdev.minor)),
    }
}
