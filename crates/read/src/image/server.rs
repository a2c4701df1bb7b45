//! The view of an image that a server needs whose consumer is a kernel.

use super::Image;
use super::reader::Reader;
use crate::data::view::View;
use crate::error::ReadError;
use crate::metadata::inode::Inode;
use crate::source::latency::Latency;
use crate::tree::dir::DirEntry;
use kiln_format::Nid;
use std::ops::ControlFlow;

/// View of an image for a server, such as one of FUSE, see [`Image::server`].
///
/// The consumer of a server is a kernel with a page cache of its own. Such a server wants bytes
/// that are in memory already, tells the cache which bytes the kernel has got, lists directories
/// from positions, and asks if sources are slow before it prefetches. See
/// [`ReadPolicy::for_page_cache`](crate::ReadPolicy::for_page_cache).
#[derive(Clone, Copy)]
pub struct ServerView<'a> {
    reader: Reader<'a>,
}

impl Image {
    /// Returns the view of the image for a server whose consumer is a kernel.
    pub fn server(&self) -> ServerView<'_> {
        ServerView { reader: self.reader() }
    }
}

impl<'a> ServerView<'a> {
    /// Returns all contents of a file of at most `len_max` bytes if they are cached: its inode in a
    /// cached window of metadata, its contents beside the inode or in one cached extent. Fetches
    /// and decodes nothing.
    ///
    /// Call [`ServerView::mark_consumed`] when the consumer has the bytes.
    ///
    /// # Errors
    /// As [`Image::inode`] and [`Image::read_at`].
    pub fn get_if_cached(self, nid: Nid, len_max: u64) -> Result<Option<View<'a>>, ReadError> {
        self.reader.get_if_cached(nid, len_max)
    }

    /// Returns true if the bytes of `view` were in the cache, decoded by an earlier read of other
    /// bytes of their extent.
    pub fn is_hit(self, view: &View<'_>) -> bool {
        view.is_hit()
    }

    /// Returns the extent that contains the bytes of `view`: its first byte in the file, and all
    /// its bytes. Returns `None` unless extents are kept [until they are
    /// consumed](crate::Retention::UntilConsumed), and the file is read at random.
    ///
    /// The server may push the whole extent into the kernel's page cache, and then calls
    /// [`ServerView::mark_consumed`].
    pub fn containing_extent<'v>(self, view: &'v View<'_>) -> Option<(u64, &'v [u8])> {
        view.containing_extent()
    }

    /// Marks the bytes of this view as consumed, and those of its [containing
    /// extent](ServerView::containing_extent). The cache drops an extent when all its bytes are
    /// consumed.
    pub fn mark_consumed(self, view: View<'_>) {
        self.reader.mark_consumed(view);
    }

    /// Returns true if the last fetch took so long that its bytes were not in memory. Only known if
    /// the [policy](crate::ReadPolicy) has [`Latency`].
    pub fn is_slow(self) -> bool {
        self.reader.volume.policy.latency.as_ref().is_some_and(Latency::is_slow)
    }

    /// Returns true if a fetch was [slow](ServerView::is_slow) in the last 250 milliseconds: then a
    /// server should not prefetch.
    pub fn is_cold(self) -> bool {
        self.reader.volume.policy.latency.as_ref().is_some_and(Latency::is_cold)
    }

    /// Lists a directory from position `from` on: 0, or a position that an earlier listing gave.
    /// Entries come in stored order, "." and ".." included (a "." that is not stored comes last).
    /// Passes each entry and the position behind it to `each`, which may stop.
    ///
    /// ```
    /// # fn main() -> Result<(), kiln_read::ReadError> {
    /// # let image = kiln_read::Image::open_path("tests/golden/zstd.erofs".as_ref(), &[], &Default::default())?;
    /// use std::ops::ControlFlow;
    ///
    /// let root = image.inode(image.root_nid())?;
    /// // Three entries; a later call goes on where this one stopped.
    /// let (mut names, mut next) = (Vec::new(), 0);
    /// image.server().read_dir(&root, 0, &mut |entry, behind| {
    ///     names.push(entry.name);
    ///     next = behind;
    ///     if names.len() < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    /// })?;
    /// # assert!(names.len() == 3 && next > 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// An inode that is no directory, a damaged directory, a failing source.
    pub fn read_dir(
        self,
        dir: &Inode,
        from: u64,
        each: &mut dyn FnMut(DirEntry, u64) -> ControlFlow<()>,
    ) -> Result<(), ReadError> {
        self.reader.read_dir(dir, from, each)
    }
}
