//! Indexes: views that are kept in files, so that their sources need not be scanned again.
//!
//! An index has these fields, little-endian, one behind the other:
//!
//! | field | bytes |
//! |---|---|
//! | magic, `kiln-idx` | 8 |
//! | version of this format, 1 | 4 |
//! | stamp of the source: length, mtime in seconds and nanoseconds, digest of its first and last bytes | 8, 8, 4, 32 |
//! | 1 if any inode has extended attributes, else 0 | 1 |
//! | number of files, length of the places, length of the image | 8, 8, 8 |
//! | files in the order of their places on the tree device: length, content id | 12 each |
//! | places of contents in the source, which the source understands | |
//! | image of names and metadata | |
//! | BLAKE3 digest of everything before | 32 |

use crate::placement::PlacedFile;
use crate::tree_device::FileContents;
use crate::{View, sources};
use kiln_output::{AtomicFile, Existing, OutputError};
use kiln_read::ImageSources;
use kiln_tree::{ContentId, Contents};
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"kiln-idx";
const VERSION: u32 = 1;
/// Length of the digest at the end in bytes.
const DIGEST_LEN: usize = blake3::OUT_LEN;
/// Length of the fields in front of the list of files, in bytes.
const HEAD_LEN: usize = 8 + 4 + 52 + 1 + 3 * 8;
/// Length of an entry in the list of files, in bytes.
const FILE_LEN: usize = 12;
/// Most bytes of an index: ten million files take about 2 GB.
const LEN_MAX: u64 = 8 << 30;
/// Length in bytes of the parts of a source, its first and its last, of which the stamp has a digest.
const SAMPLE_LEN: u64 = 64 << 10;

/// Properties of a source by which an index belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceStamp {
    len: u64,
    mtime: i64,
    mtime_nsec: u32,
    sample: [u8; DIGEST_LEN],
}

impl SourceStamp {
    /// Returns the stamp of the file at `path`. Only the first and the last 64 KiB are read.
    ///
    /// # Errors
    /// Those of the system.
    pub fn of(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(io::Error::other("not a regular file, to which an index could belong"));
        }
        let (len, mut hasher) = (found.len(), blake3::Hasher::new());
        for start in [0, len.saturating_sub(SAMPLE_LEN)] {
            let mut part = vec![0; (len - start).min(SAMPLE_LEN) as usize];
            file.read_exact_at(&mut part, start)?;
            hasher.update(&part);
        }
        let sample = hasher.finalize().into();
        Ok(Self { len, mtime: found.mtime(), mtime_nsec: found.mtime_nsec() as u32, sample })
    }
}

/// An index cannot be used or kept.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// The file is no index. It is not replaced.
    #[error("{}: not an index of kiln; it is left as it is", path.display())]
    NotAnIndex {
        /// The file.
        path: PathBuf,
    },
    /// The index or its source cannot be read.
    #[error("{}: cannot read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The index cannot be written.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// There are no indexes for this kind of source.
    #[error("{}: an index can be kept of tar, zip and uncompressed cpio archives alone", path.display())]
    NoPlaces {
        /// The source.
        path: PathBuf,
    },
}

/// An index that was looked for.
pub enum FoundIndex {
    /// There is no file.
    Absent,
    /// It has to be made anew, for this reason: the source is another one now, or the index is damaged.
    Unusable(String),
    /// It is that of the source.
    Usable(ViewIndex),
}

/// A view that was kept in a file.
pub struct ViewIndex {
    image: Vec<u8>,
    files: Vec<PlacedFile>,
    device_len: u64,
    places: Vec<u8>,
    has_xattrs: bool,
}

impl ViewIndex {
    /// Writes the index of `view` to `path`, with the stamp of its source and the places of its contents there. An
    /// index that exists is replaced.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write(path: &Path, view: &View, source: &SourceStamp, places: &[u8]) -> Result<(), IndexError> {
        let file = AtomicFile::create(path, Existing::Replace)?;
        let mut out = Hashed { out: BufWriter::with_capacity(1 << 18, file.file()), hasher: blake3::Hasher::new() };
        write_to(&mut out, view, source, places)
            .and_then(|()| {
                let digest = out.hasher.finalize();
                out.out.write_all(digest.as_bytes())?;
                out.out.flush()
            })
            .map_err(|source| OutputError::File { path: path.to_owned(), action: "write", source })?;
        drop(out);
        Ok(file.commit()?)
    }

    /// Reads the index at `path` of the source with this stamp.
    ///
    /// # Errors
    /// A file that is no index, or that cannot be read.
    pub fn read(path: &Path, source: &SourceStamp) -> Result<FoundIndex, IndexError> {
        let unreadable = |source| IndexError::Unreadable { path: path.to_owned(), source };
        let mut file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(FoundIndex::Absent),
            Err(error) => return Err(unreadable(error)),
        };
        let mut magic = [0; MAGIC.len()];
        let found = file.metadata().map_err(unreadable)?;
        if !found.is_file() || file.read_exact_at(&mut magic, 0).is_err() || magic != *MAGIC {
            return Err(IndexError::NotAnIndex { path: path.to_owned() });
        }
        let len = found.len();
        if len > LEN_MAX {
            return Ok(FoundIndex::Unusable(format!("it has {len} bytes, more than {LEN_MAX}")));
        }
        let mut bytes = Vec::with_capacity(len as usize);
        file.read_to_end(&mut bytes).map_err(unreadable)?;
        Ok(parse(bytes, source).map_or_else(FoundIndex::Unusable, FoundIndex::Usable))
    }

    /// Returns the places of contents in the source, as they were given to [`ViewIndex::write`].
    pub fn places(&self) -> &[u8] {
        &self.places
    }

    /// Returns the largest content id of a file.
    pub fn last_content(&self) -> Option<ContentId> {
        self.files.iter().map(|file| file.content).max_by_key(|content| content.0)
    }

    /// Returns the image and its device, on which files have these contents, to be opened.
    pub fn into_sources(self, contents: Box<dyn Contents>) -> ImageSources {
        let sources = sources(self.image, FileContents::OfIndex(contents), self.files, self.device_len);
        sources.with_xattrs(self.has_xattrs)
    }
}

/// A writer that hashes what it writes.
struct Hashed<W> {
    out: W,
    hasher: blake3::Hasher,
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let len = self.out.write(buf)?;
        self.hasher.update(&buf[..len]);
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn write_to(out: &mut impl Write, view: &View, source: &SourceStamp, places: &[u8]) -> io::Result<()> {
    let files = &view.placement.files;
    out.write_all(MAGIC)?;
    out.write_all(&VERSION.to_le_bytes())?;
    out.write_all(&source.len.to_le_bytes())?;
    out.write_all(&source.mtime.to_le_bytes())?;
    out.write_all(&source.mtime_nsec.to_le_bytes())?;
    out.write_all(&source.sample)?;
    out.write_all(&[view.has_xattrs.into()])?;
    for count in [files.len(), places.len(), view.image.len()] {
        out.write_all(&(count as u64).to_le_bytes())?;
    }
    for file in files {
        out.write_all(&file.len.to_le_bytes())?;
        out.write_all(&file.content.0.to_le_bytes())?;
    }
    out.write_all(places)?;
    out.write_all(&view.image)
}

/// Returns the index in `bytes`, whose magic is right, or the reason why it must be made anew.
fn parse(mut bytes: Vec<u8>, source: &SourceStamp) -> Result<ViewIndex, String> {
    let cut = || "it is cut off".to_owned();
    let body_len = bytes.len().checked_sub(DIGEST_LEN).filter(|len| *len >= HEAD_LEN).ok_or_else(cut)?;
    let mut fields = Fields(&bytes[MAGIC.len()..body_len]);
    let version = u32::from_le_bytes(fields.array());
    if version != VERSION {
        return Err(format!("its format has version {version}, and not {VERSION}"));
    }
    let stamp = SourceStamp {
        len: fields.u64(),
        mtime: i64::from_le_bytes(fields.array()),
        mtime_nsec: u32::from_le_bytes(fields.array()),
        sample: fields.array(),
    };
    if stamp != *source {
        return Err("the archive is another one now".into());
    }
    let [has_xattrs] = fields.array();
    let [count, places_len, image_len] = [fields.u64(), fields.u64(), fields.u64()];
    let files_len = count.checked_mul(FILE_LEN as u64);
    let all_len = files_len.and_then(|len| len.checked_add(places_len)?.checked_add(image_len));
    if all_len != Some(fields.0.len() as u64) {
        return Err(cut());
    }
    if blake3::hash(&bytes[..body_len]) != bytes[body_len..] {
        return Err("its digest is wrong: it is damaged".into());
    }
    // All lengths are in memory, so they fit.
    let (files, rest) = fields.0.split_at(count as usize * FILE_LEN);
    let places = rest[..places_len as usize].to_vec();
    let mut files_of = Vec::with_capacity(count as usize);
    let mut device_len = 0;
    for (idx, entry) in files.chunks_exact(FILE_LEN).enumerate() {
        let mut entry = Fields(entry);
        let (start, len) = (device_len, entry.u64());
        let file = PlacedFile { start, len, content: ContentId(u32::from_le_bytes(entry.array())) };
        let next = file.next_start().filter(|_| len > 0);
        device_len = next.ok_or_else(|| format!("its file {idx} has {len} bytes"))?;
        files_of.push(file);
    }
    bytes.truncate(body_len);
    let image = bytes.split_off(body_len - image_len as usize);
    Ok(ViewIndex { image, files: files_of, device_len, places, has_xattrs: has_xattrs != 0 })
}

/// Fields of bytes whose length was checked.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn array<const N: usize>(&mut self) -> [u8; N] {
        let (front, rest) = self.0.split_first_chunk().expect("the length was checked");
        self.0 = rest;
        *front
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }
}
