//! Extended attributes of a source that are missing in its image.

use kiln_format::Escaped;
use std::collections::BTreeMap;
use std::fmt;

/// Maximum number of names in a message.
const SHOWN_MAX: usize = 8;

/// Extended attributes, and entries of ACLs, that are left out because an image cannot hold them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOutXattrs(BTreeMap<Names, LeftOutXattr>);

/// Name of an attribute and, for an ACL, of the entry.
type Names = (Box<[u8]>, Box<[u8]>);

/// Left-out attributes of one name, or ACL entries of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOutXattr {
    /// Name of the attribute.
    pub name: Vec<u8>,
    /// ACL entry as `user:NAME`, or empty for the whole attribute.
    pub entry: Vec<u8>,
    /// Number of files that have it.
    pub count: u64,
    /// Path in the tree of the first such file.
    pub path: Vec<u8>,
    /// Reason for leaving it out of that file.
    pub reason: &'static str,
}

impl LeftOutXattrs {
    /// Returns true if nothing is left out.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of left-out attributes and entries, summed over all files.
    pub fn count(&self) -> u64 {
        self.0.values().map(|one| one.count).sum()
    }

    /// Returns an iterator over all of them, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = &LeftOutXattr> {
        self.0.values()
    }

    /// Counts an attribute or entry of a file; `path` returns the file's path.
    pub(crate) fn add(&mut self, name: &[u8], entry: &[u8], reason: &'static str, path: impl FnOnce() -> Vec<u8>) {
        let new = || LeftOutXattr { name: name.into(), entry: entry.into(), count: 0, path: path(), reason };
        self.0.entry((name.into(), entry.into())).or_insert_with(new).count += 1;
    }

    /// Adds the counts of another part of the tree; `path` maps its paths to those of this tree.
    pub fn extend(&mut self, other: Self, path: impl Fn(&[u8]) -> Vec<u8>) {
        for (names, other) in other.0 {
            let new = || LeftOutXattr { path: path(&other.path), count: 0, ..other.clone() };
            self.0.entry(names).or_insert_with(new).count += other.count;
        }
    }

    /// Removes attributes whose names do not satisfy `is_wanted`.
    pub(crate) fn retain(&mut self, is_wanted: impl Fn(&[u8]) -> bool) {
        self.0.retain(|(name, _), _| is_wanted(name));
    }
}

/// Formats the list as one line.
impl fmt::Display for LeftOutXattrs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "left out extended attributes that EROFS cannot hold and ACL entries without an id: ")?;
        for (at, LeftOutXattr { name, entry, count, .. }) in self.iter().take(SHOWN_MAX).enumerate() {
            let comma = if at > 0 { ", " } else { "" };
            match &**entry {
                b"" => write!(f, "{comma}{} ({count})", Escaped(name))?,
                entry => write!(f, "{comma}{} in {} ({count})", Escaped(entry), Escaped(name))?,
            }
        }
        match self.0.len().saturating_sub(SHOWN_MAX) {
            0 => Ok(()),
            more => write!(f, " and {more} other names"),
        }
    }
}

impl fmt::Display for LeftOutXattr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, entry, reason, .. } = self;
        match &**entry {
            b"" => write!(f, "extended attribute {}: {reason}", Escaped(name)),
            entry => write!(f, "extended attribute {}: {}: {reason}", Escaped(name), Escaped(entry)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_counted_by_name_and_shown_in_one_line() {
        let mut left_out = LeftOutXattrs::default();
        assert!(left_out.is_empty());
        left_out.add(b"system.x", b"", "because", || b"a".to_vec());
        left_out.add(b"system.x", b"", "because", || b"b".to_vec());
        left_out.add(b"system.posix_acl_access", b"user:\n", "no id", || b"c".to_vec());
        let line = "user:\\n in system.posix_acl_access (1), system.x (2)";
        assert!(left_out.to_string().ends_with(&format!(" without an id: {line}")), "{left_out}");
        let last = left_out.iter().last().unwrap();
        assert_eq!((&last.path[..], last.to_string()), (&b"a"[..], "extended attribute system.x: because".into()));
        let mut all = LeftOutXattrs::default();
        for _ in 0..2 {
            all.extend(left_out.clone(), |path| [b"at/", path].concat());
        }
        assert_eq!((all.count(), &all.iter().last().unwrap().path[..]), (6, &b"at/a"[..]));
        all.retain(|name| name != b"system.x");
        assert_eq!(all.count(), 2);
        for number in 0..20 {
            all.add(format!("n{number:02}").as_bytes(), b"", "because", Vec::new);
        }
        assert!(all.to_string().ends_with("n07 (1) and 13 other names"), "{all}");
    }
}
