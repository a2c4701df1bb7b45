//! Parser of extended attributes.

use kiln_tree::Xattr;

use super::blocks::Blocks;
use super::metadata::{Cursor, Metadata, Ref};
use super::problem::{Problem, corrupt};
use super::superblock::{NO_TABLE, u16_le, u32_le, u64_le};
use super::table::Table;

const PREFIXES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
/// Bit in the type of an attribute whose value is stored elsewhere.
const VALUE_IS_ELSEWHERE: u16 = 0x100;
/// Maximum lengths in bytes of names and values in Linux.
const NAME_MAX_LEN: usize = 255;
const VALUE_MAX_LEN: u32 = 64 << 10;

/// Attributes of an image.
pub(super) struct Xattrs {
    /// Offset of the attributes in the image, in bytes.
    pairs_off: u64,
    /// Position and number of the attributes for each index.
    table: Table<16>,
}

impl Xattrs {
    /// Opens the attributes whose table is at byte `table_off` of the image.
    ///
    /// # Errors
    /// A table that is not in the image.
    pub(super) fn new(blocks: &Blocks, table_off: u64) -> Result<Option<Self>, Problem> {
        if table_off == NO_TABLE {
            return Ok(None);
        }
        let mut header = [0; 16];
        blocks.read(&mut header, table_off, "the header of the table of attributes")?;
        let (pairs_off, count) = (u64_le(&header, 0), u32_le(&header, 8));
        let table = Table::new(blocks, "the table of attributes", table_off.saturating_add(16), count)?;
        Ok(Some(Self { pairs_off, table }))
    }

    /// Reads the attributes with index `idx`. `charge` is called with the memory in bytes for each.
    ///
    /// # Errors
    /// Attributes that are missing, damaged, of an unknown type, or longer than Linux allows; those
    /// of `charge`.
    pub(super) fn list(
        &self,
        metadata: &Metadata,
        idx: u32,
        mut charge: impl FnMut(usize) -> Result<(), Problem>,
    ) -> Result<Vec<Xattr>, Problem> {
        let record = self.table.record(metadata, idx)?;
        let mut cursor = metadata.cursor(self.pairs_off, Ref(u64_le(&record, 0)))?;
        let mut xattrs = Vec::new();
        for _ in 0..u32_le(&record, 8) {
            let xattr = self.pair(metadata, &mut cursor)?;
            charge(size_of::<Xattr>() + xattr.name.len() + xattr.value.len())?;
            xattrs.push(xattr);
        }
        // Names are unique in a tree; Linux uses the first of several.
        xattrs.sort_by(|a: &Xattr, b| a.name.cmp(&b.name));
        xattrs.dedup_by(|later, first| later.name == first.name);
        Ok(xattrs)
    }

    fn pair(&self, metadata: &Metadata, cursor: &mut Cursor<'_>) -> Result<Xattr, Problem> {
        let header: [u8; 4] = cursor.array()?;
        let (xattr_type, name_len) = (u16_le(&header, 0), usize::from(u16_le(&header, 2)));
        let Some(prefix) = PREFIXES.get(usize::from(xattr_type & !VALUE_IS_ELSEWHERE)) else {
            return Err(corrupt(cursor.offset(), format!("an attribute of type {xattr_type:#x}")));
        };
        if prefix.len() + name_len > NAME_MAX_LEN {
            return Err(corrupt(cursor.offset(), format!("an attribute with a name of {name_len} bytes")));
        }
        let name = [prefix, &cursor.vec(name_len)?[..]].concat();
        let value = if xattr_type & VALUE_IS_ELSEWHERE == 0 {
            value(cursor)?
        } else {
            // The length of the reference, always 8, then the reference.
            let at: [u8; 12] = cursor.array()?;
            value(&mut metadata.cursor(self.pairs_off, Ref(u64_le(&at, 4)))?)?
        };
        Ok(Xattr { name: name.into(), value: value.into() })
    }
}

fn value(cursor: &mut Cursor<'_>) -> Result<Vec<u8>, Problem> {
    let len = u32::from_le_bytes(cursor.array()?);
    if len > VALUE_MAX_LEN {
        return Err(corrupt(cursor.offset(), format!("an attribute with a value of {len} bytes")));
    }
    cursor.vec(len as usize)
}
