//! Images that are updated in place: new data and metadata are appended, then one sector is replaced.
//!
//! At every moment the image is the old one or the new one. What is appended lies behind all that the old one has, and is synced before the sector
//! of the superblock is written, which names the new metadata. Disks write a sector as a whole, and nothing else of the old image is written to; so
//! whoever has it mounted keeps the old tree.
//!
//! # Inside
//!
//! An update is a build of a tree whose base is the image itself: `Taking::InPlace` leaves kept extents where they are, and `Out::behind` says that
//! data and metadata begin behind the old image. `builder::build_behind` writes nothing else and returns the head (superblock and configuration
//! records), which the update writes last; [`Repair`] writes that of an older generation. `format::generation` has the records by which
//! `read::metadata::generations` finds older trees, and `read::metadata::recovery` those of a damaged image;
//! `source::merge::EditedImage` is an image with edits as a source.

pub(crate) mod error;
mod file;
mod head;
mod inferred;
mod repair;
mod unchanged;

pub use error::UpdateError;
pub use file::{TargetExtent, UpdateTarget, UpdatedFile, lock_for_update};
pub use repair::Repair;

use kiln_builder::{Behind, BuildError, BuildOptions, Choices, Control, Out, Reasons, Summary};
use kiln_format::generation::{END_LEN, GenerationEnd, GenerationRecord, LABEL_MAX_LEN, NUMBER_MAX, RECORD_LEN};
use kiln_format::superblock::{SUPERBLOCK_OFF, set_blocks};
use kiln_output::write_all_at;
use kiln_read::{Generation, Image, ImageOptions, ReadAt, Superblock, generations};
use kiln_source::image::erofs::BaseImage;
use kiln_tree::Tree;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::Error;
use error::{NEW_IS_IN_PLACE, io_error};
use head::Head;

/// What may be overwritten behind an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BehindImage {
    /// What an update has left that was cut short, and zeros.
    #[default]
    OwnRemains,
    /// Anything.
    Anything,
}

/// What tells of an update.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// When it began, in seconds since 1970.
    pub time: i64,
    /// What it does, for people. What is too long is cut.
    pub label: String,
}

/// An image that can be updated.
pub struct Update<'a> {
    target: UpdateTarget<'a>,
    generations: Vec<Generation>,
    base: Arc<BaseImage>,
    /// Bytes behind the superblock's record that configuration records may take.
    records_max_len: u64,
}

/// A generation that was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Added {
    /// Its number.
    pub number: u32,
    /// Bytes that were appended.
    pub appended_bytes: u64,
}

impl<'a> Update<'a> {
    /// Look at the image. Nothing is written.
    ///
    /// # Errors
    /// What is no image, a damaged one, one that cannot be updated; something that lies behind it.
    pub fn begin(target: UpdateTarget<'a>, behind: BehindImage) -> Result<Self, Error> {
        let path = target.path;
        let unreadable = |source| Error::Read { image: path.to_owned(), source };
        let generations = generations(&target.source).map_err(unreadable)?;
        let failed = |source| Error::Update { image: path.to_owned(), source };
        let last = last(&generations)?;
        check_supported(&last.superblock).map_err(failed)?;
        let len = target.source.len().map_err(|source| failed(io_error("find the end of the image")(source)))?;
        if last.end > len || last.end == 0 {
            return Err(failed(UpdateError::Short { blocks_len: last.end, len }));
        }
        if behind == BehindImage::OwnRemains {
            check_behind(&target, last, len).map_err(failed)?;
        }
        let base = BaseImage::in_place(target.source.clone(), last.number, path, target.changed_at)?;
        let records_max_len = head::records_room(&generations, &target.source).map_err(unreadable)?;
        Ok(Self { base: Arc::new(base), target, generations, records_max_len })
    }

    /// The image as it is.
    pub fn image(&self) -> &Image {
        self.base.image()
    }

    /// Its generations, the oldest first.
    pub fn generations(&self) -> &[Generation] {
        &self.generations
    }

    /// The number of the last one.
    pub fn number(&self) -> u32 {
        self.generations.last().map_or(0, |last| last.number)
    }

    /// Bytes of the image as it is.
    pub fn image_bytes(&self) -> u64 {
        self.end()
    }

    /// The image as the base of the new one.
    pub fn base(&self) -> &Arc<BaseImage> {
        &self.base
    }

    /// How new data is to be stored so that it is as what is there, as far as the image tells.
    ///
    /// # Errors
    /// An image that cannot be read.
    pub fn choices(&self) -> Result<Choices, Error> {
        let found = inferred::choices(self.base.image(), &self.base);
        found.map_err(|source| Error::Read { image: self.target.path.to_owned(), source })
    }

    /// Make the image that of `tree`, which has the [base](Self::base). Its UUID and label stay, unless `options` have others.
    ///
    /// # Errors
    /// As [`kiln_builder::build`]; a target that cannot be written. The image is the old one then, but for an error when the last sector is
    /// synced, after which it is the old or the new one.
    pub fn build<'t>(
        &self,
        tree: &'t Tree,
        options: &BuildOptions,
        control: &Control<'_>,
        about: &About,
    ) -> Result<(Summary, Reasons<'t>, Added), Error> {
        let appended = self.append(None, about, |start, number| {
            let superblock = self.image().superblock();
            let options = BuildOptions {
                block_bits: superblock.block_bits,
                uuid: options.uuid.or(Some(superblock.uuid)),
                label: if options.label == [0; 16] { superblock.volume_name } else { options.label },
                checksum: superblock.compat.contains(kiln_format::Compat::SB_CHKSUM),
                ..options.clone()
            };
            let position = self.end();
            let end = |end| GenerationEnd { number, position, end }.encode().to_vec();
            let behind = Behind { start, end: &end, end_len: END_LEN, records_max_len: self.records_max_len };
            let out = Out { image: self.target.output, offset: 0, blob: None, behind: Some(behind) };
            let (summary, reasons, head) = kiln_builder::build_behind(tree, out, &options, control)?;
            let end = summary.image_bytes;
            let bytes = head.encode().map_err(BuildError::from)?;
            Ok(((summary, reasons), Head { superblock: head.superblock, bytes }, end))
        })?;
        let ((summary, reasons), added) = appended;
        Ok((summary, reasons, added))
    }

    /// Show the tree of generation `number` again: as a new generation, so that none is lost.
    ///
    /// # Errors
    /// A generation that the image does not have, shows already, or whose tree cannot be opened; a target that cannot be written.
    pub fn roll_back(&self, number: u32, about: &About) -> Result<Added, Error> {
        let failed = |source| Error::Update { image: self.target.path.to_owned(), source };
        let refused = |what| failed(UpdateError::Generation { number, what });
        let last = last(&self.generations)?;
        if number == last.number {
            return Err(refused("is the last one: its tree is what the image shows"));
        }
        let found = self.generations.iter().find(|generation| generation.number == number);
        let found = found.ok_or_else(|| refused("is not there: kiln log lists those that are"))?;
        // Nothing leads back from a tree that cannot be opened: every update opens the last one.
        let options = ImageOptions::default().with_generation(Some(number));
        Image::open(self.target.source.clone(), Vec::new(), &options)
            .map_err(|source| Error::Read { image: self.target.path.to_owned(), source })?;
        let (_, added) = self.append(Some(number), about, |start, new| {
            let block_len = found.superblock.block_bits.len();
            // The end may lie in the last block of the record.
            let record_end = self.end() + RECORD_LEN as u64;
            let end = (record_end + END_LEN as u64).next_multiple_of(block_len).max(start);
            let bytes = GenerationEnd { number: new, position: self.end(), end }.encode();
            write_all_at(self.target.output, &bytes, end - END_LEN as u64)
                .and_then(|()| self.target.output.set_len(end))
                .map_err(|source| failed(io_error("write the image")(source)))?;
            // All else is as it was.
            let mut bytes = found.head.to_vec();
            set_blocks(&mut bytes, end / block_len).map_err(BuildError::from)?;
            Ok(((), Head { superblock: found.superblock.clone(), bytes }, end))
        })?;
        Ok(added)
    }

    /// Byte behind the image as it is.
    fn end(&self) -> u64 {
        self.generations.last().map_or(0, |last| last.end)
    }

    /// Append a generation: its record, and what `write` writes from a byte on for a number. That returns what is to lie where the superblock is,
    /// and the byte behind what was written.
    fn append<T>(
        &self,
        restored: Option<u32>,
        about: &About,
        write: impl FnOnce(u64, u32) -> Result<(T, Head, u64), Error>,
    ) -> Result<(T, Added), Error> {
        let failed = |action| {
            move |source| Error::Update { image: self.target.path.to_owned(), source: io_error(action)(source) }
        };
        let last = last(&self.generations)?;
        let output = self.target.output;
        if last.number >= NUMBER_MAX {
            let source = UpdateError::TooManyGenerations;
            return Err(Error::Update { image: self.target.path.to_owned(), source });
        }
        let (number, position) = (last.number + 1, last.end);
        let record = GenerationRecord {
            number,
            restored,
            position,
            previous: (last.number > 0).then_some(last.start),
            time: about.time,
            label: cut(&about.label, LABEL_MAX_LEN).to_owned(),
            head: last.head,
        };
        let mut bytes = record.encode().map_err(BuildError::from)?.to_vec();
        let block_len = last.superblock.block_bits.len() as usize;
        bytes.resize(RECORD_LEN.next_multiple_of(block_len), 0);
        let start = position + bytes.len() as u64;
        let append = || -> Result<_, Error> {
            // What is behind the image begins with this from now on: remains are known as such.
            write_all_at(output, &bytes, position).and_then(|()| output.sync()).map_err(failed("write the image"))?;
            let (done, head, end) = write(start, number)?;
            output.sync().map_err(failed("sync the image"))?;
            Ok((done, head.sector(&last.head, &self.target.source).map_err(failed("read the image"))?, end))
        };
        let (done, sector, end) = match append() {
            Ok(appended) => appended,
            Err(error) => {
                // What was appended is of no use. It does not matter, either, if it cannot be taken away.
                if self.target.extent == TargetExtent::File {
                    let _ = output.set_len(position);
                }
                return Err(error);
            }
        };
        write_all_at(output, &sector, SUPERBLOCK_OFF).map_err(failed("write the superblock"))?;
        output.sync().map_err(failed(NEW_IS_IN_PLACE))?;
        Ok((done, Added { number, appended_bytes: end - position }))
    }
}

fn last(generations: &[Generation]) -> Result<&Generation, Error> {
    let none = || BuildError::Internal("an image without a generation".to_owned());
    Ok(generations.last().ok_or_else(none)?)
}

/// The front of `text` that takes at most `len` bytes.
fn cut(text: &str, len: usize) -> &str {
    let end = (0..=len.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}

/// Refuse images that are not updated in place.
fn check_supported(superblock: &Superblock) -> Result<(), UpdateError> {
    let refuse = |what: String| Err(UpdateError::Unsupported { what });
    if superblock.extra_devices > 0 {
        return refuse(format!("{} extra devices (extra_devices)", superblock.extra_devices));
    }
    if let Some(nid) = superblock.metabox_nid {
        return refuse(format!("compressed metadata (metabox_nid = {nid})"));
    }
    Ok(())
}

/// Refuse to overwrite what lies behind the image, unless an update that was cut short has left it.
fn check_behind(target: &UpdateTarget<'_>, last: &Generation, len: u64) -> Result<(), UpdateError> {
    let end = last.end;
    let failed = io_error("read what lies behind the image");
    let mut front = vec![0; (len - end).min(RECORD_LEN as u64) as usize];
    target.source.read_exact_at(&mut front, end).map_err(&failed)?;
    if GenerationRecord::decode(&front, end).is_ok_and(|record| record.number == last.number + 1) {
        return Ok(());
    }
    let refuse = |what| Err(UpdateError::SomethingBehind { end, len: len - end, what });
    if front.starts_with(b"verity\0\0") {
        return refuse("it is a hash tree of dm-verity, which an update would make worthless: pack a new image");
    }
    if target.extent == TargetExtent::Device {
        return Ok(());
    }
    // A record that was not written as a whole, and that nothing follows.
    let sector = &front[..front.len().min(512)];
    let is_torn = sector.starts_with(b"kilnGenR") || sector.iter().all(|&byte| byte == 0);
    let block_len = last.superblock.block_bits.len();
    if is_torn && len - end <= (RECORD_LEN as u64).next_multiple_of(block_len) {
        return Ok(());
    }
    let mut buf = vec![0; 1 << 20];
    let mut at = end;
    while at < len {
        let piece = &mut buf[..(len - at).min(1 << 20) as usize];
        target.source.read_exact_at(piece, at).map_err(&failed)?;
        if piece.iter().any(|&byte| byte != 0) {
            return refuse("--force overwrites them");
        }
        at += piece.len() as u64;
    }
    Ok(())
}

/// Open the image at `path` to be updated, for this process alone. Symbolic links are followed.
///
/// # Errors
/// A file that cannot be opened for writing, or is neither a regular file nor a block device; one that another process updates.
pub fn open_for_update(path: &Path) -> Result<UpdatedFile, Error> {
    UpdatedFile::open(path).map_err(|source| Error::Update { image: PathBuf::from(path), source })
}
