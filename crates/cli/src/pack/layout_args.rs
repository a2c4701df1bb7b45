//! Options about where bytes lie.

use super::digests::DigestArgs;
use crate::console::size;
use crate::exit::Failure;
use kiln_builder::{BuildOptions, ChunkEntries};
use kiln_format::BlockBits;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The largest alignment in bytes.
pub const ALIGN_MAX: u64 = 1 << 30;
/// The largest chunk in bytes.
pub const CHUNK_MAX_LEN: u64 = 1 << 30;

#[derive(clap::Args)]
#[command(next_help_heading = "Where bytes lie")]
pub struct LayoutArgs {
    /// Bytes in a block, 512 to 64k; the default is 4k. Kernels mount blocks up to their page size, smaller ones since Linux 6.4
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub block_size: Option<u64>,

    /// Where in IMAGE the file system begins; what lies before and behind it in an existing file or block device stays
    #[arg(long, value_name = "BYTE", value_parser = size::parse, default_value = "0", hide_default_value = true)]
    pub offset: u64,

    /// Start the data of each file at a multiple of SIZE, so that stores of blocks find what images have in common
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    align: Option<u64>,

    /// Make the image a multiple of SIZE long
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    align_image: Option<u64>,

    /// Store files that are not compressed in chunks of SIZE, a power of two; equal chunks are stored once, zeros not at all
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    chunk_size: Option<u64>,

    /// Tables of chunks have entries of 8 bytes, which can name a device, not 4
    #[arg(long)]
    chunk_indexes: bool,

    /// Put the chunks into FILE, which must be there as an extra device when the image is mounted (needs Linux 5.16)
    #[arg(long, value_name = "FILE", requires = "chunk_size")]
    pub blob_device: Option<PathBuf>,

    /// Write a VMDK descriptor to FILE: image and extra device as one disk of a virtual machine
    #[arg(long, value_name = "FILE")]
    pub vmdk: Option<PathBuf>,

    /// Keep the last bytes of uncompressed files with the rest of them, not beside their inodes
    #[arg(long)]
    no_inline_data: bool,

    /// Give each inode the extended form, which holds every time and owner
    #[arg(long)]
    extended_inodes: bool,

    /// Directories have no entry for themselves (needs Linux 6.15)
    #[arg(long)]
    omit_dot: bool,

    /// Store an extended attribute once if it has N owners or more
    #[arg(long, value_name = "N", default_value = "2", value_parser = clap::value_parser!(u64).range(1..))]
    xattr_share: u64,

    /// Store PREFIX, as user.long., once for all names of extended attributes that begin with it (needs Linux 6.4)
    #[arg(long, value_name = "PREFIX")]
    xattr_prefix: Vec<OsString>,

    #[command(flatten)]
    digests: DigestArgs,

    /// Leave SIZE bytes for extended attributes of the root
    #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value = "0", hide_default_value = true)]
    root_xattr_size: u64,

    /// Plain text that one extent of a compressed file stands for, at most
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    max_extent: Option<u64>,

    /// The time of building to record, in seconds since 1970; the default is SOURCE_DATE_EPOCH
    #[arg(long, value_name = "SECS", allow_negative_numbers = true)]
    build_time: Option<i64>,

    /// Leave out the superblock's checksum
    #[arg(long)]
    no_checksum: bool,
}

impl LayoutArgs {
    /// `options`, which have the block size, with all else that was asked for.
    pub fn apply(&self, options: BuildOptions) -> Result<BuildOptions, Failure> {
        let block_bits = options.block_bits;
        Ok(BuildOptions {
            data_align: align("--align", self.align, block_bits)?,
            image_align: align("--align-image", self.align_image, block_bits)?,
            chunk_bits: self.chunk_size.map(|len| chunk_bits(len, block_bits)).transpose()?,
            chunk_entries: if self.chunk_indexes { ChunkEntries::Indexes } else { ChunkEntries::Short },
            inline_tails: !self.no_inline_data,
            compact_inodes: !self.extended_inodes,
            omit_dot: self.omit_dot,
            xattr_share_min: self.xattr_share,
            xattr_prefixes: self.xattr_prefix.iter().map(|name| name.as_bytes().to_vec()).collect(),
            content_digests: self.digests.choice(options.content_digests),
            root_xattr_len: usize::try_from(self.root_xattr_size).unwrap_or(usize::MAX),
            extent_max_len: self.max_extent.map(|len| u32::try_from(len).unwrap_or(u32::MAX)),
            build_time: self.build_time,
            checksum: !self.no_checksum,
            ..options
        })
    }
}

/// An alignment in bytes, 1 where none is asked for.
fn align(option: &str, align: Option<u64>, block_bits: BlockBits) -> Result<u64, Failure> {
    let (Some(align), block_len) = (align, block_bits.len()) else { return Ok(1) };
    match align > 0 && align.is_multiple_of(block_len) && align <= ALIGN_MAX {
        true => Ok(align),
        false => Err(Failure::Usage(format!("{option} {align}: use a multiple of {block_len} bytes, up to 1G"))),
    }
}

/// log2 of the size of chunks.
fn chunk_bits(len: u64, block_bits: BlockBits) -> Result<u8, Failure> {
    let block_len = block_bits.len();
    match len.is_power_of_two() && (block_len..=CHUNK_MAX_LEN).contains(&len) {
        true => Ok(len.trailing_zeros() as u8),
        false => Err(Failure::Usage(format!("--chunk-size {len}: use a power of two, {block_len} to 1G"))),
    }
}
