//! Contents of several trees under one row of numbers.

use kiln_tree::DigestName;
use kiln_tree::{
    Base, Content, ContentError, ContentId, Contents, Device, Former, Kept, Kind, Node, NodeId, PlacedRun,
    StoredDigest, Tree, TreeError, TreeProblem,
};
use std::io;
use std::sync::Arc;

/// The contents of all parts. Those of each part have numbers of their own, behind those of the part before.
#[derive(Default)]
pub(super) struct MergedContents {
    parts: Vec<PartContents>,
    next: u32,
    devices: Vec<Device>,
}

struct PartContents {
    /// Number of its first content.
    first: u32,
    contents: Box<dyn Contents>,
    /// Bytes of a path in the whole that lead to the part's root, the slash behind included.
    prefix_len: usize,
    /// Number of its first device.
    first_device: usize,
}

impl MergedContents {
    /// The number that content 0 of `tree` gets.
    ///
    /// # Errors
    /// More files than a tree can have.
    pub(super) fn next_id(&mut self, tree: &Tree) -> Result<u32, TreeError> {
        self.take(content_count(tree))
    }

    /// The first of `count` numbers that follow each other.
    ///
    /// # Errors
    /// More files than a tree can have.
    pub(super) fn take(&mut self, count: u32) -> Result<u32, TreeError> {
        let first = self.next;
        let next = first.checked_add(count);
        self.next = next.ok_or(TreeError { path: Vec::new(), problem: TreeProblem::TooManyNodes })?;
        Ok(first)
    }

    /// Add the contents that have the last `count` numbers that were taken, if any, and are on no device. They are not opened by path.
    pub(super) fn add_last(&mut self, count: u32, contents: Box<dyn Contents>) {
        if count > 0 {
            let (first, first_device) = (self.next - count, self.devices.len());
            self.parts.push(PartContents { first, contents, prefix_len: 0, first_device });
        }
    }

    /// Add the contents of a tree, whose numbers begin where [`MergedContents::next_id`] said, and whose root lies at `at`.
    pub(super) fn add(&mut self, first: u32, tree: Tree, at: &[u8]) {
        let prefix_len = if at.is_empty() { 0 } else { at.len() + 1 };
        let (contents, first_device) = (tree.into_contents(), self.devices.len());
        self.devices.extend(contents.devices());
        self.parts.push(PartContents { first, contents, prefix_len, first_device });
    }

    fn part(&self, id: ContentId) -> (&PartContents, ContentId) {
        let part = &self.parts[self.parts.partition_point(|part| part.first <= id.0) - 1];
        (part, ContentId(id.0 - part.first))
    }
}

/// How many numbers the contents of a tree take.
pub(crate) fn content_count(tree: &Tree) -> u32 {
    let content = |(_, node): (NodeId, &Node)| match node.kind {
        Kind::File { content, .. } => content.0 + 1,
        _ => 0,
    };
    tree.nodes().map(content).max().unwrap_or(0)
}

impl Contents for MergedContents {
    fn open(&self, id: ContentId, path: &[u8]) -> Result<Box<dyn Content>, ContentError> {
        let (part, id) = self.part(id);
        part.contents.open(id, &path[part.prefix_len..])
    }

    fn open_changed(&self, id: ContentId, path: &[u8]) -> Result<Box<dyn Content>, ContentError> {
        let (part, id) = self.part(id);
        part.contents.open_changed(id, &path[part.prefix_len..])
    }

    fn devices(&self) -> Vec<Device> {
        self.devices.clone()
    }

    fn placed(&self, id: ContentId, len: u64) -> Result<Option<Vec<PlacedRun>>, ContentError> {
        let (part, id) = self.part(id);
        let Some(mut runs) = part.contents.placed(id, len)? else { return Ok(None) };
        for run in &mut runs {
            let device = u16::try_from(part.first_device + usize::from(run.device));
            run.device = device.map_err(|_| io::Error::other("more devices than an image can have"))?;
        }
        Ok(Some(runs))
    }

    fn base(&self) -> Option<Arc<dyn Base>> {
        self.parts.iter().find_map(|part| part.contents.base())
    }

    /// Of the part that has the base: the others are stored elsewhere.
    fn kept(&self, id: ContentId, len: u64) -> Result<Option<Kept>, ContentError> {
        let (part, id) = self.part(id);
        if part.contents.base().is_some() { part.contents.kept(id, len) } else { Ok(None) }
    }

    fn open_kept(&self, id: ContentId, path: &[u8]) -> Result<Box<dyn Content>, ContentError> {
        let (part, id) = self.part(id);
        part.contents.open_kept(id, &path[part.prefix_len..])
    }

    /// That of the first part that has some. Where an image refers to data, these are not read: so all parts must have some.
    fn digest_name(&self) -> Option<DigestName> {
        let mut names = self.parts.iter().map(|part| part.contents.digest_name());
        match self.devices.is_empty() {
            true => names.flatten().next(),
            false => names.try_fold(None, |first, name| name.map(|name| first.or(Some(name)))).flatten(),
        }
    }

    fn stored_digest(&self, id: ContentId) -> Result<Option<StoredDigest>, ContentError> {
        let (part, id) = self.part(id);
        part.contents.stored_digest(id)
    }

    fn former(&self, id: ContentId) -> Result<Option<Former>, ContentError> {
        let (part, id) = self.part(id);
        part.contents.former(id)
    }

    fn open_former(&self, id: ContentId, path: &[u8]) -> Result<Box<dyn Content>, ContentError> {
        let (part, id) = self.part(id);
        part.contents.open_former(id, &path[part.prefix_len..])
    }
}
