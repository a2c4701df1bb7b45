//! Whether an image has extended attributes at all.
//!
//! `ls -l` asks for two attributes of each file, and asks again each time. An answer of ENOSYS ends that for the whole mount: who
//! asks for an attribute is then told that there are none at all (EOPNOTSUPP) instead of not this one (ENODATA). Lists of
//! attributes, which programs that copy them ask for, stay as they are: empty. No field of an image says that it has none, so a
//! thread looks through the inodes once somebody asks, and until it knows, requests are answered one by one.

use kiln_read::{Image, Inode};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Weak};
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
                    let (state, image) = (Arc::downgrade(&self.0), image.clone());
                    let search = move || {
                        // The server may have ended meanwhile, and then nobody wants to know.
                        let is_wanted = || state.strong_count() > 0;
                        if has_none(&image, &is_wanted)
                            && let Some(state) = Weak::upgrade(&state)
                        {
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

/// Whether no inode has attributes. Where the tree cannot be read, some may; and where it is not wanted any more.
fn has_none(image: &Image, is_wanted: &dyn Fn() -> bool) -> bool {
    let Ok(root) = image.inode(image.root_nid()) else { return false };
    let is_bare = |inode: &Inode| image.list_xattrs(inode).is_ok_and(|xattrs| xattrs.is_empty());
    image.walk(&root, b"/").all(|entry| is_wanted() && entry.is_ok_and(|entry| is_bare(&entry.inode)))
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
            assert_eq!(has_none(&image, &|| true), none, "{name}");
        }
    }
}
