//! The table of composefs 1.0.8, composefs-rs 0.9.4 and kiln: images of the same dumps and
//! directories. kiln makes the images of composefs 1.0.8; a difference of composefs-rs that no row
//! of [`rows`](super::rows) explains is a failure.

use super::common::{Peer, VERSIONS, image, image_between, read, write};
use super::golden::id;
use super::rows::{BOUNDS, ROWS, Row, example};
use super::shared_dumps::{Line, dump, text};
use kiln_composefs::CfsTree;
use kiln_composefs::from_tree::{HardLinks, TreeOptions, contents};
use kiln_digest::Algorithm;
use kiln_parallel::Threads;
use kiln_tests::generator::make_random;
use kiln_tests::image::scan_dir;
use kiln_tests::rounds;
use kiln_tests::temp::TempDir;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// First digits of kiln's images of the rows' examples, by version: composefs 1.0.8 made the same.
const EXAMPLES: [[&str; 3]; 6] = [
    ["cf2663451f8d4045", "2becc87ccae0abcc", "2becc87ccae0abcc"],
    ["7153bd85f664e450", "7153bd85f664e450", "d1aee639d900c190"],
    ["36378c3cc6ac0733", "36378c3cc6ac0733", "55634f05a3b2ae8c"],
    ["86eb7599958747e6", "7cded78781613be9", "7cded78781613be9"],
    ["5d9d101e43393512", "59528696f4c7293b", "59528696f4c7293b"],
    ["cf2663451f8d4045", "2becc87ccae0abcc", "2becc87ccae0abcc"],
];

/// Returns kiln's image of a dump.
fn ours(lines: &[Line], bounds: (u32, u32)) -> Vec<u8> {
    image_between(&read(text(lines).as_bytes()), bounds)
}

/// Both other programs.
struct Peers {
    c: Peer,
    rs: Peer,
}

impl Peers {
    fn find() -> Option<Self> {
        Some(Self { c: Peer::find()?, rs: Peer::find_rs()? })
    }

    /// Returns true if kiln and composefs 1.0.8 make the same image, and composefs-rs as well.
    ///
    /// # Panics
    /// If those of kiln and composefs 1.0.8 differ.
    fn agree(&self, lines: &[Line], bounds: (u32, u32), what: &str) -> Result<bool, Refused> {
        let text = text(lines);
        let ours = ours(lines, bounds);
        match self.c.image_of_dump_between(text.as_bytes(), bounds) {
            Ok(expected) => assert!(expected == ours, "{what}: not the image of composefs 1.0.8"),
            // A mark with a long value beside another attribute.
            Err(error) if error.contains("Numerical result out of range") => return Err(Refused),
            Err(error) => panic!("{what}: refused by composefs 1.0.8: {error}"),
        }
        let of_rs = self.rs.image_of_dump_between(text.as_bytes(), bounds);
        Ok(of_rs.unwrap_or_else(|error| panic!("{what}: refused by composefs-rs: {error}")) == ours)
    }

    /// Returns the fewest rows that explain why the images of a dump differ: without their reasons
    /// they are the same.
    fn explain(&self, lines: &[Line], bounds: (u32, u32), what: &str) -> Vec<&'static str> {
        let removed = |row: &Row, lines: &[Line]| {
            let mut without = lines.to_vec();
            (row.remove)(&mut without);
            without
        };
        let concerns = |row: &&Row| row.explains.contains(&bounds) && removed(row, lines) != lines;
        let concerned: Vec<&Row> = ROWS.iter().filter(concerns).collect();
        let mut choices: Vec<u32> = (1..1 << concerned.len()).collect();
        choices.sort_by_key(|choice| choice.count_ones());
        for choice in choices {
            let chosen = concerned.iter().enumerate().filter(|(at, _)| choice >> at & 1 == 1).map(|(_, row)| *row);
            let without = chosen.clone().fold(lines.to_vec(), |lines, row| removed(row, &lines));
            if matches!(self.agree(&without, bounds, what), Ok(true)) {
                return chosen.map(|row| row.name).collect();
            }
        }
        panic!("{what}: no row explains the image of composefs-rs:\n{}", text(lines));
    }
}

/// composefs 1.0.8 refuses a dump.
struct Refused;

#[test]
fn each_difference_of_composefs_rs_is_explained() {
    let Some(peers) = Peers::find() else { return };
    let seeds = rounds("KILN_COMPOSEFS", 24, 300);
    let mut counts: BTreeMap<(&str, (u32, u32)), usize> = BTreeMap::new();
    for seed in 0..seeds {
        let lines = dump(seed);
        for bounds in BOUNDS {
            let what = format!("seed {seed}, versions {bounds:?}");
            let mut count = |name| *counts.entry((name, bounds)).or_default() += 1;
            match peers.agree(&lines, bounds, &what) {
                Ok(true) => count("the same image"),
                Ok(false) => peers.explain(&lines, bounds, &what).into_iter().for_each(count),
                Err(Refused) => {
                    count("refused by composefs 1.0.8");
                    peers.explain(&lines, bounds, &what);
                }
            }
        }
    }
    counts.iter().for_each(|((name, bounds), count)| println!("{bounds:?} {count:4} of {seeds}: {name}"));
    for bounds in BOUNDS {
        let same = counts.get(&("the same image", bounds)).copied().unwrap_or_default();
        assert!(same as u64 * 2 > seeds, "only {same} of {seeds} images are the same, versions {bounds:?}");
    }
}

#[test]
fn composefs_in_c_wins_each_row() {
    for (row, digits) in ROWS.iter().zip(EXAMPLES) {
        let lines = example(row);
        for (bounds, digits) in BOUNDS.into_iter().zip(digits) {
            assert_eq!(id(&ours(&lines, bounds))[..16], *digits, "{} {bounds:?}", row.name);
        }
    }
    let Some(peers) = Peers::find() else { return };
    for row in &ROWS {
        let lines = example(row);
        let mut without = lines.clone();
        (row.remove)(&mut without);
        assert_ne!(without, lines, "{}", row.name);
        for bounds in BOUNDS {
            let what = format!("{}, versions {bounds:?}", row.name);
            let agrees = |lines: &[Line]| peers.agree(lines, bounds, &what).is_ok_and(|agrees| agrees);
            // A row that needs whiteouts is hidden where these alone make a difference.
            let raises = bounds == (0, 1) && lines.iter().any(Line::is_whiteout);
            assert_eq!(agrees(&lines), !row.shown_by.contains(&bounds) && !raises, "{what}");
            assert!(agrees(&without) || raises, "{what}, without its reason");
        }
    }
}

/// Returns kiln's tree of a directory.
fn tree_of(dir: &Path, hard_links: HardLinks) -> CfsTree {
    let tree = scan_dir(dir, 2).unwrap().tree;
    let contents = contents::read(&tree, Algorithm::Sha256, Threads::PROCESSORS).unwrap();
    let options = TreeOptions { hard_links, ..Default::default() };
    kiln_composefs::from_tree(&tree, &options, |id| contents.of(id)).unwrap()
}

/// Rows of directories. Hard links are broken by both `mkcomposefs`, and kept by composefs-rs with `--hardlinks`: kiln
/// makes the images of both. composefs-rs takes times before 1970 for later ones when it looks for the first: composefs
/// 1.0.8 wins. Without such times the images are the same.
#[test]
fn directories_make_the_images_of_both() {
    let Some(peers) = Peers::find() else { return };
    let (mut same, mut early) = (0, 0);
    for seed in 0..rounds("KILN_COMPOSEFS", 8, 300) {
        let temp = TempDir::new("composefs-table").unwrap();
        let dir = temp.dir("source");
        make_random(&dir, seed).unwrap();
        match peers.agree_on_directory(&dir, &format!("seed {seed}")) {
            true => same += 1,
            false => {
                let touched = Command::new("find")
                    .arg(&dir)
                    .args(["!", "-newermt", "1970-01-01 UTC", "-exec", "touch", "-h", "-d", "@1", "{}", "+"])
                    .status()
                    .unwrap();
                assert!(touched.success());
                assert!(peers.agree_on_directory(&dir, &format!("seed {seed}, later")), "seed {seed}: unexplained");
                early += 1;
            }
        }
    }
    println!("directories: {same} the same, {early} with times before 1970");
    assert!(same > 0);
}

impl Peers {
    /// Returns true if composefs-rs makes the images that kiln makes of a directory.
    ///
    /// # Panics
    /// If those of composefs 1.0.8 are others.
    fn agree_on_directory(&self, dir: &Path, what: &str) -> bool {
        let (broken, kept) = (tree_of(dir, HardLinks::Broken), tree_of(dir, HardLinks::Kept));
        let has_whiteouts = write(&broken).split(|byte| *byte == b'\n').any(is_whiteout);
        BOUNDS.into_iter().all(|bounds| {
            let [min, max] = [format!("--min-version={}", bounds.0), format!("--max-version={}", bounds.1)];
            let of_c = self.c.image_of_dir(dir, &[&min, &max]).unwrap();
            assert!(of_c == image_between(&broken, bounds), "{what}, versions {bounds:?}: composefs 1.0.8");
            // The row of whiteouts in version 0.
            let bounds = if has_whiteouts && bounds == (0, 1) { (0, 0) } else { bounds };
            let of_rs = self.rs.image_of_dir(dir, &[&min, &max]).unwrap();
            let with_links = self.rs.image_of_dir(dir, &[&min, &max, "--hardlinks"]).unwrap();
            of_rs == image_between(&broken, bounds) && with_links == image_between(&kept, bounds)
        })
    }
}

/// Returns true for the line of a whiteout.
fn is_whiteout(line: &[u8]) -> bool {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    fields.len() > 6 && fields[2].starts_with(b"2") && fields[2].len() == 5 && fields[6] == b"0"
}

/// Row "composefs-info dump": composefs-rs wins. Directories have no size, and marks of whiteouts are not shown. Lines of
/// links have the fields of their target in ours, which composefs-rs leaves out.
#[test]
fn dumps_are_those_of_composefs_rs() {
    let Some(peers) = Peers::find() else { return };
    let line = |line: &str| {
        let fields: Vec<_> = line.split(' ').collect();
        match fields[2].starts_with('@') {
            true => format!("{} 0 @120000 - - - - 0.0 {} - -", fields[0], fields[8]),
            false => line.to_owned(),
        }
    };
    let mut other = 0;
    for seed in 0..rounds("KILN_COMPOSEFS", 24, 300) {
        let mut lines = dump(seed);
        // composefs-rs takes whiteouts with names like those of stubs for stubs here, whatever their metadata.
        lines.retain(|line| !line.is_whiteout() || line.path.len() != 3);
        // Marks that the tree has itself where composefs sets them are told from those by nobody.
        (ROWS[3].remove)(&mut lines);
        // Both programs take any file with this mark for a whiteout of composefs.
        lines.iter_mut().for_each(|line| line.xattrs.retain(|(key, _)| key != "trusted.overlay.whiteout"));
        let tree = read(text(&lines).as_bytes());
        let ours: Vec<String> = String::from_utf8(write(&tree)).unwrap().lines().map(line).collect();
        for version in VERSIONS {
            let image = image(&tree, version);
            let of_rs = String::from_utf8(peers.rs.dump_of_image(&image).unwrap()).unwrap();
            for (ours, of_rs) in ours.iter().zip(of_rs.lines()) {
                assert_eq!(ours, of_rs, "seed {seed} {version:?}");
            }
            assert_eq!(ours.len(), of_rs.lines().count(), "seed {seed} {version:?}");
            let of_c = peers.c.dump_of_image(&image);
            other += usize::from(of_c.is_ok_and(|of_c| !String::from_utf8_lossy(&of_c).lines().eq(of_rs.lines())));
        }
    }
    assert!(other > 0, "composefs-info 1.0.8 makes the same dumps");
}
