//! A cramfs image as a tree.
//!
//! The scan reads inodes and directories, checks the tables of blocks, and remembers where each file has its own; contents are decoded
//! block by block when they are wanted. What is known of the format comes from images of `mkfs.cramfs` (util-linux):
//!
//! * **Superblock** of 64 bytes at byte 0 or, with room for boot code, at 512: magic number, size, flags, 4 bytes unused, 16 bytes
//!   "Compressed ROMFS", CRC, edition, number of blocks, number of files, 16 bytes name. The inode of the root follows. With flag 1, the
//!   size is that of the image with the room in front, and the CRC is the CRC-32 from the superblock to there, itself taken as zeros.
//! * **Inode**: three words of bit fields, see [`inode`]. Offsets count from the front of the image. The size of a device is its number.
//!   There are no times, attributes or hard links, ids of groups have 8 bits, and files are shorter than 16 MiB.
//! * **Directory**: inodes one behind the other, each with its name behind it, filled up with NUL bytes to words.
//! * **Contents** of files and symbolic links: the end of each block as a word, then the blocks, each a stream of zlib; a block
//!   without bytes is a hole. Equal contents are stored once.
//!
//! The byte order is that of the machine for which an image was made; a bit field that comes first has the low bits of a little-endian
//! word and the high bits of a big-endian one. The length of blocks is the length of this machine's pages, which the image does not tell:
//! images with blocks of other than 4096 bytes are refused, as far as they can be told from damaged ones.

mod blocks;
mod contents;
mod inode;
mod regions;
mod scan;
pub(crate) mod source;
mod superblock;
mod volume;
