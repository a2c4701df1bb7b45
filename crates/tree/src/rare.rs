//! List that few nodes have.

use std::ops::Deref;

/// A list that is nearly always empty, in the size of a pointer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThinSlice<T>(Option<Box<Box<[T]>>>);

impl<T> ThinSlice<T> {
    /// Returns the elements, for example to change them and create a list again.
    pub fn into_vec(self) -> Vec<T> {
        self.0.map_or(Vec::new(), |list| list.into_vec())
    }

    /// Sorts the elements.
    pub fn sort(&mut self)
    where
        T: Ord,
    {
        if let Some(list) = &mut self.0 {
            list.sort_unstable();
        }
    }
}

impl<T> Default for ThinSlice<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> From<Vec<T>> for ThinSlice<T> {
    fn from(list: Vec<T>) -> Self {
        Self((!list.is_empty()).then(|| Box::new(list.into())))
    }
}

impl<T: Clone> From<&[T]> for ThinSlice<T> {
    fn from(list: &[T]) -> Self {
        list.to_vec().into()
    }
}

impl<T> FromIterator<T> for ThinSlice<T> {
    fn from_iter<I: IntoIterator<Item = T>>(iter: I) -> Self {
        Vec::from_iter(iter).into()
    }
}

impl<T> Deref for ThinSlice<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.0.as_deref().map_or(&[], |list| list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_what_they_were_made_of() {
        assert_eq!(size_of::<ThinSlice<u64>>(), size_of::<usize>());
        for list in [vec![], vec![3, 1, 2]] {
            let mut rare = ThinSlice::from(list.clone());
            assert_eq!((&*rare, rare.clone().into_vec()), (&list[..], list.clone()));
            rare.sort();
            assert!(rare.is_sorted() && rare.len() == list.len());
        }
    }
}
