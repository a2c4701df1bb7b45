//! POSIX ACLs in the text form of `acl(5)`, as the kernel has them.
//!
//! Entries stand between commas or line feeds: `TYPE:NAME:PERMISSIONS`, with star's and libarchive's numeric id as a fourth field. GNU
//! tar writes names alone where it knows them.

use std::collections::BTreeMap;

const VERSION: u32 = 2;
const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
/// The id of entries that name nobody.
const UNDEFINED: u32 = u32::MAX;

/// Names whose ids a header tells.
pub(super) struct Known<'a> {
    pub(super) user: (&'a [u8], u32),
    pub(super) group: (&'a [u8], u32),
}

/// An ACL: permissions by tag and id. The kernel wants this order.
#[derive(Debug)]
pub(super) struct Acl(BTreeMap<(u16, u32), u16>);

impl Acl {
    /// The ACL that `text` is.
    ///
    /// # Errors
    /// What is no ACL; names whose ids are not known.
    pub(super) fn parse(text: &[u8], known: &Known<'_>) -> Result<Self, String> {
        let mut entries = BTreeMap::new();
        for entry in text.split(|byte| matches!(byte, b',' | b'\n')) {
            // What follows is a comment, the effective permissions for example.
            let entry = entry.split(|&byte| byte == b'#').next().unwrap_or_default().trim_ascii();
            if entry.is_empty() {
                continue;
            }
            let wrong = |what: &str| format!("an ACL with \"{}\": {what}", entry.escape_ascii());
            let (key, permissions) = parse_entry(entry, known).map_err(wrong)?;
            if entries.insert(key, permissions).is_some() {
                return Err(wrong("a second entry of this kind"));
            }
        }
        let has = |tag| entries.contains_key(&(tag, UNDEFINED));
        let names_ids = entries.keys().any(|(_, id)| *id != UNDEFINED);
        match [USER_OBJ, GROUP_OBJ, OTHER].into_iter().all(has) && (has(MASK) || !names_ids) {
            true => Ok(Self(entries)),
            false => Err(format!("an ACL without an entry that each must have: {}", text.escape_ascii())),
        }
    }

    /// Whether it says no more than permissions do: the kernel stores no such ACL of a file.
    pub(super) fn is_mode(&self) -> bool {
        self.0.len() == 3
    }

    /// The lower 9 bits of the mode of a file with this ACL. Programs differ in what they write in the header: the group's permissions, or
    /// the mask, which is what a file system shows.
    pub(super) fn mode(&self) -> u16 {
        let of = |tag| self.0.get(&(tag, UNDEFINED)).copied();
        let group = of(MASK).or(of(GROUP_OBJ)).unwrap_or(0);
        of(USER_OBJ).unwrap_or(0) << 6 | group << 3 | of(OTHER).unwrap_or(0)
    }

    /// The value of the attribute.
    pub(super) fn to_xattr(&self) -> Vec<u8> {
        let mut value = VERSION.to_le_bytes().to_vec();
        for ((tag, id), permissions) in &self.0 {
            value.extend(tag.to_le_bytes());
            value.extend(permissions.to_le_bytes());
            value.extend(id.to_le_bytes());
        }
        value
    }
}

/// Tag and id, and permissions.
fn parse_entry(entry: &[u8], known: &Known<'_>) -> Result<((u16, u32), u16), &'static str> {
    let mut fields = entry.split(|&byte| byte == b':').map(<[u8]>::trim_ascii);
    let kind = fields.next().unwrap_or_default();
    let mut name = fields.next().ok_or("no permissions")?;
    let mut permissions = fields.next();
    if matches!(kind, b"mask" | b"m" | b"other" | b"o") && permissions.is_none() {
        // `other:r--` of Solaris.
        (name, permissions) = (b"", Some(name));
    }
    let permissions = parse_permissions(permissions.ok_or("no permissions")?).ok_or("permissions that do not exist")?;
    let id = fields.next().unwrap_or_default();
    let (own, named, known) = match kind {
        b"user" | b"u" => (USER_OBJ, USER, known.user),
        b"group" | b"g" => (GROUP_OBJ, GROUP, known.group),
        b"mask" | b"m" if name.is_empty() => return Ok(((MASK, UNDEFINED), permissions)),
        b"other" | b"o" if name.is_empty() => return Ok(((OTHER, UNDEFINED), permissions)),
        _ => return Err("an unknown type"),
    };
    if name.is_empty() && id.is_empty() {
        return Ok(((own, UNDEFINED), permissions));
    }
    let number = |text: &[u8]| str::from_utf8(text).ok()?.parse().ok().filter(|id| *id != UNDEFINED);
    let by_name = match name {
        b"root" => Some(0),
        name if name == known.0 => Some(known.1),
        name => number(name),
    };
    let id = if id.is_empty() { by_name } else { number(id) };
    Ok(((named, id.ok_or("a name without an id")?), permissions))
}

fn parse_permissions(text: &[u8]) -> Option<u16> {
    text.iter().try_fold(0, |bits, byte| match byte {
        b'r' => Some(bits | 4),
        b'w' => Some(bits | 2),
        b'x' => Some(bits | 1),
        b'-' => Some(bits),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: Known<'_> = Known { user: (b"lisa", 7), group: (b"staff", 8) };

    fn entries(text: &str) -> Vec<(u16, u32, u16)> {
        let acl = Acl::parse(text.as_bytes(), &KNOWN).unwrap();
        acl.0.iter().map(|((tag, id), permissions)| (*tag, *id, *permissions)).collect()
    }

    #[test]
    fn all_forms_are_read() {
        let expected = [
            (USER_OBJ, UNDEFINED, 7),
            (USER, 0, 1),
            (USER, 7, 6),
            (USER, 502, 4),
            (GROUP_OBJ, UNDEFINED, 5),
            (GROUP, 8, 0),
            (MASK, UNDEFINED, 7),
            (OTHER, UNDEFINED, 4),
        ];
        let gnu = "user::rwx\nuser:lisa:rw-\t#effective:r--\nuser:root:--x\nuser:502:r--\ngroup::r-x\ngroup:staff:---\nmask::rwx\nother::r--\n";
        let star = "u::rwx,u:x:rw-:7,user:root:--x,user:lisa:r--:502,g::r-x,group::---:8,m::rwx,o:r--";
        assert_eq!((entries(gnu), entries(star)), (expected.to_vec(), expected.to_vec()));
        let acl = Acl::parse(gnu.as_bytes(), &KNOWN).unwrap();
        assert_eq!((acl.mode(), acl.is_mode()), (0o774, false));
        assert_eq!(acl.to_xattr()[..20], [2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 2, 0, 1, 0, 0, 0, 0, 0]);
        let acl = Acl::parse(b"user::rw-,group::r--,other::---", &KNOWN).unwrap();
        assert_eq!((acl.mode(), acl.is_mode()), (0o640, true));
    }

    #[test]
    fn other_texts_are_refused() {
        let rest = ",group::r--,other::r--";
        for (text, reason) in [
            ("user", "no permissions"),
            ("user::rwz", "do not exist"),
            ("users::r--", "unknown type"),
            ("mask:x:r--", "unknown type"),
            ("user::r--,user::rw-", "a second entry"),
            ("user::r--,user:tom:rw-,mask::r--", "a name without an id"),
            ("user::r--,user:tom:rw-:-3,mask::r--", "a name without an id"),
            ("user::r--,user:tom:rw-:3", "must have"),
            ("user:3:r--,mask::r--", "must have"),
        ] {
            let error = Acl::parse(format!("{text}{rest}").as_bytes(), &KNOWN).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
        assert!(Acl::parse(b"", &KNOWN).is_err());
    }
}
