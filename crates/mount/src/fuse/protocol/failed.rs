//! Requests that failed, in words for the log.

use super::image_fs::Server;
use super::node;
use fuser::INodeNo;
use kiln_read::ReadError;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

/// What a request was about.
#[derive(Clone, Copy)]
pub enum About<'a> {
    /// An inode.
    Node(INodeNo),
    /// Contents from a byte on.
    Byte(INodeNo, u64),
    /// A name in a directory.
    Name(INodeNo, &'a [u8]),
}

/// One of them, and why it failed. Its path is looked for as it is written, which is not before the log has room.
pub struct Failed<'a> {
    pub server: &'a Server,
    pub about: About<'a>,
    pub error: &'a ReadError,
}

impl fmt::Display for Failed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (About::Node(node) | About::Byte(node, _) | About::Name(node, _)) = self.about;
        write!(f, "inode {}", node::nid(&self.server.image, node))?;
        if let Some(path) = self.server.path_of(node) {
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
