//! How to export.

use super::format::Format;
use super::stream_compression::StreamCompression;
use kiln_parallel::Threads;

/// How to export.
#[derive(Clone, Copy, Debug)]
pub struct ExportOptions {
    /// What is written.
    pub format: Format,
    /// How the whole is compressed; of no effect on [`Format::Zip`], whose members are.
    pub compression: Option<StreamCompression>,
    /// The level of the compression, of that of ZIP members, too; `None` for its default. Levels out of its range are taken as the
    /// nearest in it.
    pub level: Option<u32>,
    /// Go on where the image is damaged: zeros stand for contents that cannot be read, and what has no readable inode, attributes, target or
    /// map of its data is left out. [`ExportReport`](super::ExportReport) lists both.
    pub keep_going: bool,
    /// Threads that decode, and so many that compress. The bytes do not depend on them.
    pub threads: Threads,
}

impl ExportOptions {
    /// Uncompressed, at default levels, on all processors.
    pub fn new(format: Format) -> Self {
        Self { format, compression: None, level: None, keep_going: false, threads: Threads::default() }
    }
}
