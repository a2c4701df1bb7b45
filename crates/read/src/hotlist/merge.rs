//! Several lists as one, and what one has beyond another.

use super::coverage::Coverage;
use super::list::{HotEntry, HotList};
use std::cmp::Reverse;

impl HotList {
    /// Merges several recordings into one list. Entries come by their number within their
    /// recording, the lowest first: a first entry before all second ones. So what every program
    /// needs at once is at the front, and a recording on slow storage, whose times are longer, is
    /// not put behind. Of equal numbers the path comes first that sorts first. Of bytes and inodes
    /// that several recordings have, the first entry stays; of later ones those parts that are new.
    /// Times stay as recorded. The order of `lists` makes no difference.
    #[must_use]
    pub fn merge(lists: &[Self]) -> Self {
        let numbered = lists.iter().flat_map(|list| list.entries().iter().enumerate());
        let mut numbered: Vec<(usize, &HotEntry)> = numbered.collect();
        numbered.sort_by(|(number, one), (other_number, other)| {
            let key = |entry: &HotEntry| (entry.offset, Reverse(entry.len), entry.micros);
            number.cmp(other_number).then_with(|| one.path.cmp(&other.path)).then_with(|| key(one).cmp(&key(other)))
        });
        let mut coverage = Coverage::default();
        Self::new(numbered.into_iter().flat_map(|(_, entry)| coverage.add(entry)).collect())
    }

    /// Returns the bytes and inodes of this list, each once, that `other` does not have, in the
    /// order of this list.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        let mut coverage = Coverage::of(other);
        Self::new(self.entries().iter().flat_map(|entry| coverage.add(entry)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(u64, u64, u64, &str)]) -> HotList {
        let entry =
            |&(offset, len, micros, path): &(u64, u64, u64, &str)| HotEntry { offset, len, micros, path: path.into() };
        HotList::new(entries.iter().map(entry).collect())
    }

    #[test]
    fn merging_takes_turns_and_each_byte_once() {
        let one = list(&[(0, 0, 10, "lib"), (0, 100, 20, "lib/c"), (0, 0, 30, "etc"), (0, 9, 31, "etc/x")]);
        let other = list(&[(0, 0, 1000, "lib"), (50, 100, 2000, "lib/c"), (0, 5, 3000, "etc/x")]);
        let expected = list(&[
            (0, 0, 10, "lib"),
            (0, 100, 20, "lib/c"),
            (100, 50, 2000, "lib/c"),
            (0, 0, 30, "etc"),
            (0, 5, 3000, "etc/x"),
            (5, 4, 31, "etc/x"),
        ]);
        assert_eq!(HotList::merge(&[one.clone(), other.clone()]), expected);
        assert_eq!(HotList::merge(&[other.clone(), one.clone()]), expected);
        assert_eq!(HotList::merge(&[one.clone(), one.clone()]), one);
        assert_eq!(HotList::merge(std::slice::from_ref(&expected)), expected);
        assert_eq!(HotList::merge(&[]), HotList::default());
        // Nothing is lost.
        assert_eq!(one.without(&expected), HotList::default());
        assert_eq!(other.without(&expected), HotList::default());
    }

    #[test]
    fn differences_are_bytes_and_inodes() {
        let one = list(&[(0, 0, 1, ""), (0, 100, 2, "a"), (0, 100, 3, "a"), (10, 5, 4, "b")]);
        let other = list(&[(20, 10, 9, "a"), (40, 10, 9, "a"), (10, 5, 8, "b"), (0, 0, 7, "b")]);
        let expected = [(0, 0, 1, ""), (0, 20, 2, "a"), (30, 10, 2, "a"), (50, 50, 2, "a")];
        assert_eq!(one.without(&other), list(&expected));
        assert_eq!(other.without(&one), list(&[(0, 0, 7, "b")]));
        assert_eq!(one.without(&one), HotList::default());
    }
}
