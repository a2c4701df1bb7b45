//! One inode as JSON.

use super::Bytes;
use crate::console::text;
use kiln_format::inode::FileType;
use kiln_read::{Image, Inode, ReadError};
use serde::Serialize;

/// An inode by one of its names.
#[derive(Serialize)]
pub struct EntryJson {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_b64: Option<String>,
    #[serde(rename = "type")]
    file_type: &'static str,
    /// Permissions, in octal.
    mode: String,
    nid: u64,
    ino: u64,
    nlink: u32,
    uid: u32,
    gid: u32,
    size: u64,
    /// Seconds since 1970.
    mtime: i64,
    mtime_nsec: u32,
    /// Major and minor number.
    #[serde(skip_serializing_if = "Option::is_none")]
    rdev: Option<[u32; 2]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_b64: Option<String>,
}

impl EntryJson {
    pub fn new(image: &Image, path: &[u8], inode: &Inode) -> Result<Self, ReadError> {
        let meta = &inode.meta;
        let is_device = matches!(meta.file_type, FileType::CharDevice | FileType::BlockDevice);
        let target = match meta.file_type {
            FileType::Symlink => Some(image.read_link(inode).map_err(|error| error.at_path(path))?),
            _ => None,
        };
        Ok(Self {
            path: Bytes(path).lossy(),
            path_b64: Bytes(path).b64_if_lossy(),
            file_type: text::file_type(meta.file_type),
            mode: format!("{:04o}", meta.permissions),
            nid: inode.nid.0,
            ino: image.st_ino(inode.nid),
            nlink: meta.nlink,
            uid: meta.uid,
            gid: meta.gid,
            size: meta.size,
            mtime: meta.mtime,
            mtime_nsec: meta.mtime_nsec,
            rdev: is_device.then(|| [meta.rdev().major, meta.rdev().minor]),
            target_b64: target.as_ref().and_then(|target| Bytes(target).b64_if_lossy()),
            target: target.map(|target| Bytes(&target).lossy()),
        })
    }
}
