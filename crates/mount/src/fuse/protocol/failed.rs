//! Failed requests, as lines of the log.

use super::node;
use super::parents::Parents;
use super::paths;
use fuser::INodeNo;
use kiln_read::{Image, ReadError};
use std::fmt;
use std::os::unix::ffi::OsStrExt;

/// Subject of a request.
#[derive(Clone, Copy)]
pub(super) enum RequestSubject<'a> {
    /// Inode, by node id.
    Node(INodeNo),
    /// Contents from a byte on.
    Byte(INodeNo, u64),
    /// Name in a directory.
    Name(INodeNo, &'a [u8]),
}

/// Failed request. Its path is searched for when it is formatted, which a logger does only for
/// lines that it writes.
pub(super) struct Failed<'a> {
    pub(super) image: &'a Image,
    pub(super) parents: &'a Parents,
    pub(super) subject: RequestSubject<'a>,
    pub(super) error: &'a ReadError,
}

impl fmt::Display for Failed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (RequestSubject::Node(node) | RequestSubject::Byte(node, _) | RequestSubject::Name(node, _)) = self.subject;
        write!(f, "inode {}", node::nid(self.image, node))?;
        if let Some(path) = paths::path_of(self.image, self.parents, node) {
            write!(f, " (/{})", path.as_os_str().as_bytes().escape_ascii())?;
        }
        match self.subject {
            RequestSubject::Node(_) => {}
            RequestSubject::Byte(_, off) => write!(f, ", byte {off}")?,
            RequestSubject::Name(_, name) => write!(f, ", name {}", name.escape_ascii())?,
        }
        write!(f, ": {}", self.error)
    }
}
