//! Options about the place of bytes.

use super::digests::DigestArgs;
use super::layout_keys::{LayoutKeyArgs, LayoutKeys};
use crate::console::size;
use crate::exit::Failure;
use kiln_builder::{BuildOptions, ChunkEntries, CompressionOptions, IdentityOptions, LayoutOptions, MetadataOptions};
use kiln_format::BlockBits;
use std::path::PathBuf;

/// The largest alignment in bytes.
pub const ALIGN_MAX: u64 = 1 << 30;
/// The largest chunk in bytes.
pub const CHUNK_MAX_LEN: u64 = 1 << 30;

/// Options about the place of bytes.
#[derive(clap::Args)]
pub struct LayoutArgs {
    #[command(flatten)]
    keys: LayoutKeyArgs,

    /// Size of a block, 512 to 64k; default: 4k
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub block_size: Option<u64>,

    /// Byte of the file or device at which the image begins
    #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value = "0", hide_default_value = true)]
    pub offset: u64,

    #[command(flatten)]
    digests: DigestArgs,

    /// Write chunks to FILE, an extra device
    #[arg(long, value_name = "FILE", requires = "layout")]
    pub blob_device: Option<PathBuf>,

    /// Write a VMDK descriptor of image and extra devices
    #[arg(long, value_name = "FILE")]
    pub vmdk: Option<PathBuf>,

    /// Build time to record, in seconds since 1970
    #[arg(long, value_name = "SECS", allow_negative_numbers = true)]
    build_time: Option<i64>,
}

impl LayoutArgs {
    /// Returns the choices of `--layout`.
    pub fn keys(&self) -> LayoutKeys {
        self.keys.keys()
    }

    /// Returns `options`, which have the block size, with these and with `keys`.
    ///
    /// # Errors
    /// Values that do not go with the block size, and chunks that go to a device but have no size.
    pub fn apply(&self, keys: LayoutKeys, options: BuildOptions) -> Result<BuildOptions, Failure> {
        let block_bits = options.block_bits;
        if self.blob_device.is_some() && keys.chunk_size.is_none() {
            return Err(Failure::Usage("--blob-device: needs --layout chunk-size=SIZE".into()));
        }
        let mut metadata = options.metadata;
        self.digests.apply(&mut metadata);
        Ok(BuildOptions {
            layout: LayoutOptions {
                data_align: align("align", keys.align, block_bits)?,
                image_align: align("align-image", keys.align_image, block_bits)?,
                chunk_bits: keys.chunk_size.map(|len| chunk_bits(len, block_bits)).transpose()?,
                chunk_entries: if keys.chunk_indexes { ChunkEntries::Indexes } else { ChunkEntries::Short },
                inline_tails: keys.inline_data,
                ..options.layout
            },
            metadata: MetadataOptions {
                compact_inodes: !keys.extended_inodes,
                omit_dot: !keys.dot,
                xattr_share_min: keys.xattr_share,
                xattr_prefixes: keys.xattr_prefixes,
                root_xattr_len: usize::try_from(keys.root_xattrs).unwrap_or(usize::MAX),
                ..metadata
            },
            compression: CompressionOptions {
                extent_max_len: keys.max_extent.map(|len| u32::try_from(len).unwrap_or(u32::MAX)),
                ..options.compression
            },
            identity: IdentityOptions { build_time: self.build_time, checksum: keys.checksum, ..options.identity },
            ..options
        })
    }
}

/// An alignment in bytes, 1 where none is asked for.
fn align(key: &str, align: Option<u64>, block_bits: BlockBits) -> Result<u64, Failure> {
    let (Some(align), block_len) = (align, block_bits.len()) else { return Ok(1) };
    match align > 0 && align.is_multiple_of(block_len) && align <= ALIGN_MAX {
        true => Ok(align),
        false => Err(Failure::Usage(format!("--layout {key}={align}: use a multiple of {block_len} bytes, up to 1G"))),
    }
}

/// log2 of the size of chunks.
fn chunk_bits(len: u64, block_bits: BlockBits) -> Result<u8, Failure> {
    let block_len = block_bits.len();
    match len.is_power_of_two() && (block_len..=CHUNK_MAX_LEN).contains(&len) {
        true => Ok(len.trailing_zeros() as u8),
        false => Err(Failure::Usage(format!("--layout chunk-size={len}: use a power of two, {block_len} to 1G"))),
    }
}
