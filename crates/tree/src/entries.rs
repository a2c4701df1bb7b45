//! Entries of a directory.

use std::ops::Range;

use super::NodeId;

/// A name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Name: 1 to 255 bytes, without zero bytes and slashes.
    pub name: &'a [u8],
    /// Node that it names.
    pub node: NodeId,
}

/// Entries of a directory. All names share one allocation, since there are as many as files.
#[derive(Clone, Debug, Default)]
pub struct Entries {
    names: Vec<u8>,
    slots: Vec<Slot>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Offset of the end of the name in bytes.
    name_end: u32,
    node: NodeId,
}

impl Entries {
    /// Maximum length in bytes of all names together.
    pub const NAMES_MAX_LEN: usize = u32::MAX as usize;

    /// Creates an empty list.
    pub const fn new() -> Self {
        Self { names: Vec::new(), slots: Vec::new() }
    }

    /// Appends an entry. [`Tree::new`](super::Tree::new) refuses directories with more than
    /// [`Entries::NAMES_MAX_LEN`] bytes of names.
    pub fn push(&mut self, name: &[u8], node: NodeId) {
        self.names.extend_from_slice(name);
        self.slots.push(Slot { name_end: self.names.len() as u32, node });
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns true if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Returns the length in bytes of all names together.
    pub fn names_len(&self) -> usize {
        self.names.len()
    }

    /// Returns the entry at `idx`.
    ///
    /// # Panics
    /// If there are only `idx` entries or fewer.
    pub fn at(&self, idx: usize) -> Entry<'_> {
        let start = if idx == 0 { 0 } else { self.slots[idx - 1].name_end as usize };
        let Slot { name_end, node } = self.slots[idx];
        Entry { name: &self.names[start..name_end as usize], node }
    }

    /// Sets the node of the entry at `idx`.
    pub(super) fn set(&mut self, idx: usize, node: NodeId) {
        self.slots[idx].node = node;
    }

    /// Returns an iterator over all entries, in order.
    pub fn iter(&self) -> Iter<'_> {
        Iter { entries: self, range: 0..self.len() }
    }

    /// Returns the node of the entry `name`. The entries must be sorted by the bytes of their names.
    pub fn find(&self, name: &[u8]) -> Option<NodeId> {
        let mut range = 0..self.len();
        while !range.is_empty() {
            let middle = range.start + range.len() / 2;
            let entry = self.at(middle);
            match entry.name.cmp(name) {
                std::cmp::Ordering::Equal => return Some(entry.node),
                std::cmp::Ordering::Less => range.start = middle + 1,
                std::cmp::Ordering::Greater => range.end = middle,
            }
        }
        None
    }

    /// Replaces the node of each entry by the result of `to`.
    pub fn renumber(&mut self, mut to: impl FnMut(NodeId) -> NodeId) {
        self.slots.iter_mut().for_each(|slot| slot.node = to(slot.node));
    }

    /// Replaces nodes like [`Entries::renumber`], until the first error.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn try_renumber<E>(&mut self, mut to: impl FnMut(NodeId) -> Result<NodeId, E>) -> Result<(), E> {
        self.slots.iter_mut().try_for_each(|slot| to(slot.node).map(|node| slot.node = node))
    }

    /// Sorts the entries by the bytes of their names.
    pub fn sort(&mut self) {
        if self.iter().is_sorted_by_key(|entry| entry.name) {
            return;
        }
        let mut sorted: Vec<_> = self.iter().collect();
        sorted.sort_unstable_by_key(|entry| entry.name);
        *self = sorted.into_iter().collect();
    }

    /// Frees memory that is not in use.
    pub fn shrink_to_fit(&mut self) {
        self.names.shrink_to_fit();
        self.slots.shrink_to_fit();
    }
}

impl<'a> FromIterator<Entry<'a>> for Entries {
    fn from_iter<I: IntoIterator<Item = Entry<'a>>>(iter: I) -> Self {
        let mut entries = Self::new();
        iter.into_iter().for_each(|entry| entries.push(entry.name, entry.node));
        entries.shrink_to_fit();
        entries
    }
}

impl<'a> IntoIterator for &'a Entries {
    type Item = Entry<'a>;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// Iterator over entries in order.
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    entries: &'a Entries,
    range: Range<usize>,
}

impl<'a> Iterator for Iter<'a> {
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Entry<'a>> {
        self.range.next().map(|idx| self.entries.at(idx))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.range.size_hint()
    }
}

impl DoubleEndedIterator for Iter<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.range.next_back().map(|idx| self.entries.at(idx))
    }
}

impl ExactSizeIterator for Iter<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(names: &[&str]) -> Entries {
        (0..).zip(names).map(|(id, name)| Entry { name: name.as_bytes(), node: NodeId(id) }).collect()
    }

    fn shown(entries: &Entries) -> Vec<(String, u32)> {
        entries.iter().map(|entry| (String::from_utf8_lossy(entry.name).into_owned(), entry.node.0)).collect()
    }

    #[test]
    fn entries_are_sorted_with_what_they_name() {
        for (names, sorted) in [
            (&["b", "a.x", "a", "ccc"][..], &[("a", 2), ("a.x", 1), ("b", 0), ("ccc", 3)][..]),
            (&["a", "b"], &[("a", 0), ("b", 1)]),
            (&[], &[]),
        ] {
            let mut entries = entries(names);
            entries.sort();
            let expected: Vec<_> = sorted.iter().map(|(name, id)| ((*name).to_owned(), *id)).collect();
            assert_eq!(shown(&entries), expected);
            assert!(entries.iter().rev().eq(entries.iter().collect::<Vec<_>>().into_iter().rev()));
            for (name, id) in sorted {
                assert_eq!(entries.find(name.as_bytes()), Some(NodeId(*id)));
            }
            for name in ["", "0", "aa", "bb", "d"] {
                assert_eq!(entries.find(name.as_bytes()), None);
            }
        }
    }

    #[test]
    fn entries_name_other_nodes_after_renumbering() {
        let mut entries = entries(&["x", "y"]);
        entries.renumber(|node| NodeId(7 - node.0));
        assert_eq!(shown(&entries), [("x".to_owned(), 7), ("y".to_owned(), 6)]);
    }
}
