//! Pseudo file definitions of mksquashfs: files to add to a source, and changes of its files.

mod definition;
mod source;
mod words;

use kiln_read::{FileSource, ReadAt};
use kiln_tree::SyntaxError;
use kiln_tree::policy::TreeEdits;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::lines::{Lines, ListError};
use crate::error::Unreadable;
use crate::input::tape::Tape;
use definition::Definitions;
pub(crate) use source::KIND;

/// Line before the data of `R` definitions; one more line separates it from the data.
const DATA_MARK: &[u8] = b"# START OF DATA - DO NOT MODIFY";

/// Parses the pseudo file definitions in the file at `path`, as `mksquashfs -pf` reads and
/// `unsquashfs -pf` writes them.
///
/// A definition is `NAME TYPE`, followed by the fields of the type:
/// * `d MODE UID GID`: a directory, which may exist; `c` and `b MODE UID GID MAJOR MINOR`: a
///   device; `i MODE UID GID s` and `f`: a socket and a pipe; `s MODE UID GID TARGET`: a
///   symbolic link;
/// * `D`, `C`, `B`, `I` and `S`: the same with a time, in seconds since 1970, before the mode;
///   without one, a new file has the time of the root directory;
/// * `R TIME MODE UID GID LENGTH OFFSET SPARSE`: a file whose contents are in the file of
///   definitions;
/// * `l PATH` and `h PATH`: a file of the host with its metadata; `h` follows a symbolic link;
/// * `L PATH`: another name of a file of the tree;
/// * `m MODE UID GID` and `M TIME MODE UID GID`: a change of a file of the tree;
/// * `x ATTRIBUTE=VALUE`: an extended attribute; a VALUE `0x...` is hexadecimal, `0s...`
///   base64, and `0t...` has octal escapes.
///
/// Defining a file that exists, or changing one that does not, is an error; mksquashfs prints a
/// message and continues. Definitions `f` and `F`, whose contents are the output of a command,
/// are refused: kiln runs no commands.
///
/// # Errors
/// The first invalid line; files that cannot be read.
pub fn read_pseudo(path: &Path) -> Result<TreeEdits, ListError> {
    let bytes = File::open(path).and_then(FileSource::from_file);
    let bytes = bytes.map_err(|source| Unreadable { path: path.to_owned(), source })?;
    read(Arc::new(bytes), path)
}

/// Parses the definitions in `bytes`, the file at `path`.
fn read(bytes: Arc<dyn ReadAt>, path: &Path) -> Result<TreeEdits, ListError> {
    let unreadable = |source: io::Error| Unreadable { path: path.to_owned(), source };
    let len = bytes.len().map_err(unreadable)?;
    let mut lines = Lines::new(Tape::in_place(Arc::clone(&bytes)).map_err(unreadable)?, path);
    let mut definitions = Definitions::default();
    let mut data = 0..0;
    while let Some(line) = lines.next_joined()? {
        if line.text == DATA_MARK {
            lines.next()?;
            data = lines.offset().min(len)..len;
            break;
        }
        definitions.line(line.idx, &line.text).map_err(|error| lines.error(line.idx, error))?;
    }
    let edits = definitions.finish(&data, bytes, path);
    edits.map_err(|(line_idx, error)| lines.error(line_idx, error).into())
}

/// Returns the range of `len` bytes from `offset` of `data`, if it is within `data`.
fn within(data: &Range<u64>, offset: u64, len: u64) -> Result<Range<u64>, SyntaxError> {
    let start = data.start.checked_add(offset);
    let end = start.and_then(|start| start.checked_add(len)).filter(|end| *end <= data.end);
    let have = data.end - data.start;
    let refuse = || {
        let value = format!("{len} {offset}");
        SyntaxError::new("length and offset", value.as_bytes(), format!("the file has {have} bytes of data"))
    };
    start.zip(end).map(|(start, end)| start..end).ok_or_else(refuse)
}
