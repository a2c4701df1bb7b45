//! Files with a compression of their own.

use kiln_codec::Spec;
use std::collections::HashMap;

use kiln_tree::NodeId;

/// Files that are compressed differently from the rest.
#[derive(Clone, Debug, Default)]
pub struct Hints {
    /// Each choice once.
    choices: Vec<Option<Spec>>,
    /// Index in `choices` of each file's hint.
    compression_of: HashMap<NodeId, usize>,
}

/// Collects hints in order: a later one for the same file replaces an earlier one.
impl<'a> FromIterator<(NodeId, &'a Option<Spec>)> for Hints {
    fn from_iter<I: IntoIterator<Item = (NodeId, &'a Option<Spec>)>>(hints: I) -> Self {
        let mut all = Self::default();
        hints.into_iter().for_each(|(file, compression)| all.insert(file, *compression));
        all
    }
}

impl Hints {
    /// Adds a hint to compress a file like this, or to store it (`None`). It replaces an earlier hint for the file.
    pub fn insert(&mut self, file: NodeId, compression: Option<Spec>) {
        let idx = self.choices.iter().position(|known| *known == compression).unwrap_or_else(|| {
            self.choices.push(compression);
            self.choices.len() - 1
        });
        self.compression_of.insert(file, idx);
    }

    /// Returns the hint for a file; `None` if it has none.
    pub fn get(&self, file: NodeId) -> Option<Option<Spec>> {
        self.compression_of.get(&file).map(|&idx| self.choices[idx])
    }

    /// Returns all compression that hints ask for, each once.
    pub(crate) fn specs(&self) -> impl Iterator<Item = Spec> {
        self.choices.iter().copied().flatten()
    }

    /// Returns the number of files with a hint.
    pub fn len(&self) -> usize {
        self.compression_of.len()
    }

    /// Returns true if no file has a hint.
    pub fn is_empty(&self) -> bool {
        self.compression_of.is_empty()
    }
}
