//! Names: lookups of paths, and three ways to list directories.

use super::Image;
use crate::error::ReadError;
use crate::metadata::inode::Inode;
use crate::tree::dir::DirEntry;
use crate::tree::entries::DirEntries;
use crate::tree::resolve::FollowLast;
use crate::tree::scan::{ScanFilter, TreeScan};
use crate::tree::walk::Walk;
use kiln_parallel::Threads;

impl Image {
    /// Returns the inode at `path`, with or without a leading slash. Symbolic links are followed
    /// within the image: absolute ones from its root, and ".." of the root is the root.
    ///
    /// ```
    /// # fn main() -> Result<(), kiln_read::ReadError> {
    /// # let image = kiln_read::Image::open_path("tests/golden/zstd.erofs".as_ref(), &[], &Default::default())?;
    /// use kiln_read::{FollowLast, ReadError};
    ///
    /// let text = image.resolve(b"/big/text", FollowLast::Follow)?;
    /// println!("{:o} {} bytes", text.mode(), text.size());
    /// assert!(matches!(image.resolve(b"/absent", FollowLast::Follow), Err(ReadError::NotFound { .. })));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ReadError::NotFound`], [`ReadError::NotADirectory`] or [`ReadError::TooManySymlinks`] with
    /// `path`; a damaged image, a failing source.
    pub fn resolve(&self, path: &[u8], last: FollowLast) -> Result<Inode, ReadError> {
        self.reader().resolve(path, last)
    }

    /// Returns the target of a symbolic link. As in Linux, it ends at the first zero byte.
    ///
    /// # Errors
    /// An inode of another type, a target of more than 4095 bytes, a damaged image, a failing
    /// source.
    pub fn read_link(&self, inode: &Inode) -> Result<Vec<u8>, ReadError> {
        self.reader().read_link(inode)
    }

    /// Returns the entry `name` of a directory. Names are found by bisection: names out of order
    /// may not be found, as in Linux.
    ///
    /// ```
    /// # fn main() -> Result<(), kiln_read::ReadError> {
    /// # let image = kiln_read::Image::open_path("tests/golden/zstd.erofs".as_ref(), &[], &Default::default())?;
    /// let root = image.inode(image.root_nid())?;
    /// let entry = image.lookup(&root, b"big")?.expect("a directory of this name");
    /// assert!(image.inode(entry.nid)?.is_dir());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// An inode that is no directory, a damaged directory, a failing source.
    pub fn lookup(&self, dir: &Inode, name: &[u8]) -> Result<Option<DirEntry>, ReadError> {
        self.reader().lookup(dir, name)
    }

    /// Lists the directory at `path`, with or without a leading slash. Follows symbolic links
    /// within the image. For the directory of an inode, see [`DirEntries::new`].
    ///
    /// ```
    /// # fn main() -> Result<(), kiln_read::ReadError> {
    /// # let image = kiln_read::Image::open_path("tests/golden/zstd.erofs".as_ref(), &[], &Default::default())?;
    /// for entry in image.open_dir("/big")? {
    ///     let entry = entry?;
    ///     println!("{} has {} bytes", entry.name.escape_ascii(), image.inode(entry.nid)?.size());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Image::resolve`]; [`ReadError::NotADirectory`].
    pub fn open_dir(&self, path: impl AsRef<[u8]>) -> Result<DirEntries, ReadError> {
        let path = path.as_ref();
        let dir = self.resolve(path, FollowLast::Follow)?;
        match dir.is_dir() {
            true => Ok(DirEntries::new(self, &dir)),
            false => Err(ReadError::NotADirectory { path: path.to_vec() }),
        }
    }

    /// Walks the tree from `start` on, which has the path `path`: depth first, directories before
    /// their entries, names in stored order. An inode with several names comes with each of them.
    ///
    /// An error ends the part of the tree that it makes unreachable, and nothing else. A directory
    /// that is met twice is an error, so that the walk ends even if directories form a cycle.
    ///
    /// ```
    /// # fn main() -> Result<(), kiln_read::ReadError> {
    /// # let image = kiln_read::Image::open_path("tests/golden/zstd.erofs".as_ref(), &[], &Default::default())?;
    /// let root = image.inode(image.root_nid())?;
    /// let mut bytes = 0;
    /// for entry in image.walk(&root, b"/") {
    ///     let entry = entry?;
    ///     bytes += if entry.inode.is_file() { entry.inode.size() } else { 0 };
    /// }
    /// assert!(bytes > 100_000);
    /// # Ok(())
    /// # }
    /// ```
    pub fn walk(&self, start: &Inode, path: &[u8]) -> Walk {
        Walk::new(self, start, path)
    }

    /// Returns a scan for all files below the directory `root` that `filter` takes, which gives
    /// flat columns: for a million files it makes no allocation per file. The result does not
    /// depend on `threads`. Symbolic links are not followed.
    ///
    /// ```
    /// # fn main() -> Result<(), kiln_read::ReadError> {
    /// use kiln_read::{ScanFilter, Threads};
    ///
    /// # let image = kiln_read::Image::open_path("tests/golden/zstd.erofs".as_ref(), &[], &Default::default())?;
    /// let root = image.inode(image.root_nid())?;
    /// let files = image.scan(&root, &ScanFilter::regular_files(), Threads::PROCESSORS).table()?;
    /// let bytes: u64 = files.sizes.iter().sum();
    /// println!("{} files of {bytes} bytes, the first is {}", files.len(), files.path(0).escape_ascii());
    ///
    /// // The order to read them in.
    /// let positions = files.positions(&image, Threads::PROCESSORS)?;
    /// let mut order: Vec<usize> = (0..files.len()).collect();
    /// order.sort_by_key(|&idx| positions[idx]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn scan<'a>(&'a self, root: &Inode, filter: &'a ScanFilter, threads: Threads) -> TreeScan<'a> {
        TreeScan::new(self.reader(), root, filter, threads)
    }
}
