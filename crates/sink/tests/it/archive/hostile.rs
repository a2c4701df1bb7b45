//! Failing writers and damaged images.

use super::{all_options, export_to, exported, open, packed};
use kiln_read::Threads;
use kiln_sink::archive::{Control, ExportOptions, export};
use kiln_sink::{Selection, SinkError};
use kiln_tests::damage::Damager;
use kiln_tests::golden::golden_images;
use kiln_tests::rounds;
use std::io::{self, ErrorKind, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Accepts `left` writes, and fails all others.
struct Failing {
    left: usize,
    count: usize,
}

impl Write for Failing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.count += 1;
        self.left = self.left.checked_sub(1).ok_or(ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn every_write_may_fail() {
    let Some(packed) = packed() else { return };
    let parts = ["names", "nodes", "sparse/comb", "files"];
    for options in all_options() {
        for threads in [1, 3] {
            let options = ExportOptions { threads: Threads::at_least_one(threads), ..options };
            let run = |left| {
                let mut out = Failing { left, count: 0 };
                (export_to(&packed.image, &parts, &options, &mut out), out.count)
            };
            let (done, count) = run(usize::MAX);
            assert!(done.is_ok() && count > 0, "{options:?}");
            for left in (0..count).step_by(1 + count / 8).chain([count - 1]) {
                let (done, _) = run(left);
                let is_full = |error: &io::Error| error.kind() == ErrorKind::StorageFull;
                assert!(
                    matches!(done, Err(SinkError::Write(error)) if is_full(&error)),
                    "{options:?}: {left} of {count}"
                );
            }
            assert!(run(count).0.is_ok());
        }
    }
}

#[test]
fn damaged_images_are_errors_at_worst() {
    for golden in golden_images().unwrap().into_iter().filter(|golden| golden.blob.is_none()) {
        let mut damager = Damager::new(11, golden.metadata().unwrap(), 4096);
        for round in 0..rounds("KILN_EXPORT_ROUNDS", 3, 200) {
            let mut bytes = golden.bytes.clone();
            damager.damage(&mut bytes, &golden.bytes);
            let Ok(image) = golden.open_as(bytes) else { continue };
            for options in all_options().into_iter().take(5) {
                let options = ExportOptions { keep_going: round % 2 == 0, ..options };
                // An export that claims to be endless is stopped.
                let (stop, read) = (AtomicBool::new(false), AtomicU64::new(0));
                let progress = |bytes| {
                    let all = read.fetch_add(bytes, Ordering::Relaxed) + bytes;
                    stop.fetch_or(all > 64 << 20, Ordering::Relaxed);
                };
                let control = Control { stop: &stop, progress: &progress };
                let selection = Selection::everything();
                let _ = export(&image, &selection, &options, &control, &mut io::sink());
            }
        }
    }
}

#[test]
fn a_stopped_export_says_so() {
    let Some(packed) = packed() else { return };
    for options in all_options() {
        let control = Control { stop: &AtomicBool::new(true), progress: &|_| {} };
        let done = export(&packed.image, &Selection::everything(), &options, &control, &mut io::sink());
        assert!(matches!(done, Err(SinkError::Stopped)), "{options:?}");
    }
}

#[test]
fn patterns_that_name_nothing_are_errors() {
    let image = golden_images().unwrap().into_iter().find(|golden| golden.name == "zstd").unwrap();
    let image = open(image.bytes).unwrap();
    let options = all_options()[0];
    for pattern in ["none", "none/*"] {
        let done = export_to(&image, &[pattern], &options, &mut io::sink());
        assert!(matches!(done, Err(SinkError::NoMatch { .. })), "{pattern}");
    }
    assert!(exported(&image, &["big/*"], &options).1.files > 0);
}
