//! Owners, permissions and capabilities of an Android filesystem: complete lists of its files, and
//! rules over paths.

mod list;
mod rules;

use kiln_tree::{Kind, Metadata, Xattr};
use std::io;
use std::path::Path;

use super::capability::{Capabilities, XATTR_NAME};
use super::lines::ListError;
use crate::error::Unreadable;
use crate::filter::acl::set_permissions;
use crate::filter::error::{FileError, PolicyError};
use crate::filter::xattrs;
use list::List;
use rules::Rules;

/// Owners, permissions and capabilities by path, as Android's builds describe them.
///
/// Symbolic links keep their permissions, which have no effect. A file without capabilities in the
/// description gets none, even if the source has some.
#[derive(Clone, Debug)]
pub struct FsConfig {
    /// Mount point of the image: names separated by slashes.
    mount_point: Vec<u8>,
    table: Table,
}

#[derive(Clone, Debug)]
enum Table {
    List(List),
    Rules(Rules),
}

/// Metadata that a file gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Access {
    uid: u32,
    gid: u32,
    permissions: u16,
    /// Bit set of capabilities, all permitted and effective.
    capabilities: u64,
}

impl FsConfig {
    /// Parses the list in the file `name`, with lines `PATH UID GID MODE` and an optional
    /// `capabilities=0x...`. It must contain each file of the tree, either below `mount_point` or
    /// by its path in the tree. A line that starts with a space is for the root.
    ///
    /// # Errors
    /// The first invalid line.
    pub fn list(text: &[u8], name: &str, mount_point: &[u8]) -> Result<Self, FileError> {
        Ok(Self::new(mount_point, Table::List(List::parse(text, name)?)))
    }

    /// Reads the rules that an Android build has installed in `dir`: `etc/fs_config_files` and
    /// `etc/fs_config_dirs` of the partitions `system`, `vendor`, `oem`, `odm`, `product` and
    /// `system_ext`, in this order. The first match is used. Files without a match are not changed;
    /// the tables compiled into Android's tools are not included here.
    ///
    /// # Errors
    /// Missing files; files that cannot be read or have invalid rules.
    pub fn rules(dir: &Path, mount_point: &[u8]) -> Result<Self, ListError> {
        Ok(Self::new(mount_point, Table::Rules(Rules::read(dir)?)))
    }

    fn new(mount_point: &[u8], table: Table) -> Self {
        let names: Vec<&[u8]> = mount_point.split(|&b| b == b'/').filter(|name| !name.is_empty()).collect();
        Self { mount_point: names.join(&b'/'), table }
    }

    /// Applies the description to the metadata of the node at `path`.
    ///
    /// # Errors
    /// A file that is missing in a list.
    pub(crate) fn apply(
        &self,
        path: &[u8],
        kind: &Kind,
        meta: &mut Metadata,
        xattrs: &mut Vec<Xattr>,
    ) -> Result<(), PolicyError> {
        let absolute = match (&*self.mount_point, path) {
            (b"", path) => path.to_vec(),
            (mount_point, b"") => mount_point.to_vec(),
            (mount_point, path) => [mount_point, b"/", path].concat(),
        };
        let access = match &self.table {
            Table::List(list) => match list.get(&absolute).or_else(|| list.get(path)) {
                Some(access) => access,
                None => return Err(PolicyError::NotListed { path: absolute, name: list.name().to_owned() }),
            },
            Table::Rules(rules) => match rules.get(&absolute, matches!(kind, Kind::Directory(_))) {
                Some(access) => access,
                None => return Ok(()),
            },
        };
        (meta.uid, meta.gid) = (access.uid, access.gid);
        if !matches!(kind, Kind::Symlink(_)) {
            meta.permissions = access.permissions;
            xattrs.iter_mut().for_each(|xattr| set_permissions(xattr, access.permissions));
        }
        xattrs.retain(|xattr| &*xattr.name != XATTR_NAME);
        if access.capabilities != 0 && matches!(kind, Kind::File { .. }) {
            let capabilities = Capabilities { effective: true, permitted: access.capabilities, inheritable: 0 };
            xattrs::set(xattrs, capabilities.xattr());
        }
        Ok(())
    }
}

fn unreadable(path: &Path, source: io::Error) -> Unreadable {
    Unreadable { path: path.to_owned(), source }
}
