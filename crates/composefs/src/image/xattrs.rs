//! Extended attributes of an image: those of the tree, and those that make overlayfs find objects and
//! see whiteouts. A pair of key and value that two inodes have is stored once.

use super::prepare::{Item, Prepared};
use crate::tree::{CfsTree, Data, NodeIdx};
use crate::xattr_names::{METACOPY, OPAQUE, OVERLAY, OVERLAY_ESCAPED, REDIRECT, ROOT_OPAQUE, WHITEOUT, WHITEOUTS};
use hashbrown::HashTable;
use kiln_digest::{Algorithm, metacopy};
use kiln_format::{FormatError, acl, xattr};
use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};

const SELINUX: &[u8] = b"security.selinux";
/// Most shared attributes that composefs lets an inode have.
const SHARED_MAX: usize = 128;

/// Pairs that do not depend on the file: marks, escaped where overlayfs itself must not see them.
const MARKS: [(&[u8], &[u8]); 7] = [
    (WHITEOUT[0], b""),
    (WHITEOUT[1], b""),
    (WHITEOUTS[0], b""),
    (WHITEOUTS[1], b""),
    (OPAQUE[0], b"x"),
    (OPAQUE[1], b"x"),
    (ROOT_OPAQUE, b"y"),
];

/// A pair of key and value.
pub(super) struct Pair<'a> {
    key: &'a [u8],
    /// Value: these bytes and then those of `tail`.
    head: &'static [u8],
    tail: &'a [u8],
    /// Index of the key's prefix, and length of the prefix.
    index: u8,
    prefix_len: u8,
    /// Bit of the key in the filter.
    bit: u32,
    /// Number of inodes that have it.
    count: u32,
    /// Offset in the shared table in bytes.
    table_off: u64,
}

impl<'a> Pair<'a> {
    fn new(key: &'a [u8], head: &'static [u8], tail: &'a [u8]) -> Self {
        let (index, rest) = split(key);
        let prefix_len = (key.len() - rest.len()) as u8;
        Self { key, head, tail, index, prefix_len, bit: xattr::filter_bit(index, rest), count: 0, table_off: 0 }
    }

    fn rest(&self) -> &'a [u8] {
        &self.key[usize::from(self.prefix_len)..]
    }

    fn value_len(&self) -> usize {
        self.head.len() + self.tail.len()
    }

    fn entry_len(&self) -> usize {
        xattr::entry_len(self.rest().len(), self.value_len())
    }

    fn is_shared(&self) -> bool {
        self.count > 1
    }

    /// Appends the entry.
    fn encode(&self, value: &mut Vec<u8>, out: &mut Vec<u8>) -> Result<(), FormatError> {
        value.clear();
        value.extend_from_slice(self.head);
        value.extend_from_slice(self.tail);
        xattr::encode_entry(self.index, self.rest(), value, out)
    }
}

/// Splits a key as composefs does: unlike other writers, it uses a prefix even if nothing follows, or
/// if something follows the name of an ACL, and stores any other key whole.
fn split(key: &[u8]) -> (u8, &[u8]) {
    let prefixed = [1, 2, 3, 4, 6].into_iter().find_map(|index| {
        let rest = key.strip_prefix(xattr::prefix(index)?)?;
        Some((index, rest))
    });
    prefixed.unwrap_or((0, key))
}

/// Returns the keys of the tree's pairs, those of overlayfs escaped. This keeps their order.
pub(super) fn escaped_keys(tree: &CfsTree) -> Vec<Cow<'_, [u8]>> {
    let escaped = |(key, _): (_, _)| match <[u8]>::strip_prefix(key, OVERLAY) {
        Some(rest) => Cow::Owned([OVERLAY_ESCAPED, rest].concat()),
        None => Cow::Borrowed(key),
    };
    tree.pairs().map(escaped).collect()
}

/// Attributes of all inodes.
pub(super) struct Xattrs<'a> {
    pairs: Vec<Pair<'a>>,
    /// Pairs of all inodes, each inode's sorted by key.
    refs: Vec<u32>,
    /// End of each inode's pairs in `refs`.
    ends: Vec<usize>,
    /// Shared pairs in the order of their table.
    table: Vec<u32>,
    /// Length of the table in bytes.
    pub(super) table_len: u64,
    /// True if an inode has an ACL.
    pub(super) has_acl: bool,
}

impl<'a> Xattrs<'a> {
    pub(super) fn new(
        prepared: &'a Prepared<'_>,
        keys: &'a [Cow<'a, [u8]>],
        marks_opaque: bool,
    ) -> Result<Self, FormatError> {
        let tree = prepared.tree;
        let mut pairs: Vec<Pair<'a>> = MARKS.iter().map(|(key, value)| Pair::new(key, b"", value)).collect();
        // The tree may have marks, too: equal pairs must be one.
        let mut own = Vec::with_capacity(keys.len());
        for (key, (_, value)) in keys.iter().zip(tree.pairs()) {
            let mark = MARKS.iter().position(|mark| *mark == (&**key, value));
            own.push(mark.unwrap_or(pairs.len()) as u32);
            if mark.is_none() {
                pairs.push(Pair::new(key, b"", value));
            }
        }
        let mut has_whiteout = vec![false; tree.len()];
        for node in tree.nodes().iter().filter(|node| node.data.is_whiteout()) {
            has_whiteout[node.parent as usize] = true;
        }

        let mut objects = Objects::default();
        let (mut refs, mut ends) = (Vec::new(), Vec::with_capacity(prepared.order.len()));
        for &item in &prepared.order {
            let start = refs.len();
            if prepared.is_stub(item) {
                let root = tree.own_pairs(NodeIdx::ROOT.0).iter().map(|&pair| own[pair as usize]);
                refs.extend(root.filter(|&pair| pairs[pair as usize].key == SELINUX));
            } else {
                refs.extend(tree.own_pairs(item).iter().map(|&pair| own[pair as usize]));
                let mut list = List { pairs: &mut pairs, refs: &mut refs, start };
                match tree.nodes()[item as usize].data {
                    Data::External { digest, object, .. } => {
                        let metacopy = objects.metacopy(tree.text_of(digest), list.pairs)?;
                        list.set(metacopy);
                        if let Some(object) = object {
                            let redirect = objects.redirect(tree.text_of(object), list.pairs)?;
                            list.set(redirect);
                        }
                    }
                    data if data.is_whiteout() => list.set_all(0..2),
                    _ => {}
                }
                if has_whiteout[item as usize] {
                    list.set_all(if marks_opaque { 2..6 } else { 2..4 });
                }
                if item == NodeIdx::ROOT.0 {
                    list.set_all(6..7);
                }
            }
            ends.push(refs.len());
            for &pair in &refs[start..] {
                pairs[pair as usize].count += 1;
            }
        }

        let is_acl = |pair: &Pair<'_>| pair.count > 0 && (pair.key == acl::ACCESS || pair.key == acl::DEFAULT);
        let has_acl = pairs.iter().any(is_acl);
        let (table, table_len) = share(&mut pairs);
        Ok(Self { pairs, refs, ends, table, table_len, has_acl })
    }

    fn of(&self, number: usize) -> &[u32] {
        let start = if number == 0 { 0 } else { self.ends[number - 1] };
        &self.refs[start..self.ends[number]]
    }

    /// Returns the length of the body of an inode's attributes in bytes.
    pub(super) fn body_len(&self, number: usize) -> usize {
        let own = self.of(number);
        if own.is_empty() {
            return 0;
        }
        let mut shared = 0;
        let mut len = xattr::BODY_HEADER_LEN;
        for pair in own.iter().map(|&pair| &self.pairs[pair as usize]) {
            if pair.is_shared() && shared < SHARED_MAX {
                shared += 1;
                len += 4;
            } else {
                len += pair.entry_len();
            }
        }
        len
    }

    /// Appends the body of an inode's attributes. `table_off` is the offset of the shared table from
    /// the block to which shared ids refer.
    pub(super) fn encode_body(&self, number: usize, table_off: u64, out: &mut Vec<u8>) -> Result<(), FormatError> {
        let own = self.of(number);
        if own.is_empty() {
            return Ok(());
        }
        let start = out.len();
        out.resize(start + xattr::BODY_HEADER_LEN, 0);
        let (mut filter, mut shared) = (u32::MAX, 0);
        let (mut inline, mut value) = (Vec::new(), Vec::new());
        for pair in own.iter().map(|&pair| &self.pairs[pair as usize]) {
            filter &= !pair.bit;
            if pair.is_shared() && shared < SHARED_MAX {
                shared += 1;
                let id = (table_off + pair.table_off) / 4;
                let refuse = |_| FormatError::does_not_fit("erofs_xattr_ibody_header", "h_shared_xattrs", id);
                out.extend_from_slice(&u32::try_from(id).map_err(refuse)?.to_le_bytes());
            } else {
                pair.encode(&mut value, &mut inline)?;
            }
        }
        out.extend_from_slice(&inline);
        out[start..start + 4].copy_from_slice(&filter.to_le_bytes());
        out[start + 4] = shared as u8;
        Ok(())
    }

    /// Passes the entries of the shared table to `write`, in order.
    pub(super) fn encode_table<E: From<FormatError>>(
        &self,
        mut write: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut entry, mut value) = (Vec::new(), Vec::new());
        for &pair in &self.table {
            entry.clear();
            self.pairs[pair as usize].encode(&mut value, &mut entry)?;
            write(&entry)?;
        }
        Ok(())
    }
}

/// Returns the shared pairs in the order of their table, and its length. Tells each its offset.
fn share(pairs: &mut [Pair<'_>]) -> (Vec<u32>, u64) {
    let mut table: Vec<u32> = (0..pairs.len() as u32).filter(|&pair| pairs[pair as usize].is_shared()).collect();
    table.sort_unstable_by(|&a, &b| {
        let (a, b) = (&pairs[a as usize], &pairs[b as usize]);
        // Values of one key and length have heads of one length.
        let order = a.key.cmp(b.key).then_with(|| a.value_len().cmp(&b.value_len()));
        order.then_with(|| (a.head, a.tail).cmp(&(b.head, b.tail))).reverse()
    });
    let mut table_len = 0;
    for &pair in &table {
        let pair = &mut pairs[pair as usize];
        pair.table_off = table_len;
        table_len += pair.entry_len() as u64;
    }
    (table, table_len)
}

/// Attributes of the inode that is being prepared.
struct List<'l, 'a> {
    pairs: &'l mut Vec<Pair<'a>>,
    refs: &'l mut Vec<u32>,
    /// Begin of the inode's pairs in `refs`.
    start: usize,
}

impl List<'_, '_> {
    /// Sets an attribute: it takes the place of one with the same key.
    fn set(&mut self, pair: u32) {
        let key = self.pairs[pair as usize].key;
        let own = &self.refs[self.start..];
        let larger = own.iter().rev().take_while(|&&other| self.pairs[other as usize].key > key).count();
        let at = self.refs.len() - larger;
        match self.refs[self.start..at].last() {
            Some(&last) if self.pairs[last as usize].key == key => self.refs[at - 1] = pair,
            _ => self.refs.insert(at, pair),
        }
    }

    /// Sets some of [`MARKS`].
    fn set_all(&mut self, marks: std::ops::Range<Item>) {
        marks.for_each(|mark| self.set(mark));
    }
}

/// Pairs that lead to objects. Files with equal contents have equal ones.
#[derive(Default)]
struct Objects {
    metacopies: HashTable<(u64, u32)>,
    redirects: HashTable<(u64, u32)>,
    hashes: RandomState,
}

impl Objects {
    fn metacopy<'a>(&mut self, digest: &'a [u8], pairs: &mut Vec<Pair<'a>>) -> Result<u32, FormatError> {
        const HEADS: [[u8; 4]; 2] = [metacopy::head(Algorithm::Sha256), metacopy::head(Algorithm::Sha512)];
        let head: &[u8] = match Algorithm::of_len(digest.len()) {
            Some(Algorithm::Sha256) => &HEADS[0],
            Some(Algorithm::Sha512) => &HEADS[1],
            None => &[],
        };
        let hash = self.hashes.hash_one(digest);
        intern(&mut self.metacopies, hash, Pair::new(METACOPY, head, digest), pairs)
    }

    fn redirect<'a>(&mut self, object: &'a [u8], pairs: &mut Vec<Pair<'a>>) -> Result<u32, FormatError> {
        let hash = self.hashes.hash_one(object);
        intern(&mut self.redirects, hash, Pair::new(REDIRECT, b"/", object), pairs)
    }
}

/// Returns the index of a pair in `pairs`, to which it is appended if it is not in `table`.
fn intern<'a>(
    table: &mut HashTable<(u64, u32)>,
    hash: u64,
    pair: Pair<'a>,
    pairs: &mut Vec<Pair<'a>>,
) -> Result<u32, FormatError> {
    let is_same = |&(other, at): &(u64, u32)| other == hash && pairs[at as usize].tail == pair.tail;
    if let Some(&(_, at)) = table.find(hash, is_same) {
        return Ok(at);
    }
    let refuse = |_| FormatError::does_not_fit("erofs_xattr_entry", "number of entries", pairs.len() as u64);
    let at = u32::try_from(pairs.len()).map_err(refuse)?;
    table.insert_unique(hash, (hash, at), |&(hash, _)| hash);
    pairs.push(pair);
    Ok(at)
}
