//! Descriptions of an Android filesystem: complete lists of its files, and rules over paths.

mod list;
mod rules;

use kiln_tree::FileError;
use kiln_tree::policy::FsConfig;
use std::io;
use std::path::Path;

use super::lines::ListError;
use crate::error::Unreadable;

/// Parses the list in the file `name`, with lines `PATH UID GID MODE` and an optional
/// `capabilities=0x...`. It must contain each file of the tree, either below `mount_point` or by its
/// path in the tree. A line that starts with a space is for the root.
///
/// # Errors
/// The first invalid line.
pub fn parse_fs_config(text: &[u8], name: &str, mount_point: &[u8]) -> Result<FsConfig, FileError> {
    Ok(FsConfig::list(name.to_owned(), list::parse(text, name)?, mount_point))
}

/// Reads the rules that an Android build has installed in `dir`: `etc/fs_config_files` and
/// `etc/fs_config_dirs` of the partitions `system`, `vendor`, `oem`, `odm`, `product` and
/// `system_ext`, in this order. The first match is used. Files without a match are not changed; the
/// tables compiled into Android's tools are not included here.
///
/// # Errors
/// Missing files; files that cannot be read or have invalid rules.
pub fn read_fs_config(dir: &Path, mount_point: &[u8]) -> Result<FsConfig, ListError> {
    let [files, dirs] = rules::read(dir)?;
    Ok(FsConfig::rules(files, dirs, mount_point))
}

fn unreadable(path: &Path, source: io::Error) -> Unreadable {
    Unreadable { path: path.to_owned(), source }
}
