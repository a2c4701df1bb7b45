//! Source that reads a tar archive.

use kiln_format::BlockBits;
use kiln_read::{MemorySource, ReadAt};
use kiln_tree::{Contents, Device, Intake, Tree};
use parking_lot::Mutex;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::accounts;
use super::header::{RECORD_LEN, is_header};
use super::options::{TarData, TarOptions};
use super::scan::scan;
use crate::archive::members::{Archived, Members};
use crate::error::{SourceError, Unreadable};
use crate::input::candidate::{Candidate, HEAD_LEN, SourceOptions};
use crate::input::stream_format::StreamFormat;
use crate::input::tape::Tape;
use crate::kind::SourceKind;
use crate::places::{ArchivePlaces, Places};
use crate::source::{Scan, ScanOptions, Source, SourceEntries, refuse_output, select_found};
use crate::stored::{ArchiveDevice, StoredFiles};

/// The kind "tar archive".
pub(crate) const KIND: SourceKind = SourceKind {
    name: "tar",
    title: "a tar archive",
    is: |candidate| is_archive(candidate.plain_head()),
    open: |candidate| Ok(Box::new(open(candidate)?)),
};

/// Block size of an image that refers to an archive: one record, since the data of each member
/// start at a record.
const RECORD_BITS: BlockBits = BlockBits::SECTOR;
const _: () = assert!(1 << RECORD_BITS.bits() == RECORD_LEN);

/// Returns true if `head` is the start of an archive.
pub(crate) fn is_archive(head: &[u8]) -> bool {
    match head.first_chunk::<RECORD_LEN>() {
        // An archive without members is 2 records of zeros, or 20. Other files start with zeros as
        // well, so nothing else may follow.
        Some(record) if record.iter().all(|&byte| byte == 0) => {
            let is_whole = head.len() < HEAD_LEN && head.len().is_multiple_of(RECORD_LEN);
            is_whole && head.len() >= 2 * RECORD_LEN && head.iter().all(|&byte| byte == 0)
        }
        Some(record) => is_header(record),
        None => false,
    }
}

/// Returns the tree of the members in `head`, the start of the archive at `path`.
pub(crate) fn front_of(head: &[u8], path: &Path) -> Tree {
    let stop = AtomicBool::new(false);
    let options = ScanOptions { keep_going: true, ..ScanOptions::new(&stop) };
    let mut members = Members::new(path, &options, TarOptions::default().implied);
    if let Ok(mut tape) = Tape::in_place(Arc::new(MemorySource::new(head.to_vec()))) {
        // It ends within a member: what is read up to there counts.
        let _ = scan(&mut tape, &mut members, TarOptions::default());
    }
    members.finish_taken().map_or_else(|_| Tree::default(), |scan| scan.tree)
}

fn open(candidate: Candidate<'_>) -> Result<TarSource, SourceError> {
    let &SourceOptions { reference, concatenated, .. } = candidate.options();
    let source = TarSource::of(candidate, TarOptions { concatenated, ..TarOptions::default() })?;
    if reference { source.into_device() } else { Ok(source) }
}

/// A tar archive: v7, ustar, PAX, GNU or star.
///
/// Whiteouts of aufs in layers of containers are ordinary files here;
/// [`Policy::aufs`](kiln_tree::policy::Policy::aufs) converts them to those of overlayfs.
pub struct TarSource {
    path: PathBuf,
    /// True if the path names the plain archive itself, so that it can be a device.
    is_file: bool,
    options: TarOptions,
    compression: Option<StreamFormat>,
    /// `None` during a read, and after a read that failed: a stream cannot be read twice.
    tape: Mutex<Option<Tape>>,
}

/// Tree of an archive, with the positions of the files' data.
pub struct TarIndex {
    /// Tree of the files that the filter selects.
    pub scan: Scan,
    /// Positions in `archive` of the data of each [`ContentId`](kiln_tree::ContentId) of
    /// the tree.
    pub files: Arc<StoredFiles>,
    /// The decompressed archive, up to its end.
    pub archive: Arc<dyn ReadAt>,
}

impl TarIndex {
    /// Returns the places of the contents. Errors name the archive `path`.
    pub(crate) fn places(&self, path: &Path) -> Result<ArchivePlaces, SourceError> {
        let len = self.archive.len().map_err(|source| Unreadable { path: path.to_owned(), source })?;
        Ok(ArchivePlaces(Places::Stored { files: Arc::clone(&self.files), len }))
    }
}

impl TarSource {
    /// Opens the archive at `path`, which may be compressed; `-` is standard input.
    ///
    /// # Errors
    /// A path that does not exist or cannot be read. Problems within the archive are reported by
    /// the scan.
    pub fn open(path: &Path, place: &SourceOptions, options: TarOptions) -> Result<Self, SourceError> {
        Self::of(Candidate::new(path, place)?, options)
    }

    pub(crate) fn of(candidate: Candidate<'_>, options: TarOptions) -> Result<Self, SourceError> {
        let (path, compression) = (candidate.path().to_owned(), candidate.compression());
        let is_file = candidate.is_file() && compression.is_none() && candidate.options().offset == 0;
        Ok(Self { path, is_file, options, compression, tape: Mutex::new(Some(candidate.into_tape()?)) })
    }

    /// Makes the archive a device to which images refer.
    ///
    /// # Errors
    /// A compressed archive.
    pub(crate) fn into_device(self) -> Result<Self, SourceError> {
        let Self { options, compression, .. } = self;
        if compression.is_some() {
            let reason = "an image cannot refer to a compressed archive";
            return Err(SourceError::Options { path: self.path, reason });
        }
        Ok(Self { options: TarOptions { data: TarData::Placed, ..options }, ..self })
    }

    /// Returns the compression of the archive, if any.
    pub fn compression(&self) -> Option<StreamFormat> {
        self.compression
    }

    /// Scans the archive like [`Source::scan`], and returns the positions of each file's data for
    /// an image that refers to the archive instead of copying from it.
    ///
    /// # Errors
    /// Those of [`Source::scan`].
    pub fn index(&self, options: &ScanOptions<'_>) -> Result<TarIndex, SourceError> {
        let Archived { found, files, bytes } = self.read_all(options)?;
        Ok(TarIndex { scan: select_found(found, &self.path, options)?, files, archive: bytes })
    }

    fn read_all(&self, options: &ScanOptions<'_>) -> Result<Archived, SourceError> {
        let unreadable = |source| Unreadable { path: self.path.clone(), source };
        let mut tape = self.take_tape()?;
        let mut members = Members::new(&self.path, options, self.options.implied);
        scan(&mut tape, &mut members, self.options)?;
        let archive = tape.finish().map_err(unreadable)?;
        let again = Tape::in_place(Arc::clone(&archive)).map_err(unreadable)?;
        *self.tape.lock() = Some(again);
        let on = |device| Some(ArchiveDevice { device, block_bits: RECORD_BITS });
        let placed = match self.options.data {
            TarData::Stored => None,
            TarData::Placed => on(Some(self.device(&*archive).map_err(unreadable)?)),
            TarData::Omitted => on(None),
        };
        let mut archived = members.finish(archive, placed)?;
        let Scan { tree, left_out_xattrs, .. } = &mut archived.found;
        accounts::resolve(tree, left_out_xattrs);
        Ok(archived)
    }

    fn take_tape(&self) -> Result<Tape, SourceError> {
        let in_vain = || io::Error::other("the archive is a stream, which was read before and cannot be read again");
        let tape = self.tape.lock().take();
        tape.ok_or_else(|| Unreadable { path: self.path.clone(), source: in_vain() }.into())
    }

    fn device(&self, archive: &dyn ReadAt) -> io::Result<Device> {
        let path = self.is_file.then(|| self.path.clone());
        Ok(Device { path, tag: [0; 64], len: archive.len()? })
    }
}

impl Source for TarSource {
    fn path(&self) -> &Path {
        &self.path
    }

    fn block_bits(&self) -> Option<BlockBits> {
        (self.options.data == TarData::Placed).then_some(RECORD_BITS)
    }

    fn is_stream(&self) -> bool {
        self.options.data == TarData::Stored && self.tape.lock().as_ref().is_some_and(Tape::is_stream)
    }

    fn scan_into(&self, options: &ScanOptions<'_>, intake: &mut dyn Intake) -> Result<Scan, SourceError> {
        if !self.is_stream() {
            return self.scan(options);
        }
        refuse_output(&self.path, options)?;
        let mut tape = self.take_tape()?;
        tape.keep_nothing();
        let mut members = Members::new(&self.path, options, self.options.implied).with_intake(intake);
        scan(&mut tape, &mut members, self.options)?;
        let mut found = members.finish_taken()?;
        accounts::resolve(&mut found.tree, &mut found.left_out_xattrs);
        Ok(found)
    }

    fn scan_places(&self, options: &ScanOptions<'_>) -> Result<(Scan, Option<ArchivePlaces>), SourceError> {
        refuse_output(&self.path, options)?;
        let index = self.index(options)?;
        let places = index.places(&self.path)?;
        Ok((index.scan, Some(places)))
    }

    fn contents_at(&self, places: ArchivePlaces) -> Result<Box<dyn Contents>, SourceError> {
        let Places::Stored { files, len } = &places.0 else { return Err(places.not_of(&self.path)) };
        let unreadable = |source| Unreadable { path: self.path.clone(), source };
        let archive = self.take_tape()?.finish_lazily(*len).map_err(unreadable)?;
        Ok(Box::new(files.in_archive(archive)))
    }

    fn read(&self, options: &ScanOptions<'_>) -> Result<SourceEntries, SourceError> {
        Ok(SourceEntries::Everything(self.read_all(options)?.found))
    }
}
