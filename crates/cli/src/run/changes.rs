//! A directory of changes belongs to one image: over another one, files of both would be mixed.

use super::view::{UPPER, file_error};
use crate::exit::Failure;
use crate::image::ImageArgs;
use kiln_output::{AtomicFile, Existing};
use kilnfs::digest::contents::{ContentHash, ContentHasher};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Name of the file in the directory of changes that tells the image.
const RECORD: &str = "image";
/// Length of each end of an image that is compared, in bytes: its first bytes hold the superblock of EROFS or SquashFS,
/// the last ones the directory of a zip archive.
const END_LEN: u64 = 4096;

/// Makes `dir` unless it exists, and records there that its changes are those to `image`.
///
/// # Errors
/// Changes to another image, or to another generation; a directory that cannot be written.
pub fn claim(dir: &Path, image: &ImageArgs) -> Result<(), Failure> {
    fs::create_dir_all(dir).map_err(file_error(dir, "make it"))?;
    let identity = identity(image).map_err(file_error(&image.image, "read"))?;
    let record = dir.join(RECORD);
    match fs::read_to_string(&record) {
        Ok(recorded) if recorded.trim_end() == identity => return Ok(()),
        // Without changes, nothing can be mixed.
        Ok(_) if !has_changes(dir) => {}
        Ok(_) => {
            return Err(Failure::Usage(format!(
                "--overlay {}: its changes were made to another image than {}: name another directory, or delete {} to \
                 use them all the same",
                dir.display(),
                image.image.display(),
                record.display()
            )));
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(file_error(&record, "read")(error)),
    }
    let file = AtomicFile::create(&record, Existing::Replace)?;
    writeln!(file.file(), "{identity}").map_err(file_error(&record, "write"))?;
    Ok(file.commit()?)
}

/// Returns true unless the directory of changes is known to be empty.
fn has_changes(dir: &Path) -> bool {
    match fs::read_dir(dir.join(UPPER)) {
        Ok(mut names) => names.next().is_some(),
        Err(error) => error.kind() != ErrorKind::NotFound,
    }
}

/// Returns a digest of the length and of both ends of an image, its generation and where it begins. Its name is not
/// part of it: images are moved.
fn identity(args: &ImageArgs) -> io::Result<String> {
    // The layout of a container image is a directory, whose index names all that is in it.
    let index = args.image.join("index.json");
    let mut file = File::open(if args.image.is_dir() { &index } else { &args.image })?;
    // A block device has this length, too.
    let len = file.seek(SeekFrom::End(0))?;
    let mut hasher = ContentHasher::new(ContentHash::Sha256);
    hasher.update(&len.to_le_bytes());
    for start in [args.offset, len.saturating_sub(END_LEN)] {
        let mut end = vec![0; len.saturating_sub(start).min(END_LEN) as usize];
        file.read_exact_at(&mut end, start)?;
        hasher.update(&end);
    }
    let generation = args.generation.map(|number| format!(" generation {number}")).unwrap_or_default();
    Ok(format!("{} offset {}{generation}", hasher.finish().labelled(), args.offset))
}
