//! Owners, permissions and capabilities of an Android filesystem: complete lists of its files, and
//! rules over paths.

mod rules;

use std::collections::HashMap;

use super::acl::set_permissions;
use super::capability::{Capabilities, XATTR_NAME};
use super::error::PolicyError;
use super::xattrs::set_xattr;
use crate::{Kind, Metadata, Xattr};
pub use rules::AccessRule;
use rules::AccessRules;

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
    /// List of all files.
    List { name: String, files: HashMap<Box<[u8]>, Access> },
    /// Rules over paths.
    Rules(AccessRules),
}

/// Metadata that a file gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Low 12 bits of `st_mode`.
    pub permissions: u16,
    /// Bit set of capabilities, all permitted and effective.
    pub capabilities: u64,
}

impl FsConfig {
    /// Creates the description of the list `files`, which is called `name` in messages. It must
    /// contain each file of the tree, either below `mount_point` or by its path in the tree.
    pub fn list(name: String, files: HashMap<Box<[u8]>, Access>, mount_point: &[u8]) -> Self {
        Self::new(mount_point, Table::List { name, files })
    }

    /// Creates the description of rules for files and for directories. The first rule that matches
    /// a path below `mount_point` is used. Files without a match are not changed.
    pub fn rules(files: Vec<AccessRule>, dirs: Vec<AccessRule>, mount_point: &[u8]) -> Self {
        Self::new(mount_point, Table::Rules(AccessRules { files, dirs }))
    }

    fn new(mount_point: &[u8], table: Table) -> Self {
        let names: Vec<&[u8]> = mount_point.split(|&b| b == b'/').filter(|name| !name.is_empty()).collect();
        Self { mount_point: names.join(&b'/'), table }
    }

    /// Applies the description to the metadata of the node at `path`.
    ///
    /// # Errors
    /// A file that is missing in a list.
    pub(super) fn apply(
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
            Table::List { name, files } => match files.get(&*absolute).or_else(|| files.get(path)) {
                Some(access) => *access,
                None => return Err(PolicyError::NotListed { path: absolute, name: name.clone() }),
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
            set_xattr(xattrs, capabilities.xattr());
        }
        Ok(())
    }
}
