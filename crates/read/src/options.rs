//! How an image is opened.

/// How to open an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// Bytes of cache for metadata and decoded data. Metadata takes what it needs, but at most half of the cache (and 256 KiB in
    /// any case). Extents longer than a quarter of this are decoded anew for each read.
    pub cache_bytes: u64,
    /// Refuse an image whose superblock has a wrong checksum.
    pub verify_checksum: bool,
    /// Where the image begins in its primary source, in bytes. All other addresses, those of errors too, are counted
    /// from there.
    pub offset: u64,
    /// What kind of consumer reads.
    pub reader: Reader,
}

/// The consumer that reads an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reader {
    /// Programs, which may read the same bytes again. The operating system reads ahead in the image, as in all files.
    #[default]
    Programs,
    /// A kernel, which keeps what it gets in its page cache, and reads ahead in files itself. So a read fetches what it asks for, all of
    /// it at once. Readahead in the image covers only files that are read in the order of their data and strides; decoded extents stay
    /// in the cache until all their bytes are consumed.
    Kernel,
}

impl Default for OpenOptions {
    /// 64 MiB of cache, checksum verified, the source is all image.
    fn default() -> Self {
        Self { cache_bytes: 64 << 20, verify_checksum: true, offset: 0, reader: Reader::default() }
    }
}
