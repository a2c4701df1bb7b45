//! POSIX ACLs as text with numeric users and groups.

use kiln_format::acl::entries;
use std::fmt::Write;

/// Returns an ACL in the one-line text form of `acl(5)`; `None` if `value` is not a valid ACL,
/// which is then stored as an attribute.
pub(super) fn text(value: &[u8]) -> Option<String> {
    let mut value = value.to_vec();
    let entries = entries(&mut value);
    let mut text = String::new();
    for [tag_low, tag_high, allowed_low, allowed_high, id @ ..] in entries.iter() {
        let (tag, allowed) = ([*tag_low, *tag_high], [*allowed_low, *allowed_high]);
        let (tag, id) = match u16::from_le_bytes(tag) {
            0x01 => ("user", None),
            0x02 => ("user", Some(u32::from_le_bytes(*id))),
            0x04 => ("group", None),
            0x08 => ("group", Some(u32::from_le_bytes(*id))),
            0x10 => ("mask", None),
            0x20 => ("other", None),
            _ => return None,
        };
        let allowed = u16::from_le_bytes(allowed);
        let bit = |bit: u16, letter| if allowed & bit != 0 { letter } else { '-' };
        let id = id.map(|id| id.to_string()).unwrap_or_default();
        let comma = if text.is_empty() { "" } else { "," };
        // Writing to a string cannot fail.
        let _ = write!(text, "{comma}{tag}:{id}:{}{}{}", bit(4, 'r'), bit(2, 'w'), bit(1, 'x'));
    }
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_numbers() {
        let entry = |tag: u8, allowed: u8, id: u8| [tag, 0, allowed, 0, id, 0, 0, 0];
        let acl = [entry(1, 7, 0), entry(2, 6, 5), entry(4, 5, 0), entry(8, 4, 9), entry(16, 7, 0), entry(32, 0, 0)];
        let value = [&[2, 0, 0, 0][..], &acl.concat()].concat();
        let expected = "user::rwx,user:5:rw-,group::r-x,group:9:r--,mask::rwx,other::---";
        assert_eq!(text(&value).as_deref(), Some(expected));
        for none in [&b""[..], b"\x02\0\0\0", b"\x03\0\0\0", &value[..9], &[&value[..4], &entry(3, 0, 0)].concat()] {
            assert_eq!(text(none), None);
        }
    }
}
