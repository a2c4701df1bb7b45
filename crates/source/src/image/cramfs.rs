//! Reader of cramfs images.
//!
//! The scan reads inodes and directories, checks the block tables, and records the position of each
//! file's table. Contents are decoded block by block on demand. The format was derived from images
//! made by `mkfs.cramfs` (util-linux):
//!
//! * **Superblock** of 64 bytes at byte 0 or, after space for boot code, at byte 512: magic number,
//!   size, flags, 4 unused bytes, 16 bytes "Compressed ROMFS", CRC, edition, number of blocks,
//!   number of files, 16 bytes name. The inode of the root follows. With flag 1, the size is that
//!   of the image including the boot space, and the CRC is the CRC-32 from the superblock to the
//!   end, computed with a CRC field of zeros.
//! * **Inode**: three words of bit fields, see [`inode`]. Offsets are relative to the start of the
//!   image. The size of a device is its number. There are no times, attributes or hard links, group
//!   ids have 8 bits, and files are shorter than 16 MiB.
//! * **Directory**: consecutive inodes, each followed by its name, which is padded with NUL bytes
//!   to a multiple of 4 bytes.
//! * **Contents** of files and symbolic links: the end of each block as a word, then the blocks,
//!   each a zlib stream; a block of 0 bytes is a hole. Equal contents are stored once.
//!
//! The byte order is that of the machine for which the image was made. The first bit field of a
//! word has the low bits of a little-endian word and the high bits of a big-endian one. The block
//! length is the page size of that machine, which is not stored in the image. Images with other
//! blocks than 4096 bytes are refused; damaged images and such images cannot always be distinguished.

mod blocks;
mod contents;
mod inode;
mod regions;
mod scan;
pub(crate) mod source;
mod superblock;
mod volume;
