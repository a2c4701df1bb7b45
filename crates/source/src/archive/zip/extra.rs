//! Parser of members' extra fields: owners and Unicode names.

use rawzip::extra_fields::{ExtraFieldId, ExtraFields};

/// Length in bytes of Info-ZIP's first Unix field without owners: two times. The central directory
/// never has the owners.
const UNIX_TIMES_LEN: usize = 8;

/// Returns uid and gid. A field in an unknown format counts as absent.
pub(super) fn owners(fields: ExtraFields<'_>) -> Option<(u32, u32)> {
    let mut old = None;
    for (id, data) in fields {
        match id {
            ExtraFieldId::INFO_ZIP_UNIX_UID_GID => {
                if let Some(owners) = sized_owners(data) {
                    return Some(owners);
                }
            }
            ExtraFieldId::INFO_ZIP_UNIX => old = short_owners(data).or(old),
            ExtraFieldId::INFO_ZIP_UNIX_ORIGINAL => old = data.get(UNIX_TIMES_LEN..).and_then(short_owners).or(old),
            _ => {}
        }
    }
    old
}

/// Returns true if only the local header may have owners.
pub(super) fn owners_are_in_the_local_header(mut fields: ExtraFields<'_>) -> bool {
    fields.any(|(id, _)| matches!(id, ExtraFieldId::INFO_ZIP_UNIX | ExtraFieldId::INFO_ZIP_UNIX_ORIGINAL))
}

/// Parses version 1, then uid and gid, each preceded by its length.
fn sized_owners(data: &[u8]) -> Option<(u32, u32)> {
    let (&1, rest) = data.split_first()? else { return None };
    let (uid, rest) = sized(rest)?;
    let (gid, _) = sized(rest)?;
    Some((uid, gid))
}

fn sized(data: &[u8]) -> Option<(u32, &[u8])> {
    let (&len, rest) = data.split_first()?;
    let (id, rest) = rest.split_at_checked(len.into())?;
    let mut number = [0; 4];
    let (low, high) = id.split_at(id.len().min(4));
    number[..low.len()].copy_from_slice(low);
    high.iter().all(|&byte| byte == 0).then_some((u32::from_le_bytes(number), rest))
}

/// Parses uid and gid of 16 bits each.
fn short_owners(data: &[u8]) -> Option<(u32, u32)> {
    let &[u0, u1, g0, g1] = data.first_chunk()?;
    Some((u16::from_le_bytes([u0, u1]).into(), u16::from_le_bytes([g0, g1]).into()))
}

/// Returns the UTF-8 name that belongs to the name `raw`, if any. The field has version 1, the
/// CRC-32 of `raw` and the name.
pub(super) fn unicode_path<'a>(mut fields: ExtraFields<'a>, raw: &[u8]) -> Option<&'a [u8]> {
    let (_, data) = fields.find(|(id, _)| *id == ExtraFieldId::INFO_ZIP_UNICODE_PATH)?;
    let (&[1, c0, c1, c2, c3], name) = data.split_first_chunk()? else { return None };
    (u32::from_le_bytes([c0, c1, c2, c3]) == rawzip::crc32(raw) && !name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(id: u16, data: &[u8]) -> Vec<u8> {
        [&id.to_le_bytes(), &(data.len() as u16).to_le_bytes(), data].concat()
    }

    #[test]
    fn owners_of_all_forms_are_read() {
        let new = field(0x7875, &[1, 4, 0xE8, 3, 0, 0, 2, 100, 0]);
        let wide = field(0x7875, &[1, 8, 1, 0, 0, 0, 0, 0, 0, 0, 1, 7]);
        let too_wide = field(0x7875, &[1, 8, 1, 0, 0, 0, 0, 0, 0, 1, 1, 7]);
        let old = field(0x7855, &[5, 0, 6, 0]);
        let older = field(0x5855, &[0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 9, 0]);
        let cases = [
            (new.clone(), Some((1000, 100))),
            ([old.clone(), new].concat(), Some((1000, 100))),
            (wide, Some((1, 7))),
            (too_wide, None),
            (old.clone(), Some((5, 6))),
            (older, Some((8, 9))),
            ([old, field(0x7855, &[])].concat(), Some((5, 6))),
            (field(0x7875, &[2, 1, 1, 1, 1]), None),
            (field(0x7875, &[1, 200, 1]), None),
        ];
        for (bytes, expected) in cases {
            assert_eq!(owners(ExtraFields::new(&bytes)), expected, "{bytes:?}");
        }
    }

    #[test]
    fn a_unicode_path_counts_for_its_own_name_only() {
        let crc = rawzip::crc32(b"raw").to_le_bytes();
        let bytes = field(0x7075, &[&[1][..], &crc, "räw".as_bytes()].concat());
        assert_eq!(unicode_path(ExtraFields::new(&bytes), b"raw"), Some("räw".as_bytes()));
        assert_eq!(unicode_path(ExtraFields::new(&bytes), b"other"), None);
    }
}
