//! Changes of extended attributes.

use crate::{Kind, Xattr};
use kiln_format::xattr::{NAME_MAX_LEN, VALUE_MAX_LEN, split_name};
use regex::bytes::{RegexSet, RegexSetBuilder};

use crate::filter::glob::{FLAGS, Slash, to_regex};
use crate::syntax::{SyntaxError, regex_reason};

/// Changes of extended attributes.
#[derive(Clone, Debug, Default)]
pub struct XattrPolicy {
    /// Names to keep; `None` keeps all.
    pub include: Option<NameGlobs>,
    /// Names to remove from those.
    pub exclude: NameGlobs,
    /// Attributes to add, or to replace by name. Attributes in `user.` are added to regular files
    /// and directories only, since Linux allows them nowhere else.
    pub set: Vec<Xattr>,
    /// True to refuse attributes that an image cannot hold, and ACL entries whose names have no ids,
    /// instead of leaving them out and counting them. Applied by the crate that knows the format of
    /// the image: `kiln_source::leave_out_unfit`.
    pub strict: bool,
}

/// Globs over full names of attributes; a slash is an ordinary character.
#[derive(Clone, Debug)]
pub struct NameGlobs(RegexSet);

impl Default for NameGlobs {
    /// Returns a set that matches no name.
    fn default() -> Self {
        Self(RegexSet::empty())
    }
}

impl NameGlobs {
    /// Compiles globs; a name matches if any of them does.
    ///
    /// # Errors
    /// An invalid glob.
    pub fn new<'a>(globs: impl IntoIterator<Item = &'a [u8]>) -> Result<Self, SyntaxError> {
        let mut regexes = Vec::new();
        for glob in globs {
            let regex = to_regex(glob, Slash::Ordinary).map_err(|reason| SyntaxError::new("glob", glob, reason))?;
            regexes.push(format!("{FLAGS}^(?:{regex})$"));
        }
        let set = RegexSetBuilder::new(&regexes).build();
        Ok(Self(set.map_err(|error| SyntaxError::new("globs", b"all", regex_reason(&error)))?))
    }
}

impl XattrPolicy {
    /// Returns true if attributes of this name are kept.
    pub fn keeps(&self, name: &[u8]) -> bool {
        let included = self.include.as_ref().is_none_or(|globs| globs.0.is_match(name));
        included && !self.exclude.0.is_match(name)
    }

    /// Applies the policy to the attributes `xattrs` of a node.
    pub(super) fn apply(&self, xattrs: &mut Vec<Xattr>, kind: &Kind) {
        xattrs.retain(|xattr| self.keeps(&xattr.name));
        let has_user = matches!(kind, Kind::File { .. } | Kind::Directory(_));
        for xattr in &self.set {
            if has_user || !xattr.name.starts_with(b"user.") {
                set_xattr(xattrs, xattr.clone());
            }
        }
    }
}

/// Adds an attribute, or replaces the one of the same name.
pub fn set_xattr(xattrs: &mut Vec<Xattr>, xattr: Xattr) {
    xattrs.retain(|other| other.name != xattr.name);
    xattrs.push(xattr);
}

/// Parses an attribute NAME=VALUE. A value `0x...` is hexadecimal, as in setfattr(1); any other is
/// literal.
///
/// # Errors
/// Names and values that an image cannot hold.
pub fn parse_xattr(text: &[u8]) -> Result<Xattr, SyntaxError> {
    let refuse = |reason: &str| SyntaxError::new("attribute", text, reason);
    let equals = text.iter().position(|&b| b == b'=').ok_or_else(|| refuse("write it as NAME=VALUE"))?;
    let (name, value) = (&text[..equals], &text[equals + 1..]);
    let value = match value.strip_prefix(b"0x").or(value.strip_prefix(b"0X")) {
        Some(digits) => parse_hex(digits).ok_or_else(|| refuse("pairs of hexadecimal digits must follow 0x"))?,
        None => value.to_vec(),
    };
    checked_xattr(name, value, text)
}

/// Creates an attribute. Errors quote `text`.
///
/// # Errors
/// Names and values that an image cannot hold.
pub fn checked_xattr(name: &[u8], value: Vec<u8>, text: &[u8]) -> Result<Xattr, SyntaxError> {
    let refuse = |reason: &str| SyntaxError::new("attribute", text, reason);
    if split_name(name).is_none() {
        return Err(refuse("a name starts with user., trusted. or security., or is that of an ACL"));
    }
    if name.len() > NAME_MAX_LEN {
        return Err(refuse("a name has at most 255 bytes"));
    }
    if value.len() > VALUE_MAX_LEN {
        return Err(refuse("a value has at most 65535 bytes"));
    }
    Ok(Xattr { name: name.into(), value: value.into() })
}

/// Parses pairs of hexadecimal digits; `None` for anything else.
pub fn parse_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |b: u8| (b as char).to_digit(16).map(|digit| digit as u8);
    let (pairs, rest) = digits.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs.iter().map(|&[high, low]| Some(digit(high)? << 4 | digit(low)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(policy: &XattrPolicy, kind: &Kind) -> Vec<String> {
        let names = ["user.a", "user.a/b", "user.b", "trusted.c", "security.selinux"];
        let xattr = |name: &str| Xattr { name: name.as_bytes().into(), value: b"old".as_slice().into() };
        let mut xattrs = names.map(xattr).to_vec();
        policy.apply(&mut xattrs, kind);
        let shown = |xattr: &Xattr| format!("{}={}", xattr.name.escape_ascii(), xattr.value.escape_ascii());
        xattrs.iter().map(shown).collect()
    }

    #[test]
    fn globs_choose_names() {
        let globs = |globs: &[&str]| NameGlobs::new(globs.iter().map(|glob| glob.as_bytes())).unwrap();
        let policy = |include: &[&str], exclude: &[&str]| XattrPolicy {
            include: (!include.is_empty()).then(|| globs(include)),
            exclude: globs(exclude),
            ..XattrPolicy::default()
        };
        assert_eq!(names(&policy(&[], &[]), &Kind::Fifo).len(), 5);
        assert!(names(&policy(&[], &["*"]), &Kind::Fifo).is_empty());
        assert_eq!(names(&policy(&["user.*"], &["*.b"]), &Kind::Fifo), ["user.a=old", "user.a/b=old"]);
        assert_eq!(names(&policy(&["trusted.?"], &[]), &Kind::Fifo), ["trusted.c=old"]);
        assert!(NameGlobs::new([&b"["[..]]).is_err());
    }

    #[test]
    fn attributes_are_set_where_they_can_be() {
        let set = vec![parse_xattr(b"user.a=new").unwrap(), parse_xattr(b"trusted.c=0x00fF").unwrap()];
        let policy = XattrPolicy { exclude: NameGlobs::new([&b"*"[..]]).unwrap(), set, ..XattrPolicy::default() };
        assert_eq!(names(&policy, &Kind::Directory(Box::default())), ["user.a=new", r"trusted.c=\x00\xff"]);
        assert_eq!(names(&policy, &Kind::Symlink(Default::default())), [r"trusted.c=\x00\xff"]);
    }

    #[test]
    fn attributes_are_written_with_an_equals_sign() {
        assert_eq!(&*parse_xattr(b"user.a=b=c").unwrap().value, b"b=c");
        assert_eq!(&*parse_xattr(b"user.a=").unwrap().value, b"");
        let long = [b"user.", &[b'a'; 251][..], b"="].concat();
        for text in ["user.a", "a=b", "=b", "user.=b", "system.x=b", "user.a=0x1", "user.a=0x0g", "user.a=0x\u{e9}"] {
            assert!(parse_xattr(text.as_bytes()).is_err(), "{text}");
        }
        assert!(parse_xattr(&long).is_err());
    }
}
