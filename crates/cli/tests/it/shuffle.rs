//! `kiln pack --order shuffle`: data in random order.

use crate::common::trees::{OLD, write};
use crate::common::{Scratch, fails, json, kiln, run, stderr, stdout, text};
use kiln_read::{FilePosition, Image};
use std::collections::HashMap;
use std::fs;
use std::ops::Range;
use std::path::Path;

const FILES: usize = 300;

/// Makes files of 5 to 15 KB in four directories: too long to lie beside their inodes. Each tenth is the same as the
/// one before.
fn tree(root: &str) -> Vec<String> {
    let path = |number: usize| format!("class{}/{number:03}.txt", number / (FILES / 4));
    for number in 0..FILES {
        let path = format!("{root}/{}", path(number));
        fs::create_dir_all(Path::new(&path).parent().unwrap()).unwrap();
        let seed = (number - usize::from(number % 10 == 9)) as u64;
        fs::write(path, text(seed, 5000 + (seed as usize * 7919) % 10_000)).unwrap();
    }
    (0..FILES).map(path).collect()
}

fn pack(args: &[&str]) -> String {
    let output = run(&[&["pack", "--force"], args].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    stderr(&output)
}

/// Returns the places of the files' data.
fn positions(image: &str, paths: &[String]) -> Vec<FilePosition> {
    let image = Image::open_path(image.as_ref(), &[], &Default::default()).unwrap();
    let position = |path: &String| image.position(image.open_file(path).unwrap().inode()).unwrap();
    paths.iter().map(position).collect()
}

/// Returns the paths in the order of their data; of files that share data only the first.
fn by_position(image: &str, paths: &[String]) -> Vec<String> {
    let mut placed: Vec<_> = positions(image, paths).into_iter().zip(paths).collect();
    placed.sort();
    placed.dedup_by_key(|(position, _)| *position);
    placed.into_iter().map(|(_, path)| path.clone()).collect()
}

/// Returns Spearman's rank correlation of two orders of the same paths.
fn correlation(one: &[String], other: &[String]) -> f64 {
    let ranks: HashMap<&str, usize> = other.iter().enumerate().map(|(rank, path)| (&**path, rank)).collect();
    let squares = one.iter().enumerate().map(|(rank, path)| (rank as f64 - ranks[&**path] as f64).powi(2));
    let count = one.len() as f64;
    1.0 - 6.0 * squares.sum::<f64>() / (count * (count * count - 1.0))
}

#[test]
fn data_lies_in_random_order_and_names_do_not() {
    let scratch = Scratch::new();
    let (root, image, other) = (scratch.path("src"), scratch.path("image"), scratch.path("other"));
    let paths = tree(&root);
    for ways in [&["--fragments", "off"][..], &["--fragments", "all"], &["-z", "none"], &["--dedupe", "off"]] {
        pack(&[ways, &[&root, &other]].concat());
        let by_path = by_position(&other, &paths);
        let said = pack(&[ways, &["--order", "shuffle:1", "--threads", "1", &root, &image]].concat());
        assert!(said.contains("data lies in random order, of seed 1"), "{said}");
        assert_eq!(run(&["diff", &root, &image]).status.code(), Some(0));
        assert_eq!(stdout(&["ls", "-R", &image]), stdout(&["ls", "-R", &other]));
        let shuffled = by_position(&image, &paths);
        assert!(shuffled.len() > FILES / 2, "{ways:?}");

        let bytes = fs::read(&image).unwrap();
        pack(&[ways, &["--order", "shuffle:1", "--threads", "3", &root, &image]].concat());
        assert!(fs::read(&image).unwrap() == bytes, "{ways:?}: three threads give other bytes than one");

        pack(&[ways, &["--order", "shuffle", &root, &image]].concat());
        let of_another_seed = by_position(&image, &paths);
        assert_eq!(run(&["diff", &root, &image]).status.code(), Some(0));
        // The first of equal files depends on the order, so only files that all orders name are compared.
        let all = [&by_path, &shuffled, &of_another_seed];
        let [by_path, shuffled, of_another_seed] = all.map(|one| {
            let is_in_all = |path: &&String| all.iter().all(|other| other.contains(path));
            one.iter().filter(is_in_all).cloned().collect::<Vec<_>>()
        });
        assert!(by_path.len() > FILES / 2);
        // The correlation of random orders has a standard deviation of 1 / sqrt(270), 0.06.
        for (one, other) in [(&by_path, &shuffled), (&by_path, &of_another_seed), (&shuffled, &of_another_seed)] {
            assert!(correlation(one, other).abs() < 0.2, "{ways:?}: {}", correlation(one, other));
        }
    }
}

/// Data beside inodes is ordered by path, and the command says so.
#[test]
fn files_beside_their_inodes_are_not_moved() {
    let scratch = Scratch::new();
    let (root, image) = (scratch.path("src"), scratch.path("image"));
    fs::create_dir(&root).unwrap();
    let paths: Vec<String> = (0..40).map(|number| format!("{number:02}")).collect();
    // Inodes of files with the same time have the same size, and are ordered by path.
    paths.iter().for_each(|path| write(format!("{root}/{path}"), path.repeat(100), OLD));
    let said = pack(&["-z", "none", "--order", "shuffle", &root, &image]);
    assert!(said.contains("but for 40 files, or their ends, beside their inodes"), "{said}");
    assert_eq!(by_position(&image, &paths), paths);
    // Packed files are shuffled.
    let said = pack(&["--fragments", "all", "--order", "shuffle", &root, &image]);
    assert!(!said.contains("beside"), "{said}");
    assert!(correlation(&by_position(&image, &paths), &paths).abs() < 0.6);
}

/// The place of a file follows from its path, whatever the source.
#[test]
fn every_source_of_a_tree_gives_the_same_order() {
    let scratch = Scratch::new();
    let (root, image) = (scratch.path("src"), scratch.path("image"));
    let paths = tree(&root);
    let shuffle = |source: &str| {
        pack(&["--order", "shuffle:5", "--fragments", "off", source, &image]);
        by_position(&image, &paths)
    };
    let expected = shuffle(&root);
    assert!(!expected.is_sorted());
    let plain = scratch.path("plain.erofs");
    pack(&[&root, &plain]);
    for name in ["a.tar", "a.tar.gz", "a.zip", "a.cpio"] {
        let archive = scratch.path(name);
        stdout(&["export", &plain, &archive]);
        assert!(shuffle(&archive) == expected, "{name}");
    }
    assert!(shuffle(&plain) == expected, "an image");
}

#[test]
fn a_file_called_shuffle_is_told_from_the_word() {
    let scratch = Scratch::new();
    let (root, image) = (scratch.path("src"), scratch.path("image"));
    let paths = tree(&root);
    let mut listed = paths.clone();
    listed.reverse();
    for name in ["shuffle", "shuffle:9"] {
        fs::write(scratch.path(name), listed.join("\n")).unwrap();
        let order = format!("./{name}");
        let mut command = kiln();
        command.current_dir(scratch.path("")).args([
            "pack",
            "--force",
            "--json",
            "--fragments",
            "off",
            "--dedupe",
            "off",
        ]);
        let output = command.args(["--order", &order, "src", "image"]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert_eq!(json(&output.stdout)["order"], "list");
        assert!(!stderr(&output).contains("random"), "{}", stderr(&output));
        assert_eq!(by_position(&image, &paths), listed);
    }
    let order = |args: &[&str]| {
        json(&stdout(&[&["pack", "--force", "--json"], args, &[&*root, &image]].concat()))["order"].clone()
    };
    assert_eq!(order(&[]), "path");
    assert_eq!(order(&["--order", "shuffle"]), "shuffle:0");
    assert_eq!(order(&["--order", "shuffle:18446744073709551615"]), "shuffle:18446744073709551615");
    let refused = "--order shuffle:7x: seed `7x`: use a number from 0 to 18446744073709551615; \
                   a file of that name is ./shuffle:7x";
    fails(&["pack", "--order", "shuffle:7x", &root, &scratch.path("none")], 2, refused);
    assert!(!Path::new(&scratch.path("none")).exists());
}

/// The table in docs/commands.md: `cargo test -p kiln-command --test it shuffle::small_files -- --nocapture`.
#[test]
fn small_files_that_are_packed_compress_worse_and_others_do_not() {
    const CLASSES: u64 = 40;
    let scratch = Scratch::new();
    let (root, image) = (scratch.path("src"), scratch.path("image"));
    for (class_len, min, max) in [(100, 1000, 4000), (25, 5000, 13_000)] {
        for is_alike in [true, false] {
            for class in 0..CLASSES {
                let dir = format!("{root}/class{class:02}");
                fs::create_dir_all(&dir).unwrap();
                for number in 0..class_len {
                    let id = class * class_len + number;
                    let text = words(id, if is_alike { class } else { CLASSES }, min..max);
                    fs::write(format!("{dir}/{number:03}"), text).unwrap();
                }
            }
            for fragments in ["off", "small"] {
                let len = |order: &[&str]| {
                    // Owners and times of this machine are not part of the figures.
                    let args = ["--all-root", "--mtime", "0", "-z", "zstd,3", "-C", "64k", "--fragments", fragments];
                    pack(&[&args, order, &[&root, &image]].concat());
                    fs::metadata(&image).unwrap().len()
                };
                let (by_path, shuffled) = (len(&[]), len(&["--order", "shuffle"]));
                let loss = shuffled as f64 / by_path as f64 - 1.0;
                println!(
                    "{min} to {max} bytes, alike {is_alike}, fragments {fragments}: {by_path} {shuffled} {:+.1} %",
                    loss * 100.0
                );
                let expected = if fragments == "small" && is_alike { 0.05..1.0 } else { -0.01..0.01 };
                assert!(expected.contains(&loss), "{max} {is_alike} {fragments}: {loss}");
            }
            fs::remove_dir_all(&root).unwrap();
        }
    }
}

/// Returns random words from the 400 of a vocabulary, with a length in bytes.
fn words(id: u64, vocabulary: u64, len: Range<usize>) -> Vec<u8> {
    let mut state = id.wrapping_mul(0x9E37_79B9_7F4A_7C15) + 1;
    let mut next = |bound: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % bound
    };
    let len = len.start + next(len.len() as u64) as usize;
    let mut bytes = Vec::new();
    while bytes.len() < len {
        // The spelling of a word depends on its number alone.
        let word = vocabulary * 400 + next(400);
        let letters = word.wrapping_mul(0xD134_2543_DE82_EF95);
        bytes.extend((0..4 + letters % 6).map(|at| b'a' + (letters >> (8 + 5 * at)) as u8 % 26));
        bytes.push(b' ');
    }
    bytes.truncate(len);
    bytes
}
