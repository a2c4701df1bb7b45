//! Whether an image has extended attributes at all.
//!
//! `ls -l` asks for two attributes of each file, and asks again each time. An answer of ENOSYS ends that for the whole mount: who
//! asks for an attribute is then told that there are none at all (EOPNOTSUPP) instead of not this one (ENODATA). Lists of
//! attributes, which programs that copy them ask for, stay as they are: empty. No field of an image says that it has none, so a
//! thread looks through the inodes once somebody asks, and until it knows, requests are answered one by one.

use kiln_read::Image;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;

const NOT_ASKED: u8 = 0;
const SOME: u8 = 1;
const NONE: u8 = 2;

pub struct Xattrs(Arc<AtomicU8>);

impl Xattrs {
    pub fn new() -> Self {
        Self(Arc::new(AtomicU8::new(NOT_ASKED)))
    }

    /// Whether it is known that there are none. The first call starts the search.
    pub fn are_none(&self, image: &Image) -> bool {
        match self.0.load(Ordering::Relaxed) {
            NOT_ASKED => {
                // Some, as far as we know; of several threads that find out at once, only one searches.
                if self.0.compare_exchange(NOT_ASKED, SOME, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                    let (state, image) = (Arc::clone(&self.0), image.clone());
                    let search = move || {
                        if has_none(&image) {
                            state.store(NONE, Ordering::Relaxed);
                        }
                    };
                    // Without the thread, requests go on being answered.
                    let _ = thread::Builder::new().name("kiln-fuse-xattrs".into()).spawn(search);
                }
                false
            }
            state => state == NONE,
        }
    }
}

/// Whether no inode has attributes. Where the tree cannot be read, some may.
fn has_none(image: &Image) -> bool {
    let Ok(root) = image.inode(image.root_nid()) else { return false };
    image
        .walk(&root, b"/")
        .all(|entry| entry.is_ok_and(|entry| image.list_xattrs(&entry.inode).is_ok_and(|xattrs| xattrs.is_empty())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_read::OpenOptions;
    use std::path::Path;

    #[test]
    fn images_with_and_without_are_told_apart() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../read/tests/golden");
        for (name, none) in [("lz4", true), ("xattrs", false), ("xattrs-shared", false), ("xattr-none", true)] {
            let image = Image::open_path(&golden.join(format!("{name}.erofs")), &[], &OpenOptions::default()).unwrap();
            assert_eq!(has_none(&image), none, "{name}");
        }
    }
}
