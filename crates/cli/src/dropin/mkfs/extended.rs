//! `-E` and `--zfeature-bits`.

use super::value;
use crate::dropin::getopt::{Misuse, number};
use kiln_builder::{ChunkEntries, Fragments, SMALL_FILE_LEN};
use std::ffi::OsString;

/// Names by bit of `--zfeature-bits`.
const BITS: [&str; 8] =
    ["legacy-compress", "ztailpacking", "fragments", "all-fragments", "dedupe", "fragdedupe", "48bit", "dot-omitted"];

/// Options that only affect the place of data in the image, or that are always on.
const WITHOUT_EFFECT: [&str; 1] = ["xattr-name-filter"];

/// Extended options.
#[derive(Debug, PartialEq, Eq)]
pub struct Extended {
    /// Encoded extents, if anything is compressed, and mtimes of their own for compact inodes.
    pub bits48: bool,
    pub fragments: Fragments,
    /// The largest pcluster of the packed inode that was asked for, in bytes.
    pub packed_pcluster_len: Option<u64>,
    pub dedupe: bool,
    /// Compressed ends of files beside their inodes.
    pub tail_packing: bool,
    /// Kind of the entries in tables of chunks.
    pub chunk_entries: ChunkEntries,
    /// Entries of 4 bytes were asked for by name.
    pub block_map: bool,
    /// Only compact inodes, which have no times of their own.
    pub compact_inodes: bool,
    /// Only extended inodes.
    pub extended_inodes: bool,
    /// Ends of uncompressed files beside their inodes.
    pub inline_tails: bool,
    /// Directories without entries for themselves.
    pub omit_dot: bool,
    /// Prefixes of attributes are stored in the image itself.
    pub plain_xattr_prefixes: bool,
    /// A checksum of the superblock.
    pub checksum: bool,
    /// Options that are not supported and might matter.
    pub warnings: Vec<&'static str>,
}

impl Default for Extended {
    fn default() -> Self {
        Self {
            bits48: false,
            fragments: Fragments::Off,
            packed_pcluster_len: None,
            dedupe: false,
            tail_packing: false,
            chunk_entries: ChunkEntries::Short,
            block_map: false,
            compact_inodes: false,
            extended_inodes: false,
            inline_tails: true,
            omit_dot: false,
            plain_xattr_prefixes: false,
            checksum: true,
            warnings: Vec::new(),
        }
    }
}

impl Extended {
    /// Parses the value of `-E`: names between commas, with `^` in front to switch an option off.
    pub fn read(&mut self, list: &OsString) -> Result<(), Misuse> {
        let unknown = |item: &str| Misuse::Other(format!("unknown extended option {item}"));
        let text = list.to_str().ok_or_else(|| unknown(&list.to_string_lossy()))?;
        for item in text.split(',').filter(|_| !text.is_empty()) {
            let (wanted, rest) = item.strip_prefix('^').map_or((true, item), |rest| (false, rest));
            let (name, value) = rest.split_once('=').map_or((rest, None), |(name, value)| (name, Some(value)));
            if !self.set(name, wanted, value) {
                return Err(unknown(item));
            }
        }
        Ok(())
    }

    /// Parses the value of `--zfeature-bits`.
    pub fn read_bits(&mut self, value: &OsString) -> Result<(), Misuse> {
        let bits = number(value).ok_or_else(|| value::invalid("zfeature bits", value))?;
        if bits >> BITS.len() != 0 {
            let bit = (bits >> BITS.len()).trailing_zeros() as usize + BITS.len();
            return Err(Misuse::Other(format!("unsupported zfeature bit {bit}")));
        }
        for name in BITS.iter().enumerate().filter(|(bit, _)| bits >> bit & 1 != 0).map(|(_, name)| name) {
            self.set(name, true, None);
        }
        Ok(())
    }

    /// Sets an option, and returns whether it exists.
    fn set(&mut self, name: &str, wanted: bool, value: Option<&str>) -> bool {
        match (name, value) {
            ("fragments", _) => self.set_fragments(wanted, Fragments::Tails(SMALL_FILE_LEN), value),
            ("all-fragments", _) => self.set_fragments(wanted, Fragments::UpTo(u64::MAX), value),
            // Equal files are stored once anyway.
            ("fragdedupe", None | Some("inode" | "full")) => true,
            (_, Some(_)) => false,
            ("48bit", _) => self.put(|it| it.bits48 = wanted),
            ("dedupe", _) => self.put(|it| it.dedupe = wanted),
            ("force-chunk-indexes", _) => self.put(|it| {
                it.chunk_entries = if wanted { ChunkEntries::Indexes } else { ChunkEntries::Short };
                it.block_map = false;
            }),
            ("force-inode-blockmap", _) => self.put(|it| {
                it.chunk_entries = ChunkEntries::Short;
                it.block_map = wanted;
            }),
            ("force-inode-compact", _) => self.put(|it| {
                it.compact_inodes = wanted;
                it.extended_inodes &= !wanted;
            }),
            ("ztailpacking", _) => self.put(|it| it.tail_packing = wanted),
            ("inline_data", _) => self.put(|it| it.inline_tails = wanted),
            ("noinline_data", _) => self.put(|it| it.inline_tails = !wanted),
            ("dot-omitted", _) => self.put(|it| it.omit_dot = wanted),
            ("plain-xattr-prefixes", _) => self.put(|it| it.plain_xattr_prefixes = wanted),
            ("nosbcrc", _) => self.put(|it| it.checksum = !wanted),
            ("force-inode-extended", _) => self.put(|it| {
                it.extended_inodes = wanted;
                it.compact_inodes &= !wanted;
            }),
            ("legacy-compress", _) => {
                self.warn(wanted, "ancient !lz4_0padding layout (< Linux 5.4) is no longer supported")
            }
            _ => WITHOUT_EFFECT.contains(&name),
        }
    }

    fn set_fragments(&mut self, wanted: bool, fragments: Fragments, len: Option<&str>) -> bool {
        self.fragments = if wanted { fragments } else { Fragments::Off };
        let len = len.map(value::size);
        self.packed_pcluster_len = len.flatten();
        len != Some(None)
    }

    fn warn(&mut self, wanted: bool, warning: &'static str) -> bool {
        self.put(|it| it.warnings.extend(wanted.then_some(warning)))
    }

    fn put(&mut self, change: impl FnOnce(&mut Self)) -> bool {
        change(self);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(list: &str) -> Result<Extended, Misuse> {
        let mut extended = Extended::default();
        extended.read(&list.into()).map(|()| extended)
    }

    #[test]
    fn names_are_set_and_taken_back() {
        let small = Fragments::Tails(SMALL_FILE_LEN);
        let all = Extended { fragments: Fragments::UpTo(u64::MAX), ..Extended::default() };
        for (list, expected) in [
            ("", Extended::default()),
            ("48bit", Extended { bits48: true, ..Extended::default() }),
            ("48bit,^48bit", Extended::default()),
            ("all-fragments,fragdedupe=inode", all),
            ("fragments=64k", Extended { fragments: small, packed_pcluster_len: Some(65536), ..Extended::default() }),
            ("dedupe,fragments", Extended { fragments: small, dedupe: true, ..Extended::default() }),
            ("all-fragments=4096,^fragments", Extended::default()),
            ("xattr-name-filter,^fragdedupe,noinline_data,inline_data,^ztailpacking", Extended::default()),
            ("^inline_data", Extended { inline_tails: false, ..Extended::default() }),
            ("nosbcrc,dot-omitted", Extended { checksum: false, omit_dot: true, ..Extended::default() }),
            ("force-inode-compact,force-inode-extended", Extended { extended_inodes: true, ..Extended::default() }),
        ] {
            assert_eq!(read(list), Ok(expected), "{list}");
        }
        for list in [",", "frob", "dedupe=1", "fragments=", "fragments=x", "fragdedupe=some", "48bit,", "^", "no48bit"]
        {
            assert!(read(list).is_err(), "{list}");
        }
        assert_eq!(read("ztailpacking,noinline_data,^inline_data,legacy-compress").unwrap().warnings.len(), 1);
    }

    #[test]
    fn bits_stand_for_names() {
        let mut extended = Extended::default();
        extended.read_bits(&"0xd8".into()).unwrap();
        assert_eq!(extended, read("all-fragments,dedupe,48bit,dot-omitted").unwrap());
        let error = extended.read_bits(&"999".into()).unwrap_err();
        assert_eq!(error.to_string(), "unsupported zfeature bit 8");
        assert!(extended.read_bits(&"x".into()).is_err());
    }
}
