//! Presets: choices of options for users who do not want to choose each.

pub(crate) mod choices;
pub(crate) mod error;
pub(crate) mod limits;

use kiln_codec::Method;

use crate::options::Dedupe;
use crate::options::data::Fragments;
use crate::options::metadata::ContentDigests;
use kiln_tree::DigestName;
use std::str::FromStr;

/// Length in bytes up to which files are small: they fill so few pclusters that the room left in the last one counts.
pub const SMALL_FILE_LEN: u64 = 128 << 10;

/// Length in bytes of a piece of metadata that is compressed by itself, unless another one is chosen. Shorter pieces
/// make larger images and slower listings; longer ones do not save another 0.01 % of an image.
pub const METADATA_LEN: u32 = 32 << 10;

/// Preset of options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Preset {
    /// No compression.
    Plain,
    /// LZ4 in pclusters of 64 KiB; small files are packed.
    Fast,
    /// Zstandard, level 3, in pclusters of 64 KiB; small files are packed, and equal parts of files stored once.
    #[default]
    Balanced,
    /// LZMA, level 6, in pclusters of 1 MiB; files of any size are packed, and equal parts stored once: smallest, and
    /// slow to build and to read.
    Archive,
    /// Zstandard, level 3, in pclusters of 64 KiB; no file is packed, and compressed ends lie beside inodes: for
    /// random reads of small files.
    Dataset,
    /// The same as [`Preset::Balanced`], with digests of contents: for trees that are to be restored.
    Backup,
}

/// Options of a preset, before the target kernel is considered.
pub(crate) struct Defaults {
    /// Method and level; `None`: nothing is compressed.
    pub method: Option<(Method, i32)>,
    /// Length of the largest pcluster in bytes.
    pub pcluster_len: u32,
    /// Length of plain text that is compressed as one piece of encoded extents, in bytes.
    pub unit_len: u32,
    pub fragments: Fragments,
    pub tail_packing: bool,
    pub dedupe: Dedupe,
    /// Length of text that is compressed as one piece of metadata, in bytes; `None`: metadata is not compressed.
    pub metadata_len: Option<u32>,
}

/// Name that no preset has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("use plain, fast, balanced, archive, dataset or backup")]
pub struct UnknownPreset;

impl FromStr for Preset {
    type Err = UnknownPreset;

    fn from_str(name: &str) -> Result<Self, UnknownPreset> {
        Ok(match name {
            "plain" => Preset::Plain,
            "fast" => Preset::Fast,
            "balanced" => Preset::Balanced,
            "archive" => Preset::Archive,
            "dataset" => Preset::Dataset,
            "backup" => Preset::Backup,
            _ => return Err(UnknownPreset),
        })
    }
}

impl Preset {
    /// Presets that lay images out differently, from the fastest build to the slowest; `Dataset`, which has another
    /// purpose, is last. `Backup` lays images out as `Balanced` does.
    pub const ALL: [Preset; 5] = [Preset::Plain, Preset::Fast, Preset::Balanced, Preset::Archive, Preset::Dataset];

    /// Returns the preset's choice of digests of contents.
    pub(crate) fn content_digests(self) -> ContentDigests {
        match self {
            Preset::Backup => ContentDigests::Named(DigestName::Usual),
            _ => ContentDigests::AsSource,
        }
    }

    pub(crate) fn defaults(self) -> Defaults {
        let small_files = Fragments::UpTo(SMALL_FILE_LEN);
        let defaults = |method, fragments, dedupe| Defaults {
            method,
            pcluster_len: 64 << 10,
            unit_len: 256 << 10,
            fragments,
            tail_packing: false,
            dedupe,
            metadata_len: Some(METADATA_LEN),
        };
        let zstd = Some((Method::Zstd, 3));
        match self {
            Preset::Plain => defaults(None, Fragments::Off, Dedupe::Files),
            Preset::Fast => defaults(Some((Method::Lz4, 1)), small_files, Dedupe::Files),
            Preset::Balanced | Preset::Backup => defaults(zstd, small_files, Dedupe::Parts),
            Preset::Archive => Defaults {
                pcluster_len: 1 << 20,
                unit_len: 1 << 20,
                ..defaults(Some((Method::Lzma, 6)), Fragments::UpTo(u64::MAX), Dedupe::Parts)
            },
            Preset::Dataset => Defaults {
                unit_len: 64 << 10,
                tail_packing: true,
                // To decode a piece takes longer than to read a small file, whose inode it is for.
                metadata_len: None,
                ..defaults(zstd, Fragments::Off, Dedupe::Files)
            },
        }
    }
}
