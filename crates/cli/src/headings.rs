//! Headings of options in help texts.

/// Options that choose and read sources.
pub const SOURCES: &str = "Sources";
/// Options that choose the files of a source.
pub const FILES: &str = "Files";
/// Options that change owners, permissions, times and attributes.
pub const METADATA: &str = "Metadata";
/// Options for the form in which data is stored.
pub const STORAGE: &str = "Storage";
/// Options for the work, which do not change its result.
pub const RUNNING: &str = "Running";
/// Options that only a FUSE mount has.
pub const FUSE: &str = "FUSE";
