//! Every pair of choices that change the layout occurs in some image, and each of these images is the tree it was made
//! from: to our reader, to its check, to the kernel; with the same bytes at 1, 2 and 7 threads.

use kiln_build::{Blob, BuildOptions, ChunkEntries, Dedupe, Fragments, Out};
use kiln_codec::Method;
use kiln_format::BlockBits;
use kiln_read::{Image, OpenOptions};
use kiln_tests::data::Texture;
use kiln_tests::generator::{Scale, make};
use kiln_tests::image::{build_to, options, scan_dir, with_block_bits};
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

/// The last choice: it makes the lengths before it fit.
fn blocks(options: &mut BuildOptions, bits: u8) {
    *options = with_block_bits(bits, options.clone());
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
    &[
        ("blocks of 4K", |options| blocks(options, 12)),
        ("blocks of 512", |options| blocks(options, 9)),
        ("blocks of 2K", |options| blocks(options, 11)),
        ("blocks of 64K", |options| blocks(options, 16)),
    ],
];

/// Where bytes lie.
#[derive(Clone)]
struct Place {
    options: BuildOptions,
    /// Byte of the file where the image begins.
    offset: u64,
    /// Chunks go to an extra device.
    has_blob: bool,
}

/// A choice of a place: its name and how it is made.
type PlaceChoice = (&'static str, fn(&mut Place));

/// As [`DIMENSIONS`], for where bytes lie.
const PLACES: &[&[PlaceChoice]] = &[
    &[
        ("plain", |place| place.options.compression = None),
        ("lz4", |place| compress(&mut place.options, Method::Lz4, 1)),
        ("encoded deflate", |place| {
            compress(&mut place.options, Method::Deflate, 1);
            place.options.encoded_extents = true;
        }),
    ],
    &[
        ("files", |place| place.options.dedupe = Dedupe::Files),
        ("no dedupe", |place| place.options.dedupe = Dedupe::Off),
    ],
    &[
        ("anywhere", |_| {}),
        ("data at 192K, image at 128K", |place| {
            (place.options.data_align, place.offset) = (192 << 10, 128 << 10);
        }),
        ("of whole 256K", |place| place.options.image_align = 256 << 10),
    ],
    &[
        ("tails inline", |_| {}),
        ("tails not inline", |place| place.options.inline_tails = false),
        ("extended inodes", |place| {
            (place.options.compact_inodes, place.options.omit_dot) = (false, true);
        }),
        ("built early", |place| {
            (place.options.build_time, place.options.checksum) = (Some(7), false);
        }),
    ],
    &[
        ("attributes shared", |_| {}),
        ("attributes not shared", |place| {
            (place.options.xattr_share_min, place.options.root_xattr_len) = (u64::MAX, 6000);
        }),
        ("all attributes shared", |place| {
            (place.options.xattr_share_min, place.options.root_xattr_len) = (1, 1);
            place.options.xattr_prefixes = vec![b"user.l".to_vec(), b"security.capa".to_vec()];
        }),
        ("extents of 64K", |place| place.options.extent_max_len = Some(64 << 10)),
        ("extents of 300K", |place| place.options.extent_max_len = Some(300_000)),
    ],
    &[("short entries", |_| {}), ("indexes", |place| place.options.chunk_entries = ChunkEntries::Indexes)],
    &[("one device", |_| {}), ("extra device", |place| place.has_blob = true)],
    &[
        ("contiguous", |_| {}),
        ("chunks of 4K", |place| place.options.chunk_bits = Some(12)),
        ("chunks of 64K", |place| place.options.chunk_bits = Some(16)),
        ("chunks of 8M", |place| place.options.chunk_bits = Some(23)),
    ],
    &[
        ("blocks of 4K", |_| {}),
        ("blocks of 512", |place| blocks(&mut place.options, 9)),
        ("blocks of 64K", |place| {
            blocks(&mut place.options, 16);
            place.options.chunk_bits = place.options.chunk_bits.map(|bits| bits.max(16));
        }),
    ],
];

/// Rows of choices, one of each dimension, in which every pair of choices occurs: greedily, the row with most new pairs
/// among all rows next.
fn pairwise<T>(dimensions: &[&[T]]) -> Vec<Vec<usize>> {
    let mut rows = vec![Vec::new()];
    for dimension in dimensions {
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
    let rows = pairwise(DIMENSIONS);
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
        if opened.superblock().block_bits > BlockBits::DEFAULT {
            // Pages have 4 KiB here.
            continue;
        }
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

#[test]
fn every_pair_of_places_round_trips() {
    let source = TempDir::new("source").unwrap();
    for reason in make(source.path(), 2, Scale::Small).unwrap() {
        skipped(&reason);
    }
    versions(&source.path().join("versions"));
    let expected = of_dir(source.path()).unwrap();
    for row in pairwise(PLACES) {
        let chosen: Vec<_> = row.iter().zip(PLACES).map(|(&idx, dimension)| dimension[idx]).collect();
        let what = chosen.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        let out = TempDir::new("image").unwrap();
        let mut place = Place { options: options(Some((Method::Zstd, 3)), 64 << 10, 1), offset: 0, has_blob: false };
        chosen.iter().for_each(|(_, choose)| choose(&mut place));
        let [image, two, seven] = [1, 2, 7].map(|threads| {
            let create = |name: &str| {
                let path = out.path().join(format!("{threads}.{name}"));
                let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
                (path, file)
            };
            let ((image, file), blob) = (create("erofs"), place.has_blob.then(|| create("blob")));
            let options = BuildOptions { threads, ..place.options.clone() };
            let tree = scan_dir(source.path(), threads).unwrap().tree;
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
