//! Checks and sums over the files below one inode.

use crate::dropin::source::Named;
use crate::dropin::{log, stored};
use kiln_format::Escaped;
use kiln_format::inode::FileType;
use kiln_read::{DigestCheck, Image, Inode, Nid, ReadError, WalkEntry};
use std::collections::HashSet;

/// Bytes that are read at once.
const BUFFER_LEN: usize = 1 << 20;

/// Reads everything from `start` on and prints each error. Returns the number of errors.
pub fn check(image: &Image, start: &Named) -> u64 {
    let mut buffer = vec![0; BUFFER_LEN];
    let mut seen = HashSet::new();
    let mut errors = 0;
    for entry in image.walk(&start.inode, &start.name) {
        let result =
            entry.and_then(|entry| check_once(image, &entry, &mut seen, &mut buffer).map(|same| (entry, same)));
        match result {
            Ok((_, true)) => continue,
            Ok((entry, false)) => {
                log::error(format_args!("{}: the contents have another digest", Escaped(&entry.path)));
            }
            Err(error) => log::error(format_args!("{error}")),
        }
        errors += 1;
    }
    errors
}

/// Returns whether the contents match their stored digest, if there is one.
fn check_once(image: &Image, entry: &WalkEntry, seen: &mut HashSet<Nid>, buffer: &mut [u8]) -> Result<bool, ReadError> {
    if entry.inode.meta.nlink > 1 && !seen.insert(entry.inode.nid) {
        return Ok(true);
    }
    check_inode(image, &entry.inode, buffer)
        .and_then(|()| image.check_digest(&entry.inode))
        .map(|digest| digest != DigestCheck::Different)
        .map_err(|error| error.at_path(&entry.path))
}

fn check_inode(image: &Image, inode: &Inode, buffer: &mut [u8]) -> Result<(), ReadError> {
    image.list_xattrs(inode)?;
    match inode.meta.file_type {
        FileType::Symlink => image.read_link(inode).map(drop),
        FileType::Regular => read_all(image, inode, buffer),
        _ => Ok(()),
    }
}

/// Reads all contents without holes: a file of holes alone may have any size.
fn read_all(image: &Image, inode: &Inode, buffer: &mut [u8]) -> Result<(), ReadError> {
    let mut off = 0;
    while let Some(data) = image.seek(inode, off, kiln_read::SeekWhat::Data)? {
        let have = image.read_at(inode, buffer, data)?;
        off = data + have.max(1) as u64;
    }
    Ok(())
}

/// Returns the blocks that the files from `start` on take, in percent of those that they would take uncompressed. An
/// inode counts once for each of its names.
pub fn ratio(image: &Image, start: &Inode) -> Result<f64, ReadError> {
    let bits = image.superblock().block_bits;
    let (mut stored_blks, mut blks) = (0u64, 0u64);
    for entry in image.walk(start, b"") {
        let WalkEntry { path, inode } = entry?;
        let len = stored::len(image, &inode).map_err(|error| error.at_path(&path))?;
        stored_blks = stored_blks.saturating_add(bits.blocks_for(len));
        blks = blks.saturating_add(bits.blocks_for(inode.meta.size));
    }
    // The packed inode belongs to the whole tree, and to no single file.
    if let Some(nid) = image.superblock().packed_nid.filter(|_| start.nid == image.root_nid()) {
        stored_blks = stored_blks.saturating_add(bits.blocks_for(stored::len(image, &image.inode(nid)?)?));
    }
    Ok(if blks == 0 { 100.0 } else { 100.0 * stored_blks as f64 / blks as f64 })
}
