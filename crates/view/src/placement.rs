//! Places of files on the tree device.

use kiln_builder::{BuildError, InputProblem};
use kiln_format::BlockBits;
use kiln_tree::{
    Content, ContentError, ContentId, Contents, Device, Kind, NodeId, PlacedRun, Stored, StoredDigest, Stores, Tree,
    Version,
};
use std::sync::Arc;

/// Most bytes of the device: offsets of files end there, too.
const DEVICE_LEN_MAX: u64 = i64::MAX as u64;

/// Place of a file that has data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlacedFile {
    /// Byte of the device at which it begins: the start of a block.
    pub start: u64,
    /// Length in bytes.
    pub len: u64,
    /// Its contents.
    pub content: ContentId,
}

impl PlacedFile {
    /// Returns the byte of the device at which the next file can begin; `None` behind the last byte that a device can
    /// have.
    pub(crate) fn next_start(&self) -> Option<u64> {
        let end = self.start.checked_add(self.len).filter(|end| *end <= DEVICE_LEN_MAX)?;
        Some(end.next_multiple_of(BlockBits::DEFAULT.len()))
    }
}

/// Places of all files.
#[derive(Debug, Default)]
pub(crate) struct Placement {
    /// Files by their places.
    pub files: Vec<PlacedFile>,
    /// One of the tree's files with the contents of each of them.
    pub nodes: Vec<NodeId>,
    /// Index of a file by the id of its contents; `u32::MAX` for contents that no file with data has.
    by_content: Vec<u32>,
    /// Length of the device in bytes: whole blocks.
    pub len: u64,
}

impl Placement {
    /// Places the files of a tree in walk order, so that files of a directory are neighbours.
    ///
    /// # Errors
    /// Files that are longer together than a device can be: archives may tell of any length.
    pub(crate) fn of(tree: &Tree) -> Result<Self, BuildError> {
        let mut placement = Self::default();
        for node in tree.walk() {
            let Kind::File { len: len @ 1.., content, .. } = tree.node(node).kind else { continue };
            let idx = content.0 as usize;
            if placement.by_content.len() <= idx {
                placement.by_content.resize(idx + 1, u32::MAX);
            }
            if placement.by_content[idx] != u32::MAX {
                continue; // another name of it
            }
            placement.by_content[idx] = placement.files.len() as u32;
            let file = PlacedFile { start: placement.len, len, content };
            let too_long = || BuildError::Input { path: tree.path(node), reason: InputProblem::FileLen(len) };
            placement.len = file.next_start().ok_or_else(too_long)?;
            placement.files.push(file);
            placement.nodes.push(node);
        }
        Ok(placement)
    }

    /// Returns the place of contents.
    fn file(&self, id: ContentId) -> Option<&PlacedFile> {
        self.files.get(*self.by_content.get(id.0 as usize)? as usize)
    }
}

/// Returns the same contents, which are said to lie on the tree device.
pub(crate) fn placed(contents: Box<dyn Contents>, placement: Arc<Placement>) -> Box<dyn Contents> {
    Box::new(PlacedContents { contents, placement })
}

struct PlacedContents {
    contents: Box<dyn Contents>,
    placement: Arc<Placement>,
}

impl Contents for PlacedContents {
    fn open(&self, id: ContentId, path: &[u8], version: Version) -> Result<Box<dyn Content>, ContentError> {
        self.contents.open(id, path, version)
    }

    fn stored(&self, id: ContentId, len: u64) -> Result<Stored, ContentError> {
        Ok(match self.placement.file(id) {
            Some(file) => Stored::Elsewhere(vec![PlacedRun { la: 0, device: 0, pa: file.start, len }]),
            None => Stored::ToRead,
        })
    }

    fn stored_digest(&self, id: ContentId) -> Result<Option<StoredDigest>, ContentError> {
        self.contents.stored_digest(id)
    }

    fn stores(&self) -> Stores {
        let device = (self.placement.len > 0).then_some(Device { path: None, tag: [0; 64], len: self.placement.len });
        Stores {
            devices: device.into_iter().collect(),
            headers_only: false,
            base: None,
            digests: self.contents.stores().digests,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_tree::conformance::{Echo, assert_forwards};
    use kiln_tree::{Builder, Metadata, Node, ThinSlice};

    /// Archives may tell of any length.
    #[test]
    fn files_that_no_device_can_hold_are_refused() {
        let placement = |lens: &[u64]| {
            let mut builder = Builder::default();
            for (idx, len) in lens.iter().enumerate() {
                let kind = Kind::File { len: *len, content: ContentId(idx as u32), sparse: true };
                let node = Node { meta: Metadata::default(), xattrs: ThinSlice::default(), kind };
                builder.insert(format!("{idx}").as_bytes(), node).unwrap();
            }
            Placement::of(&builder.finish(Box::new(Echo)).unwrap())
        };
        assert_eq!(placement(&[1, 4097, 0, 5]).unwrap().len, 4096 + 8192 + 4096);
        assert!(placement(&[1 << 62, 1 << 61]).is_ok());
        for lens in [&[1 << 62, 1 << 62][..], &[1, u64::MAX], &[u64::MAX - 5, u64::MAX]] {
            let told = placement(lens).unwrap_err().to_string();
            assert!(told.contains("the format ends at 2^63"), "{told}");
        }
    }

    #[test]
    fn all_but_the_place_is_forwarded() {
        let places = PlacedFile { start: 4096, len: 7, content: ContentId(1) };
        let by_content = vec![u32::MAX, 0];
        let placement = Placement { files: vec![places], nodes: vec![NodeId(1)], by_content, len: 8192 };
        let contents = placed(Box::new(Echo), Arc::new(placement));
        let own = ["stored elsewhere", "stored reused", "stored previous", "stored to read", "stores devices"];
        let own = [&own[..], &["stores headers_only", "stores base"]].concat();
        assert_forwards(&*contents, (ContentId(1), "a"), (ContentId(1), "a"), &own);
    }
}
