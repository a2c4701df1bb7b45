//! Recordings of FUSE mounts.
#![allow(missing_docs)]

crate::common::scenes! {
    reads_are_recorded_and_cached_pages_do_not_hide_them
    a_recording_that_is_dropped_ends
    hot_lists_are_pinned_and_a_recording_ends_that
}

use crate::common::{Served, TempDir, prefetch, sources};
use kiln_mount::fuse::{FuseOptions, Hot};
use kiln_mount::{Granularity, MountError, Recording};
use kiln_read::hotlist::{HotEntry, HotList};
use kiln_tests::mnt::{settled_stats, wait_until};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicBool;

const TEXT: &str = "big/text";

fn serve(temp: &TempDir, hot: Option<Hot>) -> Served {
    let path = crate::common::golden("zstd.erofs");
    let options = FuseOptions { prefetch: prefetch(), hot, ..FuseOptions::default() };
    Served::start(sources(&path, &[]), &temp.dir("fuse"), options).unwrap()
}

fn start(served: &Served) -> Result<Recording, MountError> {
    Recording::start(&served.dir, &AtomicBool::new(false))
}

fn ranges(list: &HotList) -> Vec<(u64, u64, String)> {
    let range = |entry: &HotEntry| (entry.offset, entry.len, String::from_utf8(entry.path.clone()).unwrap());
    list.entries().iter().map(range).collect()
}

fn reads_are_recorded_and_cached_pages_do_not_hide_them() {
    if !crate::common::has_fuse() {
        return;
    }
    let temp = TempDir::new("mount").unwrap();
    let served = serve(&temp, None);
    let path = served.dir.join(TEXT);
    let len = fs::read(&path).unwrap().len() as u64;
    for _ in 0..3 {
        let recording = start(&served).unwrap();
        assert_eq!(recording.granularity(), Granularity::Pages { read_ahead: 0 });
        let file = File::open(&path).unwrap();
        let mut buf = [0; 6000];
        file.read_exact_at(&mut buf, 40_000).unwrap();
        file.read_exact_at(&mut buf[..1], len - 1).unwrap();
        file.read_exact_at(&mut buf[..1], 44_000).unwrap();
        file.read_exact_at(&mut buf[..1], 0).unwrap();
        fs::read_dir(&served.dir).unwrap().for_each(drop);
        let recorded = recording.finish().unwrap();
        assert_eq!((recorded.lost, recorded.unnamed), (0, 0));
        let page = len - len % 4096;
        let text = || TEXT.to_owned();
        let end = if page == len { (len - 4096, 4096, text()) } else { (page, len - page, text()) };
        assert_eq!(ranges(&recorded.list), [(36864, 12288, text()), end, (0, 4096, text())]);
    }
    // More records than fit in one answer. Bytes that are read twice are listed once.
    let recording = start(&served).unwrap();
    let file = File::open(&path).unwrap();
    let pages: Vec<u64> = (0..len / 4096).rev().map(|page| page * 4096).collect();
    pages.iter().for_each(|&off| file.read_exact_at(&mut [0], off).unwrap());
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    pages.iter().for_each(|&off| file.read_exact_at(&mut [0], off).unwrap());
    let recorded = recording.finish().unwrap();
    let expected: Vec<_> = pages.iter().map(|&off| (off, 4096, TEXT.to_owned())).collect();
    assert_eq!(ranges(&recorded.list), expected);
}

fn a_recording_that_is_dropped_ends() {
    if !crate::common::has_fuse() {
        return;
    }
    let temp = TempDir::new("mount").unwrap();
    let served = serve(&temp, None);
    let first = start(&served).unwrap();
    let error = start(&served).unwrap_err();
    assert!(error.to_string().ends_with("cannot record: it is being recorded already"), "{error}");
    drop(first);
    assert!(start(&served).unwrap().finish().unwrap().list.entries().is_empty());
    let error = Recording::start(temp.path(), &AtomicBool::new(false)).unwrap_err();
    assert!(matches!(error, MountError::NotMounted { .. }), "{error}");
    let error = Recording::start("/proc".as_ref(), &AtomicBool::new(false)).unwrap_err();
    assert!(matches!(error, MountError::NoRecorder { .. }), "{error}");
}

fn hot_lists_are_pinned_and_a_recording_ends_that() {
    if !crate::common::has_fuse() {
        return;
    }
    let temp = TempDir::new("mount").unwrap();
    let list = HotList::of_files([TEXT.into(), b"gone".to_vec()]);
    let served = serve(&temp, Some(Hot { list, preload_bytes: 4096, pin_bytes: 64 << 20 }));
    let sample = |name: &str| {
        let text = settled_stats(&served.dir).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).unwrap();
        line.parse::<u64>().unwrap()
    };
    let len = fs::metadata(served.dir.join(TEXT)).unwrap().len();
    wait_until(|| sample("kiln_pinned_bytes") >= len / 2 && sample("kiln_read_size_bytes_sum") >= 4096);
    let decoded = sample("kiln_decoded_bytes_total");
    let recording = start(&served).unwrap();
    fs::read(served.dir.join(TEXT)).unwrap();
    assert_eq!(ranges(&recording.finish().unwrap().list), [(0, len, TEXT.to_owned())]);
    assert_eq!(sample("kiln_decoded_bytes_total"), decoded);
}
