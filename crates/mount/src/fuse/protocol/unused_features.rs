//! Features that no inode of an image uses: extended attributes, and holes.
//!
//! Programs ask for both, file by file: `ls -l` for two attributes, each time again; `cp -a` and `rsync -X` for the list of them; `cp` for
//! holes in files that take less room than their length, as compressed files do. An answer of ENOSYS ends such requests for the whole
//! mount. The kernel then answers that there are no attributes (EOPNOTSUPP), and that a file is data up to its end. No field of an image
//! says whether inodes have these features, so a thread looks through all of them after the first request. Until it has, requests are
//! answered one by one.

use kiln_read::{Image, Inode, ReadError, SeekWhat};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Weak};
use std::thread;

const NOT_ASKED: u8 = 0;
const SOME: u8 = 1;
const NONE: u8 = 2;

/// A feature, and what is known of its use.
pub(super) struct UnusedFeature {
    state: Arc<AtomicU8>,
    has: fn(&Image, &Inode) -> Result<bool, ReadError>,
}

impl UnusedFeature {
    pub(super) fn xattrs() -> Self {
        Self { state: Arc::default(), has: has_xattrs }
    }

    pub(super) fn holes() -> Self {
        Self { state: Arc::default(), has: has_holes }
    }

    /// Whether it is known that no inode uses the feature. The first call starts the search.
    pub(super) fn is_unused(&self, image: &Image) -> bool {
        match self.state.load(Ordering::Relaxed) {
            NOT_ASKED => {
                // Of several threads that ask at once, only one starts the search.
                if self.state.compare_exchange(NOT_ASKED, SOME, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                    let (state, image, has) = (Arc::downgrade(&self.state), image.clone(), self.has);
                    let search = move || {
                        // The search ends with the server.
                        let is_wanted = || state.strong_count() > 0;
                        if none_has(&image, has, &is_wanted)
                            && let Some(state) = Weak::upgrade(&state)
                        {
                            state.store(NONE, Ordering::Relaxed);
                        }
                    };
                    // Without the thread, requests go on being answered one by one.
                    let _ = thread::Builder::new().name("kiln-unused".into()).spawn(search);
                }
                false
            }
            state => state == NONE,
        }
    }
}

/// Whether no inode has the feature. False if the tree cannot be read, or the answer is not wanted any more.
fn none_has(image: &Image, has: fn(&Image, &Inode) -> Result<bool, ReadError>, is_wanted: &dyn Fn() -> bool) -> bool {
    let Ok(root) = image.inode(image.root_nid()) else { return false };
    let lacks = |inode: &Inode| has(image, inode).is_ok_and(|has| !has);
    image.walk(&root, b"/").all(|entry| is_wanted() && entry.is_ok_and(|entry| lacks(&entry.inode)))
}

fn has_xattrs(image: &Image, inode: &Inode) -> Result<bool, ReadError> {
    Ok(!image.list_xattrs(inode)?.is_empty())
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
        let without = [
            ("lz4", true, true),
            ("xattrs", false, true),
            ("xattrs-shared", false, true),
            ("xattr-none", true, true),
            ("chunk-4k", true, false),
        ];
        for (name, xattrs, holes) in without {
            let image = Image::open_path(&golden.join(format!("{name}.erofs")), &[], &ImageOptions::default()).unwrap();
            assert_eq!(none_has(&image, has_xattrs, &|| true), xattrs, "{name}");
            assert_eq!(none_has(&image, has_holes, &|| true), holes, "{name}");
        }
    }
}
