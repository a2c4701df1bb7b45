//! Trees without a disk.

use kiln_tree::{
    Builder, Content, ContentError, ContentId, Kind, Metadata, Node, NodeId, PlainContents, ThinSlice, Tree, TreeError,
    Version, Xattr,
};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Contents in memory: runs of data with holes between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemFile {
    len: u64,
    /// Runs by offset, not empty, not overlapping.
    runs: Vec<(u64, Vec<u8>)>,
}

impl MemFile {
    /// Creates a file without holes.
    pub fn whole(bytes: Vec<u8>) -> Self {
        let mut file = Self::default();
        file.push(bytes);
        file
    }

    /// Appends data.
    pub fn push(&mut self, bytes: Vec<u8>) {
        let off = self.len;
        self.len += bytes.len() as u64;
        match self.runs.last_mut() {
            Some((start, run)) if *start + run.len() as u64 == off => run.extend_from_slice(&bytes),
            _ if bytes.is_empty() => {}
            _ => self.runs.push((off, bytes)),
        }
    }

    /// Appends a hole.
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

/// Fault of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The file cannot be opened.
    Open,
    /// The file cannot be read at this byte.
    Read(u64),
    /// The file has changed after it was read.
    Changed,
    /// The file can be opened this many times.
    OpenAfter(u32),
    /// After this many times, the file has these bytes, and its timestamps reveal it.
    Becomes(u32, &'static [u8]),
    /// After this many times, its first byte differs, and nothing else reveals it: the effect of a
    /// collision of digests.
    FlipAfter(u32),
}

struct MemContents {
    files: Arc<[MemFile]>,
    fault: Option<(ContentId, Fault)>,
    /// Number of times that the faulty file was opened.
    opened: AtomicU32,
}

impl MemContents {
    fn open_scanned(&self, id: ContentId) -> Result<Box<dyn Content>, ContentError> {
        let denied = || Err(io::Error::from(io::ErrorKind::PermissionDenied).into());
        let fault = self.fault.filter(|(broken, _)| *broken == id).map(|(_, fault)| fault);
        let before = fault.map_or(0, |_| self.opened.fetch_add(1, Ordering::Relaxed));
        match fault {
            Some(Fault::Open) => denied(),
            Some(Fault::OpenAfter(count)) if before >= count => denied(),
            Some(Fault::Becomes(count, bytes)) if before >= count => {
                match bytes.len() as u64 == self.files[id.0 as usize].len {
                    true => Err(ContentError::Changed("its mtime")),
                    false => Err(ContentError::Resized("its size")),
                }
            }
            // Not yet.
            Some(Fault::FlipAfter(count)) if before < count => {
                Ok(Box::new(MemContent { files: Arc::clone(&self.files), idx: id.0 as usize, fault: None }))
            }
            _ => Ok(Box::new(MemContent { files: Arc::clone(&self.files), idx: id.0 as usize, fault })),
        }
    }

    fn open_changed(&self, id: ContentId) -> Result<Box<dyn Content>, ContentError> {
        match self.fault.filter(|(broken, _)| *broken == id) {
            Some((_, Fault::Changed)) => {
                Ok(Box::new(MemContent { files: Arc::clone(&self.files), idx: id.0 as usize, fault: None }))
            }
            Some((_, Fault::Becomes(_, bytes))) => Ok(Box::new(Now(bytes))),
            _ => self.open_scanned(id),
        }
    }
}

impl PlainContents for MemContents {
    fn open_plain(&self, id: ContentId, _: &[u8], version: Version) -> Result<Box<dyn Content>, ContentError> {
        if version == Version::Changed { self.open_changed(id) } else { self.open_scanned(id) }
    }
}

/// Contents of a file after a change.
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

/// A tree under construction, and contents of its files.
pub struct MemTree {
    builder: Builder,
    files: Vec<MemFile>,
    fault: Option<(ContentId, Fault)>,
}

const META: Metadata = Metadata { permissions: 0o644, uid: 0, gid: 0, mtime: 1_700_000_000, mtime_nsec: 0 };

impl Default for MemTree {
    fn default() -> Self {
        Self { builder: Builder::new(META), files: Vec::new(), fault: None }
    }
}

impl MemTree {
    /// Adds a named node of any type.
    ///
    /// # Panics
    /// If `dir` is not a directory.
    pub fn add(&mut self, dir: NodeId, name: &[u8], kind: Kind) -> NodeId {
        let node = Node { meta: META, xattrs: ThinSlice::default(), kind };
        let node = self.builder.add(node).expect("room for a node");
        self.name(dir, name, node);
        node
    }

    /// Gives a node a further name.
    ///
    /// # Panics
    /// If `dir` is not a directory.
    pub fn name(&mut self, dir: NodeId, name: &[u8], node: NodeId) {
        self.builder.name(dir, name, node);
    }

    /// Adds a named directory.
    pub fn dir(&mut self, dir: NodeId, name: &[u8]) -> NodeId {
        self.add(dir, name, Kind::Directory(Box::default()))
    }

    /// Adds a named regular file.
    pub fn file(&mut self, dir: NodeId, name: &[u8], file: MemFile) -> NodeId {
        let kind = self.contents(file);
        self.add(dir, name, kind)
    }

    /// Returns a regular file with these contents, for [`MemTree::builder`].
    pub fn contents(&mut self, file: MemFile) -> Kind {
        let data: u64 = file.runs.iter().map(|(_, run)| run.len() as u64).sum();
        let (len, content) = (file.len, ContentId(self.files.len() as u32));
        self.files.push(file);
        Kind::File { len, content, sparse: data < len }
    }

    /// Returns the underlying builder, to insert by path.
    pub fn builder(&mut self) -> &mut Builder {
        &mut self.builder
    }

    /// Returns the metadata of a node for modification.
    pub fn meta(&mut self, node: NodeId) -> &mut Metadata {
        self.builder.meta_mut(node).0
    }

    /// Gives a node an attribute.
    pub fn xattr(&mut self, node: NodeId, name: &[u8], value: &[u8]) {
        let (_, xattrs) = self.builder.meta_mut(node);
        let mut list = std::mem::take(xattrs).into_vec();
        list.push(Xattr { name: name.into(), value: value.into() });
        *xattrs = list.into();
    }

    /// Makes a regular file faulty.
    ///
    /// # Panics
    /// If `node` is not a regular file.
    pub fn fault(&mut self, node: NodeId, fault: Fault) {
        let Kind::File { content, .. } = self.builder.nodes()[node.idx()].kind else { panic!("not a regular file") };
        self.fault = Some((content, fault));
    }

    /// Returns the checked tree, whose nodes have other ids.
    ///
    /// # Errors
    /// Those of [`Builder::finish`].
    pub fn finish(self) -> Result<Tree, TreeError> {
        let contents = MemContents { files: self.files.into(), fault: self.fault, opened: AtomicU32::new(0) };
        self.builder.finish(Box::new(contents))
    }
}
