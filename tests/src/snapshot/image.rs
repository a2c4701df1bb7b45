//! Snapshots of images, by our reader.

use super::{Record, Snapshot, hash};
use kiln_format::Nid;
use kiln_format::inode::FileType;
use kiln_read::{Image, Inode, ReadError, SeekWhat};
use std::collections::HashMap;

/// Returns a snapshot of an image.
///
/// # Errors
/// The first error of the reader, with the path.
pub fn of_image(image: &Image) -> Result<Snapshot, ReadError> {
    let root = image.inode(image.root_nid())?;
    let mut snapshot = Snapshot::new();
    let mut first_names: HashMap<Nid, Vec<u8>> = HashMap::new();
    for entry in image.walk(&root, b"") {
        let entry = entry?;
        let path = entry.path.strip_prefix(b"/").unwrap_or(&entry.path).to_vec();
        let first_name = first_names.entry(entry.inode.nid).or_insert_with(|| path.clone()).clone();
        let record = match snapshot.get(&first_name) {
            Some(record) => Record::clone(record),
            None => record(image, &entry.inode, first_name).map_err(|error| error.at_path(&path))?,
        };
        snapshot.insert(path, record);
    }
    Ok(snapshot)
}

fn record(image: &Image, inode: &Inode, first_name: Vec<u8>) -> Result<Record, ReadError> {
    let meta = &inode.meta;
    let has_size = matches!(meta.file_type, FileType::Regular | FileType::Symlink);
    let xattrs = image.list_xattrs(inode)?;
    Ok(Record {
        file_type: meta.file_type,
        permissions: meta.permissions,
        uid: meta.uid,
        gid: meta.gid,
        nlink: meta.nlink,
        mtime: (meta.mtime, meta.mtime_nsec),
        size: if has_size { meta.size } else { 0 },
        rdev: (meta.rdev().major, meta.rdev().minor),
        target: match meta.file_type {
            FileType::Symlink => image.read_link(inode)?,
            _ => Vec::new(),
        },
        xattrs: xattrs.into_iter().map(|xattr| (xattr.name, xattr.value)).collect(),
        contents: match meta.file_type {
            FileType::Regular => {
                let next_data = |off| image.seek(inode, off, SeekWhat::Data);
                hash(meta.size, next_data, |buf, off| image.read_at(inode, buf, off).map(drop))?
            }
            _ => 0,
        },
        first_name,
    })
}
