//! A kind of source for an archive format that only exists here, as an example of what a new kind
//! needs.
//!
//! The archive is `KAR1`, a line feed, and entries: a line `TYPE MODE LEN PATH`, with an octal
//! mode, then LEN bytes. Types: `d` directory, `f` file with its contents, `l` symbolic link and
//! `h` hard link with their targets, `w` whiteout, `o` opaque directory.

use kiln_read::ReadAt;
use kiln_source::{Candidate, ScanOptions, Source, SourceEntries, SourceError, SourceKind, Unreadable};
use kiln_tree::{
    Builder, Content, ContentError, ContentId, Kind, Metadata, Node, PlainContents, ThinSlice, TreeError, Version,
};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MAGIC: &[u8] = b"KAR1\n";
const LINE_MAX_LEN: usize = 4096;

pub const ARCHIVE: SourceKind =
    SourceKind { name: "kar", title: "an archive of this test", is: |candidate| candidate.holds(0, MAGIC), open };

fn open(candidate: Candidate<'_>) -> Result<Box<dyn Source>, SourceError> {
    let path = candidate.path().to_owned();
    Ok(Box::new(Archive { path, bytes: candidate.into_bytes()? }))
}

struct Archive {
    path: PathBuf,
    bytes: Arc<dyn ReadAt>,
}

struct Header {
    kind: u8,
    mode: u16,
    path: Vec<u8>,
    data: Range<u64>,
}

impl Archive {
    fn malformed(&self, offset: u64, reason: impl Into<String>) -> SourceError {
        SourceError::Malformed { path: self.path.clone(), offset, reason: reason.into() }
    }

    fn fill(&self, buf: &mut [u8], off: u64) -> Result<usize, SourceError> {
        let rest = self.bytes.len().map(|len| len.saturating_sub(off).min(buf.len() as u64) as usize);
        let read = rest.and_then(|len| self.bytes.read_exact_at(&mut buf[..len], off).map(|()| len));
        read.map_err(|source| Unreadable { path: self.path.clone(), source }.into())
    }

    /// Parses the header at `off`. Returns `None` at the end.
    fn header(&self, off: u64) -> Result<Option<Header>, SourceError> {
        let mut buf = [0; LINE_MAX_LEN];
        let len = self.fill(&mut buf, off)?;
        if len == 0 {
            return Ok(None);
        }
        let line = buf[..len].split(|&b| b == b'\n').next().filter(|line| line.len() < len);
        let line = line.ok_or_else(|| self.malformed(off, "a header without end"))?;
        let mut fields = line.splitn(4, |&b| b == b' ');
        let mut field = |name| fields.next().ok_or_else(|| self.malformed(off, format!("no field {name}")));
        let (kind, mode, data_len, path) = (field("TYPE")?, field("MODE")?, field("LEN")?, field("PATH")?);
        let number = |name, bytes: &[u8], radix| {
            let number = str::from_utf8(bytes).ok().and_then(|text| u32::from_str_radix(text, radix).ok());
            number.ok_or_else(|| self.malformed(off, format!("{name} = {}: not a number", bytes.escape_ascii())))
        };
        let (start, mode) = (off + line.len() as u64 + 1, number("MODE", mode, 8)? as u16);
        let data = start..start + u64::from(number("LEN", data_len, 10)?);
        Ok(Some(Header { kind: *kind.first().unwrap_or(&b' '), mode, path: path.to_vec(), data }))
    }

    /// Applies an entry to the tree.
    fn insert(&self, builder: &mut Builder, entry: Header, ranges: &mut Vec<Range<u64>>) -> Result<(), SourceError> {
        let Header { kind, mode, path, data } = entry;
        let target = || {
            let mut target = vec![0; (data.end - data.start).min(LINE_MAX_LEN as u64) as usize];
            self.fill(&mut target, data.start)?;
            Ok::<_, SourceError>(target)
        };
        let mut put = |kind| {
            let meta = Metadata { permissions: mode & 0o7777, ..Metadata::default() };
            builder.insert(&path, Node { meta, xattrs: ThinSlice::default(), kind }).map(drop)
        };
        let done: Result<(), TreeError> = match kind {
            b'd' => put(Kind::Directory(Box::default())),
            b'l' => put(Kind::Symlink(target()?.into())),
            b'f' => {
                let content = ContentId(ranges.len() as u32);
                ranges.push(data.clone());
                put(Kind::File { len: data.end - data.start, content, sparse: false })
            }
            b'h' => builder.hard_link(&path, &target()?),
            b'w' => builder.remove(&path),
            b'o' => builder.clear(&path),
            _ => return Err(self.malformed(data.start, format!("TYPE = {}: unknown", kind.escape_ascii()))),
        };
        done.map_err(SourceError::tree(&self.path))
    }
}

impl Source for Archive {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read(&self, options: &ScanOptions<'_>) -> Result<SourceEntries, SourceError> {
        let (mut builder, mut ranges, mut off) = (Builder::default(), Vec::new(), MAGIC.len() as u64);
        while let Some(entry) = self.header(off)? {
            options.check_stop()?;
            off = entry.data.end;
            self.insert(&mut builder, entry, &mut ranges)?;
        }
        let contents = Box::new(ArchiveContents { bytes: Arc::clone(&self.bytes), ranges });
        Ok(SourceEntries::Everything(builder.finish(contents).map_err(SourceError::tree(&self.path))?.into()))
    }
}

struct ArchiveContents {
    bytes: Arc<dyn ReadAt>,
    ranges: Vec<Range<u64>>,
}

impl PlainContents for ArchiveContents {
    fn open_plain(&self, id: ContentId, _: &[u8], _: Version) -> Result<Box<dyn Content>, ContentError> {
        Ok(Box::new(Member { bytes: Arc::clone(&self.bytes), range: self.ranges[id.0 as usize].clone() }))
    }
}

struct Member {
    bytes: Arc<dyn ReadAt>,
    range: Range<u64>,
}

impl Content for Member {
    fn read_exact_at(&mut self, buf: &mut [u8], off: u64) -> Result<(), ContentError> {
        self.bytes.read_exact_at(buf, self.range.start + off).map_err(io::Error::into)
    }

    fn next_data(&mut self, off: u64) -> Result<Option<Range<u64>>, ContentError> {
        let len = self.range.end - self.range.start;
        Ok((off < len).then_some(off..len))
    }

    fn verify_unchanged(&mut self) -> Result<(), ContentError> {
        Ok(())
    }
}
