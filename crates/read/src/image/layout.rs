//! The layout of an image: extents, costs of reads, use of space, damage.

use super::Image;
use crate::check::check;
use crate::check::report::CheckReport;
use crate::data::position::FilePosition;
use crate::error::ReadError;
use crate::explain::Explanation;
use crate::map::extent::Extent;
use crate::map::extents::Extents;
use crate::map::inode_map::Map;
use crate::metadata::inode::Inode;
use crate::usage::report::Usage;
use crate::usage::usage;
use kiln_parallel::Threads;
use std::ops::Range;

impl Image {
    /// Returns all extents of the inode's contents in order. They leave no gaps and end at the end
    /// of the file. A map that breaks this rule is an error, and every error ends the iteration.
    ///
    /// The cost of all extents together is linear in the length of the index; memory does not
    /// depend on it.
    ///
    /// ```
    /// # fn main() -> Result<(), kiln_read::ReadError> {
    /// # let image = kiln_read::Image::open_path("tests/golden/zstd.erofs".as_ref(), &[], &Default::default())?;
    /// let file = image.open_file("/big/text")?;
    /// for extent in image.extents(file.inode()) {
    ///     let extent = extent?;
    ///     println!("{}..{}: {:?}", extent.la, extent.end(), extent.kind);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn extents(&self, inode: &Inode) -> Extents<'_> {
        Extents::new(self.reader(), inode)
    }

    /// Returns the extent that holds byte `off` of the inode's contents, or an empty one if `off`
    /// is behind their end. Does not check that the extent's bytes can be read.
    ///
    /// # Errors
    /// A map that the format does not allow, a failing source.
    pub fn extent_at(&self, inode: &Inode, off: u64) -> Result<Extent, ReadError> {
        self.reader().extent_at(inode, off)
    }

    /// Returns true if the map of an inode with contents consists of encoded extents.
    ///
    /// # Errors
    /// As [`Image::extent_at`].
    pub fn has_encoded_extents(&self, inode: &Inode) -> Result<bool, ReadError> {
        Ok(Map::open(self.reader(), inode)?.compressed().is_some_and(|map| map.has_records()))
    }

    /// Returns the place of a file in stored order. Reads metadata only, in time linear in the
    /// number of the file's extents.
    ///
    /// # Errors
    /// An inode without contents, a damaged map, a failing source.
    pub fn position(&self, inode: &Inode) -> Result<FilePosition, ReadError> {
        self.reader().position(inode)
    }

    /// Returns the cost of a cold read of bytes `range` of the inode's contents, piece by piece.
    /// The range is cut at the end of the file. The inode may be a directory.
    ///
    /// ```
    /// # fn main() -> Result<(), kiln_read::ReadError> {
    /// # let image = kiln_read::Image::open_path("tests/golden/zstd.erofs".as_ref(), &[], &Default::default())?;
    /// let file = image.open_file("/big/text")?;
    /// let cost = image.explain(file.inode(), 0..4096)?.total()?;
    /// println!("4096 bytes: {} fetched, {} decoded", cost.fetched, cost.decoded);
    /// # assert!(cost.wanted == 4096 && cost.fetched > 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// An inode without contents, a damaged map, a failing source. The pieces have errors of their
    /// own.
    pub fn explain(&self, inode: &Inode, range: Range<u64>) -> Result<Explanation<'_>, ReadError> {
        Explanation::new(self.reader(), inode, range)
    }

    /// Counts the contents of the image and the space that they take, on `threads`. The result does
    /// not depend on their number.
    ///
    /// Reads metadata only. Memory: about 16 bytes per inode, and 40 per run of adjacent data; at
    /// most about the length of the image, and usually far less.
    ///
    /// ```
    /// # fn main() -> Result<(), kiln_read::ReadError> {
    /// # let image = kiln_read::Image::open_path("tests/golden/zstd.erofs".as_ref(), &[], &Default::default())?;
    /// let usage = image.usage(kiln_read::Threads::PROCESSORS)?;
    /// println!("{} bytes of metadata in inodes", usage.metadata.inodes);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The first damage found, with its path: sums over a damaged image mean nothing. A failing
    /// source.
    pub fn usage(&self, threads: Threads) -> Result<Usage, ReadError> {
        usage(self, threads)
    }

    /// Checks the whole image, decoding on `threads`.
    ///
    /// The report says what is damaged. The checksum of the superblock is compared even if the
    /// image was opened without.
    ///
    /// ```
    /// # fn main() -> Result<(), kiln_read::ReadError> {
    /// # let image = kiln_read::Image::open_path("tests/golden/zstd.erofs".as_ref(), &[], &Default::default())?;
    /// let report = image.check(kiln_read::Threads::PROCESSORS)?;
    /// for problem in &report.problems {
    ///     println!("{problem}");
    /// }
    /// assert_eq!(report.problem_count, 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A failing source, which says nothing about the image, a device that was not given, or a bug
    /// in this program.
    pub fn check(&self, threads: Threads) -> Result<CheckReport, ReadError> {
        self.check_with(threads, &|_| {})
    }

    /// Checks the whole image as [`Image::check`] does. Calls `progress` with the lengths in bytes
    /// of extents that are going to be checked: those of regular files, of the packed inode and of
    /// the metabox.
    ///
    /// # Errors
    /// As [`Image::check`].
    pub fn check_with(&self, threads: Threads, progress: &dyn Fn(u64)) -> Result<CheckReport, ReadError> {
        check(self.reader(), threads, progress)
    }
}
