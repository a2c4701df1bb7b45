//! Options of an export.

use super::format::Format;
use super::stream_compression::StreamCompression;
use kiln_parallel::Threads;

/// Options of an export.
#[derive(Clone, Copy, Debug)]
pub struct ExportOptions {
    /// Format of the output.
    pub format: Format,
    /// Compression of the whole archive; ignored for [`Format::Zip`], which compresses its members.
    pub compression: Option<StreamCompression>,
    /// Compression level of the archive or, for ZIP, of its members; `None` for the default. A
    /// level out of range is clamped.
    pub level: Option<u32>,
    /// Continue if the image is damaged: zeros replace unreadable contents, and a member is left
    /// out if its inode, extended attributes, link target or extents cannot be read.
    /// [`ExportReport`](super::ExportReport) lists both.
    pub keep_going: bool,
    /// Number of threads for decoding, and again for compression. The output does not depend on it.
    pub threads: Threads,
}

impl ExportOptions {
    /// Returns options for an uncompressed archive with the default level, on all processors.
    pub fn new(format: Format) -> Self {
        Self { format, compression: None, level: None, keep_going: false, threads: Threads::default() }
    }
}
