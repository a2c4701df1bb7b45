//! Parser of directory listings: runs of entries whose inodes are in one metadata block.

use super::inode::Listing;
use super::metadata::{Cursor, Metadata, Ref};
use super::problem::{Problem, corrupt};
use super::superblock::{u16_le, u32_le};

const HEADER_LEN: u32 = 12;
const ENTRY_LEN: u32 = 8;
/// Maximum number of entries after a header.
const RUN_MAX_COUNT: u32 = 256;
/// Maximum length in bytes of a name in Linux; the format allows 65536.
const NAME_MAX_LEN: usize = 255;

/// Iterator over the entries of a listing.
pub(super) struct Entries<'a> {
    /// `None` for an empty directory, whose listing may be at any position.
    cursor: Option<Cursor<'a>>,
    /// Remaining bytes of the listing.
    rest: u32,
    /// Remaining entries of the run.
    run_count: u32,
    /// Metadata block of the run's inodes, relative to the table of inodes.
    block_off: u32,
}

/// A name, and the position of its inode in the table of inodes.
pub(super) struct Entry {
    pub name: Vec<u8>,
    pub inode: Ref,
}

impl<'a> Entries<'a> {
    /// Opens `listing`. The table of directories starts at byte `table_off` of the image.
    ///
    /// # Errors
    /// A listing that is not in the image.
    pub(super) fn new(metadata: &'a Metadata, table_off: u64, listing: Listing) -> Result<Self, Problem> {
        let cursor = if listing.len == 0 { None } else { Some(metadata.cursor(table_off, listing.at)?) };
        Ok(Self { cursor, rest: listing.len, run_count: 0, block_off: 0 })
    }

    /// Returns the next entry, or `None` at the end.
    ///
    /// # Errors
    /// Entries that do not fit into the listing; a damaged or truncated stream.
    pub(super) fn next(&mut self) -> Result<Option<Entry>, Problem> {
        let Some(cursor) = &mut self.cursor else { return Ok(None) };
        if self.run_count == 0 {
            if self.rest == 0 {
                return Ok(None);
            }
            take(&mut self.rest, HEADER_LEN, cursor)?;
            let header: [u8; HEADER_LEN as usize] = cursor.array()?;
            self.run_count = u32_le(&header, 0).saturating_add(1);
            self.block_off = u32_le(&header, 4);
            if self.run_count > RUN_MAX_COUNT {
                let message = format!("a header with {} entries, more than {RUN_MAX_COUNT}", self.run_count);
                return Err(corrupt(cursor.offset(), message));
            }
        }
        self.run_count -= 1;
        take(&mut self.rest, ENTRY_LEN, cursor)?;
        let entry: [u8; ENTRY_LEN as usize] = cursor.array()?;
        let name_len = usize::from(u16_le(&entry, 6)) + 1;
        if name_len > NAME_MAX_LEN {
            return Err(corrupt(cursor.offset(), format!("a name of {name_len} bytes")));
        }
        take(&mut self.rest, name_len as u32, cursor)?;
        Ok(Some(Entry { name: cursor.vec(name_len)?, inode: Ref::new(self.block_off, u16_le(&entry, 0)) }))
    }
}

/// Subtracts `len` bytes from the rest of a listing.
fn take(rest: &mut u32, len: u32, cursor: &Cursor<'_>) -> Result<(), Problem> {
    match rest.checked_sub(len) {
        Some(left) => *rest = left,
        None => return Err(corrupt(cursor.offset(), "an entry that is longer than the rest of the listing")),
    }
    Ok(())
}
