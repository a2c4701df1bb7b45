//! Parser of PAX records, which hold fields of the next member or of all following members.

use kiln_tree::Xattr;

use super::acl::without_mark;
use super::encoding::{base64_decoded, keyword_decoded, percent_decoded};
use super::number::{decimal, time};

/// Fields of a member from its extended headers.
#[derive(Clone, Debug, Default)]
pub(super) struct Extended {
    pub(super) path: Option<Vec<u8>>,
    pub(super) link_path: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) user_name: Option<Vec<u8>>,
    pub(super) group_name: Option<Vec<u8>>,
    pub(super) mtime: Option<(i64, u32)>,
    pub(super) dev_major: Option<u32>,
    pub(super) dev_minor: Option<u32>,
    /// Access ACL in text form.
    pub(super) acl_access: Option<Vec<u8>>,
    /// Default ACL in text form.
    pub(super) acl_default: Option<Vec<u8>>,
    pub(super) sparse: Sparse,
    /// Attributes with their origins; of several with the same name, the last in the order of
    /// [`Origin`] is used. Names from star's records are not decoded yet.
    xattrs: Vec<(Origin, Xattr)>,
    /// Invalid records of attributes: offsets in the archive in bytes, and what is wrong.
    problems: Vec<(u64, String)>,
}

/// Fields of a sparse file from extended headers.
#[derive(Clone, Debug, Default)]
pub(super) struct Sparse {
    pub(super) major: u64,
    pub(super) minor: u64,
    pub(super) path: Option<Vec<u8>>,
    /// Length of the file in bytes, including holes.
    pub(super) real_len: Option<u64>,
    /// Offsets and lengths of data in bytes, if the header has the map (versions 0.0 and 0.1).
    pub(super) map: Vec<(u64, u64)>,
    /// Offset whose length has not been read yet.
    offset: Option<u64>,
}

/// Origin of an attribute. For equal names the later origin is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Origin {
    Libarchive,
    RedHat,
    Acl,
    Star,
}

/// Members to which extended headers apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// The next member.
    Next,
    /// All following members.
    All,
}

impl Extended {
    /// Adds the records in `payload`, which starts at byte `start` of the archive. A record
    /// replaces earlier ones with the same keyword; an empty value means that the member's header
    /// has the value.
    ///
    /// # Errors
    /// Offset in the archive of an invalid record, and what is wrong with it. Problems of
    /// attributes only are collected for [`Extended::take_problems`].
    pub(super) fn add(&mut self, start: u64, payload: &[u8], scope: Scope) -> Result<(), (u64, String)> {
        let mut at = 0;
        while at < payload.len() {
            let rest = &payload[at..];
            if rest.iter().all(|&byte| byte == 0) {
                break;
            }
            let begin = start + at as u64;
            let (len, keyword, value) = record(rest).map_err(|reason| (begin, reason.to_owned()))?;
            let is_xattr = [XATTR, LIBARCHIVE_XATTR].iter().any(|prefix| keyword.starts_with(prefix));
            let is_of_one = matches!(keyword, b"path" | b"linkpath" | b"size")
                || is_xattr
                || [&b"GNU.sparse."[..], ACL].iter().any(|prefix| keyword.starts_with(prefix));
            if scope == Scope::All && is_of_one {
                // Programs disagree about such records, and so about the contents of the archive.
                return Err((begin, format!("{} in a global extended header", keyword.escape_ascii())));
            }
            if self.set(keyword, value).is_none() {
                let (keyword, shown) = (keyword.escape_ascii(), value[..value.len().min(64)].escape_ascii());
                let problem = (begin, format!("{keyword} = \"{shown}\": invalid value"));
                if !is_xattr {
                    return Err(problem);
                }
                self.problems.push(problem);
            }
            at += len;
        }
        Ok(())
    }

    /// Sets the field `keyword`. Returns `None` if the value is invalid.
    fn set(&mut self, keyword: &[u8], value: &[u8]) -> Option<()> {
        if let Some(name) = keyword.strip_prefix(XATTR) {
            return self.add_xattr(Origin::Star, name.to_vec(), value.to_vec());
        }
        if let Some(name) = keyword.strip_prefix(LIBARCHIVE_XATTR) {
            return self.add_xattr(Origin::Libarchive, percent_decoded(name), base64_decoded(value)?);
        }
        match keyword {
            b"path" => self.path = bytes(value),
            b"linkpath" => self.link_path = bytes(value),
            b"size" => self.size = number(value)?,
            b"uid" => self.uid = number(value)?,
            b"gid" => self.gid = number(value)?,
            b"uname" => self.user_name = bytes(value),
            b"gname" => self.group_name = bytes(value),
            b"mtime" if value.is_empty() => self.mtime = None,
            b"mtime" => self.mtime = Some(time(value)?),
            b"SCHILY.devmajor" => self.dev_major = number(value)?,
            b"SCHILY.devminor" => self.dev_minor = number(value)?,
            b"SCHILY.acl.access" => self.acl_access = bytes(value),
            b"SCHILY.acl.default" => self.acl_default = bytes(value),
            // The label without the zero byte that ends it in a filesystem.
            b"RHT.security.selinux" if !value.is_empty() => {
                self.add_xattr(Origin::RedHat, b"security.selinux".to_vec(), [value, b"\0"].concat())?;
            }
            b"GNU.sparse.major" => self.sparse.major = decimal(value)?,
            b"GNU.sparse.minor" => self.sparse.minor = decimal(value)?,
            b"GNU.sparse.name" => self.sparse.path = bytes(value),
            b"GNU.sparse.realsize" | b"GNU.sparse.size" => self.sparse.real_len = number(value)?,
            b"GNU.sparse.offset" => self.sparse.offset = Some(decimal(value)?),
            b"GNU.sparse.numbytes" => self.sparse.map.push((self.sparse.offset.take()?, decimal(value)?)),
            b"GNU.sparse.map" => self.sparse.map = map(value)?,
            // Other keywords have no counterpart in a tree.
            _ => {}
        }
        Some(())
    }

    fn add_xattr(&mut self, origin: Origin, name: Vec<u8>, value: Vec<u8>) -> Option<()> {
        if name.is_empty() || name.contains(&0) {
            return None;
        }
        self.xattrs.push((origin, Xattr { name: name.into(), value: value.into() }));
        Some(())
    }

    /// Adds the attribute of an ACL.
    pub(super) fn add_acl(&mut self, acl: Xattr) {
        self.xattrs.push((Origin::Acl, acl));
    }

    /// Takes the problems of attributes: offsets in the archive in bytes, and what is wrong.
    pub(super) fn take_problems(&mut self) -> Vec<(u64, String)> {
        std::mem::take(&mut self.problems)
    }

    /// Returns the most bytes that the names and values of all attributes take, and their number.
    pub(super) fn xattrs_max_len(&self) -> (usize, usize) {
        let acls = [&self.acl_access, &self.acl_default].into_iter().flatten();
        // The shortest entry of an ACL in text form is longer than an entry of an attribute, which has 8 bytes.
        let acls = acls.map(|text| 64 + 8 * text.len());
        let others = self.xattrs.iter().map(|(_, xattr)| xattr.name.len() + xattr.value.len());
        (acls.chain(others).sum(), 2 + self.xattrs.len())
    }

    /// Returns the attributes, each name once.
    pub(super) fn xattrs(mut self) -> Vec<Xattr> {
        // libarchive writes each attribute in two records, which encode the name differently.
        let is_libarchive = self.xattrs.iter().any(|(origin, _)| *origin == Origin::Libarchive);
        let decode = if is_libarchive { percent_decoded } else { keyword_decoded };
        for (_, xattr) in self.xattrs.iter_mut().filter(|(origin, _)| *origin == Origin::Star) {
            let name = decode(&xattr.name);
            if !name.contains(&0) {
                xattr.name = name.into();
            }
        }
        // The sort is stable: of equal origins, the last record is used.
        fn name(xattr: &Xattr) -> &[u8] {
            without_mark(&xattr.name)
        }
        self.xattrs.sort_by(|(a_origin, a), (b_origin, b)| name(b).cmp(name(a)).then(a_origin.cmp(b_origin)));
        self.xattrs.reverse();
        self.xattrs.dedup_by(|(_, later), (_, kept)| name(later) == name(kept));
        self.xattrs.into_iter().map(|(_, xattr)| xattr).collect()
    }
}

const XATTR: &[u8] = b"SCHILY.xattr.";
const LIBARCHIVE_XATTR: &[u8] = b"LIBARCHIVE.xattr.";
const ACL: &[u8] = b"SCHILY.acl.";

/// Returns length, keyword and value of the record at the start of `rest`. The length includes its
/// own digits. The value may contain any byte.
fn record(rest: &[u8]) -> Result<(usize, &[u8], &[u8]), &'static str> {
    // Longer than the digits of any `u64`.
    let digits = rest.iter().take(20).position(|&byte| byte == b' ').ok_or("a PAX record without a length")?;
    let len = decimal(&rest[..digits]).and_then(|len| usize::try_from(len).ok());
    let len = len.ok_or("a PAX record whose length is not a number")?;
    if len > rest.len() {
        return Err("a PAX record that is longer than its header");
    }
    match rest.get(digits + 1..len) {
        Some([text @ .., b'\n']) => {
            let equals = text.iter().position(|&byte| byte == b'=').ok_or("a PAX record without an equals sign")?;
            match equals {
                0 => Err("a PAX record without a keyword"),
                _ => Ok((len, &text[..equals], &text[equals + 1..])),
            }
        }
        _ => Err("a PAX record that does not end with a line feed where its length says"),
    }
}

fn bytes(value: &[u8]) -> Option<Vec<u8>> {
    (!value.is_empty()).then(|| value.to_vec())
}

/// Returns `None` if the value is not a number, and `Some(None)` if it is empty.
fn number<N: TryFrom<u64>>(value: &[u8]) -> Option<Option<N>> {
    match value {
        b"" => Some(None),
        value => N::try_from(decimal(value)?).ok().map(Some),
    }
}

/// Parses pairs of numbers separated by commas.
fn map(value: &[u8]) -> Option<Vec<(u64, u64)>> {
    let mut numbers = value.split(|&byte| byte == b',').filter(|number| !number.is_empty()).map(decimal);
    let mut map = Vec::new();
    while let Some(offset) = numbers.next() {
        map.push((offset?, numbers.next()??));
    }
    Some(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(payload: &[u8]) -> Result<Extended, String> {
        let mut extended = Extended::default();
        let text = |(at, reason)| format!("{at}: {reason}");
        extended.add(0, payload, Scope::Next).map_err(text)?;
        match extended.take_problems().into_iter().next() {
            Some(problem) => Err(text(problem)),
            None => Ok(extended),
        }
    }

    /// Returns a record with the right length.
    fn record_of(text: &[u8]) -> Vec<u8> {
        let len = (0..).find(|len: &usize| len.to_string().len() + 1 + text.len() + 1 == *len).unwrap();
        [format!("{len} ").as_bytes(), text, b"\n"].concat()
    }

    #[test]
    fn values_may_hold_any_byte() {
        let payload = [
            &record_of(b"SCHILY.xattr.user.a=1\n2\0=3\n12 path=x\n")[..],
            &record_of(b"path=a\nb"),
            &record_of(b"comment=\0"),
            &record_of(b"SCHILY.xattr.user.empty="),
        ]
        .concat();
        let extended = of(&payload).unwrap();
        assert_eq!(extended.path.as_deref(), Some(&b"a\nb"[..]));
        let xattrs: Vec<_> = extended.xattrs().into_iter().map(|x| (x.name.into_vec(), x.value.into_vec())).collect();
        let expected = [(b"user.a".to_vec(), b"1\n2\0=3\n12 path=x\n".to_vec()), (b"user.empty".to_vec(), Vec::new())];
        assert_eq!(xattrs, expected);
    }

    #[test]
    fn one_attribute_of_each_name_counts() {
        let payload = [
            &record_of(b"SCHILY.xattr.user.a=star")[..],
            &record_of(b"LIBARCHIVE.xattr.user.a=YQ"),
            &record_of(b"LIBARCHIVE.xattr.user.b%3D=YQ=="),
            &record_of(b"SCHILY.xattr.user.a=later"),
            &record_of(b"RHT.security.selinux=label"),
        ]
        .concat();
        let xattrs = of(&payload).unwrap().xattrs().into_iter();
        let shown: Vec<_> = xattrs.map(|x| format!("{}={}", x.name.escape_ascii(), x.value.escape_ascii())).collect();
        assert_eq!(shown, ["security.selinux=label\\x00", "user.a=later", "user.b==a"]);
    }

    #[test]
    fn names_of_attributes_are_decoded() {
        let names = |payload: &[Vec<u8>]| {
            let xattrs = of(&payload.concat()).unwrap().xattrs().into_iter();
            xattrs.map(|xattr| xattr.name.escape_ascii().to_string()).collect::<Vec<_>>()
        };
        // GNU tar's names: a space stands for itself.
        let gnu = [record_of(b"SCHILY.xattr.user.a%3Db=1"), record_of(b"SCHILY.xattr.user.%253D%20=1")];
        assert_eq!(names(&gnu), ["user.%3D%20", "user.a=b"]);
        // libarchive's names, in both records.
        let both = ["user.a%3Db", "user.c%20d"].map(|name| {
            let (star, own) = (format!("SCHILY.xattr.{name}=a"), format!("LIBARCHIVE.xattr.{name}=YQ"));
            [record_of(star.as_bytes()), record_of(own.as_bytes())].concat()
        });
        assert_eq!(names(&both), ["user.a=b", "user.c d"]);
    }

    #[test]
    fn empty_values_leave_it_to_the_header() {
        let payload = [record_of(b"path=x"), record_of(b"uid=7"), record_of(b"path="), record_of(b"uid=")].concat();
        let extended = of(&payload).unwrap();
        assert!(extended.path.is_none() && extended.uid.is_none());
    }

    #[test]
    fn damaged_records_are_reported() {
        for (payload, reason) in [
            (&b"0 path=x\n"[..], "0: a PAX record that does not end"),
            (b"2 path=x\n", "0: a PAX record that does not end"),
            (b"8 path=x\n", "0: a PAX record that does not end"),
            (b"11 path=x\n", "0: a PAX record that is longer"),
            (b"99999999999999999999999999 path=x\n", "0: a PAX record without a length"),
            (b"18446744073709551615 a", "0: a PAX record without a length"),
            (b"9999999999999999999 a=b\n", "0: a PAX record that is longer"),
            (b"-9 path=x\n", "0: a PAX record whose length is not a number"),
            (b"path=x\n", "0: a PAX record without a length"),
            (b"9 pathx__\n", "0: a PAX record that does not end"),
            (b"8 pathx\n", "0: a PAX record without an equals sign"),
            (b"5 =x\n", "0: a PAX record without a keyword"),
            (b"9 path=x\n9 size=x\n", "9: size = \"x\""),
            (b"9 size=-\n", "0: size"),
            (b"29 size=18446744073709551616\n", "0: size"),
            (b"18 uid=4294967296\n", "0: uid"),
            (b"11 mtime=x\n", "0: mtime"),
            (b"25 GNU.sparse.numbytes=1\n", "0: GNU.sparse.numbytes"),
            (b"20 GNU.sparse.map=1\n", "0: GNU.sparse.map"),
            (b"17 SCHILY.xattr.=\n", "0: a PAX record that"),
            (b"18 SCHILY.xattr.=\n", "0: SCHILY.xattr."),
            (b"29 LIBARCHIVE.xattr.user.a=*\n", "0: LIBARCHIVE.xattr.user.a"),
        ] {
            let error = of(payload).map(drop).unwrap_err();
            assert!(error.starts_with(reason), "{}: {error}", payload.escape_ascii());
        }
        for keyword in ["path=x", "linkpath=x", "size=1", "GNU.sparse.size=1", "SCHILY.xattr.user.a=1"] {
            assert!(Extended::default().add(0, &record_of(keyword.as_bytes()), Scope::All).is_err(), "{keyword}");
        }
        assert!(Extended::default().add(0, &record_of(b"mtime=1"), Scope::All).is_ok());
    }
}
