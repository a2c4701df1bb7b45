//! A cpio archive, or an initramfs of several, as a tree.
//!
//! An archive is read front to back: each member has a header of numbers in text, its name and its data; the member `TRAILER!!!` ends it.
//! [`source`] opens archives, [`scan`] goes from member to member, [`header`] has the fields of headers, [`links`] the names of files
//! with several.
//!
//! What counts is what `cpio(5)` of libarchive says of the formats newc, crc and odc, and the kernel's description of an initramfs
//! (Documentation/driver-api/early-userspace/buffer-format.rst): archives one behind the other with zeros between them, each of which may
//! be compressed.

mod header;
mod links;
mod scan;
pub(crate) mod source;
