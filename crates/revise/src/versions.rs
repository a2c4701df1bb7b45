//! Previous versions of files in an image.

use kiln_source::{ScanOptions, SourceError};
use kiln_tree::{ContentError, ContentId, Contents, Kind, PreviousVersion, ReusedData, Stored, Tree};
use std::collections::HashMap;

use crate::comparison::{CompareGoal, Compared, Differences, Doubt, compare};
use crate::held::HeldText;
use crate::same_paths;

/// A file of an image that may be the previous version of one of a tree.
#[derive(Clone, Copy)]
pub(crate) struct Version {
    /// The two files.
    pub(crate) doubt: Doubt,
    /// Contents of the old one.
    pub(crate) content: ContentId,
    /// Length of the old one in bytes.
    pub(crate) len: u64,
}

/// Files of an image that may be previous versions of those of a tree, by content ids of that.
pub(crate) type Versions = HashMap<u32, Version>;

/// Finds long files at the same path in two trees, of which the second is that of an image.
pub(crate) fn versions([new, old]: [&Tree; 2]) -> Versions {
    let mut found = Versions::new();
    same_paths::visit([new, old], |same| {
        let [one, other] = same.nodes;
        let Kind::File { len: PreviousVersion::MIN_LEN.., content: new_content, .. } = new.node(one).kind else {
            return;
        };
        if let Kind::File { len: len @ PreviousVersion::MIN_LEN.., content, .. } = old.node(other).kind {
            let doubt = Doubt { new: one, old: other };
            found.entry(new_content.0).or_insert(Version { doubt, content, len });
        }
    });
    found
}

/// Previous versions of changed files, with what differs from them.
#[derive(Default)]
pub(crate) struct Previous {
    /// Previous versions by content id: contents, length and differences.
    by_id: HashMap<u32, (ContentId, u64, Differing)>,
}

/// Extents that differ, in order.
type Differing = Vec<std::ops::Range<u64>>;

impl Previous {
    /// Finds out what differs from `versions`, where it is not in `known`. Leaves out those that are not stored in
    /// extents.
    ///
    /// # Errors
    /// [`SourceError::Interrupted`].
    pub(crate) fn find(
        trees: [&Tree; 2],
        versions: Versions,
        mut known: Differences,
        options: &ScanOptions<'_>,
        held: &mut HeldText,
    ) -> Result<Self, SourceError> {
        let unknown = versions.iter().filter(|(id, version)| !known.contains_key(&(**id, version.content)));
        let mut unknown: Vec<Doubt> = unknown.map(|(_, version)| version.doubt).collect();
        unknown.sort_unstable_by_key(|doubt| doubt.new.0);
        let Compared { differences, .. } = compare(trees, unknown, CompareGoal::Versions, options, held)?;
        known.extend(differences);
        let with_differences = |(id, Version { content, len, .. }): (u32, Version)| {
            Some((id, (content, len, known.remove(&(id, content))?)))
        };
        Ok(Self { by_id: versions.into_iter().filter_map(with_differences).collect() })
    }

    /// Returns the stored form of the contents `id`, of which `old`, the contents of the image, may have a previous
    /// version.
    ///
    /// # Errors
    /// Those of [`Contents::stored`].
    pub(crate) fn stored(&self, old: &dyn Contents, id: ContentId) -> Result<Stored, ContentError> {
        let Some(&(content, len, ref differences)) = self.by_id.get(&id.0) else { return Ok(Stored::ToRead) };
        Ok(match old.stored(content, len)? {
            Stored::Reused(ReusedData::Extents(extents)) => {
                Stored::Previous(PreviousVersion { len, extents, differences: differences.clone() })
            }
            _ => Stored::ToRead,
        })
    }
}
