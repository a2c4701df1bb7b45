//! The story of one tree, edited again and again: a chain of increments, an image that is updated in place, and
//! images derived from both.

use super::deltas::{Proofs, go_through_a_patch};
use crate::common::readers::{has_snapshot, open, tree_of};
use crate::common::{Scratch, fails, json, run, stderr, stdout};
use kiln_read::hotlist::{HotEntry, HotList};
use kiln_tests::generator::{Editor, Times, WantedType};
use kiln_tests::model;
use kiln_tests::rng::Rng;
use kiln_tests::snapshot::{Snapshot, assert_same, of_dir};
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The command that makes the first image.
#[derive(Clone, Copy, Debug)]
pub enum Start {
    /// `kiln pack` with these options.
    Kiln(&'static [&'static str]),
    /// `mkfs.erofs` with the first options; later images are by `kiln pack` with the second.
    Mkfs(&'static [&'static str], &'static [&'static str]),
}

pub struct Story {
    scratch: Scratch,
    rng: Rng,
    editor: Editor,
    /// Options of `kiln pack`.
    options: Vec<String>,
    /// The tree as it should be.
    src: PathBuf,
    /// Increments, each the base of the next one.
    chain: Vec<String>,
    /// The image that is updated in place.
    updated: Updated,
    /// Contents have changed and kept their times, which are of no use any more.
    times_lie: bool,
    proofs: Proofs,
}

/// An image that is updated in place.
struct Updated {
    image: String,
    /// The tree of each generation.
    trees: Vec<Snapshot>,
    /// The image has stamps.
    has_stamps: bool,
}

impl Updated {
    fn len(&self) -> u64 {
        fs::metadata(&self.image).unwrap().len()
    }

    /// Checks that the image, which was `len` bytes long before `what`, has the tree of `src`. If nothing was
    /// appended, that is the previous tree.
    fn see(&mut self, len: u64, src: &Path, what: &str) {
        let tree = of_dir(src).unwrap();
        match (self.len() > len, self.trees.last()) {
            (false, Some(last)) => assert_same(last, &tree, &format!("{what}: nothing is appended")),
            _ => self.trees.push(tree),
        }
        has_snapshot(&self.image, &self.trees[self.trees.len() - 1], what);
    }
}

impl Story {
    pub fn begin(seed: u64, start: Start, proofs: Proofs) -> Self {
        let scratch = Scratch::new();
        let (mut editor, rng) = (Editor::new(seed), Rng::new(seed ^ 0x570E));
        let [src, first] = ["src", "0.erofs"].map(|name| scratch.path(name));
        fs::create_dir(&src).unwrap();
        editor.make(src.as_ref()).unwrap();
        let mut options: Vec<String> = Vec::new();
        match start {
            Start::Kiln(ways) => {
                options.extend(ways.iter().map(|&option| option.to_owned()));
                stdout(&[&["pack", "--quiet"], ways, &[&src, &first]].concat());
            }
            Start::Mkfs(line, ways) => {
                let output = Command::new("mkfs.erofs").args(line).args([&first, &src]).output().unwrap();
                assert!(output.status.success(), "{}", stderr(&output));
                let block_len = open(&first, None).superblock().block_bits.len();
                options.extend(ways.iter().map(|&option| option.to_owned()));
                options.extend(["--block-size".to_owned(), block_len.to_string()]);
            }
        }
        // mkfs.erofs does not preserve all times with -E48bit.
        let tree = match start {
            Start::Kiln(_) => of_dir(src.as_ref()).unwrap(),
            Start::Mkfs(..) => tree_of(&first, None),
        };
        let image = scratch.path("updated.erofs");
        fs::copy(&first, &image).unwrap();
        let mut story = Self {
            scratch,
            rng,
            editor,
            options,
            src: src.into(),
            chain: vec![first],
            updated: Updated { image, trees: vec![tree.clone()], has_stamps: false },
            times_lie: false,
            proofs,
        };
        match start {
            Start::Kiln(_) => has_snapshot(&story.chain[0], &tree, "at the beginning"),
            // The kernel does not read all images of mkfs.erofs, but those that kiln makes from them.
            Start::Mkfs(..) => story.move_data(story.chain[0].clone(), &tree),
        }
        story
    }

    fn src(&self) -> &str {
        self.src.to_str().unwrap()
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.rng.below(count) == 0
    }

    /// Edits the tree, and makes an increment and an update.
    pub fn round(&mut self) {
        let times = if self.one_in(6) { Times::Kept } else { Times::New };
        self.times_lie |= times == Times::Kept;
        self.editor.edit(&self.src, times).unwrap();
        self.increment(times);
        self.update();
        if self.one_in(2) {
            self.edit_image();
        }
        if self.one_in(3) {
            self.roll_back();
        }
        self.see_generations(2);
    }

    /// Makes the next image of the chain.
    fn increment(&mut self, times: Times) {
        let (old, new) = (self.last().to_owned(), self.scratch.path(&format!("{}.erofs", self.chain.len())));
        let mut args = vec!["pack", "--quiet", "--base", &old];
        // Both options notice changes that kept their time, if they know the base.
        let has_stamps = fs::exists(format!("{old}.stamp")).unwrap();
        if times == Times::Kept && !has_stamps || self.rng.below(5) == 0 {
            args.extend(["--base-trust", "content"]);
        }
        if self.rng.below(3) == 0 {
            args.push("--stamp");
        }
        args.extend(self.options.iter().map(String::as_str));
        args.extend([self.src.to_str().unwrap(), &new]);
        stdout(&args);
        has_snapshot(&new, &of_dir(&self.src).unwrap(), &format!("{new} {args:?}"));
        self.chain.push(new);
    }

    fn last(&self) -> &str {
        self.chain.last().unwrap()
    }

    /// Updates the image to the tree.
    fn update(&mut self) {
        let (by_content, with_stamps) = (self.one_in(5), self.one_in(3));
        let updated = &mut self.updated;
        let by_content = by_content || self.times_lie && !updated.has_stamps;
        let trust = if by_content { "content" } else { "times" };
        let stamp: &[&str] = if with_stamps { &["--stamp"] } else { &[] };
        let args = ["update", "--quiet", "--base-trust", trust, &updated.image, self.src.to_str().unwrap()];
        let len = updated.len();
        stdout(&[&args, stamp].concat());
        updated.has_stamps = with_stamps || updated.has_stamps && !by_content;
        updated.see(len, &self.src, &format!("update {}", updated.trees.len()));
    }

    /// Removes, overlays and replaces something in the updated image, and does the same to the tree.
    fn edit_image(&mut self) {
        let mut args: Vec<OsString> = ["update", "--quiet"].map(OsString::from).into();
        if self.one_in(2)
            && let Some(path) = self.editor.choose(&self.src, WantedType::Anything).unwrap()
        {
            model::remove(&self.src, &path).unwrap();
            args.extend(["--remove".into(), OsString::from_vec([b"/", &path[..]].concat())]);
        }
        if self.one_in(2) {
            let over = self.scratch.path(&format!("over-{}", self.rng.word()));
            fs::create_dir(&over).unwrap();
            self.editor.make_over(&self.src, over.as_ref()).unwrap();
            model::add(&self.src, over.as_ref()).unwrap();
            args.extend(["--add".into(), over.into()]);
        }
        if args.len() == 2 || self.one_in(2) {
            let Some(path) = self.editor.choose(&self.src, WantedType::File).unwrap() else { return };
            let file = self.scratch.path(&format!("file-{}", self.rng.word()));
            self.editor.another(&self.src, &path, file.as_ref()).unwrap();
            model::replace(&self.src, &path, file.as_ref()).unwrap();
            args.extend(["--replace".into(), OsString::from_vec([b"/", &path[..], b"=", file.as_bytes()].concat())]);
        }
        let updated = &mut self.updated;
        updated.has_stamps = false;
        args.push(OsString::from(&updated.image));
        let len = updated.len();
        stdout(&args);
        updated.see(len, &self.src, &format!("{args:?}"));
    }

    /// Goes back to an older tree of the updated image; the next update starts from there.
    fn roll_back(&mut self) {
        let Updated { image, trees, has_stamps } = &mut self.updated;
        *has_stamps = false;
        // There is no older tree if no update has changed anything.
        let Some(older) = (trees.len() as u64).checked_sub(1).filter(|&older| older > 0) else { return };
        let number = self.rng.below(older) as usize;
        let told = json(&stdout(&["log", "--json", image]));
        let origin = |number: usize| told["generations"][number]["restored"].as_u64().unwrap_or(number as u64);
        let arguments = ["rollback", "--quiet", "--generation", &number.to_string(), image];
        if origin(number) == origin(trees.len() - 1) {
            return fails(&arguments, 1, "has the tree that the image shows already");
        }
        stdout(&arguments);
        trees.push(trees[number].clone());
        has_snapshot(image, &trees[number], &format!("rollback to {number}"));
    }

    /// Checks that the first `count` generations have their trees.
    fn see_generations(&mut self, count: usize) {
        let Updated { image, trees, .. } = &self.updated;
        let mut numbers: Vec<usize> = (0..trees.len()).collect();
        self.rng.shuffle(&mut numbers);
        for number in numbers.into_iter().take(count) {
            let found = tree_of(image, Some(number as u32));
            assert_same(&trees[number], &found, &format!("generation {number} of {}", trees.len()));
        }
    }

    /// Checks that a fresh pack is the same, then makes other images from the existing ones.
    pub fn end(mut self) {
        self.see_generations(usize::MAX);
        self.update();
        let fresh = self.scratch.path("fresh.erofs");
        let options: Vec<&str> = self.options.iter().map(String::as_str).collect();
        stdout(&[&["pack", "--quiet"][..], &options, &[self.src(), &fresh]].concat());
        // The chain does not know the edits of the image alone.
        self.increment(Times::Kept);
        let mut images = vec![self.last().to_owned(), self.updated.image.clone()];
        for image in &images {
            stdout(&["diff", &fresh, image]);
        }
        let tree = of_dir(&self.src).unwrap();
        let image = self.rng.pick(&images).clone();
        self.move_data(image, &tree);
        images.extend(["tight.erofs", "laid-out.erofs"].map(|name| self.scratch.path(name)));
        images.extend([fresh, self.chain[0].clone()]);
        let (old, new) = (self.rng.pick(&images).clone(), self.rng.pick(&images).clone());
        go_through_a_patch(&self.scratch, &mut self.rng, self.proofs, [&old, &new]);
    }

    /// Makes a compact image from an image, and one from each in the order of a random list.
    fn move_data(&mut self, image: String, tree: &Snapshot) {
        let tight = self.scratch.path("tight.erofs");
        stdout(&["relayout", "--quiet", "--force", &image, &tight]);
        has_snapshot(&tight, tree, &format!("{image}, compact"));
        let choices = [image, tight];
        let image = self.rng.pick(&choices);
        self.relayout(image, tree);
    }

    /// Makes an image with the data of a random list first.
    fn relayout(&mut self, image: &str, tree: &Snapshot) {
        let (list, new) = (self.scratch.path("hot.list"), self.scratch.path("laid-out.erofs"));
        let paths: Vec<&Vec<u8>> = tree.keys().collect();
        let count = self.rng.below(30);
        let chosen: Vec<Vec<u8>> = (0..count).map(|_| (*self.rng.pick(&paths)).clone()).collect();
        if self.one_in(4) {
            let lines = chosen.iter().filter(|path| !path.is_empty());
            fs::write(&list, lines.flat_map(|path| [&path[..], b"\0"].concat()).collect::<Vec<u8>>()).unwrap();
        } else {
            let mut entry = |(micros, path): (u64, Vec<u8>)| {
                let size = tree[&path].size;
                let offset = self.rng.below(size + 2);
                let len = *self.rng.pick(&[0, 1, 4096, 100_000, size, 1 << 40]);
                HotEntry { offset: if len == 0 { 0 } else { offset }, len, micros, path }
            };
            let entries = (0..).zip(chosen).map(&mut entry).collect();
            fs::write(&list, HotList::new(entries).to_string()).unwrap();
        }
        let mut args = vec!["relayout", "--quiet", "--force", "--order", &list];
        args.extend(match self.rng.below(4) {
            0 => &["--hot-as", "none"][..],
            1 => &["--hot-as", "lz4", "--hot-budget", "10M"],
            2 => &["--hot-as", "none", "--hot-budget", "100k"],
            _ => &[],
        });
        args.extend([image, &new]);
        let output = run(&args);
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        has_snapshot(&new, tree, &format!("{args:?}"));
    }
}
