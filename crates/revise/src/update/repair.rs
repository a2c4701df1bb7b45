//! Repair of images whose last generation is lost: they show an older one that is whole.
//!
//! One sector is written, as at the end of an update. Data behind the generation stays until the next update overwrites
//! it.

use kiln_format::superblock::SUPERBLOCK_OFF;
use kiln_output::{Output, write_all_at};
use kiln_read::{FoundGenerations, Generation, Image, ImageOptions, ReadAt, ReadError, Threads, find_generations};
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::error::{NEW_IS_IN_PLACE, UpdateError, io_error};
use super::head::Head;
use crate::error::ReviseError;

/// Length in bytes of a copied piece.
const COPY_LEN: usize = 1 << 20;

/// An image that may be damaged, and its generations.
pub struct Repair<'a> {
    path: &'a Path,
    source: Arc<dyn ReadAt>,
    found: FoundGenerations,
}

impl<'a> Repair<'a> {
    /// Examines the image in `source`, which error messages call `path`. Nothing is written.
    ///
    /// # Errors
    /// A source that is not even a part of an image; a failing source.
    pub fn of(path: &'a Path, source: Arc<dyn ReadAt>) -> Result<Self, ReviseError> {
        let found = find_generations(&source).map_err(unreadable(path))?;
        Ok(Self { path, source, found })
    }

    /// Returns the generations that are whole, and the damage of the image.
    pub fn found(&self) -> &FoundGenerations {
        &self.found
    }

    /// Returns true if the image shows its last generation, as far as opening it shows that.
    pub fn is_needless(&self) -> bool {
        self.found.damage.is_none() && Image::open(self.source.clone(), Vec::new(), &ImageOptions::default()).is_ok()
    }

    /// Checks all of generation `number`. Returns the number of problems, or `None` if it cannot be opened.
    ///
    /// # Errors
    /// A generation that was not found; a failing source.
    pub fn problems(&self, number: u32, threads: Threads, progress: &dyn Fn(u64)) -> Result<Option<u64>, ReviseError> {
        let source = self.shown(number)?.source(self.source.clone()).map_err(unreadable(self.path))?;
        match Image::open(source, Vec::new(), &ImageOptions::default()) {
            Ok(image) => {
                let report = image.check_with(threads, progress).map_err(unreadable(self.path))?;
                Ok(Some(report.problem_count))
            }
            Err(error) if error.is_corrupt() => Ok(None),
            Err(error) => Err(unreadable(self.path)(error)),
        }
    }

    /// Lets the image show generation `number`; `output` is the image.
    ///
    /// # Errors
    /// A generation that was not found; an output that cannot be written. The image then is unchanged, except after an
    /// error of the sync.
    pub fn show(&self, number: u32, output: &dyn Output) -> Result<(), ReviseError> {
        let generation = self.shown(number)?;
        write_all_at(output, &generation.head, SUPERBLOCK_OFF).map_err(self.failed("write the superblock"))?;
        output.sync().map_err(self.failed(NEW_IS_IN_PLACE))
    }

    /// Writes the image of generation `number` to `output`. It is not synced.
    ///
    /// # Errors
    /// A generation that was not found; an image that cannot be read; an output that cannot be written.
    pub fn copy(&self, number: u32, output: &dyn Output) -> Result<(), ReviseError> {
        let generation = self.shown(number)?;
        let source = generation.source(self.source.clone()).map_err(unreadable(self.path))?;
        let (mut buf, mut at) = (vec![0; COPY_LEN], 0);
        while at < generation.end {
            let part = &mut buf[..(generation.end - at).min(COPY_LEN as u64) as usize];
            source.read_exact_at(part, at).map_err(self.failed("read it"))?;
            write_all_at(output, part, at).map_err(self.failed("write the new image"))?;
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Returns a generation with its head. The checksum of its block is computed again, as the front of the image may
    /// be lost.
    fn shown(&self, number: u32) -> Result<Generation, ReviseError> {
        let found = self.found.whole.iter().find(|generation| generation.number == number);
        let what = "is not whole, or not there: kiln log lists those that are";
        let failed =
            || ReviseError::Update { image: self.path.to_owned(), source: UpdateError::Generation { number, what } };
        let found = found.ok_or_else(failed)?;
        let head = Head { superblock: found.superblock.clone(), bytes: found.head.to_vec(), root: None };
        let head = head.sector(&found.head, &self.source).map_err(self.failed("read it"))?;
        Ok(Generation { head, ..found.clone() })
    }

    fn failed(&self, action: &'static str) -> impl Fn(io::Error) -> ReviseError + use<> {
        let image = self.path.to_owned();
        move |source| ReviseError::Update { image: image.clone(), source: io_error(action)(source) }
    }
}

fn unreadable(path: &Path) -> impl Fn(ReadError) -> ReviseError + use<> {
    let image = path.to_owned();
    move |source| ReviseError::Read { image: image.clone(), source }
}
