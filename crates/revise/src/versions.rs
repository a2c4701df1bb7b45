//! Previous versions of files in an image.

use kiln_tree::{Content, ContentError, ContentId, Contents, Kind, PreviousVersion, ReusedData, Stored, Tree, Version};
use std::collections::HashMap;
use std::io::ErrorKind;

use crate::same_paths;

/// Contents of an image that may be previous versions of those of a tree, with their lengths in
/// bytes.
pub(crate) type Versions = HashMap<u32, (ContentId, u64)>;

/// Finds long files at the same path in two trees, of which the second is that of an image.
pub(crate) fn versions([new, old]: [&Tree; 2]) -> Versions {
    let mut found = Versions::new();
    same_paths::visit([new, old], |same| {
        let Kind::File { len: PreviousVersion::MIN_LEN.., content, .. } = new.node(same.nodes[0]).kind else { return };
        let other = &old.node(same.nodes[1]).kind;
        if let Kind::File { len: old_len @ PreviousVersion::MIN_LEN.., content: old_content, .. } = *other {
            found.entry(content.0).or_insert((old_content, old_len));
        }
    });
    found
}

/// Returns the stored form of the previous version of the contents `id`, in an image with the
/// contents `old`.
///
/// # Errors
/// Those of [`Contents::stored`].
pub(crate) fn previous_of(
    old: &dyn Contents,
    previous: &Versions,
    id: ContentId,
) -> Result<Option<PreviousVersion>, ContentError> {
    let Some(&(old_id, len)) = previous.get(&id.0) else { return Ok(None) };
    Ok(match old.stored(old_id, len)? {
        Stored::Reused(ReusedData::Extents(extents)) => Some(PreviousVersion { len, extents, differences: None }),
        _ => None,
    })
}

/// Opens the previous version of the contents `id`, in an image that has the contents `old`.
///
/// # Errors
/// As [`Contents::open`]; contents without a previous version.
pub(crate) fn open_previous(
    old: &dyn Contents,
    previous: &Versions,
    id: ContentId,
    path: &[u8],
) -> Result<Box<dyn Content>, ContentError> {
    let &(old_id, _) = previous.get(&id.0).ok_or(ContentError::Io(ErrorKind::NotFound.into()))?;
    old.open(old_id, path, Version::Scanned)
}
