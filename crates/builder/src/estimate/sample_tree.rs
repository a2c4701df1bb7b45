//! A tree whose files are the text of a sample, in memory.

use std::ops::Range;
use std::sync::Arc;

use crate::error::BuildError;
use kiln_tree::{
    Content, ContentError, ContentId, Entries, Kind, Metadata, Node, NodeId, PlainContents, ThinSlice, Tree, Version,
};

/// A file of a sample.
pub(super) struct SampleFile<'a> {
    /// Its contents.
    pub text: Vec<u8>,
    /// The node that it has its metadata and attributes from: they determine the room that its inode leaves for a
    /// tail.
    pub node: Option<&'a Node>,
}

/// A directory of files that grows to a tree.
#[derive(Default)]
pub(super) struct SampleTree {
    files: Vec<Node>,
    texts: Vec<Arc<Vec<u8>>>,
}

impl SampleTree {
    /// Adds a file behind all others.
    pub(super) fn push(&mut self, file: SampleFile<'_>) -> NodeId {
        let SampleFile { text, node } = file;
        let content = ContentId(self.texts.len() as u32);
        let kind = Kind::File { len: text.len() as u64, content, sparse: false };
        let (meta, xattrs) =
            node.map_or((Metadata::default(), ThinSlice::default()), |node| (node.meta, node.xattrs.clone()));
        self.files.push(Node { meta, xattrs, kind });
        self.texts.push(Arc::new(text));
        NodeId(self.files.len() as u32)
    }

    /// Returns the tree.
    ///
    /// # Errors
    /// More files than a tree can have.
    pub(super) fn finish(self) -> Result<Tree, BuildError> {
        let mut entries = Entries::new();
        // Walks follow the order of names.
        (1..=self.files.len()).for_each(|n| entries.push(format!("{n:010}").as_bytes(), NodeId(n as u32)));
        let kind = Kind::Directory(Box::new(entries));
        let root = Node { meta: Metadata::default(), xattrs: ThinSlice::default(), kind };
        let nodes = std::iter::once(root).chain(self.files).collect();
        Ok(Tree::new(nodes, Box::new(Texts(self.texts)))?)
    }
}

/// The text of all files.
struct Texts(Vec<Arc<Vec<u8>>>);

/// The text of one.
struct Text(Arc<Vec<u8>>);

impl PlainContents for Texts {
    fn open_plain(&self, id: ContentId, _: &[u8], _: Version) -> Result<Box<dyn Content>, ContentError> {
        Ok(Box::new(Text(Arc::clone(&self.0[id.0 as usize]))))
    }
}

impl Content for Text {
    fn read_exact_at(&mut self, buf: &mut [u8], off: u64) -> Result<(), ContentError> {
        let text = usize::try_from(off).ok().and_then(|off| self.0.get(off..)?.get(..buf.len()));
        buf.copy_from_slice(text.ok_or(ContentError::Changed("shorter than before"))?);
        Ok(())
    }

    fn next_data(&mut self, off: u64) -> Result<Option<Range<u64>>, ContentError> {
        let end = self.0.len() as u64;
        Ok((off < end).then_some(off..end))
    }

    fn verify_unchanged(&mut self) -> Result<(), ContentError> {
        Ok(())
    }
}
