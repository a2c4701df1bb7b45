//! Text that is cut after it was stored, because a file that comes later repeats some of it.

use crate::common::{Scratch, stdout, text};
use std::fs;

const SEGMENT_LEN: usize = 4 << 20;

#[test]
fn repeated_text_begins_in_one_segment_and_ends_in_the_next() {
    let scratch = Scratch::new();
    let [src, image] = ["src", "image.erofs"].map(|name| scratch.path(name));
    let long = text(1, 3 * SEGMENT_LEN + (1 << 20));
    // A directory is packed after the files beside it, when the long file is no longer in memory.
    fs::create_dir_all(format!("{src}/later")).unwrap();
    fs::write(format!("{src}/long"), &long).unwrap();
    let forms = [("zstd,3", "64k"), ("zstd,3", "16k"), ("zstd,9", "1M"), ("lz4", "64k")];
    for (round, (method, pcluster)) in forms.into_iter().cycle().take(12).enumerate() {
        for segment in 1..=3 {
            // The cut lies in the last pcluster of a segment.
            let start = segment * SEGMENT_LEN - 12_000 - (round * 7919 + segment * 3331) % 20_000;
            let bytes = [&text(100 + segment as u64, 5000), &long[start..start + 200_000]].concat();
            fs::write(format!("{src}/later/{segment}"), bytes).unwrap();
        }
        stdout(&["pack", "--quiet", "--force", "-z", method, "-C", pcluster, &src, &image]);
        stdout(&["diff", &image, &src]);
        stdout(&["check", &image]);
    }
}
