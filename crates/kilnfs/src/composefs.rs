//! Images of composefs: names, metadata and small files, with all other files as objects beside it.
//!
//! The digest of such an image is an id of the whole tree.
//!
//! ```
//! use kilnfs::composefs::{self, dump, image};
//! # let tmp = tempfile::tempdir().unwrap();
//! let text = &b"/ 0 40755 2 0 0 0 0.0 - - -\n/greeting 6 100644 1 0 0 0 0.0 - hello\\n -\n"[..];
//! let tree = dump::read(text, &mut |_| {})?;
//! let path = tmp.path().join("image");
//! image::write(&tree, &image::ImageOptions::default(), &mut std::fs::File::create(&path)?)?;
//!
//! let again = composefs::read_image(&kilnfs::open(&path)?)?;
//! let mut dumped = Vec::new();
//! dump::write(&again, &mut dumped)?;
//! assert_eq!(dumped, text);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub use kiln_composefs::*;
pub use kiln_composefs_store as store;
pub use kiln_composefs_store::{Store, StoreError};

use kiln_composefs::dump::DumpError;
use kiln_composefs::from_tree::container::ContainerError;
use kiln_composefs::restore::{ImageFile, RestoreError, Role};
use kiln_composefs::tree::{Attributes, Builder, FileData, INLINE_MAX_LEN, NodeIdx};
use kiln_format::Escaped;
use kiln_format::inode::FileType;
use kiln_read::{Image, Inode, Nid, ReadError, WalkEntry, Xattr};
use kiln_tree::UnreadableFile;
use std::collections::{BTreeSet, HashMap, HashSet};

/// Error of a composefs image, dump or store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ComposefsError {
    /// A dump that cannot be read.
    #[error(transparent)]
    Dump(#[from] DumpError),
    /// A file that no image can have.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// A container image that composefs-rs refuses.
    #[error(transparent)]
    Container(#[from] ContainerError),
    /// A file that cannot be read.
    #[error(transparent)]
    Source(#[from] UnreadableFile),
    /// An image that cannot be written.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// A store that cannot be read or changed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An image that cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// An EROFS image that is none of composefs.
    #[error("no image of composefs")]
    OtherImage,
    /// A file of an image that composefs does not write so.
    #[error("{}: {source}", Escaped(path))]
    Restore {
        /// Its path.
        path: Vec<u8>,
        /// The reason.
        source: RestoreError,
    },
    /// A file of an image with contents that composefs does not store.
    #[error("{}: {size} bytes of contents in the image: composefs stores {INLINE_MAX_LEN} at most", Escaped(path))]
    Contents {
        /// Its path.
        path: Vec<u8>,
        /// Its size in bytes.
        size: u64,
    },
}

/// Reads a composefs image back: the result has no stubs, and whiteouts instead of the files that stand
/// for them. Its image is the same again, if hard links are canonical, as in [`dump::write`].
///
/// # Errors
/// An image that is damaged, or none of composefs.
pub fn read_image(image: &Image) -> Result<CfsTree, ComposefsError> {
    if !image.is_composefs() {
        return Err(ComposefsError::OtherImage);
    }
    let files = files(image)?;
    let pairs: Vec<Vec<_>> = files.iter().map(|file| file.xattrs.iter().map(pair).collect()).collect();
    let views: Vec<_> = files.iter().zip(&pairs).map(|(file, pairs)| file.view(pairs)).collect();
    let mut roles = Vec::with_capacity(files.len());
    let mut with_whiteouts = HashSet::new();
    for view in &views {
        let role = view.role().map_err(|source| ComposefsError::Restore { path: view.path.to_vec(), source })?;
        if role == Role::Whiteout {
            with_whiteouts.insert(split(view.path).0);
        }
        roles.push(role);
    }
    let mut builder = Builder::new(&attributes(&files[0].inode));
    let mut dirs = HashMap::from([(&b""[..], NodeIdx::ROOT)]);
    let mut first_names: HashMap<Nid, NodeIdx> = HashMap::new();
    for ((file, view), role) in files.iter().zip(&views).zip(roles) {
        let at = |problem| TreeError { path: file.path.clone(), node: NodeIdx::ROOT, problem };
        let (dir, name) = split(view.path);
        if role == Role::Stub {
            continue;
        }
        let mut node = NodeIdx::ROOT;
        if file.path != b"/" {
            let parent = dirs[dir];
            // composefs has no whiteouts with several names.
            if let Some(&first) = first_names.get(&file.inode.nid).filter(|_| role != Role::Whiteout) {
                builder.link(parent, name, first).map_err(at)?;
                continue;
            }
            let contents = file.contents(image, &role)?;
            let data = data(view, role, &contents);
            node = builder.add(parent, name, &attributes(&file.inode), data).map_err(at)?;
            match view.file_type {
                FileType::Directory => drop(dirs.insert(view.path, node)),
                _ => drop(first_names.insert(file.inode.nid, node)),
            }
        }
        let path = if node == NodeIdx::ROOT { b"" } else { view.path };
        for (key, value) in view.original_xattrs(with_whiteouts.contains(path)) {
            builder.xattr(&key, value).map_err(at)?;
        }
    }
    Ok(builder.finish()?)
}

/// Returns the objects that a tree needs: their paths in a store, sorted.
pub fn objects(tree: &CfsTree) -> BTreeSet<Vec<u8>> {
    objects_below(tree, [NodeIdx::ROOT])
}

/// Returns the objects of these files, and of everything below them.
pub fn objects_below(tree: &CfsTree, files: impl IntoIterator<Item = NodeIdx>) -> BTreeSet<Vec<u8>> {
    let mut found = BTreeSet::new();
    let mut stack: Vec<_> = files.into_iter().collect();
    while let Some(node) = stack.pop() {
        stack.extend(tree.entries(node));
        if let FileData::External { object: Some(object), .. } = tree.data(node) {
            found.insert(object.to_vec());
        }
    }
    found
}

/// A file as it is stored in the image.
struct Stored {
    /// Path with a leading slash.
    path: Vec<u8>,
    inode: Inode,
    xattrs: Vec<Xattr>,
}

impl Stored {
    fn view<'a>(&'a self, xattrs: &'a [(&'a [u8], &'a [u8])]) -> ImageFile<'a> {
        // The number was decoded from 32 bits.
        let rdev = self.inode.rdev().encode().unwrap_or_default();
        ImageFile { path: &self.path, file_type: self.inode.file_type(), size: self.inode.size(), rdev, xattrs }
    }

    /// Reads contents that are stored in the image, or the target of a symbolic link.
    fn contents(&self, image: &Image, role: &Role<'_>) -> Result<Vec<u8>, ComposefsError> {
        let failed = |error: ReadError| error.at_path(&self.path);
        let size = self.inode.size();
        match (self.inode.file_type(), role) {
            (FileType::Symlink, _) => Ok(image.read_link(&self.inode).map_err(failed)?),
            (FileType::Regular, Role::Plain) if size > INLINE_MAX_LEN as u64 => {
                Err(ComposefsError::Contents { path: self.path.clone(), size })
            }
            (FileType::Regular, Role::Plain) => {
                let mut contents = vec![0; size as usize];
                let len = image.read_at(&self.inode, &mut contents, 0).map_err(failed)?;
                contents.truncate(len);
                Ok(contents)
            }
            _ => Ok(Vec::new()),
        }
    }
}

/// Returns all files of an image, directories before their entries, those in the order of names.
fn files(image: &Image) -> Result<Vec<Stored>, ReadError> {
    let root = image.inode(image.root_nid())?;
    image
        .walk(&root, b"/")
        .map(|entry| {
            let WalkEntry { path, inode } = entry?;
            let xattrs = image.list_xattrs(&inode).map_err(|error| error.at_path(&path))?;
            Ok(Stored { path, inode, xattrs })
        })
        .collect()
}

fn pair(xattr: &Xattr) -> (&[u8], &[u8]) {
    (&xattr.name, &xattr.value)
}

/// Splits a path into that of its directory (empty for the root) and its name.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let slash = path.iter().rposition(|&byte| byte == b'/').unwrap_or_default();
    (&path[..slash], &path[slash + 1..])
}

fn attributes(inode: &Inode) -> Attributes {
    Attributes {
        permissions: inode.permissions(),
        nlink: inode.nlink(),
        uid: inode.uid(),
        gid: inode.gid(),
        mtime: inode.mtime(),
        mtime_nsec: inode.mtime_nsec(),
    }
}

fn data<'a>(file: &ImageFile<'a>, role: Role<'a>, contents: &'a [u8]) -> FileData<'a> {
    match (role, file.file_type) {
        (Role::External { digest, object }, _) => FileData::External { size: file.size, digest, object },
        (Role::Whiteout | Role::Stub, _) => FileData::CharDevice(0),
        (Role::Plain, FileType::Directory) => FileData::Directory,
        (Role::Plain, FileType::Regular) => FileData::Inline(contents),
        (Role::Plain, FileType::Symlink) => FileData::Symlink(contents),
        (Role::Plain, FileType::CharDevice) => FileData::CharDevice(file.rdev),
        (Role::Plain, FileType::BlockDevice) => FileData::BlockDevice(file.rdev),
        (Role::Plain, FileType::Fifo) => FileData::Fifo,
        (Role::Plain, FileType::Socket) => FileData::Socket,
    }
}
