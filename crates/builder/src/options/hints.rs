//! Files with a compression of their own.

use kiln_codec::Spec;
use std::collections::HashMap;

use kiln_tree::NodeId;

/// Files that are stored otherwise than the rest.
#[derive(Clone, Debug, Default)]
pub struct Hints {
    /// Each choice once.
    choices: Vec<Option<Spec>>,
    /// Place in `choices`.
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
    /// Compress a file so, or not at all. A later hint for the same file replaces an earlier one.
    pub fn insert(&mut self, file: NodeId, compression: Option<Spec>) {
        let idx = self.choices.iter().position(|known| *known == compression).unwrap_or_else(|| {
            self.choices.push(compression);
            self.choices.len() - 1
        });
        self.compression_of.insert(file, idx);
    }

    /// The hint for a file; `None`: there is none.
    pub fn get(&self, file: NodeId) -> Option<Option<Spec>> {
        self.compression_of.get(&file).map(|&idx| self.choices[idx])
    }

    /// All compression that hints ask for, each once.
    pub(crate) fn specs(&self) -> impl Iterator<Item = Spec> {
        self.choices.iter().copied().flatten()
    }

    /// Files with a hint.
    pub fn len(&self) -> usize {
        self.compression_of.len()
    }

    /// Whether there is no hint.
    pub fn is_empty(&self) -> bool {
        self.compression_of.is_empty()
    }
}
