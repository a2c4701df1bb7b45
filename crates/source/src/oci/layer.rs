//! Source that reads one layer of an image.

use kiln_tree::Builder;
use std::path::{Path, PathBuf};

use crate::archive::tar::source as tar;
use crate::archive::tar::{DotDot, TarOptions, TarSource};
use crate::error::{SourceError, Unreadable};
use crate::image::erofs::source as erofs;
use crate::input::candidate::Candidate;
use crate::kind::{SourceKind, open_candidate};
use crate::source::{Note, Scan, ScanOptions, Scanned, Source};
use kiln_tree::filter::Filter;
use kiln_tree::policy::marks::{from_aufs, strip};

/// Kinds of layers.
const KINDS: &[SourceKind] = &[TAR, erofs::KIND];

/// The kind "tar archive", unpacked as container runtimes do.
const TAR: SourceKind = SourceKind {
    open: |candidate| {
        let options = TarOptions { dot_dot: DotDot::Up, ..TarOptions::default() };
        Ok(Box::new(TarSource::of(candidate, options)?))
    },
    ..tar::KIND
};

/// A layer, with its marks for lower layers converted to those of overlayfs.
pub(super) struct Layer {
    path: PathBuf,
    inner: Box<dyn Source>,
    /// True for a tar layer, whose marks are file names.
    has_aufs_marks: bool,
    place: LayerPosition,
    /// Wrong digest of the blob, in a scan that keeps going.
    damage: Option<Unreadable>,
    /// Note about the blob.
    note: Option<Note>,
}

/// Position of a layer in its stack.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LayerPosition {
    /// Lowest layer; its marks have no effect and are removed.
    Lowest,
    /// Layer over others.
    Upper,
}

impl Layer {
    /// Opens the layer in `candidate`.
    ///
    /// # Errors
    /// A candidate that is neither a tar archive nor an EROFS image.
    pub(super) fn open(candidate: Candidate<'_>, place: LayerPosition) -> Result<Self, SourceError> {
        let path = candidate.path().to_owned();
        let has_aufs_marks = (TAR.is)(&candidate);
        let inner = open_candidate(KINDS, candidate)?;
        Ok(Self { path, inner, has_aufs_marks, place, damage: None, note: None })
    }

    /// Returns the layer with the damage of its blob, for a scan that keeps going.
    pub(super) fn with_damage(self, damage: Option<Unreadable>) -> Self {
        Self { damage, ..self }
    }

    /// Returns the layer with a note about its blob.
    pub(super) fn with_note(self, note: Option<Note>) -> Self {
        Self { note, ..self }
    }

    /// Reads the whole layer.
    ///
    /// # Errors
    /// Those of [`Source::read`].
    pub(super) fn read_all(&self, options: &ScanOptions<'_>) -> Result<Scan, SourceError> {
        // The filter is applied after the marks: a filter that excludes `.wh.NAME` would otherwise
        // restore NAME.
        let found = self.inner.scan(&ScanOptions { filter: &Filter::default(), ..*options })?;
        let Scan { tree, mut skipped, mut notes, .. } = found;
        skipped.extend(self.damage.as_ref().map(Unreadable::again));
        notes.extend(self.note.clone());
        let (mut builder, contents) = Builder::from_tree(tree);
        if self.has_aufs_marks {
            from_aufs(&mut builder).map_err(SourceError::tree(&self.path))?;
        }
        if self.place == LayerPosition::Lowest {
            strip(&mut builder);
        }
        let tree = builder.finish(contents).map_err(SourceError::tree(&self.path))?;
        Ok(Scan { tree, skipped, notes, ..found })
    }
}

impl Source for Layer {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read(&self, options: &ScanOptions<'_>) -> Result<Scanned, SourceError> {
        self.read_all(options).map(Scanned::Everything)
    }
}
