//! Updates in place: new data and metadata are appended to an image, then one sector is replaced.
//!
//! At every moment the image is the old one or the new one. New data lies behind all data of the old image, and is
//! synced before the sector of the superblock is written, which names the new metadata. Disks write a sector as a
//! whole, and nothing else of the old image is overwritten: existing mounts keep the old tree.
//!
//! # Inside
//!
//! An update is a build of a tree whose base is the image itself: `Reuse::InPlace` leaves reused extents where they
//! are, and `Out::behind` says that data and metadata begin behind the old image. `builder::build_behind` writes
//! nothing else and returns the head (superblock, configuration records, and if there is room the root inode, see
//! `root`), which the update writes last; [`Repair`] writes that of an older generation. Inodes of the old image that
//! would be written as they are stay in use: `builder::write::kept` finds them. `format::generation` has the records by
//! which `read::metadata::generations` finds older trees, and `read::metadata::recovery` those of a damaged image.

pub(crate) mod error;
mod file;
mod head;
mod repair;
mod root;
mod unchanged;

pub use error::UpdateError;
pub use file::{TargetExtent, UpdateTarget, UpdatedFile, lock_for_update};
pub use repair::Repair;

use kiln_builder::{Behind, BuildError, BuildOptions, Choices, Control, Out, Reasons, Summary};
use kiln_format::generation::{END_LEN, GenerationEnd, GenerationRecord, LABEL_MAX_LEN, NUMBER_MAX, RECORD_LEN};
use kiln_format::superblock::{SUPERBLOCK_OFF, set_blocks};
use kiln_output::write_all_at;
use kiln_read::{Generation, Image, ImageOptions, ReadAt, Superblock, generations};
use kiln_tree::Tree;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::BaseImage;
use crate::error::ReviseError;
use crate::style::{Depth, ImageStyle};
use error::{NEW_IS_IN_PLACE, io_error};
use head::Head;
use root::RootRoom;

/// Data behind an image that may be overwritten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BehindImage {
    /// Remains of an interrupted update, and zeros.
    #[default]
    OwnRemains,
    /// Any data.
    Anything,
}

/// Description of an update, stored in its record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// Start of the update in seconds since 1970.
    pub time: i64,
    /// Description for users. It is truncated if it is too long.
    pub label: String,
}

/// An image that can be updated.
pub struct Update<'a> {
    target: UpdateTarget<'a>,
    generations: Vec<Generation>,
    base: Arc<BaseImage>,
    /// Number of bytes for configuration records behind the superblock's record.
    records_max_len: u64,
    root_room: RootRoom,
}

/// A generation that was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Added {
    /// Number of the generation.
    pub number: u32,
    /// Number of the generation that has brought the tree, if it is shown again.
    pub restored: Option<u32>,
    /// Number of appended bytes.
    pub appended_bytes: u64,
}

impl<'a> Update<'a> {
    /// Examines the image. Nothing is written.
    ///
    /// # Errors
    /// A target that is not an image, is damaged, or cannot be updated; data behind the image.
    pub fn begin(target: UpdateTarget<'a>, behind: BehindImage) -> Result<Self, ReviseError> {
        let path = target.path;
        let unreadable = |source| ReviseError::Read { image: path.to_owned(), source };
        let generations = generations(&target.source).map_err(unreadable)?;
        let failed = |source| ReviseError::Update { image: path.to_owned(), source };
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
        let metadata = head::metadata_start(&generations, &target.source).map_err(unreadable)?;
        let records_max_len = head::records_room(&generations, metadata);
        let root_room = RootRoom::of(&generations, metadata);
        Ok(Self { base: Arc::new(base), target, generations, records_max_len, root_room })
    }

    /// Returns the image before the update.
    pub fn image(&self) -> &Image {
        self.base.image()
    }

    /// Returns its generations, the oldest first.
    pub fn generations(&self) -> &[Generation] {
        &self.generations
    }

    /// Returns the number of the last generation.
    pub fn number(&self) -> u32 {
        self.generations.last().map_or(0, |last| last.number)
    }

    /// Returns the length in bytes of the image before the update.
    pub fn image_bytes(&self) -> u64 {
        self.end()
    }

    /// Returns the image as the base of the new one.
    pub fn base(&self) -> &Arc<BaseImage> {
        &self.base
    }

    /// Returns choices that store new data as the image stores what it has, from a sample of its files.
    ///
    /// # Errors
    /// An image that cannot be read.
    pub fn choices(&self) -> Result<Choices, ReviseError> {
        let style = ImageStyle::of(self.image(), Depth::Sample);
        style
            .map(|style| style.choices())
            .map_err(|source| ReviseError::Read { image: self.target.path.to_owned(), source })
    }

    /// Appends `tree`, which has the [base](Self::base). The image keeps UUID and label unless `options` have others.
    ///
    /// # Errors
    /// Those of [`kiln_builder::build`]; a target that cannot be written. The image stays the old one, except after an
    /// error of the last sync, after which it is the old or the new one.
    pub fn build<'t>(
        &self,
        tree: &'t Tree,
        options: &BuildOptions,
        control: &Control<'_>,
        about: &About,
    ) -> Result<(Summary, Reasons<'t>, Added), ReviseError> {
        let appended = self.append(None, about, |start, number| {
            let superblock = self.image().superblock();
            let options = options.clone().with(|new| {
                new.block_bits = superblock.block_bits;
                new.identity.uuid = options.identity.uuid.or(Some(superblock.uuid));
                new.identity.label =
                    if options.identity.label == [0; 16] { superblock.volume_name } else { options.identity.label };
                new.identity.checksum = superblock.compat.contains(kiln_format::Compat::SB_CHKSUM);
            });
            let position = self.end();
            let end = |end| GenerationEnd { number, position, end }.encode().to_vec();
            let root = |record_len, body: &[u8]| self.root_room.place(record_len, body);
            let records_max_len = self.records_max_len;
            let behind = Behind { start, end: &end, end_len: END_LEN, records_max_len, root: &root };
            let out = Out { image: self.target.output, offset: 0, blob: None, behind: Some(behind) };
            let (summary, reasons, head) = kiln_builder::build_behind(tree, out, &options, control)?;
            let end = summary.image_bytes;
            let bytes = head.encode().map_err(BuildError::from)?;
            Ok(((summary, reasons), Head { superblock: head.superblock, bytes, root: head.root }, end))
        })?;
        let ((summary, reasons), added) = appended;
        Ok((summary, reasons, added))
    }

    /// Appends a generation that shows the tree of generation `number` again.
    ///
    /// # Errors
    /// A generation that does not exist, is shown already, or cannot be opened; a target that cannot be written.
    pub fn roll_back(&self, number: u32, about: &About) -> Result<Added, ReviseError> {
        let failed = |source| ReviseError::Update { image: self.target.path.to_owned(), source };
        let refused = |what| failed(UpdateError::Generation { number, what });
        let last = last(&self.generations)?;
        if number == last.number {
            return Err(refused("is the last one: its tree is what the image shows"));
        }
        let find = |number| {
            let found = self.generations.iter().find(|generation| generation.number == number);
            found.ok_or_else(|| refused("is not there: kiln log lists those that are"))
        };
        // The generation that has brought the tree is named, however often it was restored since.
        let number = find(number)?.restored.unwrap_or(number);
        if last.restored == Some(number) {
            return Err(refused("has the tree that the image shows already"));
        }
        let found = find(number)?;
        // Nothing leads back from a tree that cannot be opened: every update opens the last one.
        let options = ImageOptions::default().with_generation(Some(number));
        Image::open(self.target.source.clone(), Vec::new(), &options)
            .map_err(|source| ReviseError::Read { image: self.target.path.to_owned(), source })?;
        let (_, added) = self.append(Some(number), about, |start, new| {
            let block_len = found.superblock.block_bits.len();
            // The end may lie in the last block of the record.
            let record_end = self.end() + RECORD_LEN as u64;
            let end = (record_end + END_LEN as u64).next_multiple_of(block_len).max(start);
            let bytes = GenerationEnd { number: new, position: self.end(), end }.encode();
            write_all_at(self.target.output, &bytes, end - END_LEN as u64)
                .and_then(|()| self.target.output.set_len(end))
                .map_err(|source| failed(io_error("write the image")(source)))?;
            let mut head = Head::of(found);
            set_blocks(&mut head.bytes, end / block_len).map_err(BuildError::from)?;
            Ok(((), head, end))
        })?;
        Ok(added)
    }

    /// Returns the end of the image before the update, in bytes.
    fn end(&self) -> u64 {
        self.generations.last().map_or(0, |last| last.end)
    }

    /// Appends a generation: its record, and the data that `write` writes from a byte on, given its number. `write`
    /// returns the new head, and the end of the written data in bytes.
    fn append<T>(
        &self,
        restored: Option<u32>,
        about: &About,
        write: impl FnOnce(u64, u32) -> Result<(T, Head, u64), ReviseError>,
    ) -> Result<(T, Added), ReviseError> {
        let failed = |action| {
            move |source| ReviseError::Update { image: self.target.path.to_owned(), source: io_error(action)(source) }
        };
        let last = last(&self.generations)?;
        let output = self.target.output;
        if last.number >= NUMBER_MAX {
            let source = UpdateError::TooManyGenerations;
            return Err(ReviseError::Update { image: self.target.path.to_owned(), source });
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
        let append = || -> Result<_, ReviseError> {
            // From now on the data behind the image begins with this record, so that remains are recognised.
            write_all_at(output, &bytes, position).and_then(|()| output.sync()).map_err(failed("write the image"))?;
            let (done, head, end) = write(start, number)?;
            output.sync().map_err(failed("sync the image"))?;
            Ok((done, head.sector(&last.head, &self.target.source).map_err(failed("read the image"))?, end))
        };
        let (done, sector, end) = match append() {
            Ok(appended) => appended,
            Err(error) => {
                // The appended data is useless. It does not matter if it cannot be removed.
                if self.target.extent == TargetExtent::File {
                    let _ = output.set_len(position);
                }
                return Err(error);
            }
        };
        write_all_at(output, &sector, SUPERBLOCK_OFF).map_err(failed("write the superblock"))?;
        output.sync().map_err(failed(NEW_IS_IN_PLACE))?;
        Ok((done, Added { number, restored, appended_bytes: end - position }))
    }
}

fn last(generations: &[Generation]) -> Result<&Generation, ReviseError> {
    let none = || BuildError::Internal("an image without a generation".to_owned());
    Ok(generations.last().ok_or_else(none)?)
}

/// Returns the longest prefix of `text` of at most `len` bytes.
fn cut(text: &str, len: usize) -> &str {
    let end = (0..=len.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}

/// Refuses images that cannot be updated in place.
fn check_supported(superblock: &Superblock) -> Result<(), UpdateError> {
    let refuse = |what: String| Err(UpdateError::Unsupported { what });
    if superblock.extra_devices > 0 {
        return refuse(format!("{} extra devices (extra_devices)", superblock.extra_devices));
    }
    Ok(())
}

/// Refuses to overwrite data behind the image, except remains of an interrupted update.
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

/// Opens the image at `path` for an update, with a lock. Symbolic links are followed.
///
/// # Errors
/// A file that cannot be opened for writing, or is neither a regular file nor a block device; an update by another
/// process.
pub fn open_for_update(path: &Path) -> Result<UpdatedFile, ReviseError> {
    UpdatedFile::open(path).map_err(|source| ReviseError::Update { image: PathBuf::from(path), source })
}
