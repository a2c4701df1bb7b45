//! Trees without a disk.

use kiln_builder::BuildError;
use kiln_builder::tree::{
    Content, ContentError, ContentId, Contents, Kind, Metadata, Node, NodeId, ThinSlice, Tree, Xattr,
};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Contents in memory: runs of data, holes between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemFile {
    len: u64,
    /// By offset, not empty, not overlapping.
    runs: Vec<(u64, Vec<u8>)>,
}

impl MemFile {
    /// A file without holes.
    pub fn whole(bytes: Vec<u8>) -> Self {
        let mut file = Self::default();
        file.push(bytes);
        file
    }

    /// Append data.
    pub fn push(&mut self, bytes: Vec<u8>) {
        let off = self.len;
        self.len += bytes.len() as u64;
        match self.runs.last_mut() {
            Some((start, run)) if *start + run.len() as u64 == off => run.extend_from_slice(&bytes),
            _ if bytes.is_empty() => {}
            _ => self.runs.push((off, bytes)),
        }
    }

    /// Append a hole.
    pub fn push_hole(&mut self, len: u64) {
        self.len += len;
    }

    fn read(&self, buf: &mut [u8], off: u64) -> Result<(), ContentError> {
        let end = off + buf.len() as u64;
        if end > self.len {
            return Err(ContentError::Changed("its size"));
        }
        buf.fill(0);
        for (start, run) in &self.runs {
            let (from, to) = (off.max(*start), end.min(start + run.len() as u64));
            if from < to {
                buf[(from - off) as usize..(to - off) as usize]
                    .copy_from_slice(&run[(from - start) as usize..(to - start) as usize]);
            }
        }
        Ok(())
    }

    fn next_data(&self, off: u64) -> Option<Range<u64>> {
        let runs = self.runs.iter().map(|(start, run)| *start..start + run.len() as u64);
        runs.into_iter().find(|run| run.end > off).map(|run| run.start.max(off)..run.end)
    }
}

/// What goes wrong with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It cannot be opened.
    Open,
    /// It cannot be read at this byte.
    Read(u64),
    /// It is another one after it was read.
    Changed,
    /// It can be opened so many times.
    OpenAfter(u32),
    /// After so many times it has these bytes, and its timestamps tell.
    Becomes(u32, &'static [u8]),
    /// After so many times its first byte is another, and nothing else tells: what a collision of digests looks like.
    FlipAfter(u32),
}

struct MemContents {
    files: Arc<[MemFile]>,
    fault: Option<(ContentId, Fault)>,
    /// How often the faulty file was opened.
    opened: AtomicU32,
}

impl Contents for MemContents {
    fn open(&self, id: ContentId, _: &[u8]) -> Result<Box<dyn Content>, ContentError> {
        let denied = || Err(io::Error::from(io::ErrorKind::PermissionDenied).into());
        let fault = self.fault.filter(|(broken, _)| *broken == id).map(|(_, fault)| fault);
        let before = fault.map_or(0, |_| self.opened.fetch_add(1, Ordering::Relaxed));
        match fault {
            Some(Fault::Open) => denied(),
            Some(Fault::OpenAfter(count)) if before >= count => denied(),
            Some(Fault::Becomes(count, _)) if before >= count => Err(ContentError::Changed("its mtime")),
            // Not yet.
            Some(Fault::FlipAfter(count)) if before < count => {
                Ok(Box::new(MemContent { files: Arc::clone(&self.files), idx: id.0 as usize, fault: None }))
            }
            _ => Ok(Box::new(MemContent { files: Arc::clone(&self.files), idx: id.0 as usize, fault })),
        }
    }

    fn open_changed(&self, id: ContentId, path: &[u8]) -> Result<Box<dyn Content>, ContentError> {
        match self.fault.filter(|(broken, _)| *broken == id) {
            Some((_, Fault::Changed)) => {
                Ok(Box::new(MemContent { files: Arc::clone(&self.files), idx: id.0 as usize, fault: None }))
            }
            Some((_, Fault::Becomes(_, bytes))) => Ok(Box::new(Now(bytes))),
            _ => self.open(id, path),
        }
    }
}

/// What a file has become.
struct Now(&'static [u8]);

impl Content for Now {
    fn read_exact_at(&mut self, buf: &mut [u8], off: u64) -> Result<(), ContentError> {
        let there = self.0.get(off as usize..).unwrap_or_default();
        let len = there.len().min(buf.len());
        buf[..len].copy_from_slice(&there[..len]);
        buf[len..].fill(0);
        Ok(())
    }

    fn next_data(&mut self, off: u64) -> Result<Option<Range<u64>>, ContentError> {
        let end = self.0.len() as u64;
        Ok((off < end).then_some(off..end))
    }

    fn verify_unchanged(&mut self) -> Result<(), ContentError> {
        Ok(())
    }
}

struct MemContent {
    files: Arc<[MemFile]>,
    idx: usize,
    fault: Option<Fault>,
}

impl Content for MemContent {
    fn read_exact_at(&mut self, buf: &mut [u8], off: u64) -> Result<(), ContentError> {
        match self.fault {
            Some(Fault::Read(at)) if (off..off + buf.len() as u64).contains(&at) => {
                Err(io::Error::other("a bad sector").into())
            }
            Some(Fault::FlipAfter(_)) => {
                self.files[self.idx].read(buf, off)?;
                if off == 0 {
                    buf.iter_mut().take(1).for_each(|byte| *byte ^= 1);
                }
                Ok(())
            }
            _ => self.files[self.idx].read(buf, off),
        }
    }

    fn next_data(&mut self, off: u64) -> Result<Option<Range<u64>>, ContentError> {
        Ok(self.files[self.idx].next_data(off))
    }

    fn verify_unchanged(&mut self) -> Result<(), ContentError> {
        match self.fault {
            Some(Fault::Changed) => Err(ContentError::Changed("its mtime")),
            _ => Ok(()),
        }
    }
}

/// A tree in the making.
pub struct MemTree {
    nodes: Vec<Node>,
    files: Vec<MemFile>,
    fault: Option<(ContentId, Fault)>,
}

impl Default for MemTree {
    fn default() -> Self {
        let mut tree = Self { nodes: Vec::new(), files: Vec::new(), fault: None };
        tree.node(Kind::Directory(Box::default()));
        tree
    }
}

impl MemTree {
    /// A node that has no name yet.
    pub fn node(&mut self, kind: Kind) -> NodeId {
        let meta = Metadata { permissions: 0o644, uid: 0, gid: 0, mtime: 1_700_000_000, mtime_nsec: 0 };
        self.nodes.push(Node { meta, xattrs: ThinSlice::default(), kind });
        NodeId(self.nodes.len() as u32 - 1)
    }

    /// Name a node.
    ///
    /// # Panics
    /// If `dir` is no directory.
    pub fn name(&mut self, dir: NodeId, name: &[u8], node: NodeId) {
        let Kind::Directory(entries) = &mut self.nodes[dir.idx()].kind else { panic!("not a directory") };
        entries.push(name, node);
    }

    /// A named node of any type.
    pub fn add(&mut self, dir: NodeId, name: &[u8], kind: Kind) -> NodeId {
        let node = self.node(kind);
        self.name(dir, name, node);
        node
    }

    /// A named directory.
    pub fn dir(&mut self, dir: NodeId, name: &[u8]) -> NodeId {
        self.add(dir, name, Kind::Directory(Box::default()))
    }

    /// A named regular file.
    pub fn file(&mut self, dir: NodeId, name: &[u8], file: MemFile) -> NodeId {
        let data: u64 = file.runs.iter().map(|(_, run)| run.len() as u64).sum();
        let (len, content) = (file.len, ContentId(self.files.len() as u32));
        self.files.push(file);
        self.add(dir, name, Kind::File { len, content, sparse: data < len })
    }

    /// The metadata of a node, to be changed.
    pub fn meta(&mut self, node: NodeId) -> &mut Metadata {
        &mut self.nodes[node.idx()].meta
    }

    /// Give a node an attribute.
    pub fn xattr(&mut self, node: NodeId, name: &[u8], value: &[u8]) {
        let xattrs = &mut self.nodes[node.idx()].xattrs;
        let mut list = std::mem::take(xattrs).into_vec();
        list.push(Xattr { name: name.into(), value: value.into() });
        *xattrs = list.into();
    }

    /// Break a regular file.
    ///
    /// # Panics
    /// If `node` is none.
    pub fn fault(&mut self, node: NodeId, fault: Fault) {
        let Kind::File { content, .. } = self.nodes[node.idx()].kind else { panic!("not a regular file") };
        self.fault = Some((content, fault));
    }

    /// The checked tree.
    ///
    /// # Errors
    /// As [`Tree::new`].
    pub fn finish(self) -> Result<Tree, BuildError> {
        Tree::new(
            self.nodes,
            Box::new(MemContents { files: self.files.into(), fault: self.fault, opened: AtomicU32::new(0) }),
        )
    }
}
