//! Reader of cpio archives, and of an initramfs, which is several of them.
//!
//! An archive is read front to back. Each member has a header of numbers in text form, a name and
//! data; the member `TRAILER!!!` ends the archive. [`source`] opens archives, [`scan`] reads member
//! after member, [`header`] parses headers, and [`links`] finds the names of hard links.
//!
//! The rules are those of libarchive's `cpio(5)` for the formats newc, crc and odc, and of the
//! kernel's description of an initramfs
//! (Documentation/driver-api/early-userspace/buffer-format.rst): several archives in a row, with
//! zeros between them, each of which may be compressed.

mod header;
mod links;
mod scan;
pub(crate) mod source;
