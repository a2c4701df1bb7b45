//! Reader of zip archives.
//!
//! The central directory is authoritative, as for most programs. Local headers are used for their
//! lengths only, and for owners in Info-ZIP's older extra fields, which are written nowhere else.
//! Bytes before the first member (self-extracting archives, `.pyz`) are skipped.
//!
//! * **Names** are UTF-8 if their flag (bit 11) is set; otherwise Info-ZIP's Unicode path replaces
//!   the name if it matches. All other names are in code page 437, according to APPNOTE.TXT (D.1),
//!   and are converted to UTF-8, unless they are valid UTF-8 already: macOS and old Java write such
//!   names without the flag. A name that ends with a slash is a directory. Backslashes are kept and
//!   reported in a note. A directory may be listed several times; other duplicate names are
//!   refused, and so are members whose data overlap.
//! * **Modes** come from the external attributes of members made by Unix or macOS; otherwise files
//!   have 0644 and directories 0755.
//! * **Times** come from the extra fields of Info-ZIP (0x5455, 0x5855) or NTFS, otherwise from the
//!   MS-DOS time. That is local time in an unknown zone; it is taken as UTC, so that the tree does
//!   not depend on where it is read.
//! * **Owners** come from Info-ZIP's extra fields (0x7875, 0x7855, 0x5855); otherwise the owner is
//!   root.
//! * **Contents** over 1 MiB that are stored uncompressed are read in place, and their CRC-32 is
//!   checked if one reader reads them front to back. Others are decoded as a whole and always
//!   checked.

mod bytes;
mod contents;
mod cp437;
mod ending;
mod extra;
mod method;
pub(crate) mod record;
mod scan;
mod short_member;
pub(crate) mod source;
