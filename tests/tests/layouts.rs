//! Every pair of choices that change the layout occurs in some image, and each of these images is the tree it was made
//! from: to our reader, to its check, to the kernel; with the same bytes at 1, 2 and 7 threads.

use kiln_build::{Blob, Out};
use kiln_format::BlockBits;
use kiln_read::{Image, OpenOptions};
use kiln_tests::choices;
use kiln_tests::data::Texture;
use kiln_tests::generator::{Scale, make};
use kiln_tests::image::{build_to, scan_dir};
use kiln_tests::mnt::Mount;
use kiln_tests::skipped;
use kiln_tests::snapshot::{assert_same, of_dir, of_image};
use kiln_tests::temp::TempDir;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;

/// Rows of choices, one of each dimension, of which there are so many, in which every pair of choices occurs: greedily, each
/// row from a pair that is missing, with the choice of most new pairs in every other dimension.
fn pairwise(dimensions: &[usize]) -> Vec<Vec<usize>> {
    let choices = |at: usize| (0..dimensions[at]).map(move |choice| (at, choice));
    let all: Vec<(usize, usize)> = (0..dimensions.len()).flat_map(choices).collect();
    let pairs = all.iter().flat_map(|&a| all.iter().filter(move |b| a.0 < b.0).map(move |&b| (a, b)));
    let mut open: BTreeSet<_> = pairs.collect();
    let mut rows = Vec::new();
    while let Some(&(a, b)) = open.first() {
        let mut row = vec![a, b];
        for at in (0..dimensions.len()).filter(|&at| at != a.0 && at != b.0) {
            let new = |one: &(usize, usize)| {
                row.iter().filter(|&&other| open.contains(&(other.min(*one), other.max(*one)))).count()
            };
            // Of equal ones another in each row.
            let turned = (0..dimensions[at]).map(|choice| (at, (choice + rows.len()) % dimensions[at]));
            let best = turned.max_by_key(new).expect("a dimension has choices");
            row.push(best);
        }
        row.sort_unstable();
        open.retain(|(a, b)| !(row.contains(a) && row.contains(b)));
        rows.push(row.into_iter().map(|(_, choice)| choice).collect());
    }
    rows
}

/// Files that are like each other in parts: shifted, cut short, spliced, of any texture, small and large.
fn versions(dir: &Path) {
    fs::create_dir(dir).unwrap();
    for (number, texture) in (0..).zip(Texture::ALL) {
        let sizes = [("small", 30_000), ("medium", 200_000), ("large", 700_000)];
        let few = !matches!(texture, Texture::Text | Texture::Mixed);
        for (size, len) in sizes.into_iter().take(if few { 2 } else { 3 }) {
            let first = texture.bytes(100 + number, len);
            let other = texture.bytes(200 + number, len / 3);
            let (a, b) = (len / 3 + 7, 2 * len / 3 + 1001);
            let versions = [
                [&b"x"[..], &first].concat(),
                [&first[..a], b"inserted", &first[a..]].concat(),
                [&first[..a], &other, &first[b..]].concat(),
                [&first[a..b], &first[..a], &other[5..]].concat(),
                first[17..len - 4096].to_vec(),
            ];
            let name = |version: usize| dir.join(format!("{size}-{number}-{version}"));
            fs::write(name(0), &first).unwrap();
            for (version, bytes) in (1..).zip(versions) {
                fs::write(name(version), bytes).unwrap();
            }
        }
    }
}

#[test]
fn every_pair_of_choices_round_trips() {
    let source = TempDir::new("source").unwrap();
    for reason in make(source.path(), 2, Scale::Small).unwrap() {
        skipped(&reason);
    }
    versions(&source.path().join("versions"));
    let expected = of_dir(source.path()).unwrap();
    let rows = pairwise(&choices::dimensions());
    assert!(rows.len() >= 16);
    for row in rows {
        let what = choices::names(&row);
        let out = TempDir::new("image").unwrap();
        let place = choices::place(&row, &scan_dir(source.path(), 1).unwrap().tree, 1);
        let [image, two, seven] = [1, 2, 7].map(|threads| {
            let create = |name: &str| {
                let path = out.path().join(format!("{threads}.{name}"));
                let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
                (path, file)
            };
            let ((image, file), blob) = (create("erofs"), place.has_blob.then(|| create("blob")));
            let tree = scan_dir(source.path(), threads).unwrap().tree;
            let options = choices::place(&row, &tree, threads).options;
            let blob_file = blob.as_ref().map(|(_, file)| Blob { file, tag: [b'b'; 64] });
            let to = Out { image: &file, offset: place.offset, blob: blob_file };
            build_to(&tree, to, &options).unwrap_or_else(|error| panic!("{what}: {error}"));
            (image, blob.map(|(path, _)| path).into_iter().collect::<Vec<_>>())
        });
        for (other, blob) in [two, seven] {
            assert!(same_bytes(&image.0, &other), "{what}: the threads show in the bytes");
            assert!(image.1.iter().zip(&blob).all(|(a, b)| same_bytes(a, b)), "{what}: they show in the device");
        }
        let (image, blob) = image;
        assert!((fs::metadata(&image).unwrap().len() - place.offset).is_multiple_of(place.options.image_align));
        let open = OpenOptions { offset: place.offset, ..OpenOptions::default() };
        let opened = Image::open_path(&image, &blob, &open).unwrap();
        assert_same(&expected, &of_image(&opened).unwrap(), &format!("{what}, by the library"));
        let report = kiln_read::check(&opened, 2).unwrap();
        assert_eq!(report.problem_count, 0, "{what}: {}", report.problems[0]);
        if opened.superblock().block_bits > BlockBits::DEFAULT {
            // Pages have 4 KiB here.
            continue;
        }
        match Mount::by_kernel_at(&image, place.offset, &blob) {
            Ok(mount) => assert_same(
                &expected,
                &of_dir(mount.path()).unwrap_or_else(|error| panic!("{what}: {error}")),
                &format!("{what}, by the kernel"),
            ),
            Err(reason) => skipped(&format!("{what}: {reason}")),
        }
    }
}

fn same_bytes(a: &Path, b: &Path) -> bool {
    fs::read(a).unwrap() == fs::read(b).unwrap()
}
