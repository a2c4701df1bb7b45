//! How an image is opened.

/// How to open an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// Metadata and decoded data that are kept, in bytes: metadata takes as much as there is, but at most half of it (and 256 KiB in
    /// any case). Extents longer than a quarter of this are decoded anew for each read.
    pub cache_bytes: u64,
    /// Refuse an image whose superblock has a wrong checksum.
    pub verify_checksum: bool,
    /// Where the image begins in its primary source, in bytes. All other addresses, those of errors too, are counted
    /// from there.
    pub offset: u64,
    /// Who reads.
    pub reader: Reader,
}

/// Who reads an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reader {
    /// Programs, which may want the same again. The system reads ahead of them, as for all files.
    #[default]
    Programs,
    /// A kernel, which keeps what it gets, and reads ahead in files itself. So what is asked for is fetched, all of it at once, and
    /// nothing else but what follows when files are read in the order of their data; decoded data are kept until all of them
    /// were handed out.
    Kernel,
}

impl Default for OpenOptions {
    /// 64 MiB of cache, checksum verified, the source is all image.
    fn default() -> Self {
        Self { cache_bytes: 64 << 20, verify_checksum: true, offset: 0, reader: Reader::default() }
    }
}
