//! Errors of reading an image, by what you can do about them.

pub(crate) mod object;

use kiln_codec::CodecError;
use kiln_digest::contents::{ContentDigest, Described};
use kiln_format::addr::align_up;
use kiln_format::{Escaped, FormatError, Nid, Problem};
use object::{ComposefsObject, ObjectProblem};
use rustix::io::Errno;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Why something could not be read. Cheap to clone, so that all threads that wait for one pcluster
/// can have its error.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The image contradicts the format: it is damaged or hostile. Make or fetch it again.
    #[error("corrupt image: {}{defect}{}", PathPrefix(path, *nid), FileByte(*file_off))]
    Corrupt {
        /// Path inside the image, where known.
        path: Option<Vec<u8>>,
        /// The first byte of the file's contents that cannot be read, where known.
        file_off: Option<u64>,
        /// Inode, where known.
        nid: Option<Nid>,
        /// Defect.
        defect: Box<Defect>,
    },
    /// The image may be right, but uses what this program does not know or does not allow.
    #[error("unsupported image: {}{defect}", PathPrefix(path, *nid))]
    Unsupported {
        /// Path inside the image, where known.
        path: Option<Vec<u8>>,
        /// Inode, where known.
        nid: Option<Nid>,
        /// Unknown feature or value.
        defect: Box<Defect>,
    },
    /// The bytes under the image could not be read.
    #[error("cannot read: {}{source}{}{}", PathPrefix(path, None), IoRange(*range), FileByte(*file_off))]
    Io {
        /// Path inside the image, or of the image itself when it cannot be opened.
        path: Option<Vec<u8>>,
        /// The first byte of the file's contents that cannot be read, where known.
        file_off: Option<u64>,
        /// Byte offset and length of the read that failed.
        range: Option<(u64, u64)>,
        /// Error of the source.
        source: Arc<io::Error>,
    },
    /// An object of a composefs image is not there, or is another one. Nothing is wrong with the
    /// image.
    #[error("{}{object} {problem}", PathPrefix(path, *nid))]
    Object {
        /// Path inside the image, where known.
        path: Option<Vec<u8>>,
        /// Inode, where known.
        nid: Option<Nid>,
        /// The object.
        object: Box<ComposefsObject>,
        /// The reason.
        problem: Box<ObjectProblem>,
    },
    /// The image needs another number of extra devices.
    #[error(
        "the image has {expected} extra devices, but {given} were given: name all of them in order, or none for a flat image"
    )]
    DeviceCount {
        /// In the image's table.
        expected: usize,
        /// By the caller.
        given: usize,
    },
    /// Extra devices were not given, and do not follow in the image's own file either.
    #[error("needs {}", MissingTags(tags))]
    MissingDevices {
        /// Names of the devices in the image: text, often a digest or a path, or nothing.
        tags: Vec<Vec<u8>>,
    },
    /// The image does not have such a generation.
    #[error("no generation {number}: the image has generations 0 to {last} (kiln log lists them)")]
    NoGeneration {
        /// Number that was requested.
        number: u32,
        /// The highest number.
        last: u32,
    },
    /// The path does not exist in the image.
    #[error("{}: no such file or directory", path.escape_ascii())]
    NotFound {
        /// As the caller gave it.
        path: Vec<u8>,
    },
    /// Something that must be a directory is none.
    #[error("{}: not a directory", Subject(path))]
    NotADirectory {
        /// As the caller gave it; empty where only the inode is known.
        path: Vec<u8>,
    },
    /// A directory where a file's contents were asked for.
    #[error("{}: is a directory", Subject(path))]
    IsADirectory {
        /// As the caller gave it; empty where only the inode is known.
        path: Vec<u8>,
    },
    /// The target of something that is no symbolic link was asked for.
    #[error("nid {nid}: not a symbolic link")]
    NotASymlink {
        /// The inode.
        nid: Nid,
    },
    /// The contents of a device, FIFO or socket were asked for.
    #[error("nid {nid}: devices, FIFOs and sockets have no contents")]
    NoContents {
        /// The inode.
        nid: Nid,
    },
    /// More symbolic links than Linux follows, most likely a loop.
    #[error("{}: too many levels of symbolic links", path.escape_ascii())]
    TooManySymlinks {
        /// As the caller gave it.
        path: Vec<u8>,
    },
    /// A bug in this program.
    #[error("internal error: {what}; please report it")]
    Internal {
        /// Invariant that does not hold.
        what: String,
    },
}

/// Defect of an image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Defect {
    /// A field of a record.
    #[error(transparent)]
    Field(#[from] FormatError),
    /// The stream in a pcluster.
    #[error("pcluster of {plen} bytes at byte {pa}: {source}")]
    Stream {
        /// Byte address on its device, or in the metadata space for an inline pcluster.
        pa: u64,
        /// Stored length in bytes.
        plen: u32,
        /// Error of the decoder.
        source: CodecError,
    },
    /// The contents of a file.
    #[error("stored digest: the {} of the contents is {computed}, but {stored} is stored", Described(stored.hash()))]
    Digest {
        /// The digest that is stored.
        stored: ContentDigest,
        /// That of the contents as they were read.
        computed: ContentDigest,
    },
}

impl ReadError {
    pub(crate) fn corrupt(
        record: &'static str,
        offset: u64,
        field: &'static str,
        value: u64,
        reason: &'static str,
    ) -> Self {
        FormatError::corrupt(record, offset, field, value, reason).into()
    }

    pub(crate) fn unsupported(
        record: &'static str,
        offset: u64,
        field: &'static str,
        value: u64,
        reason: &'static str,
    ) -> Self {
        FormatError::unsupported(record, offset, field, value, reason).into()
    }

    pub(crate) fn open(path: &Path, source: io::Error) -> Self {
        ReadError::Io {
            path: Some(path.as_os_str().as_bytes().to_vec()),
            file_off: None,
            range: None,
            source: Arc::new(source),
        }
    }

    pub(crate) fn io(off: u64, len: u64, source: io::Error) -> Self {
        ReadError::Io { path: None, file_off: None, range: Some((off, len)), source: Arc::new(source) }
    }

    /// Returns an error of a source that is about no range of it.
    pub fn of_source(source: io::Error) -> Self {
        ReadError::Io { path: None, file_off: None, range: None, source: Arc::new(source) }
    }

    /// Returns the error of the object that has the contents of a file.
    pub fn object(nid: Nid, object: ComposefsObject, problem: ObjectProblem) -> Self {
        ReadError::Object { path: None, nid: Some(nid), object: Box::new(object), problem: Box::new(problem) }
    }

    /// Returns the error of a thread that cannot be started.
    pub(crate) fn thread(source: io::Error) -> Self {
        Self::of_source(source)
    }

    /// Returns the error of a stream that does not decode; memory and library failures are not the
    /// image's fault.
    pub(crate) fn stream(pa: u64, plen: u32, source: CodecError) -> Self {
        match source {
            CodecError::Corrupt { .. } => ReadError::Corrupt {
                path: None,
                file_off: None,
                nid: None,
                defect: Box::new(Defect::Stream { pa, plen, source }),
            },
            CodecError::Memory => ReadError::io(pa, plen.into(), io::ErrorKind::OutOfMemory.into()),
            other => ReadError::Internal { what: other.to_string() },
        }
    }

    /// Returns the error with the inode it is about, unless it already names one.
    pub(crate) fn at_nid(mut self, at: Nid) -> Self {
        if let ReadError::Corrupt { nid, .. } | ReadError::Unsupported { nid, .. } = &mut self {
            nid.get_or_insert(at);
        }
        self
    }

    /// Returns the error with the path it is about, unless it already names one.
    pub fn at_path(mut self, at: &[u8]) -> ReadError {
        match &mut self {
            ReadError::Corrupt { path, .. }
            | ReadError::Unsupported { path, .. }
            | ReadError::Io { path, .. }
            | ReadError::Object { path, .. } => {
                path.get_or_insert_with(|| at.to_vec());
            }
            ReadError::NotADirectory { path } | ReadError::IsADirectory { path } if path.is_empty() => {
                *path = at.to_vec();
            }
            _ => {}
        }
        self
    }

    /// Returns the error with the first byte of a file's contents that cannot be read, unless it
    /// already names one.
    pub fn at_byte(mut self, off: u64) -> ReadError {
        if let ReadError::Corrupt { file_off, .. } | ReadError::Io { file_off, .. } = &mut self {
            file_off.get_or_insert(off);
        }
        self
    }

    /// Returns true if there is no superblock where that of an image is.
    pub fn is_no_image(&self) -> bool {
        let ReadError::Corrupt { defect, .. } = self else { return false };
        matches!(&**defect, Defect::Field(error) if error.record == "erofs_super_block" && error.field == "magic")
    }

    /// Returns the address of the pcluster whose stream is damaged.
    pub(crate) fn stream_pa(&self) -> Option<u64> {
        match self {
            ReadError::Corrupt { defect, .. } => match &**defect {
                Defect::Stream { pa, .. } => Some(*pa),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns the path inside the image that the error is about, where that is known.
    pub fn path(&self) -> Option<&[u8]> {
        match self {
            ReadError::Corrupt { path, .. }
            | ReadError::Unsupported { path, .. }
            | ReadError::Io { path, .. }
            | ReadError::Object { path, .. } => path.as_deref(),
            ReadError::NotADirectory { path } | ReadError::IsADirectory { path } => Some(path),
            _ => None,
        }
    }

    /// Returns the same error without the path inside the image, for callers that report it
    /// themselves.
    pub fn without_path(mut self) -> ReadError {
        if let ReadError::Corrupt { path, .. }
        | ReadError::Unsupported { path, .. }
        | ReadError::Io { path, .. }
        | ReadError::Object { path, .. } = &mut self
        {
            *path = None;
        }
        self
    }

    /// Returns true if the image is damaged or hostile.
    pub fn is_corrupt(&self) -> bool {
        matches!(self, ReadError::Corrupt { .. })
    }

    /// Returns the error number that a filesystem answers with, as Linux does for EROFS.
    pub fn errno(&self) -> i32 {
        let errno = match self {
            ReadError::Corrupt { .. } => Errno::UCLEAN,
            ReadError::Unsupported { .. } => Errno::OPNOTSUPP,
            ReadError::Io { .. }
            | ReadError::Object { .. }
            | ReadError::MissingDevices { .. }
            | ReadError::Internal { .. } => Errno::IO,
            ReadError::NotFound { .. } => Errno::NOENT,
            ReadError::NotADirectory { .. } => Errno::NOTDIR,
            ReadError::IsADirectory { .. } => Errno::ISDIR,
            ReadError::NotASymlink { .. }
            | ReadError::NoContents { .. }
            | ReadError::NoGeneration { .. }
            | ReadError::DeviceCount { .. } => Errno::INVAL,
            ReadError::TooManySymlinks { .. } => Errno::LOOP,
        };
        errno.raw_os_error()
    }
}

impl From<FormatError> for ReadError {
    fn from(error: FormatError) -> Self {
        match error.problem {
            Problem::Corrupt => {
                ReadError::Corrupt { path: None, file_off: None, nid: None, defect: Box::new(error.into()) }
            }
            Problem::Unsupported => ReadError::Unsupported { path: None, nid: None, defect: Box::new(error.into()) },
            Problem::DoesNotFit => ReadError::Internal { what: error.to_string() },
        }
    }
}

impl From<ReadError> for io::Error {
    /// Converts the error for the standard library's traits. [`io::Error::get_ref`] gives it
    /// back.
    fn from(error: ReadError) -> Self {
        let kind = match &error {
            ReadError::Corrupt { .. } => io::ErrorKind::InvalidData,
            ReadError::Unsupported { .. } => io::ErrorKind::Unsupported,
            ReadError::Io { source, .. } => source.kind(),
            other => io::Error::from_raw_os_error(other.errno()).kind(),
        };
        io::Error::new(kind, error)
    }
}

/// Rounds `pos` up to a multiple of `unit`; an error beyond 64 bits.
pub(crate) fn aligned(pos: u64, unit: u64) -> Result<u64, ReadError> {
    align_up(pos, unit).ok_or_else(|| too_far("erofs_inode", pos))
}

/// Returns the error for a position that 64 bits do not hold.
pub(crate) fn too_far(record: &'static str, pos: u64) -> ReadError {
    ReadError::corrupt(record, pos, "position", pos, "beyond 64 bits")
}

/// The place in front of a message: as much of it as is known.
struct PathPrefix<'a>(&'a Option<Vec<u8>>, Option<Nid>);

impl fmt::Display for PathPrefix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0, self.1) {
            (Some(path), Some(nid)) => write!(f, "{} (nid {nid}): ", path.escape_ascii()),
            (Some(path), None) => write!(f, "{}: ", path.escape_ascii()),
            (None, Some(nid)) => write!(f, "nid {nid}: "),
            (None, None) => Ok(()),
        }
    }
}

/// Subject of a message: a path, or an inode whose path is not known.
struct Subject<'a>(&'a [u8]);

impl fmt::Display for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { f.write_str("the inode") } else { write!(f, "{}", self.0.escape_ascii()) }
    }
}

/// Number and names of devices.
struct MissingTags<'a>(&'a [Vec<u8>]);

impl fmt::Display for MissingTags<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.0.len() == 1 { "" } else { "s" };
        write!(f, "{} extra device{plural}", self.0.len())?;
        let mut tags = self.0.iter().filter(|tag| !tag.is_empty());
        let Some(first) = tags.next() else { return Ok(()) };
        write!(f, " (tag {}", Escaped(first))?;
        tags.try_for_each(|tag| write!(f, ", {}", Escaped(tag)))?;
        f.write_str(")")
    }
}

/// The byte of a file, behind a message about its contents.
struct FileByte(Option<u64>);

impl fmt::Display for FileByte {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(off) => write!(f, ", where byte {off} of the file is"),
            None => Ok(()),
        }
    }
}

/// The range behind a message about I/O.
struct IoRange(Option<(u64, u64)>);

impl fmt::Display for IoRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some((off, len)) => write!(f, " ({len} bytes at byte {off})"),
            None => Ok(()),
        }
    }
}
