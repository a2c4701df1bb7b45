//! Files with several names.

use kiln_tree::{Kind, Node, NodeId};
use std::collections::HashMap;

use super::header::{Format, Header};
use crate::archive::members::Members;
use crate::error::SourceError;

/// Files of one archive that may have further names.
#[derive(Default)]
pub(super) struct Links {
    files: HashMap<Key, Linked>,
}

/// Members of one archive that have the same are one file: type, inode number, major and minor number of the device.
type Key = (u32, u64, u32, u32);

struct Linked {
    node: NodeId,
    header: Header,
    /// Bytes of data so far. newc has them with the last name as a rule, and none with the names before.
    len: u64,
    /// The first name, and, until there are data, all others.
    names: Vec<Vec<u8>>,
}

impl Linked {
    /// Whether the member `header` is this file. odc has the lower 18 bits of inode numbers only, so other files may have the same; but it has
    /// the data with each name.
    fn is(&self, header: &Header) -> bool {
        let (a, b) = (&self.header, header);
        let data_fit = self.len == b.size || a.format != Format::Odc && (self.len == 0 || b.size == 0);
        let same = |h: &Header| (h.mode, h.uid, h.gid, h.nlink, h.mtime, h.rdev);
        a.format == b.format && data_fit && (a.format != Format::Odc || same(a) == same(b))
    }
}

impl Links {
    /// Put the member at byte `offset` in `members`: a file of its own, or a further name of one.
    ///
    /// # Errors
    /// As [`Members::insert`].
    pub(super) fn insert(
        &mut self,
        members: &mut Members<'_>,
        (offset, name): (u64, &[u8]),
        header: &Header,
        node: Node,
    ) -> Result<(), SourceError> {
        if header.nlink < 2 || matches!(node.kind, Kind::Directory(_)) {
            return members.insert(offset, name, node).map(drop);
        }
        members.charge(name, size_of::<(Key, Linked)>())?;
        let key = (header.file_type(), header.ino, header.dev.major, header.dev.minor);
        let known = self.files.get_mut(&key).filter(|file| file.is(header));
        // A later member may have taken the name.
        let known = known.filter(|file| members.builder.find(&file.names[0]).is_ok_and(|id| id == Some(file.node)));
        let Some(file) = known else {
            if let Some(node) = members.insert(offset, name, node)? {
                let names = vec![name.to_vec()];
                self.files.insert(key, Linked { node, header: *header, len: header.size, names });
            }
            return Ok(());
        };
        if file.len > 0 || header.size == 0 {
            members.hard_link(offset, name, &file.names[0])?;
            if file.len == 0 {
                file.names.push(name.to_vec());
            }
            return Ok(());
        }
        // Here are the data: this is the file, and the names before are names of it.
        let Some(node) = members.insert(offset, name, node)? else { return Ok(()) };
        for former in std::mem::replace(&mut file.names, vec![name.to_vec()]) {
            if members.builder.find(&former).is_ok_and(|id| id == Some(file.node)) {
                members.hard_link(offset, &former, name)?;
            }
        }
        (file.node, file.len) = (node, header.size);
        Ok(())
    }
}
