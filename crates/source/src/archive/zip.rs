//! A zip archive as a tree.
//!
//! The central directory is the truth, as for most programs; of the local headers only the lengths count, and the
//! owners that old Info-ZIP writes nowhere else. Bytes in front of the first member (self-extracting archives, `.pyz`)
//! are passed over.
//!
//! * **Names** are UTF-8 if their flag (bit 11) says so; Info-ZIP's Unicode path takes their place where it belongs to
//!   the name. Others are in code page 437, as APPNOTE.TXT (D.1) has it, and become UTF-8, unless they are UTF-8
//!   already, as macOS and old Java write them without the flag. A name with a slash at its end is a directory's;
//!   backslashes stay, and are told. A directory may be listed again; any other name that comes twice is refused, and
//!   so are members whose data overlap.
//! * **Modes** come from the external attributes of members that were made by Unix or macOS; else files have 0644, directories 0755.
//! * **Times**: those of the extra fields of Info-ZIP (0x5455, 0x5855) or NTFS. Else the MS-DOS time, which is local time in a zone that
//!   an archive does not name: it is taken as UTC, so that the tree does not depend on where it is read.
//! * **Owners** come from Info-ZIP's extra fields (0x7875, 0x7855, 0x5855); else root.
//! * **Contents**: stored ones are read in place, and their CRC-32 is checked where one reader passes them from front to back. Others are
//!   decoded whole, and always checked.

mod bytes;
mod contents;
mod cp437;
mod ending;
mod extra;
mod method;
mod record;
mod scan;
pub(crate) mod source;
