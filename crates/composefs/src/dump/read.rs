//! Reader of dumps.
//!
//! Each line but those of hard links makes one inode, in the order of the lines: node `n` is line
//! `n + 1`. Hard links may stand before their targets, so they are resolved at the end.

use super::dirs::Dirs;
use super::fields::{self, Field, Located, Zeros, unescape};
use super::problem::{DumpError, DumpProblem, DumpWarning, LINE_MAX_LEN, XATTRS_MAX_TEXT};
use crate::error::TreeProblem;
use crate::tree::{Attributes, Builder, CfsTree, FileData, NodeIdx, xattr_cost};
use kiln_digest::Digest;
use kiln_format::dirent::PATH_MAX_LEN;
use kiln_format::inode::FileType;
use std::io::{BufRead, Read};

// Fields of a line.
const PATH: usize = 0;
const SIZE: usize = 1;
const MODE: usize = 2;
const NLINK: usize = 3;
const UID: usize = 4;
const GID: usize = 5;
const RDEV: usize = 6;
const MTIME: usize = 7;
const PAYLOAD: usize = 8;
const CONTENT: usize = 9;
const DIGEST: usize = 10;

/// Reads a dump up to the end of the input. Lines that are taken as they are, but may not be meant
/// so, are passed to `warn`.
///
/// # Errors
/// Errors of the input, and the first line that is refused. Two lines of one path, and hard links
/// without targets, are found when all lines have been read.
pub fn read(mut input: impl BufRead, warn: &mut dyn FnMut(DumpWarning)) -> Result<CfsTree, DumpError> {
    let mut text = Vec::new();
    let mut reader = None;
    for line in 1.. {
        text.clear();
        let limit = LINE_MAX_LEN as u64 + 1;
        if (&mut input).take(limit).read_until(b'\n', &mut text)? == 0 {
            break;
        }
        let at = |(off, problem)| DumpError::Line { line, column: off + 1, problem };
        if text.last() == Some(&b'\n') {
            text.pop();
        } else if text.len() > LINE_MAX_LEN {
            return Err(at((LINE_MAX_LEN, DumpProblem::LineTooLong)));
        }
        check_line(&text).map_err(at)?;
        match &mut reader {
            None => reader = Some(Reader::new(&text).map_err(at)?),
            Some(reader) => reader.line(&text, line, warn).map_err(at)?,
        }
    }
    match reader {
        Some(reader) => reader.finish(warn),
        None => Err(DumpError::Line { line: 1, column: 1, problem: DumpProblem::Empty }),
    }
}

fn check_line(line: &[u8]) -> Located<()> {
    if line.is_empty() {
        return Err((0, DumpProblem::EmptyLine));
    }
    if line.contains(&0) {
        let off = line.iter().position(|&byte| byte == 0).unwrap_or_default();
        return Err((off, DumpProblem::ZeroByte));
    }
    Ok(())
}

/// A dump whose first line has been read.
struct Reader {
    builder: Builder,
    dirs: Dirs,
    links: Vec<HardLink>,
    xattrs: Xattrs,
    path: Vec<u8>,
    payload: Vec<u8>,
    content: Vec<u8>,
}

/// A line of a hard link.
struct HardLink {
    node: NodeIdx,
    target: Box<[u8]>,
    /// Offset of the target in its line.
    off: usize,
}

impl Reader {
    fn new(line: &[u8]) -> Located<Self> {
        let (fields, xattrs) = fields::split(line)?;
        if fields[PATH].bytes != b"/" {
            return fields[PATH].error(DumpProblem::NoRoot);
        }
        let (attributes, file_type) = match fields[MODE].bytes {
            [b'@', ..] => return fields[MODE].error(DumpProblem::RootNotADirectory),
            _ => attributes(&fields)?,
        };
        if file_type != FileType::Directory {
            return fields[MODE].error(DumpProblem::RootNotADirectory);
        }
        let builder = Builder::new(&attributes);
        let (dirs, links) = (Dirs::default(), Vec::new());
        let (path, payload, content) = (Vec::new(), Vec::new(), Vec::new());
        let mut reader = Self { builder, dirs, links, xattrs: Xattrs::default(), path, payload, content };
        file_data(&fields, file_type, &mut reader.payload, &mut reader.content)?;
        reader.xattrs.add(xattrs, &mut reader.builder)?;
        Ok(reader)
    }

    fn line(&mut self, line: &[u8], number: u64, warn: &mut dyn FnMut(DumpWarning)) -> Located<()> {
        let (fields, xattrs) = fields::split(line)?;
        let path = unescape(fields[PATH], Zeros::Refused, &mut self.path)?;
        let in_path = |problem| (fields[PATH].off, problem);
        let (dir, name) = split_path(path).map_err(in_path)?;
        let found = self.dirs.find(dir, &self.builder);
        let parent = found.ok_or_else(|| in_path(path_problem(path)))?;

        if fields[MODE].bytes.first() == Some(&b'@') {
            let target = fields[PAYLOAD].given();
            let target = target.ok_or((fields[PAYLOAD].off, DumpProblem::NoLinkTarget))?;
            let off = target.off;
            let target = unescape(target, Zeros::Refused, &mut self.payload)?;
            let (node, target) = (self.builder.add_unresolved(parent, name), target.into());
            let node = node.map_err(|problem| (fields[field_of(&problem)].off, problem.into()))?;
            self.links.push(HardLink { node, target, off });
            return Ok(());
        }
        let (attributes, file_type) = attributes(&fields)?;
        let data = file_data(&fields, file_type, &mut self.payload, &mut self.content)?;
        if is_other_object(&data, &fields) {
            warn(DumpWarning::OtherObject { line: number });
        }
        let node = self.builder.add(parent, name, &attributes, data);
        let node = node.map_err(|problem| (fields[field_of(&problem)].off, problem.into()))?;
        if file_type == FileType::Directory {
            self.dirs.add(parent, path, name, node);
        }
        self.xattrs.add(xattrs, &mut self.builder)
    }

    fn finish(self, warn: &mut dyn FnMut(DumpWarning)) -> Result<CfsTree, DumpError> {
        let line = |node: NodeIdx| u64::from(node.0) + 1;
        let mut tree = self.builder.finish().map_err(|error| DumpError::Line {
            line: line(error.node),
            column: 1,
            problem: error.problem.into(),
        })?;
        let links: Vec<_> = self.links.iter().map(|link| (link.node, &*link.target)).collect();
        tree.resolve(&links).map_err(|(link, problem)| {
            let HardLink { node, off, .. } = self.links[link];
            DumpError::Line { line: line(node), column: off + 1, problem: problem.into() }
        })?;
        for (node, nlink, names) in tree.odd_links() {
            warn(DumpWarning::Links { line: line(node), nlink, names });
        }
        Ok(tree)
    }
}

/// Splits the path of a file into those of its directory (empty for the root) and its name.
fn split_path(path: &[u8]) -> Result<(&[u8], &[u8]), DumpProblem> {
    match path {
        b"/" => return Err(DumpProblem::SecondRoot),
        [b'/', ..] => {}
        _ => return Err(DumpProblem::NotAbsolute),
    }
    let slash = path.iter().rposition(|&byte| byte == b'/').unwrap_or_default();
    let (dir, name) = (&path[..slash], &path[slash + 1..]);
    match name {
        b"" => Err(if dir.ends_with(b"/") { DumpProblem::EmptyName } else { DumpProblem::TrailingSlash }),
        b"." | b".." => Err(DumpProblem::DotName),
        _ if path.len() > PATH_MAX_LEN => Err(DumpProblem::PathTooLong),
        _ => Ok((dir, name)),
    }
}

/// Returns the problem of a path whose directory was not found.
fn path_problem(path: &[u8]) -> DumpProblem {
    let has = |names: &[&[u8]]| path[1..].split(|&byte| byte == b'/').any(|name| names.contains(&name));
    if has(&[b""]) {
        DumpProblem::EmptyName
    } else if has(&[b".", b".."]) {
        DumpProblem::DotName
    } else {
        DumpProblem::MissingParent
    }
}

fn attributes(fields: &[Field<'_>]) -> Located<(Attributes, FileType)> {
    let mode = &fields[MODE];
    let digits = mode.bytes.iter().try_fold(0_u32, |number, byte| match byte {
        b'0'..=b'7' if number < 1 << 28 => Some(number << 3 | u32::from(byte - b'0')),
        _ => None,
    });
    let digits = digits.and_then(|number| u16::try_from(number).ok()).filter(|_| !mode.bytes.is_empty());
    let file_type = digits.and_then(|mode| FileType::from_mode(mode).zip(Some(mode & 0o7777)));
    let Some((file_type, permissions)) = file_type else { return mode.error(DumpProblem::Mode) };
    let (mtime, mtime_nsec) = time(&fields[MTIME])?;
    let attributes = Attributes {
        permissions,
        nlink: fields[NLINK].number("the link count")?,
        uid: fields[UID].number("the owner")?,
        gid: fields[GID].number("the group")?,
        mtime,
        mtime_nsec,
    };
    Ok((attributes, file_type))
}

fn time(field: &Field<'_>) -> Located<(i64, u32)> {
    let dot = field.bytes.iter().position(|&byte| byte == b'.');
    let parts = dot.and_then(|dot| {
        let (secs, nsec) = (&field.bytes[..dot], &field.bytes[dot + 1..]);
        let secs = i64::try_from(fields::decimal(secs)?).ok()?;
        let nsec = u32::try_from(fields::decimal(nsec)?).ok()?;
        (nsec < 1_000_000_000).then_some((secs, nsec))
    });
    parts.map_or_else(|| field.error(DumpProblem::Time), Ok)
}

/// Parses the fields that tell a file's data. All of them are checked for all types of files, since
/// composefs refuses them before it looks at the type.
fn file_data<'a>(
    fields: &'a [Field<'a>],
    file_type: FileType,
    payload: &'a mut Vec<u8>,
    content: &'a mut Vec<u8>,
) -> Located<FileData<'a>> {
    let size: u64 = fields[SIZE].number("the size")?;
    let rdev: u32 = fields[RDEV].number("the device number")?;
    let payload = fields[PAYLOAD].given().map(|field| unescape(field, Zeros::Refused, payload)).transpose()?;
    let content = fields[CONTENT].given().map(|field| unescape(field, Zeros::Allowed, content)).transpose()?;
    let digest = fields[DIGEST].given().map(|field| match fields::digest(field.bytes) {
        Some((bytes, len)) => Ok(Digest::from_bytes(&bytes[..len])),
        None => field.error(DumpProblem::Digest),
    });
    let digest = digest.transpose()?.flatten();
    if let Some(content) = content
        && content.len() as u64 != size
    {
        return fields[SIZE].error(DumpProblem::SizeOfContent { content: content.len(), size });
    }
    Ok(match (file_type, payload, content) {
        (FileType::Directory, ..) => FileData::Directory,
        (FileType::Regular, _, Some(content)) if !content.is_empty() => FileData::Inline(content),
        (FileType::Regular, object, _) => FileData::External { size, digest, object },
        (FileType::Symlink, Some(target), _) => FileData::Symlink(target),
        (FileType::Symlink, None, _) => return fields[PAYLOAD].error(DumpProblem::NoTarget),
        (FileType::CharDevice, ..) => FileData::CharDevice(rdev),
        (FileType::BlockDevice, ..) => FileData::BlockDevice(rdev),
        (FileType::Fifo, ..) => FileData::Fifo,
        (FileType::Socket, ..) => FileData::Socket,
    })
}

/// Returns true if the path of an object is not made of the digest of the same line.
fn is_other_object(data: &FileData<'_>, fields: &[Field<'_>]) -> bool {
    let FileData::External { size: 1.., digest: Some(_), object: Some(object) } = data else { return false };
    match object {
        [a, b, b'/', rest @ ..] => {
            let (first, others) = fields[DIGEST].bytes.split_at(2);
            !first.eq_ignore_ascii_case(&[*a, *b]) || !others.eq_ignore_ascii_case(rest)
        }
        _ => true,
    }
}

/// Returns the field that a problem of a file is about.
fn field_of(problem: &TreeProblem) -> usize {
    match problem {
        TreeProblem::InlineTooLong(_) => CONTENT,
        TreeProblem::FileTooLarge(_) => SIZE,
        TreeProblem::Object(_) | TreeProblem::Target(_) => PAYLOAD,
        _ => PATH,
    }
}

/// Reader of attributes. Most lines have the same attributes as one before, so those of the last line
/// are compared before any others.
#[derive(Default)]
struct Xattrs {
    /// For each place in a line, the last attribute there.
    last: Vec<Known>,
    key: Vec<u8>,
    value: Vec<u8>,
}

#[derive(Default)]
struct Known {
    text: Vec<u8>,
    pair: u32,
    cost: usize,
}

impl Xattrs {
    fn add(&mut self, all: Field<'_>, builder: &mut Builder) -> Located<()> {
        if all.bytes.is_empty() {
            return Ok(());
        }
        if all.bytes.len() > XATTRS_MAX_TEXT {
            return all.error(DumpProblem::XattrsTooLong);
        }
        // Like composefs, this takes a space at the end of a line.
        let bytes = all.bytes.strip_suffix(b" ").unwrap_or(all.bytes);
        let mut off = all.off;
        for (idx, bytes) in bytes.split(|&byte| byte == b' ').enumerate() {
            let field = Field { bytes, off };
            off += bytes.len() + 1;
            if idx == self.last.len() {
                self.last.push(Known::default());
            }
            if self.last[idx].text != bytes || bytes.is_empty() {
                self.read(idx, field, builder)?;
            }
            let known = &self.last[idx];
            builder.push_pair(known.pair, known.cost).map_err(|problem| (field.off, problem.into()))?;
        }
        Ok(())
    }

    fn read(&mut self, idx: usize, field: Field<'_>, builder: &mut Builder) -> Located<()> {
        let equals = field.bytes.iter().position(|&byte| byte == b'=');
        let Some(equals) = equals else { return field.error(DumpProblem::NoEquals) };
        let (key, value) = (&field.bytes[..equals], &field.bytes[equals + 1..]);
        let key = unescape(Field { bytes: key, ..field }, Zeros::Refused, &mut self.key)?;
        let value = Field { bytes: value, off: field.off + equals + 1 };
        let value = unescape(value, Zeros::Allowed, &mut self.value)?;
        let pair = builder.intern(key, value).map_err(|problem| (field.off, problem.into()))?;
        let known = &mut self.last[idx];
        known.text.clear();
        known.text.extend_from_slice(field.bytes);
        (known.pair, known.cost) = (pair, xattr_cost(key, value));
        Ok(())
    }
}
