//! Serialised form of an index, in a file and in a pickle.
//!
//! ```text
//! 0   8  "kilnidx" and the version, 1
//! 8   8  length in bytes
//! 16  16 UUID of the image
//! 32  32 BLAKE3 digest of everything from byte 64 on
//! 64  .. table of 11 sections: offset and length in bytes, 8 bytes each
//! ```
//!
//! Sections begin at multiples of 64 bytes. All numbers are little-endian.

use super::columns::{Columns, Directories, Number, Numbers, Sizes};
use super::filter::IndexFilter;
use bytes::Bytes;
use kiln_read::{MappedSource, ReadAt};
use kilnfs::output::{AtomicFile, Existing};
use std::io::{self, Write};
use std::path::Path;

const MAGIC: &[u8; 8] = b"kilnidx\x01";
const DIGEST_AT: usize = 32;
const TABLE_AT: usize = 64;
const ALIGN: usize = 64;
const SECTIONS: usize = 11;

/// Returns strings as bytes, each after its length.
pub(super) fn strings(strings: &[Vec<u8>]) -> Bytes {
    let mut bytes = Vec::new();
    for string in strings {
        bytes.extend((string.len() as u64).to_le_bytes());
        bytes.extend(string);
    }
    bytes.into()
}

fn parse_strings(mut bytes: &[u8]) -> io::Result<Vec<Vec<u8>>> {
    let mut strings = Vec::new();
    while let Some((len, rest)) = bytes.split_first_chunk::<8>() {
        let len = usize::try_from(u64::from_le_bytes(*len)).ok().filter(|&len| len <= rest.len());
        let Some(len) = len else { return Err(invalid("a string is longer than its section")) };
        strings.push(rest[..len].to_vec());
        bytes = &rest[len..];
    }
    if bytes.is_empty() { Ok(strings) } else { Err(invalid("a section of strings ends within a length")) }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not an index of kilnfs, or a damaged one: {what}"))
}

/// Returns the sections of an index, in their order.
fn sections(columns: &Columns) -> [Bytes; SECTIONS] {
    let Directories { nids, firsts, path_ends, paths } = &columns.directories;
    // A byte distinguishes absent columns from empty ones.
    let has = [columns.labels.is_some(), columns.scan_rows.is_some(), columns.filter.glob.is_some()];
    let long = matches!(columns.sizes, Sizes::Long(_));
    let flags: Vec<u8> = has.into_iter().chain([long]).map(u8::from).collect();
    let filter = &columns.filter;
    let filter_strings: Vec<Vec<u8>> = [filter.root.clone(), filter.glob.clone().unwrap_or_default()]
        .into_iter()
        .chain(filter.endings.iter().cloned())
        .collect();
    [
        flags.into(),
        columns.nids.bytes(),
        columns.sizes.bytes().0,
        columns.labels.as_ref().map(Numbers::bytes).unwrap_or_default(),
        columns.scan_rows.as_ref().map(Numbers::bytes).unwrap_or_default(),
        strings(&columns.classes),
        nids.bytes(),
        firsts.bytes(),
        path_ends.bytes(),
        paths.clone(),
        strings(&filter_strings),
    ]
}

/// Returns head and table of the sections.
fn head(columns: &Columns, sections: &[Bytes]) -> Vec<u8> {
    let mut table = Vec::new();
    let mut at = (TABLE_AT + SECTIONS * 16).next_multiple_of(ALIGN);
    for section in sections {
        table.extend((at as u64).to_le_bytes());
        table.extend((section.len() as u64).to_le_bytes());
        at = (at + section.len()).next_multiple_of(ALIGN);
    }
    let mut head = MAGIC.to_vec();
    head.extend((at as u64).to_le_bytes());
    head.extend(columns.uuid);
    head.extend([0; TABLE_AT - DIGEST_AT]);
    head.extend(table);
    head
}

/// Calls `each` with head and sections, padding included.
fn each_part(columns: &Columns, each: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    let sections = sections(columns);
    let mut head = head(columns, &sections);
    let digest = digest_of(&head[TABLE_AT..], &sections);
    head[DIGEST_AT..TABLE_AT].copy_from_slice(&digest);
    for part in std::iter::once(head.as_slice()).chain(sections.iter().map(AsRef::as_ref)) {
        each(part)?;
        each(&[0; ALIGN][..part.len().next_multiple_of(ALIGN) - part.len()])?;
    }
    Ok(())
}

fn digest_of(table: &[u8], sections: &[Bytes]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    for part in std::iter::once(table).chain(sections.iter().map(AsRef::as_ref)) {
        hasher.update(part);
        hasher.update(&[0; ALIGN][..part.len().next_multiple_of(ALIGN) - part.len()]);
    }
    *hasher.finalize().as_bytes()
}

impl Columns {
    /// Returns the BLAKE3 digest of all columns.
    pub(super) fn digest(&self) -> [u8; 32] {
        let sections = sections(self);
        digest_of(&head(self, &sections)[TABLE_AT..], &sections)
    }
}

/// Returns the index as bytes.
pub(super) fn to_bytes(columns: &Columns) -> Vec<u8> {
    let mut bytes = Vec::new();
    // Appending to memory does not fail.
    let _ = each_part(columns, &mut |part| {
        bytes.extend_from_slice(part);
        Ok(())
    });
    bytes
}

/// Writes the index to a file, which appears when it is complete.
pub(super) fn save(columns: &Columns, path: &Path) -> io::Result<()> {
    let file = AtomicFile::create(path, Existing::Replace).map_err(io::Error::other)?;
    let mut writer = io::BufWriter::new(file.file());
    each_part(columns, &mut |part| writer.write_all(part))?;
    writer.flush()?;
    drop(writer);
    file.commit().map_err(io::Error::other)?;
    Ok(())
}

/// Returns a copy of the bytes that is aligned for 64-bit integers.
pub(super) fn aligned(bytes: &[u8]) -> Bytes {
    let mut words = vec![0_u64; bytes.len().div_ceil(8)];
    zerocopy::IntoBytes::as_mut_bytes(words.as_mut_slice())[..bytes.len()].copy_from_slice(bytes);
    crate::memory::column(words).slice(..bytes.len())
}

/// Mapped file, as the owner of its bytes.
struct Mapped(MappedSource);

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        let len = self.0.len().unwrap_or_default() as usize;
        self.0.borrow(0, len).unwrap_or_default()
    }
}

/// Loads the index from a file, which is mapped: processes that load it share its pages.
#[allow(unsafe_code)]
pub(super) fn load(path: &Path) -> io::Result<Columns> {
    // SAFETY: `Index.load` says that the file must not change while it is loaded; `save` replaces
    // files, and changes none.
    let source = unsafe { MappedSource::open(path) };
    let source = source.map_err(|error| match &error {
        kiln_read::ReadError::Io { source, .. } => match source.raw_os_error() {
            Some(errno) => io::Error::from_raw_os_error(errno),
            None => io::Error::other(error.without_path().to_string()),
        },
        _ => io::Error::other(error.without_path().to_string()),
    })?;
    from_bytes(Bytes::from_owner(Mapped(source)))
}

/// Decodes an index, and verifies its digest.
///
/// # Errors
/// `InvalidData` if the bytes are damaged or not an index.
pub(super) fn from_bytes(bytes: Bytes) -> io::Result<Columns> {
    let head = bytes.get(..TABLE_AT + SECTIONS * 16).ok_or_else(|| invalid("shorter than its head"))?;
    if !head.starts_with(&MAGIC[..7]) {
        return Err(invalid("does not begin with \"kilnidx\""));
    }
    if head[7] != MAGIC[7] {
        return Err(invalid(&format!("version {}, and this program reads version {}", head[7], MAGIC[7])));
    }
    let number = |at: usize| head[at..].first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    if number(8) != bytes.len() as u64 {
        return Err(invalid(&format!("length {}, but the head says {}", bytes.len(), number(8))));
    }
    if blake3::hash(&bytes[TABLE_AT..]).as_bytes() != &head[DIGEST_AT..TABLE_AT] {
        return Err(invalid("its digest does not match"));
    }
    let section = |nth: usize| -> io::Result<Bytes> {
        let (start, len) = (number(TABLE_AT + nth * 16), number(TABLE_AT + nth * 16 + 8));
        let end = start.checked_add(len).filter(|&end| end <= bytes.len() as u64);
        let end = end.ok_or_else(|| invalid(&format!("section {nth} ends behind its end")))?;
        Ok(bytes.slice(start as usize..end as usize))
    };
    let flags = section(0)?;
    let &[has_labels, has_scan_rows, has_glob, long] = &flags[..] else { return Err(invalid("its flags")) };
    let sizes = if long == 1 { Sizes::Long(numbers(section(2)?)?) } else { Sizes::Short(numbers(section(2)?)?) };
    let mut filter_strings = parse_strings(&section(10)?)?.into_iter();
    let (Some(root), Some(glob)) = (filter_strings.next(), filter_strings.next()) else {
        return Err(invalid("its filter"));
    };
    let filter = IndexFilter { root, endings: filter_strings.collect(), ..IndexFilter::default() };
    let columns = Columns {
        uuid: head[16..].first_chunk().copied().unwrap_or_default(),
        filter: filter.with_glob((has_glob == 1).then_some(glob)).map_err(|error| invalid(&error))?,
        nids: numbers(section(1)?)?,
        sizes,
        labels: if has_labels == 1 { Some(numbers(section(3)?)?) } else { None },
        classes: parse_strings(&section(5)?)?,
        directories: Directories {
            nids: numbers(section(6)?)?,
            firsts: numbers(section(7)?)?,
            path_ends: numbers(section(8)?)?,
            paths: section(9)?,
        },
        scan_rows: if has_scan_rows == 1 { Some(numbers(section(4)?)?) } else { None },
    };
    consistent(&columns)?;
    Ok(columns)
}

fn numbers<T: Number>(bytes: Bytes) -> io::Result<Numbers<T>> {
    Numbers::of_bytes(bytes).ok_or_else(|| invalid("a column of numbers is cut"))
}

/// Checks that lookups stay within the columns, which may be hostile even if the digest matches.
fn consistent(columns: &Columns) -> io::Result<()> {
    let count = columns.len();
    let Directories { nids, firsts, path_ends, paths } = &columns.directories;
    let same = |len: usize| len == count;
    let dirs = nids.get().len();
    let sorted = |numbers: &[u64]| numbers.is_sorted();
    let ends = path_ends.get();
    let problem = if !same(columns.sizes.len())
        || !columns.labels.as_ref().is_none_or(|labels| same(labels.get().len()))
        || !columns.scan_rows.as_ref().is_none_or(|rows| same(rows.get().len()))
    {
        "columns of different lengths"
    } else if firsts.get().len() != dirs || ends.len() != dirs || !sorted(firsts.get()) || !sorted(ends) {
        "its directories"
    } else if ends.last().is_some_and(|&end| end > paths.len() as u64)
        || firsts.get().first().is_some_and(|&at| at != 0)
    {
        "its directories' paths"
    } else if count > 0 && dirs == 0 {
        "files in no directory"
    } else if columns
        .labels
        .as_ref()
        .is_some_and(|labels| labels.get().iter().any(|&label| label as usize >= columns.classes.len()))
    {
        "a label without a class"
    } else {
        return Ok(());
    };
    Err(invalid(problem))
}
