//! Contents of several trees, numbered consecutively.

use crate::{
    Content, ContentError, ContentId, Contents, Device, Stored, StoredDigest, Stores, Tree, TreeError, TreeProblem,
    Version, content_count,
};
use std::io;

/// Contents of all parts. The ids of each part follow those of the previous one.
#[derive(Default)]
pub struct MergedContents {
    parts: Vec<PartContents>,
    next: u32,
    devices: Vec<Device>,
}

struct PartContents {
    /// Id of its first content.
    first: u32,
    contents: Box<dyn Contents>,
    /// Length in bytes of the path of the part's root in the merged tree, including the slash after
    /// it.
    prefix_len: usize,
    /// Number of its first device.
    first_device: usize,
}

impl MergedContents {
    /// Returns the id for content 0 of `tree`.
    ///
    /// # Errors
    /// More files than a tree can have.
    pub fn next_id(&mut self, tree: &Tree) -> Result<u32, TreeError> {
        self.take(content_count(tree))
    }

    /// Reserves `count` consecutive ids and returns the first.
    ///
    /// # Errors
    /// More files than a tree can have.
    pub fn take(&mut self, count: u32) -> Result<u32, TreeError> {
        let first = self.next;
        let next = first.checked_add(count);
        self.next = next.ok_or(TreeError { path: Vec::new(), problem: TreeProblem::TooManyNodes })?;
        Ok(first)
    }

    /// Adds the contents for the `count` ids that were reserved last, if any. They must be on no
    /// device, and are not opened by path.
    pub fn add_last(&mut self, count: u32, contents: Box<dyn Contents>) {
        if count > 0 {
            let (first, first_device) = (self.next - count, self.devices.len());
            self.parts.push(PartContents { first, contents, prefix_len: 0, first_device });
        }
    }

    /// Adds the contents of a tree, whose ids start at the result of [`MergedContents::next_id`],
    /// and whose root is at `at`.
    pub fn add(&mut self, first: u32, tree: Tree, at: &[u8]) {
        let prefix_len = if at.is_empty() { 0 } else { at.len() + 1 };
        let (contents, first_device) = (tree.into_contents(), self.devices.len());
        self.devices.extend(contents.stores().devices);
        self.parts.push(PartContents { first, contents, prefix_len, first_device });
    }

    fn part(&self, id: ContentId) -> (&PartContents, ContentId) {
        let part = &self.parts[self.parts.partition_point(|part| part.first <= id.0) - 1];
        (part, ContentId(id.0 - part.first))
    }
}

impl Contents for MergedContents {
    fn open(&self, id: ContentId, path: &[u8], version: Version) -> Result<Box<dyn Content>, ContentError> {
        let (part, id) = self.part(id);
        part.contents.open(id, &path[part.prefix_len..], version)
    }

    fn stored(&self, id: ContentId, len: u64) -> Result<Stored, ContentError> {
        let (part, id) = self.part(id);
        Ok(match part.contents.stored(id, len)? {
            Stored::Elsewhere(mut runs) => {
                for run in &mut runs {
                    let device = u16::try_from(part.first_device + usize::from(run.device));
                    run.device = device.map_err(|_| io::Error::other("more devices than an image can have"))?;
                }
                Stored::Elsewhere(runs)
            }
            stored => stored,
        })
    }

    fn stored_digest(&self, id: ContentId) -> Result<Option<StoredDigest>, ContentError> {
        let (part, id) = self.part(id);
        part.contents.stored_digest(id)
    }

    /// Returns devices and base of all parts. The digests are those of the first part with digests. If
    /// the image refers to data on devices, it does not read them, so all parts must have digests.
    fn stores(&self) -> Stores {
        let parts: Vec<Stores> = self.parts.iter().map(|part| part.contents.stores()).collect();
        let mut styles = parts.iter().map(|part| part.digests.clone());
        let digests = match self.devices.is_empty() {
            true => styles.flatten().next(),
            false => styles.try_fold(None, |first, one| one.map(|one| first.or(Some(one)))).flatten(),
        };
        let headers_only = parts.iter().any(|part| part.headers_only);
        let base = parts.into_iter().find_map(|part| part.base);
        Stores { devices: self.devices.clone(), headers_only, base, digests }
    }
}
