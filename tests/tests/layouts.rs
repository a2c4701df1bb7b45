//! Every pair of choices that change the layout occurs in some image, and each of these images is the tree it was made
//! from: to our reader, to its check, to the kernel; with the same bytes at 1, 2 and 7 threads.

use kiln_build::{BuildOptions, Dedupe, Fragments};
use kiln_codec::{Method, Spec};
use kiln_read::{Image, OpenOptions};
use kiln_tests::data::Texture;
use kiln_tests::generator::{Scale, make};
use kiln_tests::image::{build_to, options, scan_dir};
use kiln_tests::mnt::Mount;
use kiln_tests::skipped;
use kiln_tests::snapshot::{assert_same, of_dir, of_image};
use kiln_tests::temp::TempDir;
use std::collections::HashSet;
use std::fs::{self, File};
use std::path::Path;

/// A choice: its name, and what it does to the options.
type Choice = (&'static str, fn(&mut BuildOptions));

fn compress(options: &mut BuildOptions, method: Method, level: i32) {
    let spec = options.compression.as_mut().expect("compressed from the start");
    (spec.method, spec.level) = (method, level);
}

fn unit(options: &mut BuildOptions, len: u32) {
    options.compression.as_mut().expect("compressed from the start").pcluster_len = len;
}

fn spec(method: Method, pcluster_len: u32) -> Option<Spec> {
    Some(Spec { method, level: 3, pcluster_len })
}

const DIMENSIONS: &[&[Choice]] = &[
    &[
        ("lz4", |options| compress(options, Method::Lz4, 1)),
        ("zstd", |options| compress(options, Method::Zstd, 3)),
        ("deflate", |options| compress(options, Method::Deflate, 3)),
        ("lzma", |options| compress(options, Method::Lzma, 0)),
    ],
    &[
        ("4K", |options| unit(options, 4 << 10)),
        ("64K", |options| unit(options, 64 << 10)),
        ("1M", |options| unit(options, 1 << 20)),
    ],
    &[
        ("nothing packed", |options| options.fragments = Fragments::Off),
        ("small files packed", |options| options.fragments = Fragments::UpTo(64 << 10)),
        ("all packed", |options| options.fragments = Fragments::UpTo(u64::MAX)),
    ],
    &[
        ("packed alike", |options| options.packed_pcluster_len = None),
        ("packed in 4K", |options| options.packed_pcluster_len = Some(4 << 10)),
    ],
    &[
        ("index", |options| options.encoded_extents = false),
        ("index and tails", |options| options.tail_packing = true),
        ("encoded extents", |options| options.encoded_extents = true),
    ],
    &[
        ("no dedupe", |options| options.dedupe = Dedupe::Off),
        ("files", |options| options.dedupe = Dedupe::Files),
        ("parts", |options| options.dedupe = Dedupe::Parts),
    ],
    &[("one time", |options| options.own_mtimes = false), ("own times", |options| options.own_mtimes = true)],
    &[
        ("directories among inodes", |options| options.pack_directories = false),
        ("directories packed", |options| options.pack_directories = true),
    ],
    &[
        ("metadata as it is", |options| options.metabox = None),
        ("metadata in 4K", |options| options.metabox = spec(Method::Zstd, 4 << 10)),
        ("metadata in 32K by another method", |options| options.metabox = spec(Method::Deflate, 32 << 10)),
        ("metadata in 1M", |options| options.metabox = spec(Method::Lz4hc, 1 << 20)),
    ],
];

/// Rows of choices, one of each dimension, in which every pair of choices occurs: greedily, the row with most new pairs
/// among all rows next.
fn pairwise() -> Vec<Vec<usize>> {
    let mut rows = vec![Vec::new()];
    for dimension in DIMENSIONS {
        rows = rows.iter().flat_map(|row| (0..dimension.len()).map(move |idx| [&row[..], &[idx]].concat())).collect();
    }
    let pairs = |row: &[usize]| {
        let chosen: Vec<_> = row.iter().copied().enumerate().collect();
        chosen.iter().flat_map(|&a| chosen.iter().filter(move |&&b| a < b).map(move |&b| (a, b))).collect::<Vec<_>>()
    };
    let mut open: HashSet<_> = rows.iter().flat_map(|row| pairs(row)).collect();
    let mut chosen = Vec::new();
    while !open.is_empty() {
        let new = |row: &&Vec<usize>| pairs(row).iter().filter(|pair| open.contains(pair)).count();
        let best = rows.iter().rev().max_by_key(new).expect("not empty").clone();
        for pair in pairs(&best) {
            open.remove(&pair);
        }
        chosen.push(best);
    }
    chosen
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
    for reason in make(source.path(), 1, Scale::Small).unwrap() {
        skipped(&reason);
    }
    versions(&source.path().join("versions"));
    let expected = of_dir(source.path()).unwrap();
    let rows = pairwise();
    assert!(rows.len() >= 12);
    for row in rows {
        let chosen: Vec<Choice> = row.iter().zip(DIMENSIONS).map(|(&idx, dimension)| dimension[idx]).collect();
        let what = chosen.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        let out = TempDir::new("image").unwrap();
        let [image, two, seven] = [1, 2, 7].map(|threads| {
            let mut options = options(Some((Method::Zstd, 3)), 64 << 10, threads);
            chosen.iter().for_each(|(_, choose)| choose(&mut options));
            let path = out.path().join(format!("{threads}.erofs"));
            let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
            let scan = scan_dir(source.path(), threads).unwrap();
            build_to(&scan.tree, &file, &options).unwrap_or_else(|error| panic!("{what}: {error}"));
            path
        });
        let bytes = fs::read(&image).unwrap();
        for other in [two, seven] {
            assert!(bytes == fs::read(other).unwrap(), "{what}: the threads show in the bytes");
        }
        let opened = Image::open_path(&image, &[], &OpenOptions::default()).unwrap();
        assert_same(&expected, &of_image(&opened).unwrap(), &format!("{what}, by the library"));
        let report = kiln_read::check(&opened, 2).unwrap();
        assert_eq!(report.problem_count, 0, "{what}: {}", report.problems[0]);
        match Mount::by_kernel(&image) {
            Ok(mount) => assert_same(
                &expected,
                &of_dir(mount.path()).unwrap_or_else(|error| panic!("{what}: {error}")),
                &format!("{what}, by the kernel"),
            ),
            Err(reason) => skipped(&reason),
        }
    }
}
