//! One layer of an image as a source.

use kiln_tree::Builder;
use std::path::{Path, PathBuf};

use crate::archive::tar::source as tar;
use crate::archive::tar::{DotDot, TarOptions, TarSource};
use crate::error::{SourceError, Unreadable};
use crate::filter::Filter;
use crate::filter::overlay::{from_aufs, strip};
use crate::image::erofs::source as erofs;
use crate::input::candidate::Candidate;
use crate::kind::{SourceKind, open_candidate};
use crate::source::{Note, Scan, ScanOptions, Scanned, Source};

/// What layers can be.
const KINDS: &[SourceKind] = &[TAR, erofs::KIND];

/// A tar archive as runtimes unpack it.
const TAR: SourceKind = SourceKind {
    open: |candidate| {
        let options = TarOptions { dot_dot: DotDot::Up, ..TarOptions::default() };
        Ok(Box::new(TarSource::of(candidate, options)?))
    },
    ..tar::KIND
};

/// A layer, whose marks for lower layers are those of overlayfs.
pub(super) struct Layer {
    path: PathBuf,
    inner: Box<dyn Source>,
    /// A tar layer: its marks are names.
    has_aufs_marks: bool,
    place: Place,
    /// That it has not the digest that it should have, where a scan keeps going nevertheless.
    damage: Option<Unreadable>,
    /// Note on its blob.
    note: Option<Note>,
}

/// Where a layer lies.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Nothing is below it for its marks to take away: it has none.
    Lowest,
    /// Over other layers.
    Upper,
}

impl Layer {
    /// The layer in `candidate`.
    ///
    /// # Errors
    /// A candidate that is neither a tar archive nor an EROFS image.
    pub(super) fn open(candidate: Candidate<'_>, place: Place) -> Result<Self, SourceError> {
        let path = candidate.path().to_owned();
        let has_aufs_marks = (TAR.is)(&candidate);
        let inner = open_candidate(KINDS, candidate)?;
        Ok(Self { path, inner, has_aufs_marks, place, damage: None, note: None })
    }

    /// The same with what is wrong with its blob, where a scan keeps going nevertheless.
    pub(super) fn with_damage(self, damage: Option<Unreadable>) -> Self {
        Self { damage, ..self }
    }

    /// The same with what is to be known of its blob.
    pub(super) fn with_note(self, note: Option<Note>) -> Self {
        Self { note, ..self }
    }

    /// All that is in it.
    ///
    /// # Errors
    /// As [`Source::read`].
    pub(super) fn read_all(&self, options: &ScanOptions<'_>) -> Result<Scan, SourceError> {
        // A filter that leaves out `.wh.NAME` would bring back NAME: it comes after the marks are understood.
        let found = self.inner.scan(&ScanOptions { filter: &Filter::default(), ..*options })?;
        let Scan { tree, mut skipped, mut notes, .. } = found;
        skipped.extend(self.damage.as_ref().map(Unreadable::again));
        notes.extend(self.note.clone());
        let (mut builder, contents) = Builder::from_tree(tree);
        if self.has_aufs_marks {
            from_aufs(&mut builder).map_err(SourceError::tree(&self.path))?;
        }
        if self.place == Place::Lowest {
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
