//! Several sources as one.

use kiln_source::merge::{MergePart, Merged};
use kiln_source::{Source, SourceError, SourceOptions};
use kiln_tree::merge::Whiteouts;
use std::path::PathBuf;

/// A source, and the place of its root in the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceAt {
    /// Path of a directory, an archive or an image, which is told apart by its content.
    pub path: PathBuf,
    /// The directory that its root becomes; empty: the root itself.
    pub at: Vec<u8>,
}

/// Opens sources as one: later ones lie over earlier ones, as overlayfs shows its layers.
///
/// # Errors
/// No sources; one that cannot be read, or is none.
///
/// ```
/// use kilnfs::{Packer, SourceAt, source::SourceOptions};
///
/// # let tmp = tempfile::tempdir().unwrap();
/// # let (base, tool, image) = (tmp.path().join("base"), tmp.path().join("tool"), tmp.path().join("image.erofs"));
/// # for dir in [&base, &tool] { std::fs::create_dir(dir).unwrap(); std::fs::write(dir.join("file"), "text").unwrap(); }
/// let parts = [SourceAt { path: base, at: b"".to_vec() }, SourceAt { path: tool, at: b"opt/tool".to_vec() }];
/// let source = kilnfs::open_sources(&parts, &SourceOptions::default())?;
/// assert_eq!(Packer::new().pack_source(&*source, &image)?.summary.files, 2);
/// # Ok::<(), kilnfs::Error>(())
/// ```
pub fn open_sources(parts: &[SourceAt], options: &SourceOptions) -> Result<Box<dyn Source>, crate::Error> {
    if let [SourceAt { path, at }] = parts
        && at.iter().all(|&b| b == b'/')
    {
        return Ok(kiln_source::open(path, options)?);
    }
    if parts.is_empty() {
        let reason = "name one source at least";
        return Err(SourceError::Options { path: PathBuf::new(), reason }.into());
    }
    let part = |part: &SourceAt| Ok(MergePart::new(kiln_source::open(&part.path, options)?, &part.at));
    let parts = parts.iter().map(part).collect::<Result<_, SourceError>>()?;
    Ok(Box::new(Merged::new(parts, Whiteouts::Apply)))
}
