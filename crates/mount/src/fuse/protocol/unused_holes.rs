//! Holes: the state of an image in which no file has one.
//!
//! Programs ask for holes, file by file: `cp` does in files that take less space than their length,
//! as compressed files do. An answer of ENOSYS ends such requests for the whole mount. The kernel
//! then answers that a file is data up to its end. No field of an image says that it has no holes,
//! so a thread checks all inodes after the first request. Until it has finished, requests are
//! answered one by one.
//!
//! Requests for attributes that no inode of an image has are answered one by one, unless the image
//! is a view of an archive: after ENOSYS the kernel answers EOPNOTSUPP, while its own driver for
//! EROFS answers ENODATA, and an empty list.

use kiln_read::{Image, Inode, ReadError, SeekWhat};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Weak};
use std::thread;

const NOT_ASKED: u8 = 0;
const SOME: u8 = 1;
const NONE: u8 = 2;

/// Result of the search for holes, as far as it is known.
#[derive(Default)]
pub(super) struct UnusedHoles {
    state: Arc<AtomicU8>,
}

impl UnusedHoles {
    /// Returns true if it is known that no file has holes. The first call starts the search.
    pub(super) fn is_unused(&self, image: &Image) -> bool {
        match self.state.load(Ordering::Relaxed) {
            NOT_ASKED => {
                // If several threads ask at once, only one starts the search.
                if self.state.compare_exchange(NOT_ASKED, SOME, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                    let (state, image) = (Arc::downgrade(&self.state), image.clone());
                    let search = move || {
                        // The search ends with the server.
                        let is_wanted = || state.strong_count() > 0;
                        if none_has(&image, &is_wanted)
                            && let Some(state) = Weak::upgrade(&state)
                        {
                            state.store(NONE, Ordering::Relaxed);
                        }
                    };
                    // Without the thread, requests are still answered one by one.
                    let _ = thread::Builder::new().name("kiln-unused".into()).spawn(search);
                }
                false
            }
            state => state == NONE,
        }
    }
}

/// Returns true if no inode has a hole. Returns false if the tree cannot be read, or the answer is
/// no longer wanted.
fn none_has(image: &Image, is_wanted: &dyn Fn() -> bool) -> bool {
    let Ok(root) = image.inode(image.root_nid()) else { return false };
    let lacks = |inode: &Inode| has_holes(image, inode).is_ok_and(|has| !has);
    image.walk(&root, b"/").all(|entry| is_wanted() && entry.is_ok_and(|entry| lacks(&entry.inode)))
}

fn has_holes(image: &Image, inode: &Inode) -> Result<bool, ReadError> {
    if inode.is_dir() || !inode.has_contents() {
        return Ok(false);
    }
    // The end of a file counts as a hole, but an empty file has no byte to start from.
    let first = image.seek(inode, 0, SeekWhat::Hole)?;
    Ok(first.is_some_and(|off| off < inode.meta.size))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_read::ImageOptions;
    use std::path::Path;

    #[test]
    fn images_with_and_without_are_told_apart() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../read/tests/golden");
        for (name, none) in [("lz4", true), ("xattrs", true), ("chunk-4k", false)] {
            let image = Image::open_path(&golden.join(format!("{name}.erofs")), &[], &ImageOptions::default()).unwrap();
            assert_eq!(none_has(&image, &|| true), none, "{name}");
        }
    }
}
