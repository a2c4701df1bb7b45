//! Trees that become the next generation of an image, in its place.

use kiln_builder::{Control, Progress, Summary};
use kiln_revise::update::{About, Added, Update};
use kiln_tree::{Kind, Tree};

use super::scanned::Scanned;
use crate::error::Error;

/// An image that shows the tree of an update.
pub struct Updated {
    /// Contents and sizes of the image. Files that were in it already count as reused.
    pub summary: Summary,
    /// Number of the generation that the image shows.
    pub number: u32,
    /// That generation, if it is a new one: an image that had the whole tree already stays as it is.
    pub added: Option<Added>,
}

impl Scanned<'_> {
    /// Updates the image of `update` to this tree, which has the update's [base](Update::base), unless it has all of
    /// it already.
    ///
    /// # Errors
    /// As [`Update::is_unchanged`] and [`Update::build`].
    pub fn update(
        &self,
        update: &Update<'_>,
        about: &About,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<Updated, Error> {
        let (tree, options) = (&self.scan.tree, &self.options);
        let control = Control { stop: &self.packer.stop, progress };
        if update.is_unchanged(tree, options, &control)? {
            let summary = Summary { image_bytes: update.image_bytes(), ..all_reused(tree) };
            return Ok(Updated { summary, number: update.number(), added: None });
        }
        let (summary, _, added) = update.build(tree, options, &control, about)?;
        Ok(Updated { summary, number: added.number, added: Some(added) })
    }
}

/// Returns the summary of an image that reuses all of `tree`.
fn all_reused(tree: &Tree) -> Summary {
    let mut summary = Summary::default();
    for (id, node) in tree.nodes() {
        summary.hard_links += u64::from(tree.names_of(id) - 1);
        match node.kind {
            Kind::File { len, .. } => {
                summary.files += 1;
                summary.bytes_in += len;
            }
            Kind::Directory(_) => summary.directories += 1,
            _ => summary.others += 1,
        }
    }
    Summary { reused_files: summary.files, reused_bytes: summary.bytes_in, ..summary }
}
