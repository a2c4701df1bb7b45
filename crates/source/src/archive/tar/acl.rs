//! POSIX ACLs: from the text form of `acl(5)` to the form of the kernel.
//!
//! Entries are separated by commas or line feeds: `TYPE:NAME:PERMISSIONS`, with a numeric id as a
//! fourth field in archives of star and libarchive. GNU tar writes only the name if it knows it;
//! `accounts` resolves such names.

use kiln_tree::Xattr;
use std::collections::BTreeMap;

const VERSION: u32 = 2;
const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
/// Id of entries without a user or group.
const UNDEFINED: u32 = u32::MAX;

/// Prefix of the name of an attribute whose value is the text of an ACL with unresolved names. No
/// attribute name in an archive can contain a zero byte.
const MARK: &[u8] = b"\0";

/// Owner and group of the member, whose ids are in its header.
#[derive(Default)]
pub(super) struct Known<'a> {
    pub(super) user: (&'a [u8], u32),
    pub(super) group: (&'a [u8], u32),
}

/// Kind of account named in an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Account {
    User,
    Group,
}

impl Account {
    /// Returns the keyword of the text form.
    pub(super) fn keyword(self) -> &'static str {
        match self {
            Account::User => "user",
            Account::Group => "group",
        }
    }

    fn tag(self) -> u16 {
        match self {
            Account::User => USER,
            Account::Group => GROUP,
        }
    }
}

/// A POSIX ACL.
#[derive(Debug)]
pub(super) struct Acl {
    /// Permissions by tag and id, in the order that the kernel requires.
    entries: BTreeMap<(u16, u32), u16>,
    /// Permissions of entries with unresolved names.
    named: BTreeMap<(Account, Box<[u8]>), u16>,
}

/// Subject of an entry: a tag with an id, or the name of an account whose id is not known.
enum AclSubject {
    Id(u16, u32),
    Name(Account, Box<[u8]>),
}

/// Returns the name of an attribute without the mark of unresolved ACLs.
pub(super) fn without_mark(name: &[u8]) -> &[u8] {
    name.strip_prefix(MARK).unwrap_or(name)
}

/// Returns true if the attribute is an ACL with unresolved names.
pub(super) fn has_mark(xattr: &Xattr) -> bool {
    xattr.name.starts_with(MARK)
}

impl Acl {
    /// Parses the text of an ACL.
    ///
    /// # Errors
    /// A text that is not an ACL, or lacks a required entry.
    pub(super) fn parse(text: &[u8], known: &Known<'_>) -> Result<Self, String> {
        let (mut entries, mut named) = (BTreeMap::new(), BTreeMap::new());
        for entry in text.split(|byte| matches!(byte, b',' | b'\n')) {
            // A comment follows the `#`, for example the effective permissions.
            let entry = entry.split(|&byte| byte == b'#').next().unwrap_or_default().trim_ascii();
            if entry.is_empty() {
                continue;
            }
            let wrong = |what: &str| format!("invalid ACL entry \"{}\": {what}", entry.escape_ascii());
            let (who, permissions) = parse_entry(entry, known).map_err(wrong)?;
            let previous = match who {
                AclSubject::Id(tag, id) => entries.insert((tag, id), permissions),
                AclSubject::Name(account, name) => named.insert((account, name), permissions),
            };
            if previous.is_some() {
                return Err(wrong("duplicate entry"));
            }
        }
        let has = |tag| entries.contains_key(&(tag, UNDEFINED));
        let has_names = !named.is_empty() || entries.keys().any(|(_, id)| *id != UNDEFINED);
        match [USER_OBJ, GROUP_OBJ, OTHER].into_iter().all(has) && (has(MASK) || !has_names) {
            true => Ok(Self { entries, named }),
            false => Err(format!("an ACL without one of the required entries: {}", text.escape_ascii())),
        }
    }

    /// Returns true if the ACL only repeats the permission bits. The kernel does not store such an
    /// ACL.
    pub(super) fn is_mode(&self) -> bool {
        self.entries.len() + self.named.len() == 3
    }

    /// Replaces names by the ids that `id` returns. Removes and returns entries whose names have no
    /// id, or one that already has an entry.
    pub(super) fn resolve(&mut self, id: impl Fn(Account, &[u8]) -> Option<u32>) -> Vec<(Account, Box<[u8]>)> {
        let mut lost = Vec::new();
        for ((account, name), permissions) in std::mem::take(&mut self.named) {
            let key = id(account, &name).map(|id| (account.tag(), id)).filter(|key| !self.entries.contains_key(key));
            match key {
                Some(key) => drop(self.entries.insert(key, permissions)),
                None => lost.push((account, name)),
            }
        }
        lost
    }

    /// Returns the lower 9 bits of the mode of a file with this ACL. Programs write either the
    /// group's permissions or the mask in the header; a filesystem shows the mask.
    pub(super) fn mode(&self) -> u16 {
        let of = |tag| self.entries.get(&(tag, UNDEFINED)).copied();
        let group = of(MASK).or(of(GROUP_OBJ)).unwrap_or(0);
        of(USER_OBJ).unwrap_or(0) << 6 | group << 3 | of(OTHER).unwrap_or(0)
    }

    /// Returns the ACL as the attribute `name`. While there are unresolved names it is a marked
    /// attribute (see [`has_mark`]) whose value [`Acl::parse`] reads.
    pub(super) fn to_xattr(&self, name: &[u8]) -> Xattr {
        if self.named.is_empty() {
            return Xattr { name: name.into(), value: self.value().into() };
        }
        Xattr { name: [MARK, name].concat().into(), value: self.text().into() }
    }

    fn value(&self) -> Vec<u8> {
        let mut value = VERSION.to_le_bytes().to_vec();
        for ((tag, id), permissions) in &self.entries {
            value.extend(tag.to_le_bytes());
            value.extend(permissions.to_le_bytes());
            value.extend(id.to_le_bytes());
        }
        value
    }

    fn text(&self) -> Vec<u8> {
        let mut text = Vec::new();
        let mut add = |keyword: &str, who: &[u8], permissions: &u16| {
            text.extend_from_slice(keyword.as_bytes());
            let bits = [(4, b'r'), (2, b'w'), (1, b'x')]
                .map(|(bit, letter)| if permissions & bit > 0 { letter } else { b'-' });
            [b":", who, b":", &bits, b","].iter().for_each(|part| text.extend_from_slice(part));
        };
        for ((tag, id), permissions) in &self.entries {
            let keyword = match *tag {
                USER_OBJ | USER => "user",
                GROUP_OBJ | GROUP => "group",
                MASK => "mask",
                _ => "other",
            };
            let id = if *id == UNDEFINED { String::new() } else { id.to_string() };
            add(keyword, id.as_bytes(), permissions);
        }
        self.named.iter().for_each(|((account, name), permissions)| add(account.keyword(), name, permissions));
        text
    }
}

/// Returns the subject of an entry, and its permissions.
fn parse_entry(entry: &[u8], known: &Known<'_>) -> Result<(AclSubject, u16), &'static str> {
    let mut fields = entry.split(|&byte| byte == b':').map(<[u8]>::trim_ascii);
    let kind = fields.next().unwrap_or_default();
    let mut name = fields.next().ok_or("no permissions")?;
    let mut permissions = fields.next();
    if matches!(kind, b"mask" | b"m" | b"other" | b"o") && permissions.is_none() {
        // `other:r--` of Solaris.
        (name, permissions) = (b"", Some(name));
    }
    let permissions = parse_permissions(permissions.ok_or("no permissions")?).ok_or("invalid permissions")?;
    let id = fields.next().unwrap_or_default();
    let (own, account, known) = match kind {
        b"user" | b"u" => (USER_OBJ, Account::User, known.user),
        b"group" | b"g" => (GROUP_OBJ, Account::Group, known.group),
        b"mask" | b"m" if name.is_empty() => return Ok((AclSubject::Id(MASK, UNDEFINED), permissions)),
        b"other" | b"o" if name.is_empty() => return Ok((AclSubject::Id(OTHER, UNDEFINED), permissions)),
        _ => return Err("unknown type"),
    };
    if name.is_empty() && id.is_empty() {
        return Ok((AclSubject::Id(own, UNDEFINED), permissions));
    }
    let number = |text: &[u8]| str::from_utf8(text).ok()?.parse().ok().filter(|id| *id != UNDEFINED);
    let by_name = match name {
        b"root" => Some(0),
        name if name == known.0 => Some(known.1),
        name => number(name),
    };
    let who = match by_name {
        _ if !id.is_empty() => AclSubject::Id(account.tag(), number(id).ok_or("the id is not a number")?),
        Some(id) => AclSubject::Id(account.tag(), id),
        None => AclSubject::Name(account, name.into()),
    };
    Ok((who, permissions))
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
        assert!(acl.named.is_empty(), "{acl:?}");
        acl.entries.iter().map(|((tag, id), permissions)| (*tag, *id, *permissions)).collect()
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
        let xattr = acl.to_xattr(b"a");
        assert_eq!(xattr.value[..20], [2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 2, 0, 1, 0, 0, 0, 0, 0]);
        assert!(!has_mark(&xattr) && without_mark(&xattr.name) == b"a");
        let acl = Acl::parse(b"user::rw-,group::r--,other::---", &KNOWN).unwrap();
        assert_eq!((acl.mode(), acl.is_mode()), (0o640, true));
    }

    #[test]
    fn names_wait_for_their_ids() {
        let text = b"user::rw-,user:tom:rw-,user:7:r--,user:ann:--x,group::r--,group:tom:r-x,mask::rwx,other::---";
        let waiting = Acl::parse(text, &KNOWN).unwrap().to_xattr(b"a");
        assert!(has_mark(&waiting) && without_mark(&waiting.name) == b"a");
        let mut acl = Acl::parse(&waiting.value, &Known::default()).unwrap();
        assert_eq!((acl.mode(), acl.is_mode()), (0o670, false));
        let lost = acl.resolve(|account, name| match (account, name) {
            (Account::User, b"tom") => Some(9),
            // The id has an entry.
            (Account::User, b"ann") => Some(7),
            _ => None,
        });
        assert_eq!(lost, [(Account::User, b"ann"[..].into()), (Account::Group, b"tom"[..].into())]);
        let expected = "user::rw-,user:7:r--,user:9:rw-,group::r--,mask::rwx,other::---";
        assert_eq!(acl.to_xattr(b"a"), Acl::parse(expected.as_bytes(), &KNOWN).unwrap().to_xattr(b"a"));
        // An ACL without its named entries is valid.
        let mut acl = Acl::parse(b"user::rw-,user:tom:rw-,group::r--,mask::rw-,other::---", &KNOWN).unwrap();
        assert_eq!(acl.resolve(|_, _| None).len(), 1);
        assert_eq!(acl.to_xattr(b"a").value.len(), 4 + 4 * 8);
    }

    #[test]
    fn other_texts_are_refused() {
        let rest = ",group::r--,other::r--";
        for (text, reason) in [
            ("user", "no permissions"),
            ("user::rwz", "invalid permissions"),
            ("users::r--", "unknown type"),
            ("mask:x:r--", "unknown type"),
            ("user::r--,user::rw-", "duplicate entry"),
            ("user::r--,user:tom:rw-:-3,mask::r--", "the id is not a number"),
            ("user::r--,user:tom:rw-,user:tom:r--,mask::r--", "duplicate entry"),
            ("user::r--,user:tom:rw-", "required entries"),
            ("user::r--,user:tom:rw-:3", "required entries"),
            ("user:3:r--,mask::r--", "required entries"),
        ] {
            let error = Acl::parse(format!("{text}{rest}").as_bytes(), &KNOWN).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
        assert!(Acl::parse(b"", &KNOWN).is_err());
    }
}
