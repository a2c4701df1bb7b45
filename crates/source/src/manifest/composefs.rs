//! Dumps of composefs: names, metadata and small files of a tree as text. Other files are objects in
//! stores, which the options name.

use kiln_composefs::dump::{self, DumpError};
use kiln_composefs::tree::{CfsTree, FileData, NodeIdx};
use kiln_digest::metacopy;
use kiln_format::inode::Rdev;
use kiln_read::{ComposefsObject, ObjectProblem, Objects, OpenObject, ReadAt, ReadError};
use kiln_tree::{
    Builder, Content, ContentError, ContentId, Kind, Metadata, Node, NodeId, PlainContents, TreeError, Version, Xattr,
};
use std::collections::HashMap;
use std::io::{self, BufReader};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{SourceError, Unreadable};
use crate::in_memory::InMemory;
use crate::input::candidate::Candidate;
use crate::input::tape::Tape;
use crate::kind::SourceKind;
use crate::source::{Scan, ScanOptions, Source, SourceEntries};

/// Bytes of a dump that are read at once.
const BUFFER_LEN: usize = 256 << 10;
/// Number of fields that each line has.
const FIELDS: usize = 11;

/// The kind "dump of composefs".
pub(crate) const KIND: SourceKind = SourceKind {
    name: "composefs-dump",
    title: "a dump of composefs",
    is: |candidate| is_dump(candidate.plain_head()),
    open: |candidate| Ok(Box::new(DumpSource::new(candidate)?)),
};

/// Returns true if the first line is that of a root directory: no other kind of text begins like it.
fn is_dump(head: &[u8]) -> bool {
    let Some(line) = head.split(|&byte| byte == b'\n').next().filter(|line| line.starts_with(b"/ ")) else {
        return false;
    };
    let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let is_number = |field: &[u8]| !field.is_empty() && field.iter().all(u8::is_ascii_digit);
    let is_dir = |mode: &[u8]| mode.len() == 5 && mode.starts_with(b"4") && is_number(mode);
    let numbers = [1, 3, 4, 5, 6];
    fields.len() >= FIELDS && is_dir(fields[2]) && numbers.iter().all(|&at| is_number(fields[at]))
}

struct DumpSource {
    path: PathBuf,
    /// Text of the dump.
    bytes: Arc<dyn ReadAt>,
    objects: Option<Objects>,
}

impl DumpSource {
    fn new(candidate: Candidate<'_>) -> Result<Self, SourceError> {
        let (path, objects) = (candidate.path().to_owned(), candidate.options().objects.clone());
        Ok(Self { path, bytes: candidate.into_plain_bytes()?, objects })
    }
}

impl Source for DumpSource {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read(&self, options: &ScanOptions<'_>) -> Result<SourceEntries, SourceError> {
        let unreadable = |source| Unreadable { path: self.path.clone(), source };
        let tape = Tape::in_place(Arc::clone(&self.bytes)).map_err(unreadable)?;
        let tree =
            dump::read(BufReader::with_capacity(BUFFER_LEN, tape), &mut |_| {}).map_err(|error| match error {
                DumpError::Io(source) => unreadable(source).into(),
                error => SourceError::Unsupported { path: self.path.clone(), reason: error.to_string() },
            })?;
        options.check_stop()?;
        let (builder, files) = entries(&tree).map_err(SourceError::tree(&self.path))?;
        let contents = DumpContents { tree, files, objects: self.objects.clone() };
        let tree = builder.finish(Box::new(contents)).map_err(SourceError::tree(&self.path))?;
        Ok(SourceEntries::Everything(Scan::from(tree)))
    }
}

/// Returns the nodes of a tree, and those of its regular files by [`ContentId`].
fn entries(tree: &CfsTree) -> Result<(Builder, Vec<NodeIdx>), TreeError> {
    let (mut builder, mut files) = (Builder::default(), Vec::new());
    builder.insert(b"", node(tree, NodeIdx::ROOT, &mut files))?;
    let mut made = HashMap::new();
    let mut stack = vec![(NodeIdx::ROOT, NodeId::ROOT)];
    while let Some((dir, dir_id)) = stack.pop() {
        for entry in tree.entries(dir) {
            let inode = tree.inode(entry);
            let id = match made.get(&inode) {
                Some(id) => *id,
                None => {
                    let id = builder.add(node(tree, inode, &mut files))?;
                    made.insert(inode, id);
                    id
                }
            };
            builder.name(dir_id, tree.name(entry), id);
            if matches!(tree.data(inode), FileData::Directory) {
                stack.push((inode, id));
            }
        }
    }
    Ok((builder, files))
}

fn node(tree: &CfsTree, inode: NodeIdx, files: &mut Vec<NodeIdx>) -> Node {
    let attributes = tree.attributes(inode);
    let mut file = |len| {
        files.push(inode);
        Kind::File { len, content: ContentId(files.len() as u32 - 1), sparse: false }
    };
    let kind = match tree.data(inode) {
        FileData::Directory => Kind::Directory(Box::default()),
        FileData::Inline(contents) => file(contents.len() as u64),
        FileData::External { size, .. } => file(size),
        FileData::Symlink(target) => Kind::Symlink(target.into()),
        FileData::CharDevice(rdev) => Kind::CharDevice(Rdev::decode(rdev)),
        FileData::BlockDevice(rdev) => Kind::BlockDevice(Rdev::decode(rdev)),
        FileData::Fifo => Kind::Fifo,
        FileData::Socket => Kind::Socket,
    };
    let meta = Metadata {
        permissions: attributes.permissions,
        uid: attributes.uid,
        gid: attributes.gid,
        mtime: attributes.mtime,
        mtime_nsec: attributes.mtime_nsec,
    };
    let xattrs = tree.xattrs(inode).map(|(name, value)| Xattr { name: name.into(), value: value.into() });
    Node { meta, xattrs: xattrs.collect(), kind }
}

/// Contents of the files of a dump.
struct DumpContents {
    tree: CfsTree,
    files: Vec<NodeIdx>,
    objects: Option<Objects>,
}

impl PlainContents for DumpContents {
    fn open_plain(&self, id: ContentId, path: &[u8], _: Version) -> Result<Box<dyn Content>, ContentError> {
        match self.tree.data(self.files[id.0 as usize]) {
            FileData::Inline(contents) => Ok(Box::new(InMemory(contents.into()))),
            FileData::External { size, digest, object } => {
                let metacopy = digest.map_or_else(Vec::new, |digest| metacopy::value(&digest));
                // The path from the root of the store, as images have it.
                let object = ComposefsObject::new(object.map(|object| [b"/", object].concat()), metacopy);
                let opened = match &self.objects {
                    Some(objects) => objects.open_verified(&object, size),
                    None => Err(ObjectProblem::NotGiven),
                };
                let failed = |problem| {
                    let (path, object, problem) = (Some(path.to_vec()), Box::new(object), Box::new(problem));
                    io::Error::other(ReadError::Object { path, nid: None, object, problem }.without_path())
                };
                Ok(Box::new(Object(opened.map_err(failed)?, size)))
            }
            _ => Err(io::Error::other("no regular file").into()),
        }
    }
}

/// Contents that are an object, with their length.
struct Object(OpenObject, u64);

impl Content for Object {
    fn read_exact_at(&mut self, buf: &mut [u8], off: u64) -> Result<(), ContentError> {
        self.0.read_exact_at(buf, off).map_err(|problem| io::Error::other(problem).into())
    }

    fn next_data(&mut self, off: u64) -> Result<Option<Range<u64>>, ContentError> {
        Ok((off < self.1).then_some(off..self.1))
    }

    fn verify_unchanged(&mut self) -> Result<(), ContentError> {
        match self.0.is_unchanged() {
            true => Ok(()),
            false => Err(ContentError::Changed("the object has changed")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_dump;

    #[test]
    fn dumps_are_told_from_other_text() {
        assert!(is_dump(b"/ 0 40755 2 0 0 0 0.0 - - -\n/a"));
        assert!(is_dump(b"/ 4096 40755 2 0 0 0 0.0 - - - user.a=b"));
        for other in [
            "",
            "/",
            "/ ",
            "/ 0 40755 2 0 0 0 0.0 - -",
            "/ 0 100644 2 0 0 0 0.0 - - -",
            "/ x 40755 2 0 0 0 0.0 - - -",
            "/a 0 40755 2 0 0 0 0.0 - - -",
            "/ d 755 0 0 and so on and on and on",
            "#mtree\n/ 0 40755 2 0 0 0 0.0 - - -",
        ] {
            assert!(!is_dump(other.as_bytes()), "{other}");
        }
    }
}
