//! Storage of files in a base, by their indexes in the plan.

use kiln_tree::ReusedData;

/// Files that are reused, in plan order: nearly all files of an increment, so that a hash table would cost more than
/// the search.
#[derive(Default)]
pub(crate) struct ReusedList {
    list: Vec<(u32, ReusedData)>,
}

impl ReusedList {
    /// Returns the storage of this file.
    pub(crate) fn get(&self, file: u32) -> Option<&ReusedData> {
        self.list.binary_search_by_key(&file, |(idx, _)| *idx).ok().map(|at| &self.list[at].1)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &ReusedData)> {
        self.list.iter().map(|(idx, how)| (*idx, how))
    }

    pub(super) fn retain(&mut self, mut stays: impl FnMut(u32, &ReusedData) -> bool) {
        self.list.retain(|(idx, how)| stays(*idx, how));
    }
}

impl Extend<(u32, ReusedData)> for ReusedList {
    /// Adds files that are not in the list.
    fn extend<T: IntoIterator<Item = (u32, ReusedData)>>(&mut self, more: T) {
        self.list.extend(more);
        // Sorted runs merge in linear time.
        self.list.sort_by_key(|(idx, _)| *idx);
    }
}

impl FromIterator<(u32, ReusedData)> for ReusedList {
    fn from_iter<T: IntoIterator<Item = (u32, ReusedData)>>(files: T) -> Self {
        let mut list = Self::default();
        list.extend(files);
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_whatever_the_order_they_come_in() {
        let how = |file: u32| (file, ReusedData::Fragment { off: u64::from(file) * 10 });
        let mut list = ReusedList::from_iter([how(3), how(7), how(9)]);
        list.extend([how(8), how(1)]);
        list.retain(|file, _| file != 9);
        for (file, is_there) in [(0, false), (1, true), (2, false), (3, true), (7, true), (8, true), (9, false)] {
            let found = is_there.then(|| how(file).1);
            assert_eq!((list.get(file), list.get(file).is_some()), (found.as_ref(), is_there), "{file}");
        }
        assert_eq!(list.iter().map(|(file, _)| file).collect::<Vec<_>>(), [1, 3, 7, 8]);
    }
}
