//! Contents of files: the ways to read them, and to load them before they are read.

use super::Image;
use crate::data::batch_into::FileRangeMut;
use crate::data::batch_plan::{BatchItem, FileRange};
use crate::data::file::File;
use crate::data::loading::LoadedHotList;
use crate::data::seek::SeekWhat;
use crate::data::view::View;
use crate::error::ReadError;
use crate::hotlist::HotList;
use crate::metadata::inode::Inode;
use crate::tree::resolve::FollowLast;
use bytes::Bytes;
use kiln_parallel::Threads;
use std::ops::Range;
use std::sync::atomic::AtomicBool;

impl Image {
    /// Reads contents from byte `off` on into `buf`. Returns the number of bytes read, which is
    /// less than `buf.len()` only at the end of the file.
    ///
    /// ```
    /// # fn main() -> Result<(), kiln_read::ReadError> {
    /// # let image = kiln_read::Image::open_path("tests/golden/zstd.erofs".as_ref(), &[], &Default::default())?;
    /// use kiln_read::FollowLast;
    ///
    /// let text = image.resolve(b"/big/text", FollowLast::Follow)?;
    /// let mut page = [0; 4096];
    /// let len = image.read_at(&text, &mut page, 8192)?;
    /// assert_eq!(len, 4096);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A directory, a file type without contents, a damaged image, a failing source. The bytes of
    /// `buf` are then unspecified.
    pub fn read_at(&self, inode: &Inode, buf: &mut [u8], off: u64) -> Result<usize, ReadError> {
        self.reader().read_at(inode, buf, off)
    }

    /// Returns at most `len` bytes of contents from byte `off` on, fewer only at the end of the
    /// file, without a copy where that is possible.
    ///
    /// Bytes of one extent are borrowed if the source has them in memory and stores them plain (a
    /// [`MappedSource`](crate::MappedSource)), or if the extent is in the cache. All other bytes
    /// are read into `buf`, which grows as needed, to the length of the longest extent at most.
    /// Pass the same buffer again to save allocations.
    ///
    /// ```
    /// # fn main() -> Result<(), kiln_read::ReadError> {
    /// # let image = kiln_read::Image::open_path("tests/golden/zstd.erofs".as_ref(), &[], &Default::default())?;
    /// let file = image.open_file("/big/text")?;
    /// let mut buf = Vec::new();
    /// let mut lines = 0;
    /// for off in (0..file.size()).step_by(65536) {
    ///     let view = image.view(file.inode(), off, 65536, &mut buf)?;
    ///     lines += view.iter().filter(|&&byte| byte == b'\n').count();
    /// }
    /// # assert!(lines > 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Image::read_at`].
    pub fn view<'a>(
        &'a self,
        inode: &Inode,
        off: u64,
        len: usize,
        buf: &'a mut Vec<u8>,
    ) -> Result<View<'a>, ReadError> {
        self.reader().view(inode, off, len, buf)
    }

    /// Returns bytes `range` of a file's contents, cut at the end of the file, in memory that
    /// outlives the image.
    ///
    /// Bytes of one extent are not copied if they are in memory already: plain data of a source in
    /// memory (a [`MappedSource`](crate::MappedSource), a [`MemorySource`](crate::MemorySource)),
    /// which stays open as long as the bytes, and decoded data in the cache, whose whole extent, at
    /// most 12 MiB, stays in memory as long as the bytes. All other bytes are read into memory of
    /// their own.
    ///
    /// ```
    /// # fn main() -> Result<(), kiln_read::ReadError> {
    /// # let image = kiln_read::Image::open_path("tests/golden/zstd.erofs".as_ref(), &[], &Default::default())?;
    /// let file = image.open_file("/big/text")?;
    /// let front = image.read_bytes(file.inode(), 0..1000)?;
    /// drop((file, image));
    /// assert_eq!(front.len(), 1000);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Image::read_at`]. [`ReadError::Unsupported`] for a range longer than
    /// [`Image::range_len_max`]. [`ReadError::Io`] if there is not enough memory.
    pub fn read_bytes(&self, inode: &Inode, range: Range<u64>) -> Result<Bytes, ReadError> {
        self.reader().read_bytes(inode, range)
    }

    /// Returns the length of the longest range, in bytes, that [`Image::read_bytes`] reads: 1 GiB,
    /// or 4096 times the length of the image if that is more. A longer range is mostly holes; read
    /// it in parts.
    pub fn range_len_max(&self) -> u64 {
        self.reader().range_len_max()
    }

    /// Returns the number of bytes that may be allocated for a file before it is read. The size of
    /// a file is a claim of the image until then.
    pub fn at_once_max(&self) -> u64 {
        self.reader().at_once_max()
    }

    /// Reads all `ranges` on `threads` in stored order, and passes each to `each` once: from any
    /// thread, in any order.
    ///
    /// A range of more than 4 MiB is passed in several items, with items of other ranges between
    /// them. Memory is bounded by two extents, one item and 1 MiB of stored bytes per thread.
    ///
    /// ```
    /// # fn main() -> Result<(), kiln_read::ReadError> {
    /// # let image = kiln_read::Image::open_path("tests/golden/zstd.erofs".as_ref(), &[], &Default::default())?;
    /// use kiln_read::{FileRange, Threads};
    /// use std::sync::Mutex;
    ///
    /// let root = image.inode(image.root_nid())?;
    /// let mut files = Vec::new();
    /// for entry in image.walk(&root, b"/") {
    ///     let inode = entry?.inode;
    ///     if inode.is_file() {
    ///         files.push(FileRange { inode, range: 0..inode.size() });
    ///     }
    /// }
    /// // The number of zeros in each file.
    /// let zeros = Mutex::new(vec![0; files.len()]);
    /// image.read_many(&files, Threads::PROCESSORS, &|item| {
    ///     if let Ok(bytes) = item.bytes {
    ///         zeros.lock().unwrap()[item.idx] += bytes.iter().filter(|&&byte| byte == 0).count();
    ///     }
    /// });
    /// # Ok(())
    /// # }
    /// ```
    pub fn read_many(&self, ranges: &[FileRange], threads: Threads, each: &(dyn Fn(BatchItem<'_>) + Sync)) {
        self.reader().read_many(ranges, threads, each)
    }

    /// Fills the buffers of all `reads` on `threads`, in the order in which their contents are
    /// stored. Returns the number of bytes of each read, in the order of `reads`; it is less than
    /// its buffer has only at the end of the file.
    ///
    /// An error of one read stops no other read; the bytes of its buffer are then unspecified.
    /// Threads end before the call returns. Memory beside the buffers is bounded by a few hundred
    /// bytes per read, and two extents and 1 MiB of stored bytes per thread.
    ///
    /// ```
    /// # fn main() -> Result<(), kiln_read::ReadError> {
    /// use kiln_read::{FileRangeMut, Threads};
    ///
    /// # let image = kiln_read::Image::open_path("tests/golden/zstd.erofs".as_ref(), &[], &Default::default())?;
    /// let files = [image.open_file("/big/text")?, image.open_file("/big/mixed")?];
    /// // One buffer for a batch of files, as loaders of training data use it.
    /// let mut data = vec![0; files.iter().map(|file| file.size() as usize).sum()];
    /// let (mut rest, mut reads) = (&mut data[..], Vec::new());
    /// for file in &files {
    ///     let (buf, behind) = rest.split_at_mut(file.size() as usize);
    ///     reads.push(FileRangeMut { inode: *file.inode(), off: 0, buf });
    ///     rest = behind;
    /// }
    /// for len in image.read_many_into(&mut reads, Threads::PROCESSORS) {
    ///     assert!(len? > 0);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn read_many_into(&self, reads: &mut [FileRangeMut<'_>], threads: Threads) -> Vec<Result<usize, ReadError>> {
        self.reader().read_many_into(reads, threads)
    }

    /// Opens the file at `path`, with or without a leading slash. Follows symbolic links within the
    /// image.
    ///
    /// # Errors
    /// As [`Image::resolve`]; [`ReadError::IsADirectory`], or [`ReadError::NoContents`] for a
    /// device, a FIFO or a socket.
    pub fn open_file(&self, path: impl AsRef<[u8]>) -> Result<File, ReadError> {
        let path = path.as_ref();
        self.file(&self.resolve(path, FollowLast::Follow)?).map_err(|error| error.at_path(path))
    }

    /// Returns the contents of an inode, a regular file or the target of a symbolic link, as a
    /// file. Reads nothing.
    ///
    /// # Errors
    /// [`ReadError::IsADirectory`], or [`ReadError::NoContents`] for a device, a FIFO or a socket.
    pub fn file(&self, inode: &Inode) -> Result<File, ReadError> {
        File::new(self.clone(), inode)
    }

    /// Returns the first byte at or behind `off` that is data, or a hole; the end of the file
    /// counts as a hole. Returns `None` if there is no such byte or `off` is not in the file
    /// (ENXIO). Holes are those of the layout, not runs of stored zeros.
    ///
    /// ```
    /// # fn main() -> Result<(), kiln_read::ReadError> {
    /// # let image = kiln_read::Image::open_path("tests/golden/zstd.erofs".as_ref(), &[], &Default::default())?;
    /// use kiln_read::SeekWhat;
    ///
    /// let file = image.open_file("/big/text")?;
    /// assert_eq!(image.seek(file.inode(), 0, SeekWhat::Data)?, Some(0));
    /// assert_eq!(image.seek(file.inode(), 0, SeekWhat::Hole)?, Some(file.size()));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// An inode without contents, a damaged map, a failing source.
    pub fn seek(&self, inode: &Inode, off: u64, what: SeekWhat) -> Result<Option<u64>, ReadError> {
        self.reader().seek(inode, off, what)
    }

    /// Announces to the sources that `ranges` of files will be read soon, at most 16 MiB of each.
    /// Returns the number of stored bytes that were announced. Reads metadata only.
    ///
    /// Ranges that are stored side by side are announced together. If the source can tell that the
    /// file in the middle of the list is in memory, and no fetch was slow of late, nothing is
    /// announced, as that would cost more than it saves.
    ///
    /// ```
    /// # fn main() -> Result<(), kiln_read::ReadError> {
    /// # let image = kiln_read::Image::open_path("tests/golden/zstd.erofs".as_ref(), &[], &Default::default())?;
    /// use kiln_read::FileRange;
    ///
    /// let files = [image.open_file("/big/text")?, image.open_file("/big/mixed")?];
    /// let ranges = files.iter().map(|file| FileRange { inode: *file.inode(), range: 0..file.size() });
    /// let announced = image.prefetch(&ranges.collect::<Vec<_>>()).map_err(|(_, error)| error)?;
    /// println!("{announced} bytes will be read ahead");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The first range that cannot be looked up, as an index of `ranges`, and its error: an inode
    /// without contents, a damaged map, a failing source. Nothing is announced then.
    pub fn prefetch(&self, ranges: &[FileRange]) -> Result<u64, (usize, ReadError)> {
        self.reader().prefetch(ranges)
    }

    /// Decodes the extents that hold the ranges of `list`, and keeps them as long as the image is
    /// open: later reads of them, of any of their bytes, copy.
    ///
    /// Whole extents are pinned, in the order of the list, until all pinned extents take
    /// `bytes_max` bytes of memory; they are not part of the cache. Plain data needs no decoding,
    /// and is left to the source. Symbolic links are followed within the image. `stop` ends the
    /// work early. For stored bytes, see [`LoadedHotList`].
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use kiln_read::Threads;
    /// use kiln_read::hotlist::HotList;
    /// use std::sync::atomic::AtomicBool;
    ///
    /// # let image = kiln_read::Image::open_path("tests/golden/zstd.erofs".as_ref(), &[], &Default::default())?;
    /// let list = HotList::parse(b"#kiln-hotlist 1\n0+4096\t80\tbig/text\n", "boot.list")?;
    /// let pinned = image.pin(&list, 64 << 20, Threads::PROCESSORS, &AtomicBool::new(false));
    /// println!("{} bytes are decoded", pinned.report.bytes);
    /// # assert!(pinned.report.bytes >= 4096 && pinned.report.failed.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    pub fn pin(&self, list: &HotList, bytes_max: u64, threads: Threads, stop: &AtomicBool) -> LoadedHotList {
        LoadedHotList::pinned(self, list, bytes_max, threads, stop)
    }

    /// Decodes the extents that hold the ranges of `list` into the cache, in the order of the list,
    /// until three eighths of the cache are taken: for programs that read them soon.
    ///
    /// Bytes that are stored side by side are fetched together, in requests of up to 1 MiB,
    /// metadata and plain data too, so on a slow source this takes a fraction of the requests of
    /// single reads. A read of a part that is being fetched waits for that request. Stored bytes
    /// stay in memory until the result is dropped, and take up to a quarter of the cache. `stop`
    /// ends the work early.
    pub fn load_ahead(&self, list: &HotList, threads: Threads, stop: &AtomicBool) -> LoadedHotList {
        LoadedHotList::cached(self, list, threads, stop)
    }
}
