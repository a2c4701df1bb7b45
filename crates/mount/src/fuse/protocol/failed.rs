//! Requests that failed, as lines for the log.

use super::node;
use super::parents::Parents;
use super::paths;
use fuser::INodeNo;
use kiln_read::{Image, ReadError};
use std::fmt;
use std::os::unix::ffi::OsStrExt;

/// The subject of a request.
#[derive(Clone, Copy)]
pub(super) enum About<'a> {
    /// An inode, by node id.
    Node(INodeNo),
    /// Contents from a byte on.
    Byte(INodeNo, u64),
    /// A name in a directory.
    Name(INodeNo, &'a [u8]),
}

/// A failed request. Its path is looked for when it is formatted, which a logger does only with lines that it keeps.
pub(super) struct Failed<'a> {
    pub(super) image: &'a Image,
    pub(super) parents: &'a Parents,
    pub(super) about: About<'a>,
    pub(super) error: &'a ReadError,
}

impl fmt::Display for Failed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (About::Node(node) | About::Byte(node, _) | About::Name(node, _)) = self.about;
        write!(f, "inode {}", node::nid(self.image, node))?;
        if let Some(path) = paths::path_of(self.image, self.parents, node) {
            write!(f, " (/{})", path.as_os_str().as_bytes().escape_ascii())?;
        }
        match self.about {
            About::Node(_) => {}
            About::Byte(_, off) => write!(f, ", byte {off}")?,
            About::Name(_, name) => write!(f, ", name {}", name.escape_ascii())?,
        }
        write!(f, ": {}", self.error)
    }
}
