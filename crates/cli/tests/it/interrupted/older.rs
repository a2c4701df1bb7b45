//! Commands that make something from an older image, interrupted while they work: the image stays, and nothing else
//! appears.

use super::{bytes_read, catches_signals, signalled};
use crate::common::readers::{has_tree, tree_of};
use crate::common::{Scratch, names, stderr, stdout, text};
use kiln_tests::rng::Rng;
use kiln_tests::snapshot::{Snapshot, assert_same, of_dir};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::process::Child;
use std::time::Duration;

/// Bytes that a process has read when it is in the midst of its work: far more than the libraries that it loads.
const PART_LEN: u64 = 8 << 20;
/// Number of attempts for a command that may end before its signal comes.
const ATTEMPTS: u32 = 60;

/// Waits until a command catches signals and has read a part of its source.
pub fn wait_until_it_works(child: &mut Child) {
    assert!(works(child), "it has ended");
}

/// Waits like [`wait_until_it_works`]; returns false if the command ends before.
fn works(child: &mut Child) -> bool {
    while child.try_wait().unwrap().is_none() {
        if catches_signals(child.id()) && bytes_read(child.id()) >= PART_LEN {
            return true;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    false
}

/// A tree, its image in a directory of its own, and the tree with a large file in it.
struct Place {
    scratch: Scratch,
    before: Snapshot,
}

impl Place {
    fn new(options: &[&str], noise: usize) -> Self {
        let scratch = Scratch::new();
        let [src, out] = ["src", "out"].map(|name| scratch.path(name));
        fs::create_dir(&src).unwrap();
        fs::create_dir(&out).unwrap();
        fs::write(format!("{src}/small"), text(1, 300_000)).unwrap();
        let mut bytes = vec![0; noise];
        Rng::new(3).fill(&mut bytes);
        fs::write(format!("{src}/noise"), bytes).unwrap();
        stdout(&[&["pack", "--quiet"], options, &[&src, &format!("{out}/image")]].concat());
        Self { before: of_dir(src.as_ref()).unwrap(), scratch }
    }

    fn image(&self) -> String {
        self.scratch.path("out/image")
    }

    /// Runs a command in the directory of the image, and sends it a signal while it works. Returns whether the
    /// signal was in time.
    fn interrupt(&self, args: &[&str], signal: Signal) -> bool {
        let mut child = signalled(args).current_dir(self.scratch.path("out")).spawn().unwrap();
        let in_time = works(&mut child) && kill_process(Pid::from_child(&child), signal).is_ok();
        let output = child.wait_with_output().unwrap();
        match (in_time, output.status.code()) {
            // The signal came after all was done.
            (_, Some(0)) | (false, _) => {
                assert!(output.status.success(), "{args:?}: {}", stderr(&output));
                false
            }
            (true, code) => {
                let expected = if signal == Signal::KILL { None } else { Some(128 + signal.as_raw()) };
                assert_eq!(code, expected, "{args:?}: {}", stderr(&output));
                true
            }
        }
    }
}

#[test]
fn an_update_leaves_the_image_as_it_was() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::KILL] {
        let place = Place::new(&[], 1000);
        let (image, src) = (place.image(), place.scratch.path("src"));
        let before = fs::read(&image).unwrap();
        fs::write(format!("{src}/big"), text(7, 48 << 20)).unwrap();
        let slowly = ["-z", "zstd,19", "-C", "64k", "--threads", "1"];
        assert!(place.interrupt(&[&["update", "image", &src], &slowly[..]].concat(), signal), "it was too fast");
        assert_eq!(names(place.scratch.path("out")), ["image"]);
        let after = fs::read(&image).unwrap();
        assert!(after.starts_with(&before), "{signal:?}");
        // Nothing cleans up after SIGKILL.
        assert!(after.len() == before.len() || signal == Signal::KILL, "{signal:?}: {} bytes", after.len());
        assert_same(&place.before, &tree_of(&image, None), "after the signal");
        // No recovery step is needed.
        stdout(&["update", "--quiet", "--preset", "fast", &image, &src]);
        has_tree(&image, &src);
        assert_same(&place.before, &tree_of(&image, Some(0)), "generation 0");
    }
}

#[test]
fn an_increment_leaves_its_base_alone() {
    for signal in [Signal::INT, Signal::TERM] {
        let place = Place::new(&[], 1000);
        let src = place.scratch.path("src");
        let before = fs::read(place.image()).unwrap();
        fs::write(format!("{src}/big"), text(7, 48 << 20)).unwrap();
        let slowly = ["-z", "zstd,19", "-C", "64k", "--threads", "1", "--stamp"];
        let args = [&["pack", "--base", "image", &src, "new"], &slowly[..]].concat();
        assert!(place.interrupt(&args, signal), "it was too fast");
        assert_eq!(names(place.scratch.path("out")), ["image"]);
        assert!(fs::read(place.image()).unwrap() == before);
    }
}

#[test]
fn what_moves_data_leaves_nothing_behind() {
    let place = Place::new(&["--preset", "plain"], 192 << 20);
    fs::write(place.scratch.path("list"), "noise\n").unwrap();
    let list = place.scratch.path("list");
    for command in [&["relayout", "image", "new"][..], &["relayout", "--order", &list, "image", "new"]] {
        for signal in [Signal::INT, Signal::TERM] {
            let was_in_time = (0..ATTEMPTS).any(|_| {
                let was_in_time = place.interrupt(command, signal);
                let found = names(place.scratch.path("out"));
                assert_eq!(found.len(), if was_in_time { 1 } else { 2 }, "{command:?}: {found:?}");
                let _ = fs::remove_file(place.scratch.path("out/new"));
                was_in_time
            });
            assert!(was_in_time, "{command:?} was always too fast");
        }
    }
    assert_same(&place.before, &tree_of(&place.image(), None), "the image");
}
