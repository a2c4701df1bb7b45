//! A hash tree behind an image that exists.

use super::open;
use crate::exit::Failure;
use kiln_output::write_all_at;
use kiln_read::ReadAt;
use kiln_verity::{Superblock, Tree};
use std::fs::File;
use std::path::Path;

/// Appends the tree to the image, whose data end at byte `end`, in place of one that is there. The superblock comes
/// last; after a failure the image has no tree.
pub(super) fn append(
    image: &Path,
    end: u64,
    is_device: bool,
    tree: &Tree,
    superblock: &Superblock,
) -> Result<(), Failure> {
    let hash_off = tree.parameters().data_len();
    let failed = |action| move |source| Failure::File { path: image.to_owned(), action, source };
    let file = File::options().write(true).read(true).open(image).map_err(failed("open"))?;
    if is_device {
        let room = open(image)?.len().map_err(failed("look at"))?.saturating_sub(hash_off);
        if room < tree.stored_len(hash_off) {
            let error = std::io::ErrorKind::StorageFull.into();
            return Err(failed("append a hash tree")(error));
        }
        // A tree that is there becomes invalid first.
        write_all_at(&file, &[0; 512], hash_off).map_err(failed("write"))?;
        return tree.write_at(superblock, hash_off, &file).map_err(failed("write"));
    }
    // What is cut off is an older tree, or nothing.
    let written = file.set_len(end).and_then(|()| file.set_len(hash_off));
    let written = written.and_then(|()| tree.write_at(superblock, hash_off, &file));
    written.map_err(|source| {
        // The first error is the one to report.
        let _ = file.set_len(end);
        failed("append a hash tree")(source)
    })
}
