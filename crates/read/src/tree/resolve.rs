//! Paths to inodes, and the targets of symbolic links.

use crate::error::ReadError;
use crate::image::reader::Reader;
use crate::metadata::inode::Inode;
use kiln_format::inode::FileType;

/// Most symbolic links in one resolution, as in Linux.
const SYMLINKS_MAX: usize = 40;
/// Longest target in bytes, as in Linux.
pub(crate) const TARGET_MAX_LEN: u64 = 4095;

/// Treatment of a symbolic link at the end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowLast {
    /// Continue with its target.
    Follow,
    /// Return the link itself.
    Keep,
}

impl<'a> Reader<'a> {
    /// Implements `Image::resolve`.
    pub(crate) fn resolve(self, path: &[u8], last: FollowLast) -> Result<Inode, ReadError> {
        self.resolve_steps(path, last).map_err(|error| error.at_path(path))
    }

    /// Implements `Image::read_link`.
    pub(crate) fn read_link(self, inode: &Inode) -> Result<Vec<u8>, ReadError> {
        if inode.meta.file_type != FileType::Symlink {
            return Err(ReadError::NotASymlink { nid: inode.nid });
        }
        let size = inode.meta.size;
        if size > TARGET_MAX_LEN {
            let error = ReadError::corrupt("erofs_inode", 0, "i_size", size, "targets have at most 4095 bytes");
            return Err(error.at_nid(inode.nid));
        }
        let mut target = vec![0; size as usize];
        self.fill(inode, &mut target, 0)?;
        if let Some(end) = target.iter().position(|&byte| byte == 0) {
            target.truncate(end);
        }
        Ok(target)
    }
}

impl<'a> Reader<'a> {
    fn resolve_steps(self, path: &[u8], last: FollowLast) -> Result<Inode, ReadError> {
        let root = self.inode(self.superblock().root_nid)?;
        let mut links = 0;
        // Directories from below the root to the current one, so that ".." does not depend on
        // stored entries.
        let mut stack = Vec::<Inode>::new();
        // Components still to go, the next one last.
        let mut pending = components(path);
        while let Some(name) = pending.pop() {
            let here = *stack.last().unwrap_or(&root);
            if !here.is_dir() {
                return Err(ReadError::NotADirectory { path: path.to_vec() });
            }
            match &name[..] {
                b"." => continue,
                b".." => {
                    stack.pop();
                    continue;
                }
                _ => {}
            }
            let entry = self.lookup(&here, &name)?.ok_or_else(|| ReadError::NotFound { path: path.to_vec() })?;
            let inode = self.inode(entry.nid)?;
            let is_last = pending.is_empty();
            if inode.meta.file_type != FileType::Symlink || (is_last && last == FollowLast::Keep) {
                stack.push(inode);
                continue;
            }
            links += 1;
            if links > SYMLINKS_MAX {
                return Err(ReadError::TooManySymlinks { path: path.to_vec() });
            }
            let target = self.read_link(&inode)?;
            if target.is_empty() {
                return Err(ReadError::NotFound { path: path.to_vec() });
            }
            if target.starts_with(b"/") {
                stack.clear();
            }
            pending.extend(components(&target));
        }
        Ok(*stack.last().unwrap_or(&root))
    }
}

/// Returns the components of a path in reverse order. A slash at the end asks for a directory, as
/// "." there does.
fn components(path: &[u8]) -> Vec<Vec<u8>> {
    let is_component = |part: &&[u8]| !part.is_empty();
    let end = path.ends_with(b"/").then(|| b".".to_vec());
    end.into_iter().chain(path.split(|&byte| byte == b'/').rev().filter(is_component).map(<[u8]>::to_vec)).collect()
}

#[cfg(test)]
mod tests {
    use super::components;

    #[test]
    fn paths_fall_into_components() {
        let joined = |path: &[u8]| components(path).into_iter().rev().collect::<Vec<_>>().join(&b' ');
        assert_eq!(joined(b"/a//b/c"), b"a b c");
        assert_eq!(joined(b"a/../b/"), b"a .. b .");
        assert_eq!(joined(b"/"), b".");
        assert_eq!(joined(b""), b"");
    }
}
