//! Scanner that adds the members of the central directory to a tree.

use kiln_format::inode::FileType;
use kiln_read::ReadAt;
use kiln_tree::{ContentId, Kind, Metadata, Node, NodeId, ThinSlice};
use rawzip::MAX_CENTRAL_DIRECTORY_RECORD_SIZE;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::bytes::{Archive, Bytes};
use super::contents::ZipContents;
use super::record::{LOCAL_FIELDS_MAX_LEN, Member, PackedData, invalid, member, name};
use crate::archive::members::Members;
use crate::error::{SourceError, Unreadable};
use crate::input::spool::SpoolPlace;
use crate::source::{Scan, ScanOptions};

/// Maximum length in bytes of the target of a symbolic link in Linux.
const TARGET_MAX_LEN: u64 = 4095;

/// Reads names and metadata of all members of `archive`. Returns the data of files, too, by content
/// id. Error messages name the archive `path`.
///
/// # Errors
/// An unreadable central directory; the first unreadable member, unless the scan keeps going.
pub(super) fn scan(
    archive: &Archive,
    path: &Path,
    spool_place: &SpoolPlace,
    options: &ScanOptions<'_>,
) -> Result<(Scan, Arc<[PackedData]>), SourceError> {
    let implied = Metadata { permissions: 0o755, ..Metadata::default() };
    let mut members = Members::new(path, options, implied.into());
    let bytes = &archive.get_ref().bytes;
    let len = bytes.0.len().map_err(|source| Unreadable { path: path.to_owned(), source })?;
    let list = without_overlaps(list(archive, len, &mut members)?, &mut members)?;
    let mut scanner = Scanner { members, bytes, files: Vec::new(), placed: Vec::new() };
    let with_backslashes = |list: &[Member]| list.iter().filter(|member| member.name.contains(&b'\\')).count();
    let (backslashes, first) = (with_backslashes(&list), list.iter().find(|member| member.name.contains(&b'\\')));
    let first = first.map(|member| member.name.escape_ascii().to_string()).unwrap_or_default();
    for member in list {
        scanner.add(member)?;
    }
    let Scanner { mut members, files, .. } = scanner;
    if backslashes > 0 {
        members.note(format!(
            "{backslashes} names contain backslashes, such as {first}; they are not treated as path separators"
        ));
    }
    let files: Arc<[PackedData]> = files.into();
    let contents = ZipContents::new(bytes.clone(), Arc::clone(&files), spool_place);
    Ok((members.finish_with(Box::new(contents))?, files))
}

/// Returns all readable members, in the order of the central directory.
fn list(archive: &Archive, len: u64, members: &mut Members<'_>) -> Result<Vec<Member>, SourceError> {
    let (mut buf, mut fields) = (vec![0; MAX_CENTRAL_DIRECTORY_RECORD_SIZE], vec![0; LOCAL_FIELDS_MAX_LEN]);
    let mut records = archive.entries(&mut buf);
    let (mut list, mut off) = (Vec::new(), archive.directory_offset());
    loop {
        let record = records.next_entry();
        let record = record.map_err(|error| {
            members.malformed(off, format!("invalid central directory record after this offset: {error}"))
        });
        // The position of the next record depends on this one, so the list ends here.
        let Some(Some(record)) = members.survive(b"", record)? else { return Ok(list) };
        off = record.central_directory_offset();
        members.begin(off)?;
        match member(&record, archive, len, &mut fields) {
            Ok(member) => {
                members.charge(&name(&record), size_of::<Member>())?;
                list.push(member);
            }
            Err(error) => members.leave_out(off, &name(&record), error)?,
        }
    }
}

/// Returns `list` without members that share bytes with others. A small archive of such members
/// could expand to petabytes.
fn without_overlaps(list: Vec<Member>, members: &mut Members<'_>) -> Result<Vec<Member>, SourceError> {
    let mut order: Vec<usize> = (0..list.len()).collect();
    order.sort_by_key(|&idx| (list[idx].header_off, list[idx].record_off));
    let mut shares_bytes_with = vec![None; list.len()];
    let mut last: Option<&Member> = None;
    for idx in order {
        match last {
            Some(last) if list[idx].header_off < last.data.stored.end => shares_bytes_with[idx] = Some(last.record_off),
            _ => last = Some(&list[idx]),
        }
    }
    let mut apart = Vec::with_capacity(list.len());
    for (member, other) in list.into_iter().zip(shares_bytes_with) {
        match other {
            None => apart.push(member),
            Some(other) => {
                let reason = format!("its data overlap those of the member with the record at byte {other}");
                members.leave_out(member.record_off, &member.name, invalid(reason))?;
            }
        }
    }
    Ok(apart)
}

struct Scanner<'a> {
    members: Members<'a>,
    bytes: &'a Bytes,
    /// Data of files, by content id.
    files: Vec<PackedData>,
    /// Nodes in ascending order, with the offsets of their records in bytes.
    placed: Vec<(NodeId, u64)>,
}

impl Scanner<'_> {
    fn add(&mut self, member: Member) -> Result<(), SourceError> {
        let (off, is_dir) = (member.record_off, member.file_type == FileType::Directory);
        self.members.begin(off)?;
        // An invalid path is reported when it is inserted.
        if let Ok(Some(there)) = self.members.builder.find(&member.name)
            && !(is_dir && matches!(self.members.builder.nodes()[there.idx()].kind, Kind::Directory(_)))
        {
            return self.members.leave_out(off, &member.name, self.taken(there));
        }
        let kind = match self.kind(&member) {
            Ok(kind) => kind,
            Err(error) => return self.members.leave_out(off, &member.name, error),
        };
        let node = Node { meta: member.meta, xattrs: ThinSlice::default(), kind };
        if let Some(id) = self.members.insert(off, &member.name, node)?
            && self.placed.last().is_none_or(|(last, _)| *last < id)
        {
            self.placed.push((id, off));
        }
        Ok(())
    }

    /// Returns the error for a path that already names the node `there`.
    fn taken(&self, there: NodeId) -> io::Error {
        let place = self.placed.binary_search_by_key(&there, |(id, _)| *id);
        invalid(match place {
            Ok(idx) => format!("the record at byte {} has the same path", self.placed[idx].1),
            Err(_) => "other members are below this path".into(),
        })
    }

    fn kind(&mut self, member: &Member) -> io::Result<Kind> {
        let len = member.data.plain.len;
        Ok(match member.file_type {
            FileType::Regular => {
                self.files.push(member.data.clone());
                Kind::File { len, content: ContentId(self.files.len() as u32 - 1), sparse: false }
            }
            FileType::Symlink => Kind::Symlink(self.target(&member.data)?.into()),
            FileType::Directory if len > 0 => return Err(invalid(format!("a directory with {len} bytes of contents"))),
            FileType::Directory => Kind::Directory(Box::default()),
            FileType::Fifo => Kind::Fifo,
            FileType::Socket => Kind::Socket,
            FileType::CharDevice | FileType::BlockDevice => {
                let reason = "a device, and zip archives have no device numbers";
                return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
            }
        })
    }

    fn target(&self, data: &PackedData) -> io::Result<Vec<u8>> {
        let len = data.plain.len;
        if !(1..=TARGET_MAX_LEN).contains(&len) {
            return Err(invalid(format!("a symbolic link with a target of {len} bytes")));
        }
        let target = data.plain.decode_to_vec(&mut *data.decoder(self.bytes)?)?;
        match target.contains(&0) {
            true => Err(invalid("a symbolic link with a zero byte in its target".into())),
            false => Ok(target),
        }
    }
}
