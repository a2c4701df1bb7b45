//! A child that is forked off while other threads read goes on with the same image.
#![allow(missing_docs)]

#[path = "it"]
mod it {
    pub mod common;
}

use it::common::{named, regular_files};
use kiln_read::{ExtentKind, Image, ImageOptions, Inode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Of each image.
const FORKS: usize = 50;
/// Seconds after which a child that waits for a lock for ever ends.
const PATIENCE: u32 = 20;

/// Most of each encoded extent from its front on: what is decoded into the cache, by one for all
/// who want it.
fn parts(image: &Image) -> Vec<(Inode, u64, usize)> {
    let mut parts = Vec::new();
    for (_, inode) in regular_files(image) {
        let extents = image.extents(&inode).map(Result::unwrap);
        let encoded = extents.filter(|extent| matches!(extent.kind, ExtentKind::Encoded { .. }));
        parts.extend(encoded.map(|extent| (inode, extent.la, (extent.llen / 4 * 3) as usize)));
    }
    assert!(parts.len() >= 20);
    parts
}

/// Returns the sum of the bytes of all parts.
fn sum(image: &Image, parts: &[(Inode, u64, usize)]) -> u64 {
    let mut sum = 0;
    for &(inode, off, len) in parts {
        let mut buf = vec![0; len];
        // Metadata, too.
        let inode = image.inode(inode.nid).unwrap();
        assert_eq!(image.read_at(&inode, &mut buf, off).unwrap(), len);
        sum += buf.iter().map(|&byte| u64::from(byte)).sum::<u64>();
    }
    sum
}

/// Fork, and run `work` in the child. Whether it was right, and in time.
fn in_a_child(work: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child uses memory and files, and leaves without running anything of the parent's.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: no pointers; the first ends this process if it hangs, the second at once.
            unsafe {
                libc::alarm(PATIENCE);
                libc::_exit(i32::from(!work()))
            }
        }
        -1 => panic!("cannot fork"),
        child => {
            let mut status = 0;
            // SAFETY: the status is ours.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            status == 0
        }
    }
}

#[test]
fn children_of_threads_that_read() {
    for name in ["48bit-zstd", "lz4", "b1024-lz4"] {
        let golden = named(name);
        // A small cache: somebody decodes at any time, and others wait for that.
        let options = ImageOptions::default().with_cache_bytes(256 << 10);
        let image = Image::open_path(&golden.path(), &golden.device_paths(), &options).unwrap();
        let parts = parts(&image);
        let expected = sum(&image, &parts);
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..3 {
                let image = image.clone();
                let (parts, stop) = (&parts, &stop);
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        assert_eq!(sum(&image, parts), expected);
                    }
                });
            }
            let right = (0..FORKS).all(|_| in_a_child(|| sum(&image, &parts) == expected));
            // A child's child, too.
            let right = right && in_a_child(|| in_a_child(|| sum(&image, &parts) == expected));
            stop.store(true, Ordering::Relaxed);
            assert!(right, "{name}");
        });
    }
}
