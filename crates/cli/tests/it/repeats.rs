//! Text that repeats with a short period, as kernels read it: page by page, in any order.

use crate::common::{Scratch, skip, stdout, text};
use kiln_tests::mnt::Mount;
use kiln_tests::rng::Rng;
use rustix::fs::{Advice, fadvise};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

const PAGE_LEN: usize = 4096;

#[test]
fn pages_of_what_does_not_compress_and_repeats_are_read_in_any_order() {
    let mut rng = Rng::new(5);
    let options = [
        &["--kernel", "6.15", "-z", "zstd"][..],
        &["--kernel", "6.15", "-z", "deflate", "--fragments", "all"],
        &["--kernel", "6.15", "-z", "lzma"],
        &["-z", "zstd"],
    ];
    for (seed, len) in (0..).zip([4527, 5000, 9001, 20_000, 70_000]) {
        let scratch = Scratch::new();
        let [src, image] = ["src", "image.erofs"].map(|name| scratch.path(name));
        fs::create_dir(&src).unwrap();
        let mut repeated = vec![0; len];
        rng.fill(&mut repeated);
        // Before it comes text that does not compress, text that does, and nothing.
        let mut front = vec![0; 1000];
        rng.fill(&mut front);
        let files =
            [front, text(seed, 2500), Vec::new()].map(|front| [front, repeated.repeat(6), text(seed, 3000)].concat());
        for options in options {
            for (number, bytes) in files.iter().enumerate() {
                // One file at a time, or two would be deduplicated.
                fs::write(format!("{src}/file"), bytes).unwrap();
                stdout(&[&["pack", "--quiet", "--force", &src, &image], options].concat());
                stdout(&["diff", &image, &src]);
                let mount = match Mount::by_kernel(Path::new(&image)) {
                    Ok(mount) => mount,
                    Err(reason) => return skip(&format!("the kernel does not mount: {reason}")),
                };
                for round in 0..3 {
                    let file = File::open(mount.path().join("file")).unwrap();
                    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
                    fadvise(&file, 0, None, Advice::Random).unwrap();
                    let mut pages: Vec<usize> = (0..bytes.len()).step_by(PAGE_LEN).collect();
                    rng.shuffle(&mut pages);
                    for off in pages {
                        let expected = &bytes[off..bytes.len().min(off + PAGE_LEN)];
                        let mut page = vec![0; expected.len()];
                        let read = file.read_exact_at(&mut page, off as u64);
                        let what = format!("{options:?}, {len} bytes, file {number}, round {round}, byte {off}");
                        assert!(read.is_ok(), "{what}: {read:?}");
                        assert!(page == expected, "{what}");
                    }
                }
            }
        }
    }
}
