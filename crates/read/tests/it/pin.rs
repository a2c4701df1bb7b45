//! Pinned extents: decoded once, whatever is read.

use crate::common::named;
use kiln_read::hotlist::{HotEntry, HotList};
use kiln_read::{FileRange, FileRangeMut, FollowLast, Image, ImageOptions, ReadError, Stats, Threads};
use std::sync::atomic::{AtomicBool, Ordering};

/// Images whose `big/text` is compressed: alone, in the packed inode, with long extents.
const IMAGES: [&str; 6] = ["zstd", "lz4", "lzma", "deflate", "zstd-1m-frag", "lz4-allfrag"];

/// An image that caches next to nothing.
fn open(name: &str) -> Image {
    Image::open_path(&named(name).path(), &[], &ImageOptions::default().with_cache_bytes(64 << 10)).unwrap()
}

fn list(entries: &[(u64, u64, &str)]) -> HotList {
    let entry = |&(offset, len, path): &(u64, u64, &str)| HotEntry { offset, len, micros: 0, path: path.into() };
    HotList::new(entries.iter().map(entry).collect())
}

fn pin(image: &Image, list: &HotList, bytes_max: u64) -> kiln_read::LoadReport {
    std::mem::take(&mut image.pin(list, bytes_max, Threads::at_least_one(3), &AtomicBool::new(false)).report)
}

/// Returns the costs of reading.
fn cost(image: &Image) -> (u64, u64) {
    let Stats { decoded_bytes, .. } = image.stats();
    (image.stats().decodes(), decoded_bytes)
}

#[test]
fn all_ways_to_read_find_what_is_pinned() {
    for name in IMAGES {
        let image = open(name);
        let text = image.resolve(b"big/text", FollowLast::Follow).unwrap();
        let size = text.size();
        let mut expected = vec![0; size as usize];
        image.read_at(&text, &mut expected, 0).unwrap();
        let pinned = pin(&image, &list(&[(0, 0, "big"), (0, u64::MAX >> 1, "big/text")]), u64::MAX);
        assert!(pinned.failed.is_empty() && pinned.left_out == 0 && pinned.extents > 0, "{name}: {pinned:?}");
        assert!(pinned.bytes >= size * 9 / 10, "{name}: {pinned:?}");
        assert_eq!(image.stats().pinned_bytes, pinned.bytes, "{name}");
        let (before, mut buf) = (cost(&image), Vec::new());
        for step in [1000, 70_000, size] {
            for off in (0..size).step_by(step as usize) {
                let len = step.min(size - off) as usize;
                let wanted = &expected[off as usize..off as usize + len];
                assert!(*image.view(&text, off, len, &mut buf).unwrap() == *wanted, "{name}");
                assert!(*image.read_bytes(&text, off..off + len as u64).unwrap() == *wanted, "{name}");
                let mut read = vec![0; len];
                image.read_at(&text, &mut read, off).unwrap();
                assert!(read == wanted, "{name}");
            }
        }
        let ranges: Vec<_> =
            (0..size).step_by(5000).map(|off| FileRange { inode: text, range: off..off + 5000 }).collect();
        image.read_many(&ranges, Threads::at_least_one(2), &|item| {
            let bytes = item.bytes.unwrap();
            assert!(*bytes == expected[item.off as usize..item.off as usize + bytes.len()], "{name}");
        });
        let mut all = vec![0; expected.len()];
        let results = image.read_many_into(&mut [FileRangeMut { inode: text, off: 0, buf: &mut all }], Threads::ONE);
        assert!(results[0].as_ref().is_ok_and(|len| *len == expected.len()) && all == expected, "{name}");
        assert_eq!(cost(&image), before, "{name}");
        // Once more is nothing.
        let again = pin(&image, &list(&[(0, size, "/big/text")]), u64::MAX);
        assert_eq!((again.extents, cost(&image)), (0, before), "{name}");
    }
}

#[test]
fn the_front_of_the_list_is_pinned_where_not_all_is() {
    let image = open("lz4");
    let text = image.resolve(b"big/text", FollowLast::Follow).unwrap();
    let size = text.size();
    let whole = pin(&open("lz4"), &list(&[(0, size, "big/text")]), u64::MAX);
    assert!(whole.extents > 2, "{whole:?}");
    // The end first, and room for about half.
    let most = whole.bytes / 2;
    let pinned = pin(&image, &list(&[(size - 1, 1, "big/text"), (0, size, "big/text")]), most);
    assert!(pinned.bytes > 0 && pinned.bytes + 128 * pinned.extents <= most, "{pinned:?}");
    assert_eq!(pinned.bytes + pinned.left_out, whole.bytes);
    let before = cost(&image);
    let mut byte = [0; 1];
    image.read_at(&text, &mut byte, size - 1).unwrap();
    assert_eq!(cost(&image), before);
    // Pinned extents count when more are pinned.
    let more = pin(&image, &list(&[(0, size, "big/text")]), pinned.bytes);
    assert_eq!((more.extents, more.left_out), (0, pinned.left_out));
    assert_eq!(pin(&open("lz4"), &list(&[(0, size, "big/text")]), 0).bytes, 0);
    let stop = AtomicBool::new(false);
    stop.store(true, Ordering::Relaxed);
    assert_eq!(open("lz4").pin(&list(&[(0, size, "big/text")]), u64::MAX, Threads::ONE, &stop).report.extents, 0);
}

#[test]
fn what_is_loaded_ahead_is_found_in_the_cache() {
    let image = Image::open_path(&named("zstd").path(), &[], &ImageOptions::default()).unwrap();
    let text = image.resolve(b"big/text", FollowLast::Follow).unwrap();
    let whole = list(&[(0, text.size(), "big/text"), (0, 1, "gone")]);
    let ahead = image.load_ahead(&whole, Threads::at_least_one(2), &AtomicBool::new(false));
    let loaded = &ahead.report;
    assert!(loaded.extents > 0 && loaded.bytes >= text.size() * 9 / 10 && loaded.failed.len() == 1, "{loaded:?}");
    assert_eq!(image.stats().pinned_bytes, 0);
    let before = (cost(&image), image.stats().fetches);
    let mut bytes = vec![0; text.size() as usize];
    bytes.chunks_mut(70_000).zip((0..).step_by(70_000)).for_each(|(part, off)| {
        image.read_at(&text, part, off).unwrap();
    });
    assert_eq!((cost(&image), image.stats().fetches), before);
    assert_eq!(image.load_ahead(&whole, Threads::ONE, &AtomicBool::new(false)).report.extents, 0);
    // From there, it is pinned without being decoded again.
    let pinned = pin(&image, &whole, u64::MAX);
    assert_eq!((pinned.extents, pinned.bytes, cost(&image)), (loaded.extents, loaded.bytes, before.0));
}

#[test]
fn what_is_not_there_is_told_and_plain_data_needs_nothing() {
    let image = open("flat");
    let lists =
        [(0, 1, "gone"), (5, 1, "gone"), (0, 1, "big"), (0, u64::MAX >> 1, "big/text"), (u64::MAX >> 1, 0, "big")];
    let pinned = pin(&image, &list(&lists), u64::MAX);
    assert_eq!((pinned.extents, pinned.bytes, image.stats().pinned_bytes), (0, 0, 0));
    let failed: Vec<_> = pinned.failed.iter().map(|(path, error)| (&path[..], error)).collect();
    assert!(
        matches!(failed[..], [(b"gone", ReadError::NotFound { .. }), (b"big", ReadError::IsADirectory { .. })]),
        "{failed:?}"
    );
}
