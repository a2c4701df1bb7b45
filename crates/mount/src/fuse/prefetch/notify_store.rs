//! `FUSE_NOTIFY_STORE` (Linux 2.6.36): contents of a file for the page cache, without a READ.
//!
//! The message is built here and not by fuser, which would copy the contents first.

use rustix::fd::OwnedFd;
use rustix::io::{Errno, writev};
use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, Ordering};

/// `FUSE_NOTIFY_STORE` of the protocol.
const STORE: u32 = 4;
/// Length of `struct fuse_out_header` and `struct fuse_notify_store_out` in bytes.
const HEAD_LEN: usize = 16 + 24;

/// The kernel's page cache, for files of one connection.
pub(super) struct PageCache {
    connection: OwnedFd,
    has_refused: AtomicBool,
}

impl PageCache {
    pub(super) fn new(connection: OwnedFd) -> Self {
        Self { connection, has_refused: AtomicBool::new(false) }
    }

    /// Stores contents of the file `node` from byte `off` on. Returns true if the kernel took them.
    /// It does not if it does not know the node, if it is short of memory, or if it has refused
    /// before for another reason. Blocks while a READ of the same pages is unanswered.
    pub(super) fn store(&self, node: u64, off: u64, bytes: &[u8]) -> bool {
        let Ok(len) = u32::try_from(HEAD_LEN + bytes.len()) else { return false };
        if self.has_refused.load(Ordering::Relaxed) {
            return false;
        }
        let head = head(len, node, off);
        match writev(&self.connection, &[IoSlice::new(&head), IoSlice::new(bytes)]) {
            Ok(_) => true,
            // The kernel does not know the node, or cannot take the pages now.
            Err(Errno::NOENT | Errno::NOMEM | Errno::INTR | Errno::AGAIN) => false,
            Err(error) => {
                log::debug!("the kernel refuses pushed contents: {error}");
                self.has_refused.store(true, Ordering::Relaxed);
                false
            }
        }
    }
}

/// Returns the head of a message of `len` bytes, in the byte order of this machine.
fn head(len: u32, node: u64, off: u64) -> [u8; HEAD_LEN] {
    let mut head = [0; HEAD_LEN];
    let mut put = |at: usize, bytes: &[u8]| head[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &len.to_ne_bytes());
    // In place of an error number. The number of a request, which follows, is 0 in a notification.
    put(4, &STORE.to_ne_bytes());
    put(16, &node.to_ne_bytes());
    put(24, &off.to_ne_bytes());
    put(32, &(len - HEAD_LEN as u32).to_ne_bytes());
    head
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_message_is_what_the_protocol_says() {
        let (ours, mut kernel) = UnixStream::pair().unwrap();
        let cache = PageCache::new(ours.into());
        assert!(cache.store(7, 0x1_0000_0000, b"text"));
        let mut message = [0; 44];
        kernel.read_exact(&mut message).unwrap();
        let word = |at: usize| u32::from_ne_bytes(message[at..at + 4].try_into().unwrap());
        let long = |at: usize| u64::from_ne_bytes(message[at..at + 8].try_into().unwrap());
        assert_eq!((word(0), word(4), long(8)), (44, STORE, 0));
        assert_eq!((long(16), long(24), word(32), word(36)), (7, 1 << 32, 4, 0));
        assert_eq!(message[40..], *b"text");

        drop(kernel);
        assert!(!cache.store(7, 0, b"text"));
        assert!(cache.has_refused.load(Ordering::Relaxed));
    }
}
