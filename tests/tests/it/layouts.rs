//! Every pair of choices that change the layout occurs in some image; quick runs have every other
//! image. Each is equal to its tree according to our reader, its check and the kernel, with the
//! same bytes at 1 and 7 threads, and at 2 in the long form.

use kiln_builder::{Blob, BuildOptions, ContentDigests, Dedupe, Fragments, Holes, Out};
use kiln_codec::{Method, Spec};
use kiln_format::inode::DataLayout;
use kiln_format::superblock::ComprInfo;
use kiln_format::{BlockBits, Incompat, KernelVersion};
use kiln_read::{DigestCheck, ExtentKind, Image, ImageOptions, Threads};
use kiln_tests::choices;
use kiln_tests::data::Texture;
use kiln_tests::generator::{Scale, make};
use kiln_tests::image::{build_to, options, scan_dir};
use kiln_tests::mnt::Mount;
use kiln_tests::snapshot::{Snapshot, assert_same, of_dir, of_image};
use kiln_tests::temp::TempDir;
use kiln_tests::{rounds, skipped};
use kiln_tree::DigestName;
use std::fs::{self, File};
use std::path::Path;
use std::sync::Mutex;
use std::thread;

/// Files with common parts: shifted, truncated, spliced, of any texture, small and large.
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
    let rows = choices::pairwise(&choices::dimensions());
    assert!(rows.len() >= 16);
    // In quick runs every other row: the long run has all pairs.
    let rows = Mutex::new(rows.into_iter().step_by(rounds("KILN_PAIR_STEP", 2, 1) as usize));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(row) = { rows.lock().unwrap().next() } {
                    row_round_trips(source.path(), &expected, &row);
                }
            });
        }
    });
}

/// Builds a tree with these choices on several numbers of threads, and reads it by the library and by the kernel.
fn row_round_trips(source: &Path, expected: &Snapshot, row: &[usize]) {
    let what = choices::names(row);
    let out = TempDir::new("image").unwrap();
    let place = choices::place(row, &scan_dir(source, 1).unwrap().tree, 1);
    let many = [1, 7, 2].into_iter().take(rounds("KILN_LAYOUT_BUILDS", 2, 3) as usize);
    let mut built = many.map(|threads| {
        let create = |name: &str| {
            let path = out.path().join(format!("{threads}.{name}"));
            let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
            (path, file)
        };
        let ((image, file), blob) = (create("erofs"), place.has_blob.then(|| create("blob")));
        let tree = scan_dir(source, threads).unwrap().tree;
        let options = choices::place(row, &tree, threads).options;
        let blob_file = blob.as_ref().map(|(_, file)| Blob { file, tag: [b'b'; 64] });
        let to = Out { image: &file, offset: place.offset, blob: blob_file, behind: None };
        build_to(&tree, to, &options).unwrap_or_else(|error| panic!("{what}: {error}"));
        (image, blob.map(|(path, _)| path).into_iter().collect::<Vec<_>>())
    });
    let image = built.next().unwrap();
    for (other, blob) in built {
        assert!(same_bytes(&image.0, &other), "{what}: the threads show in the bytes");
        assert!(image.1.iter().zip(&blob).all(|(a, b)| same_bytes(a, b)), "{what}: they show in the device");
    }
    let (image, blob) = image;
    assert!((fs::metadata(&image).unwrap().len() - place.offset).is_multiple_of(place.options.layout.image_align));
    let open = ImageOptions::default().with_offset(place.offset);
    let opened = Image::open_path(&image, &blob, &open).unwrap();
    assert_same(expected, &of_image(&opened).unwrap(), &format!("{what}, by the library"));
    let report = opened.check(Threads::at_least_one(2)).unwrap();
    assert_eq!(report.problem_count, 0, "{what}: {}", report.problems[0]);
    if opened.superblock().block_bits > BlockBits::DEFAULT {
        // Pages have 4 KiB here.
        return;
    }
    match Mount::by_kernel_at(&image, place.offset, &blob) {
        Ok(mount) => assert_same(
            expected,
            &of_dir(mount.path()).unwrap_or_else(|error| panic!("{what}: {error}")),
            &format!("{what}, by the kernel"),
        ),
        Err(reason) => skipped(&format!("{what}: {reason}")),
    }
}

/// Capabilities of old kernels according to their documentation: bits of `feature_incompat`, and
/// the longest pcluster. No such kernel is available for a test.
const OLD_KERNELS: [((u16, u16), Incompat, u32); 3] = [
    ((5, 4), Incompat::LZ4_0PADDING, 4096),
    ((5, 10), Incompat::LZ4_0PADDING, 4096),
    ((5, 15), Incompat::LZ4_0PADDING.union(Incompat::COMPR_CFGS).union(Incompat::CHUNKED_FILE), 1 << 20),
];

/// A choice: its name, and its change to options that compress.
type Choice = (&'static str, fn(&mut BuildOptions));

/// Features of old kernels, by dimension, and the replacements in kernels without them.
const OLD_CHOICES: &[&[Choice]] = &[
    &[
        ("plain", |options| options.compression.spec = None),
        ("lz4", |_| {}),
        ("lz4hc", |options| {
            options.compression.spec =
                options.compression.spec.map(|spec| Spec { method: Method::Lz4hc, level: 9, ..spec });
        }),
    ],
    &[
        ("tails inline", |options| options.packing.tail_packing = true),
        ("tails not inline", |options| options.layout.inline_tails = false),
        ("extended inodes", |options| options.metadata.compact_inodes = false),
    ],
    &[
        ("attributes shared", |options| options.metadata.own_mtimes = true),
        ("digests", |options| options.metadata.content_digests = ContentDigests::Named(DigestName::Usual)),
        ("attributes not shared", |options| {
            (options.metadata.xattr_share_min, options.metadata.root_xattr_len) = (u64::MAX, 6000)
        }),
    ],
    &[
        ("packed", |options| {
            (options.packing.fragments, options.packing.directories) = (Fragments::Tails(64 << 10), true)
        }),
        ("parts", |options| options.dedupe = Dedupe::Parts),
        ("no dedupe", |options| options.dedupe = Dedupe::Off),
    ],
    &[("holes", |_| {}), ("filled holes", |options| options.holes = Holes::Filled)],
];

#[test]
fn images_for_old_kernels_have_nothing_newer() {
    let source = TempDir::new("source").unwrap();
    for reason in make(source.path(), 3, Scale::Small).unwrap() {
        skipped(&reason);
    }
    // As zeros it would take 5 GiB.
    fs::remove_file(source.path().join("sparse/huge")).unwrap();
    let expected = of_dir(source.path()).unwrap();
    let lens: Vec<usize> = OLD_CHOICES.iter().map(|all| all.len()).collect();
    // In quick runs, each kernel has a third of the rows, and all together have all of them.
    let step = rounds("KILN_LAYOUT_STEP", 3, 1) as usize;
    for (nth, ((major, minor), known, max_len)) in OLD_KERNELS.into_iter().enumerate() {
        let kernel = KernelVersion::new(major, minor);
        for row in choices::pairwise(&lens).into_iter().skip(nth % step).step_by(step) {
            let choices = || row.iter().zip(OLD_CHOICES).map(|(&idx, dimension)| dimension[idx]);
            let names: Vec<_> = choices().map(|(name, _)| name).collect();
            let what = format!("Linux {kernel}, {}", names.join(", "));
            let out = TempDir::new("image").unwrap();
            let [image, other] = [1, 3].map(|threads| {
                let tree = scan_dir(source.path(), threads).unwrap().tree;
                let compressed = options(Some((Method::Lz4, 1)), max_len.min(64 << 10), threads);
                let mut options = BuildOptions { kernel: Some(kernel), ..compressed };
                choices().for_each(|(_, choose)| choose(&mut options));
                let path = out.path().join(format!("{threads}.erofs"));
                let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
                let summary = build_to(&tree, &file, &options).unwrap_or_else(|error| panic!("{what}: {error}"));
                assert!(summary.oldest_kernel.unwrap() <= kernel, "{what}");
                let filled = options.holes == Holes::Filled || !known.contains(Incompat::CHUNKED_FILE);
                assert!(!filled || summary.filled_hole_bytes > 0 && summary.hole_bytes == 0, "{what}");
                path
            });
            assert!(same_bytes(&image, &other), "{what}: the threads show in the bytes");
            let opened = Image::open_path(&image, &[], &ImageOptions::default()).unwrap();
            let is_compressed = !names.contains(&"plain");
            assert_knows(&opened, known, is_compressed, &what);
            let has_digests = names.contains(&"digests");
            let root = opened.inode(opened.root_nid()).unwrap();
            for entry in opened.walk(&root, b"").map(Result::unwrap) {
                let digest = opened.check_digest(&entry.inode).unwrap();
                let has_one = has_digests && entry.inode.meta.size > 0 && entry.inode.meta.mode() >> 12 == 8;
                assert_eq!(digest, if has_one { DigestCheck::Equal } else { DigestCheck::Absent }, "{what}");
            }
            assert_same(&expected, &of_image(&opened).unwrap(), &format!("{what}, by the library"));
            let report = opened.check(Threads::at_least_one(2)).unwrap();
            assert_eq!(report.problem_count, 0, "{what}: {}", report.problems[0]);
            match Mount::by_kernel(&image) {
                Ok(mount) => {
                    assert_same(&expected, &of_dir(mount.path()).unwrap(), &format!("{what}, by the running kernel"))
                }
                Err(reason) => skipped(&format!("{what}: {reason}")),
            }
        }
    }
}

/// Checks that superblock, inodes and extents only have features that these bits announce.
fn assert_knows(image: &Image, known: Incompat, is_compressed: bool, what: &str) {
    let sb = image.superblock();
    let big = known.contains(Incompat::COMPR_CFGS);
    assert!(known.contains(sb.incompat), "{what}: {:?}", sb.incompat);
    assert_eq!(sb.incompat.contains(Incompat::LZ4_0PADDING), is_compressed, "{what}");
    assert_eq!(sb.incompat.contains(Incompat::COMPR_CFGS), is_compressed && big, "{what}");
    let compr_info = match (is_compressed, big) {
        (false, _) => ComprInfo::Lz4MaxDistance(0),
        (true, false) => ComprInfo::Lz4MaxDistance(u16::MAX),
        (true, true) => ComprInfo::AvailableAlgs(1),
    };
    assert_eq!((sb.compr_info, sb.packed_nid, sb.xattr_prefix_count), (compr_info, None, 0), "{what}");
    let root = image.inode(image.root_nid()).unwrap();
    for entry in image.walk(&root, b"").map(Result::unwrap) {
        let (inode, path) = (entry.inode, entry.path.escape_ascii());
        let meta = &inode.meta;
        // Linux 5.4 does not read one that spans two blocks.
        let within = sb.block_bits.within(inode.nid.byte_off().unwrap());
        assert!(
            within + meta.form.len() as u64 <= sb.block_bits.len() && !meta.omits_dot && !meta.implies_nlink,
            "{what}: {path}"
        );
        let is_chunked = meta.layout() == DataLayout::ChunkBased;
        assert!(!is_chunked || sb.incompat.contains(Incompat::CHUNKED_FILE), "{what}: {path}");
        for extent in inode.has_contents().then(|| image.extents(&inode)).into_iter().flatten().map(Result::unwrap) {
            let is_known = match extent.kind {
                ExtentKind::Hole => is_chunked,
                ExtentKind::Raw { device, .. } => device == 0,
                ExtentKind::Meta { in_metabox, .. } => !in_metabox,
                ExtentKind::Plain { plen, inline, interlaced, .. } => plen == 4096 && inline.is_none() && !interlaced,
                ExtentKind::Encoded { plen, inline, partial, .. } => {
                    (big || plen == 4096) && inline.is_none() && !partial
                }
                _ => false,
            };
            assert!(is_known, "{what}: {path}: {:?}", extent.kind);
        }
    }
}

fn same_bytes(a: &Path, b: &Path) -> bool {
    fs::read(a).unwrap() == fs::read(b).unwrap()
}
