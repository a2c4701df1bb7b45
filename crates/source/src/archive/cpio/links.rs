//! Hard links: members of one archive that are the same file.

use kiln_tree::{Kind, Node, NodeId};
use std::collections::HashMap;

use super::header::{Format, Header};
use crate::archive::members::Members;
use crate::error::SourceError;

/// Files of one archive that may have more names.
#[derive(Default)]
pub(super) struct Links {
    files: HashMap<Key, Linked>,
}

/// Identity of a file within an archive: type, inode number, major and minor device number.
type Key = (u32, u64, u32, u32);

struct Linked {
    node: NodeId,
    header: Header,
    /// Length in bytes of the data seen so far. Archives in newc usually store the data with the
    /// last name only.
    len: u64,
    /// The first name, and all later ones until the data have been seen.
    names: Vec<Vec<u8>>,
}

impl Linked {
    /// Returns true if the member `header` is this file. odc stores only the lower 18 bits of inode
    /// numbers, so different files may share one; but it repeats the data with each name.
    fn is(&self, header: &Header) -> bool {
        let (a, b) = (&self.header, header);
        let data_fit = self.len == b.size || a.format != Format::Odc && (self.len == 0 || b.size == 0);
        let same = |h: &Header| (h.mode, h.uid, h.gid, h.nlink, h.mtime, h.rdev);
        a.format == b.format && data_fit && (a.format != Format::Odc || same(a) == same(b))
    }
}

impl Links {
    /// Inserts the member at byte `offset`, as a new file or as another name of a known one.
    ///
    /// # Errors
    /// Those of [`Members::insert`].
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
        // A later member may have replaced the first name.
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
        // This member has the data, so it becomes the file, and the earlier names become links to
        // it.
        let Some(node) = members.insert(offset, name, node)? else { return Ok(()) };
        for earlier in std::mem::replace(&mut file.names, vec![name.to_vec()]) {
            if members.builder.find(&earlier).is_ok_and(|id| id == Some(file.node)) {
                members.hard_link(offset, &earlier, name)?;
            }
        }
        (file.node, file.len) = (node, header.size);
        Ok(())
    }
}
