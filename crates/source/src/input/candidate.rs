//! Candidate: a file that may be a source.

use kiln_read::{FileSource, Objects, OffsetSource, ReadAt, SourceLayer};
use std::fs::{self, File, FileType};
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::disk::{self, PartitionChoice};
use super::layer::Layer;
use super::part::PartSource;
use super::reader::Reader;
use super::spool::{SpoolLimit, SpoolPlace};
use super::stream::Stream;
use super::stream_format::StreamFormat;
use super::tape::{Tape, read_full};
use super::tee::Tee;
use crate::error::{SourceError, Unreadable};
use crate::oci::choice::ImageChoice;

/// Number of first bytes that kinds may inspect. The magic number with the highest offset is that
/// of ISO 9660, at 32769.
pub(crate) const HEAD_LEN: usize = 40 << 10;
/// Maximum number of bytes to read after the head to detect compressed contents. Decoders output
/// nothing before a complete block, and LZ4 blocks have up to 4 MiB, or 8 MiB in the old format.
const PACKED_MAX_LEN: u64 = 16 << 20;

/// Options for opening a source, in addition to its path.
#[derive(Clone, Debug, Default)]
pub struct SourceOptions {
    /// Extra devices of an image, in order.
    pub devices: Vec<PathBuf>,
    /// Offset of an archive or image in its file, in bytes.
    pub offset: u64,
    /// Layer over the file from that offset on, and over the devices: for example, one that verifies
    /// them. Directories and streams have none.
    pub source_layer: Option<SourceLayer>,
    /// Partition that contains the source, on a disk that starts at that offset.
    pub partition: Option<PartitionChoice>,
    /// Image to select in a container with several.
    pub image: ImageChoice,
    /// Directory for spools of streams, which cannot be read twice. The default is
    /// [`Spool::default_dir`](kiln_output::Spool::default_dir).
    pub spool_dir: Option<PathBuf>,
    /// Maximum total length of spools.
    pub spool_limit: SpoolLimit,
    /// Most bytes of decoded data that stay in memory between reads, of kinds whose files share compressed blocks:
    /// SquashFS. 64 MiB by default, which is enough for files that are read in their order.
    pub cache_bytes: Option<u64>,
    /// Directory with the contents of the files in a manifest.
    pub root_dir: Option<PathBuf>,
    /// Directories with the objects of composefs images and dumps.
    pub objects: Option<Objects>,
    /// True to use archives and images as devices if possible: the new image refers to their data
    /// instead of storing them. Other kinds are stored.
    pub reference: bool,
    /// True to read concatenated tar archives as one, see
    /// [`TarOptions::concatenated`](crate::archive::tar::TarOptions::concatenated). This does not
    /// apply to layers of containers.
    pub concatenated: bool,
    /// Flag that another thread or a signal handler sets to end the wait for a FIFO or another
    /// stream, with [`SourceError::Interrupted`]. Without it the wait is unlimited.
    pub stop: Option<Arc<AtomicBool>>,
}

impl SourceOptions {
    /// Returns the location and limit of spools.
    pub(crate) fn spool_place(&self) -> SpoolPlace {
        let dir = self.spool_dir.clone().unwrap_or_else(kiln_output::Spool::default_dir);
        SpoolPlace { dir, limit: self.spool_limit.clone() }
    }
}

/// A file that may be a source. The path `-` is standard input.
pub struct Candidate<'a> {
    path: &'a Path,
    options: &'a SourceOptions,
    /// True if the caller specified the kind.
    kind_is_given: bool,
    found: Found,
    /// The first [`HEAD_LEN`] bytes from the offset, or all.
    head: Vec<u8>,
    /// Bytes of a stream that were read after the head.
    behind: Vec<u8>,
    /// The first [`HEAD_LEN`] decompressed bytes, or all, if the file is compressed.
    plain_head: Option<Vec<u8>>,
}

enum Found {
    Directory,
    /// A regular file or a block device, from the offset.
    File(Arc<dyn ReadAt>),
    /// A part of another file, or the decompressed contents of one.
    Bytes(Arc<dyn ReadAt>),
    /// A pipe, a character device or standard input, after the bytes already read.
    Stream(Box<dyn Read + Send>),
}

impl<'a> Candidate<'a> {
    /// Opens the file at `path`.
    ///
    /// # Errors
    /// A path that does not exist or cannot be read.
    pub(crate) fn new(path: &'a Path, options: &'a SourceOptions) -> Result<Self, SourceError> {
        let unreadable = |source| SourceError::from(Unreadable { path: path.to_owned(), source });
        let (found, head) = find(path, options).map_err(unreadable)?;
        if options.source_layer.is_some() && !matches!(found, Found::File(_)) {
            let reason = "a root hash is for an image or an archive in a file or on a block device";
            return Err(SourceError::Options { path: path.to_owned(), reason });
        }
        let whole = Self::of_found(path, options, found, head);
        let Some(partition) = &options.partition else { return Ok(whole) };
        let is_compressed = whole.compression().is_some();
        let disk = if is_compressed { whole.into_plain_bytes()? } else { whole.into_bytes()? };
        let range = disk::find(&*disk, partition).map_err(unreadable)?;
        Self::of_bytes(path, options, Arc::new(PartSource::new(disk, range)))
    }

    fn of_found(path: &'a Path, options: &'a SourceOptions, mut found: Found, head: Vec<u8>) -> Self {
        let mut behind = Vec::new();
        let plain_head = StreamFormat::of(&head).map(|compression| decode(compression, &head, &mut found, &mut behind));
        Self { path, options, kind_is_given: false, found, head, behind, plain_head }
    }

    /// Returns the candidate with the mark that the caller specified its kind.
    pub(crate) fn of_given_kind(self) -> Self {
        Self { kind_is_given: true, ..self }
    }

    /// Returns true if the caller specified the kind. It must not be opened as another kind then.
    pub(crate) fn kind_is_given(&self) -> bool {
        self.kind_is_given
    }

    /// Creates a candidate from `bytes`; error messages name it `path`.
    ///
    /// # Errors
    /// Those of the source.
    pub(crate) fn of_bytes(
        path: &'a Path,
        options: &'a SourceOptions,
        bytes: Arc<dyn ReadAt>,
    ) -> Result<Self, SourceError> {
        let head = head_of(&*bytes).map_err(|source| Unreadable { path: path.to_owned(), source })?;
        Ok(Self::of_found(path, options, Found::Bytes(bytes), head))
    }

    /// Returns a candidate that has only the decompressed head, for kinds to inspect, or `None` if
    /// the file is not compressed.
    pub(crate) fn preview(&self) -> Option<Self> {
        let head = self.plain_head.clone()?;
        let found = Found::Stream(Box::new(io::empty()));
        Some(Self { found, head, behind: Vec::new(), plain_head: None, ..*self })
    }

    /// Decompresses the file to a spool.
    ///
    /// # Errors
    /// A directory; I/O errors, and errors of the compressed data.
    pub(crate) fn decompressed(self) -> Result<Self, SourceError> {
        let (path, options, kind_is_given) = (self.path, self.options, self.kind_is_given);
        let unreadable = |source| Unreadable { path: path.to_owned(), source };
        let mut tape = self.into_tape()?;
        match tape.skip(u64::MAX) {
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => return Err(unreadable(error).into()),
            _ => {}
        }
        let plain = Self::of_bytes(path, options, tape.finish().map_err(unreadable)?)?;
        Ok(Self { kind_is_given, ..plain })
    }

    /// Returns its path.
    pub fn path(&self) -> &'a Path {
        self.path
    }

    /// Returns the options for opening it.
    pub fn options(&self) -> &'a SourceOptions {
        self.options
    }

    /// Returns true if it is a directory, or a symbolic link to one.
    pub fn is_dir(&self) -> bool {
        matches!(self.found, Found::Directory)
    }

    /// Returns true if it is a regular file or a block device, which can be opened again by its
    /// path.
    pub fn is_file(&self) -> bool {
        matches!(self.found, Found::File(_))
    }

    /// Returns true if its bytes at `at`, relative to [`SourceOptions::offset`], are `magic`. They
    /// must be within the first 40 KiB.
    pub fn holds(&self, at: usize, magic: &[u8]) -> bool {
        self.head.get(at..).is_some_and(|rest| rest.starts_with(magic))
    }

    /// Returns its raw bytes, or `None` for a directory, and for a stream, of which only the head
    /// is known.
    pub(crate) fn bytes(&self) -> Option<&dyn ReadAt> {
        match &self.found {
            Found::File(bytes) | Found::Bytes(bytes) => Some(&**bytes),
            Found::Directory | Found::Stream(_) => None,
        }
    }

    /// Returns its first 40 KiB, or all.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// Returns its compression, if any.
    pub fn compression(&self) -> Option<StreamFormat> {
        StreamFormat::of(&self.head)
    }

    /// Returns the first 40 KiB of decompressed contents, as far as they can be decoded. For a file
    /// that is not compressed, returns the head.
    pub fn plain_head(&self) -> &[u8] {
        self.plain_head.as_ref().unwrap_or(&self.head)
    }

    /// Returns its raw bytes for reads at any position. A stream is copied to a spool first.
    ///
    /// # Errors
    /// A directory; I/O errors.
    pub fn into_bytes(self) -> Result<Arc<dyn ReadAt>, SourceError> {
        let (path, found, head, place) = self.into_parts();
        let bytes = match found {
            Found::File(bytes) | Found::Bytes(bytes) => Ok(bytes),
            Found::Directory => Err(io::ErrorKind::IsADirectory.into()),
            Found::Stream(stream) => keep_all(Box::new(io::Cursor::new(head).chain(stream)), place),
        };
        bytes.map_err(|source| Unreadable { path: path.to_owned(), source }.into())
    }

    /// Returns a tape of its bytes, decompressed if they are compressed.
    ///
    /// # Errors
    /// A directory; I/O errors.
    pub fn into_tape(self) -> Result<Tape, SourceError> {
        let compression = self.compression();
        let (path, found, head, place) = self.into_parts();
        let stream: io::Result<Box<dyn Read + Send>> = match (found, compression) {
            (Found::File(bytes) | Found::Bytes(bytes), None) => {
                return Tape::in_place(bytes).map_err(|source| Unreadable { path: path.to_owned(), source }.into());
            }
            (Found::File(bytes) | Found::Bytes(bytes), Some(_)) => {
                Reader::new(bytes, 0).map(|reader| Box::new(reader) as _)
            }
            (Found::Stream(stream), _) => Ok(Box::new(io::Cursor::new(head).chain(stream))),
            (Found::Directory, _) => Err(io::ErrorKind::IsADirectory.into()),
        };
        let plain = stream.and_then(|stream| match compression {
            Some(compression) => compression.decoder(stream),
            None => Ok(stream),
        });
        let tape = plain.map(|plain| Tape::kept(plain, place));
        tape.map_err(|source| Unreadable { path: path.to_owned(), source }.into())
    }

    /// Returns a tape of its raw bytes.
    ///
    /// # Errors
    /// Those of [`Candidate::into_tape`].
    pub(crate) fn into_raw_tape(self) -> Result<Tape, SourceError> {
        let (path, found, head, place) = self.into_parts();
        let tape = match found {
            Found::File(bytes) | Found::Bytes(bytes) => Tape::in_place(bytes),
            Found::Stream(stream) => Ok(Tape::kept(Box::new(io::Cursor::new(head).chain(stream)), place)),
            Found::Directory => Err(io::ErrorKind::IsADirectory.into()),
        };
        tape.map_err(|source| Unreadable { path: path.to_owned(), source }.into())
    }

    /// Returns its decompressed bytes for reads at any position.
    ///
    /// # Errors
    /// Those of [`Candidate::into_tape`].
    pub(crate) fn into_plain_bytes(self) -> Result<Arc<dyn ReadAt>, SourceError> {
        let path = self.path;
        let mut tape = self.into_tape()?;
        let bytes = match tape.skip(u64::MAX) {
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(error),
            _ => tape.finish(),
        };
        bytes.map_err(|source| Unreadable { path: path.to_owned(), source }.into())
    }

    fn into_parts(self) -> (&'a Path, Found, Vec<u8>, SpoolPlace) {
        let mut read = self.head;
        read.extend(self.behind);
        (self.path, self.found, read, self.options.spool_place())
    }
}

/// Decodes the head of the compressed contents of `found`, whose raw head is `head`. Bytes read
/// from a stream are appended to `behind`.
fn decode(compression: StreamFormat, head: &[u8], found: &mut Found, behind: &mut Vec<u8>) -> Vec<u8> {
    let rest: Box<dyn Read + Send + '_> = match found {
        Found::Directory => Box::new(io::empty()),
        Found::File(bytes) | Found::Bytes(bytes) => match Reader::new(Arc::clone(bytes), head.len() as u64) {
            Ok(reader) => Box::new(reader),
            Err(_) => Box::new(io::empty()),
        },
        Found::Stream(stream) => Box::new(Tee { from: stream, copy: behind }),
    };
    let mut plain = vec![0; HEAD_LEN];
    let mut len = 0;
    // A decoding error only ends the head; a full read will report it. A decoder of a complete
    // stream would fail at another segment of an initramfs, so a layer is used.
    if let Ok(mut decoder) = Layer::plain(Box::new(head.chain(rest.take(PACKED_MAX_LEN)))).decompressed(compression) {
        while len < plain.len() {
            match decoder.read(&mut plain[len..]) {
                Ok(0) | Err(_) => break,
                Ok(part) => len += part,
            }
        }
    }
    plain.truncate(len);
    plain
}

fn find(path: &Path, options: &SourceOptions) -> io::Result<(Found, Vec<u8>)> {
    let offset = options.offset;
    let is_stdin = path == Path::new("-");
    let file_type = if is_stdin { None } else { Some(fs::metadata(path)?.file_type()) };
    match file_type {
        Some(file_type) if file_type.is_dir() => Ok((Found::Directory, Vec::new())),
        Some(file_type) if file_type.is_file() || file_type.is_block_device() => bytes(path, options),
        Some(file_type) if !is_stream(file_type) => Err(io::Error::other("a socket cannot be a source")),
        _ => {
            // Standard input may be a file, but perhaps not at its start.
            let mut stream: Box<dyn Read + Send> = match &options.stop {
                Some(stop) if is_stdin => Box::new(Stream::of(stdin()?, Arc::clone(stop))),
                Some(stop) => Box::new(Stream::open(path, Arc::clone(stop))?),
                None if is_stdin => Box::new(stdin()?),
                None => Box::new(File::open(path)?),
            };
            if io::copy(&mut (&mut stream).take(offset), &mut io::sink())? < offset {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let mut head = vec![0; HEAD_LEN];
            let len = read_full(&mut stream, &mut head)?;
            head.truncate(len);
            Ok((Found::Stream(stream), head))
        }
    }
}

fn is_stream(file_type: FileType) -> bool {
    file_type.is_fifo() || file_type.is_char_device()
}

/// Returns standard input without the buffer of the standard library, which could hold bytes that
/// this stream would then lack.
fn stdin() -> io::Result<File> {
    Ok(File::from(rustix::io::dup(rustix::stdio::stdin())?))
}

fn bytes(path: &Path, options: &SourceOptions) -> io::Result<(Found, Vec<u8>)> {
    let (file, offset) = (FileSource::from_file(File::open(path)?)?, options.offset);
    let bytes: Arc<dyn ReadAt> = if offset == 0 { Arc::new(file) } else { Arc::new(OffsetSource::new(file, offset)?) };
    let bytes = match &options.source_layer {
        Some(layer) => layer.over(0, bytes)?,
        None => bytes,
    };
    let head = head_of(&*bytes)?;
    Ok((Found::File(bytes), head))
}

fn head_of(bytes: &dyn ReadAt) -> io::Result<Vec<u8>> {
    let mut head = vec![0; usize::try_from(bytes.len()?).unwrap_or(HEAD_LEN).min(HEAD_LEN)];
    bytes.read_exact_at(&mut head, 0)?;
    Ok(head)
}

/// Copies a complete stream to a spool.
fn keep_all(stream: Box<dyn Read + Send>, place: SpoolPlace) -> io::Result<Arc<dyn ReadAt>> {
    let mut tape = Tape::kept(stream, place);
    match tape.skip(u64::MAX) {
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(error),
        _ => tape.finish(),
    }
}
