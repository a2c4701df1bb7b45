//! An image as a filesystem: by node ids, with the attributes, owners and names that a mount shows.

use super::buffers::Buffers;
use super::failed::{Failed, RequestSubject};
use super::node;
use super::owners::Owners;
use super::parents::Parents;
use super::unused_holes::UnusedHoles;
use crate::fuse::metrics::{Metrics, RequestKind};
use crate::fuse::options::FuseOptions;
use fuser::{Errno, FileAttr, FileType, Generation, INodeNo, ReplyDirectoryPlus};
use kiln_read::{DirEntry, Image, Inode, ReadError, View};
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// Generation of node ids, which are never reused for another inode.
pub(in crate::fuse) const GENERATION: Generation = Generation(0);

/// An image, its state as a filesystem, and counters. All threads share it.
pub(in crate::fuse) struct ImageFs {
    pub(in crate::fuse) image: Image,
    pub(super) metrics: Arc<Metrics>,
    /// Buffers for contents that are not yet in memory.
    pub(in crate::fuse) buffers: Buffers,
    pub(super) no_holes: UnusedHoles,
    /// False if it is known that no inode has extended attributes.
    pub(super) has_xattrs: bool,
    /// True if the kernel enforces modes and ACLs.
    pub(super) enforces_modes: bool,
    owners: Owners,
    parents: Parents,
}

impl ImageFs {
    pub(in crate::fuse) fn new(image: Image, metrics: Arc<Metrics>, options: &FuseOptions) -> Self {
        ImageFs {
            image,
            metrics,
            buffers: Buffers::default(),
            no_holes: UnusedHoles::default(),
            has_xattrs: true,
            enforces_modes: options.enforces_modes(),
            owners: options.owners.clone(),
            parents: Parents::new(),
        }
    }

    /// Returns the same filesystem with the statement whether any inode has extended attributes.
    pub(in crate::fuse) fn with_xattrs(self, has_xattrs: bool) -> Self {
        Self { has_xattrs, ..self }
    }

    /// Runs the handler of a request. Returns its duration. A panic in it must not end the mount:
    /// the reply that it drops becomes EIO.
    pub(in crate::fuse) fn guarded(&self, kind: RequestKind, handler: impl FnOnce(&Self)) -> Duration {
        self.guarded_with(kind, || handler(self), |()| {})
    }

    /// Runs the handler as [`ImageFs::guarded`] does, and then `after`, when the answer is sent.
    pub(in crate::fuse) fn guarded_with<T>(
        &self,
        kind: RequestKind,
        handler: impl FnOnce() -> T,
        after: impl FnOnce(T),
    ) -> Duration {
        let mut took = Duration::ZERO;
        let guarded = || {
            let (result, duration) = self.metrics.timed(kind, handler);
            took = duration;
            after(result);
        };
        if catch_unwind(AssertUnwindSafe(guarded)).is_err() {
            log::error!("internal error in a FUSE request, answered with EIO; please report it");
        }
        took
    }

    /// Returns the answer to a request that failed, and logs the error.
    pub(super) fn errno(&self, subject: RequestSubject<'_>, error: &ReadError) -> Errno {
        log::warn!("{}", Failed { image: &self.image, parents: &self.parents, subject, error });
        self.metrics.note_error();
        Errno::from_i32(error.errno())
    }

    pub(in crate::fuse) fn inode(&self, node: INodeNo) -> Result<Inode, ReadError> {
        self.image.inode(node::nid(&self.image, node))
    }

    /// Returns the attributes of an inode, with `ino` as `st_ino`.
    pub(in crate::fuse) fn attr(&self, inode: &Inode, ino: INodeNo) -> FileAttr {
        let attr = node::attr(&self.image, inode, ino);
        FileAttr { uid: self.owners.uid.shown(attr.uid), gid: self.owners.gid.shown(attr.gid), ..attr }
    }

    /// Returns the size of a file, and at most `len` bytes of it from `off` on. They are put into
    /// `buf` unless they are already in memory.
    pub(in crate::fuse) fn read<'a>(
        &'a self,
        file: INodeNo,
        off: u64,
        len: usize,
        buf: &'a mut Vec<u8>,
    ) -> Result<(u64, View<'a>), ReadError> {
        let inode = self.inode(file)?;
        Ok((inode.meta.size, self.image.view(&inode, off, len, buf)?))
    }

    pub(in crate::fuse) fn find(&self, dir: &Inode, name: &[u8]) -> Result<Option<Inode>, ReadError> {
        if name == b"." {
            // The kernel looks for the node of a file handle, which is no longer in its cache, and
            // need not be a directory.
            return Ok(Some(*dir));
        }
        let Some(entry) = self.image.lookup(dir, name)? else { return Ok(None) };
        let [node, parent] = [entry.nid, dir.nid].map(|nid| node::node_id(&self.image, nid));
        self.parents.note(node, parent);
        self.image.inode(entry.nid).map(Some)
    }

    pub(in crate::fuse) fn find_xattr(&self, node: INodeNo, name: &[u8]) -> Result<Option<Vec<u8>>, ReadError> {
        let mut value = self.image.get_xattr(&self.inode(node)?, name)?;
        if let Some(value) = &mut value {
            self.owners.translate(name, value);
        }
        Ok(value)
    }

    /// Returns the names of xattrs, each followed by a zero. As in Linux's EROFS, only root sees
    /// `trusted.` ones.
    pub(in crate::fuse) fn xattr_names(&self, node: INodeNo, uid: u32) -> Result<Vec<u8>, ReadError> {
        let mut names = Vec::new();
        for xattr in self.image.list_xattrs(&self.inode(node)?)? {
            if uid == 0 || !xattr.name.starts_with(b"trusted.") {
                names.extend_from_slice(&xattr.name);
                names.push(0);
            }
        }
        Ok(names)
    }

    /// Calls `add` with the entries from position `from` on, and the position after each, until it
    /// returns true: the reply is full.
    pub(in crate::fuse) fn list(
        &self,
        node: INodeNo,
        from: u64,
        add: &mut dyn FnMut(&DirEntry, u64) -> bool,
    ) -> Result<(), ReadError> {
        let mut added = false;
        let result = self.image.server().read_dir(&self.inode(node)?, from, &mut |entry, next| {
            if add(&entry, next) {
                return ControlFlow::Break(());
            }
            added = true;
            ControlFlow::Continue(())
        });
        // Entries before an error are sent; the next request meets the error first.
        if added { Ok(()) } else { result }
    }

    /// Returns the type in a dirent, or the inode's own type if the dirent has none.
    pub(in crate::fuse) fn kind(&self, entry: &DirEntry) -> FileType {
        let number = || self.image.inode(entry.nid).ok().map(|inode| inode.meta.file_type.dirent_number());
        node::kind(entry.file_type).or_else(|| node::kind(number()?)).unwrap_or(FileType::RegularFile)
    }

    /// Adds an entry of `dir` with its attributes. Returns true if the reply has no room for it,
    /// and otherwise the node id of a file that has contents.
    pub(in crate::fuse) fn add_plus(
        &self,
        dir: INodeNo,
        entry: &DirEntry,
        next: u64,
        reply: &mut ReplyDirectoryPlus,
    ) -> (bool, Option<u64>) {
        let image = &self.image;
        let name = OsStr::from_bytes(&entry.name);
        if entry.is_dot() {
            let number = node::inode_number(image, entry.nid);
            // The kernel uses only number and type of "." and "..".
            let attr = node::bare_attr(number, FileType::Directory);
            return (reply.add(number, next, name, &Duration::ZERO, &attr, GENERATION), None);
        }
        let node = node::node_id(image, entry.nid);
        let (attr, ttl) = match image.inode(entry.nid) {
            Ok(inode) => (self.attr(&inode, node), node::named_attr_ttl(image, entry.nid)),
            // The name exists. A request for the inode will get the error.
            Err(_) => (node::bare_attr(node, self.kind(entry)), Duration::ZERO),
        };
        self.parents.note(node, dir);
        let is_full = reply.add(node, next, name, &ttl, &attr, GENERATION);
        let has_contents = !is_full && attr.kind == FileType::RegularFile && attr.size > 0;
        (is_full, has_contents.then_some(node.0))
    }
}
