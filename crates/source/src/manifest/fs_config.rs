//! Owners, permissions and capabilities of an Android filesystem: lists of all its files, and rules over paths.

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
/// Symbolic links keep their permissions, which mean nothing. A file without capabilities has none, whatever the source says.
#[derive(Clone, Debug)]
pub struct FsConfig {
    /// Where the image will be mounted: names with a slash between them.
    mount_point: Vec<u8>,
    table: Table,
}

#[derive(Clone, Debug)]
enum Table {
    List(List),
    Rules(Rules),
}

/// What a file gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Access {
    uid: u32,
    gid: u32,
    permissions: u16,
    /// By the bits of their numbers. All are permitted and effective.
    capabilities: u64,
}

impl FsConfig {
    /// The list in the file `name`: lines `PATH UID GID MODE`, perhaps with `capabilities=0x...`. Each file of a tree must be in it, below
    /// `mount_point` or as its path is from the root of the tree on. A line that begins with a space is about the root.
    ///
    /// # Errors
    /// The first line that is not what it should be.
    pub fn list(text: &[u8], name: &str, mount_point: &[u8]) -> Result<Self, FileError> {
        Ok(Self::new(mount_point, Table::List(List::parse(text, name)?)))
    }

    /// The rules that an Android build has put into `dir`: `etc/fs_config_files` and `etc/fs_config_dirs` of the partitions `system`,
    /// `vendor`, `oem`, `odm`, `product` and `system_ext`, in this order, of which the first that matches decides. What none matches
    /// stays as it is: tables that are built into Android's tools are not known here.
    ///
    /// # Errors
    /// No such file; files that cannot be read, or are no rules.
    pub fn rules(dir: &Path, mount_point: &[u8]) -> Result<Self, ListError> {
        Ok(Self::new(mount_point, Table::Rules(Rules::read(dir)?)))
    }

    fn new(mount_point: &[u8], table: Table) -> Self {
        let names: Vec<&[u8]> = mount_point.split(|&b| b == b'/').filter(|name| !name.is_empty()).collect();
        Self { mount_point: names.join(&b'/'), table }
    }

    /// Give a node at `path` what it should have.
    ///
    /// # Errors
    /// A list that does not have it.
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
