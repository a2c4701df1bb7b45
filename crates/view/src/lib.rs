//! Views: a tree as an image that is read and not written.
//!
//! [`view`] builds an image of names and metadata in memory, whose files lie on a device that does not exist: the
//! *tree device*. All files of the tree lie on it one behind the other, each from a block on. Reading a byte of the
//! device reads the byte of the file from the tree's [`Contents`](kiln_tree::Contents): from an archive, which
//! decodes it, or from an image of another format. So whatever reads images, a FUSE server above all, reads every
//! source of trees.
//!
//! # Inside
//!
//! * `placement` gives each file its place on the device, and answers the builder, which asks where contents are
//!   stored, with these places.
//! * `tree_device` reads the device. It keeps contents open, since opening may decode them.
//! * `index` keeps a view in a file.
#![warn(unreachable_pub)]
#![forbid(unsafe_code)]

mod index;
mod open_contents;
mod placement;
mod tree_device;

pub use index::{FoundIndex, IndexError, SourceStamp, ViewIndex};

use kiln_builder::{
    BuildError, BuildOptions, Choices, Compression, Control, Dedupe, Fragments, Preset, Threads, WorkOptions,
};
use kiln_output::MemoryOutput;
use kiln_read::{ImageSources, MemorySource};
use kiln_tree::Tree;
use placement::{PlacedFile, Placement};
use std::sync::Arc;
use tree_device::{FileContents, TreeDevice};

/// An image of a tree whose contents stay in the tree's source.
pub struct View {
    image: Vec<u8>,
    tree: Tree,
    placement: Arc<Placement>,
    has_xattrs: bool,
}

/// Returns a view of `tree`. It takes memory for names and metadata, twice: in the tree and in the image.
///
/// # Errors
/// A tree that no image can hold; an interruption.
pub fn view(tree: Tree, threads: Threads, control: &Control<'_>) -> Result<View, BuildError> {
    let placement = Arc::new(Placement::of(&tree)?);
    let tree = tree.with_contents(|contents| placement::placed(contents, Arc::clone(&placement)));
    let out = MemoryOutput::default();
    kiln_builder::build(&tree, &out, &options(threads), control)?;
    let has_xattrs = tree.walk().any(|node| !tree.node(node).xattrs.is_empty());
    Ok(View { image: out.into_bytes(), tree, placement, has_xattrs })
}

impl View {
    /// Returns the image and its device, to be opened.
    pub fn into_sources(self) -> ImageSources {
        let Placement { files, nodes, len, .. } = &*self.placement;
        let contents = FileContents::OfTree(self.tree, nodes.clone());
        sources(self.image, contents, files.clone(), *len).with_xattrs(self.has_xattrs)
    }
}

/// Returns the image and its device of `len` bytes, with these files on it.
fn sources(image: Vec<u8>, contents: FileContents, files: Vec<PlacedFile>, len: u64) -> ImageSources {
    let sources = ImageSources::new(Arc::new(MemorySource::new(image)));
    match len {
        0 => sources,
        _ => sources.with_devices(vec![Arc::new(TreeDevice::new(contents, files, len))]),
    }
}

/// Returns options of an image that only refers to contents.
fn options(threads: Threads) -> BuildOptions {
    let choices = Choices {
        preset: Preset::Plain,
        compression: Some(Compression::Off),
        dedupe: Some(Dedupe::Off),
        fragments: Some(Fragments::Off),
        ..Choices::default()
    };
    let options = choices.build_options().expect("the preset `plain` without its parts");
    BuildOptions { work: WorkOptions { threads, ..options.work.clone() }, ..options }
}
