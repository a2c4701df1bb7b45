//! Choices that change the layout of images, by dimension. A row takes one choice of each
//! dimension.

use crate::image::{fit, options, with_block_bits};
use kiln_builder::{BuildOptions, ChunkEntries, ContentDigests, ContentHash, Dedupe, Fragments, Hints, Trial};
use kiln_codec::{Method, Spec};
use kiln_tree::{DigestName, Kind, NodeId, Tree};
use std::collections::BTreeSet;

/// A choice: its name, and its change to the options.
type Choice = (&'static str, fn(&mut BuildOptions, &Tree));

/// A choice that changes the placement of bytes.
type PlaceChoice = (&'static str, fn(&mut Place));

/// Options of a build, and the placement of its bytes.
#[derive(Clone)]
pub struct Place {
    /// Options of the build.
    pub options: BuildOptions,
    /// Offset in the file at which the image begins.
    pub offset: u64,
    /// True to store chunks on an extra device.
    pub has_blob: bool,
    /// True to compress files in different ways.
    has_hints: bool,
}

fn compress(options: &mut BuildOptions, method: Method, level: i32) {
    let spec = options.compression.spec.as_mut().expect("compressed from the start");
    (spec.method, spec.level) = (method, level);
}

fn unit(options: &mut BuildOptions, len: u32) {
    options.compression.spec.as_mut().expect("compressed from the start").pcluster_len = len;
}

/// Sets the block size. It must be the last choice, because it adapts the lengths before it.
fn blocks(place: &mut Place, bits: u8) {
    let options = with_block_bits(bits, place.options.clone());
    let least = if options.dedupe == Dedupe::Parts { 4 } else { 1 } << bits;
    let extent_max_len = options.compression.extent_max_len.map(|len| len.max(least));
    let chunk_bits = options.layout.chunk_bits.map(|chunk_bits| chunk_bits.max(bits));
    place.options = options.with(|o| {
        o.compression.extent_max_len = extent_max_len;
        o.layout.chunk_bits = chunk_bits;
    });
}

fn spec(method: Method, pcluster_len: u32) -> Option<Spec> {
    Some(Spec { method, level: 3, pcluster_len, window_len: None })
}

const DIMENSIONS: &[&[Choice]] = &[
    &[
        ("lz4", |options, _| compress(options, Method::Lz4, 1)),
        ("zstd", |options, _| compress(options, Method::Zstd, 3)),
        ("deflate", |options, _| compress(options, Method::Deflate, 3)),
        ("lzma", |options, _| compress(options, Method::Lzma, 0)),
    ],
    &[
        ("4K", |options, _| unit(options, 4 << 10)),
        ("64K", |options, _| unit(options, 64 << 10)),
        ("1M", |options, _| unit(options, 1 << 20)),
    ],
    &[
        ("nothing packed", |options, _| options.packing.fragments = Fragments::Off),
        ("small files packed", |options, _| options.packing.fragments = Fragments::UpTo(64 << 10)),
        ("small files and ends packed", |options, _| options.packing.fragments = Fragments::Tails(16 << 10)),
        ("all packed", |options, _| options.packing.fragments = Fragments::UpTo(u64::MAX)),
    ],
    &[
        ("packed alike", |options, _| options.packing.pcluster_len = None),
        ("packed in 4K", |options, _| options.packing.pcluster_len = Some(4 << 10)),
    ],
    &[
        ("index", |options, _| options.compression.encoded_extents = false),
        ("index and tails", |options, _| options.packing.tail_packing = true),
        ("encoded extents", |options, _| options.compression.encoded_extents = true),
    ],
    &[
        ("no dedupe", |options, _| options.dedupe = Dedupe::Off),
        ("files", |options, _| options.dedupe = Dedupe::Files),
        ("parts", |options, _| options.dedupe = Dedupe::Parts),
    ],
    &[
        ("one way", |_, _| {}),
        ("others tried", |options, _| {
            let pcluster_len = options.compression.spec.expect("compressed from the start").pcluster_len;
            let ways =
                [Method::Lzma, Method::Lz4].map(|method| Spec { method, level: 1, pcluster_len, window_len: None });
            options.compression.trial = Trial { specs: ways.into(), budget_percent: 400 };
        }),
    ],
    &[
        ("by path", |_, _| {}),
        ("every third file backwards", |options, tree| {
            let mut nodes: Vec<NodeId> = tree.walk().collect();
            nodes.reverse();
            options.layout.order = nodes.into_iter().step_by(3).collect();
        }),
    ],
    &[
        ("one time", |options, _| options.metadata.own_mtimes = false),
        ("own times", |options, _| options.metadata.own_mtimes = true),
    ],
    &[
        ("directories among inodes", |options, _| options.packing.directories = false),
        ("directories packed", |options, _| options.packing.directories = true),
    ],
    &[
        ("metadata as it is", |options, _| options.metadata.metabox = None),
        ("metadata in 4K", |options, _| options.metadata.metabox = spec(Method::Zstd, 4 << 10)),
        ("metadata in 32K by another method", |options, _| options.metadata.metabox = spec(Method::Deflate, 32 << 10)),
        ("metadata in 1M", |options, _| options.metadata.metabox = spec(Method::Lz4hc, 1 << 20)),
    ],
];

/// The same as [`DIMENSIONS`], for placement.
const PLACES: &[&[PlaceChoice]] = &[
    &[("compressed", |_| {}), ("plain", |place| place.options.compression.spec = None)],
    &[("alike", |_| {}), ("hints", |place| place.has_hints = true)],
    &[
        ("anywhere", |_| {}),
        ("data at 192K, image at 128K", |place| {
            (place.options.layout.data_align, place.offset) = (192 << 10, 128 << 10);
        }),
        ("of whole 256K", |place| place.options.layout.image_align = 256 << 10),
    ],
    &[
        ("tails inline", |_| {}),
        ("tails not inline", |place| place.options.layout.inline_tails = false),
        ("extended inodes", |place| {
            (place.options.metadata.compact_inodes, place.options.metadata.omit_dot) = (false, true);
        }),
        ("built early", |place| {
            (place.options.identity.build_time, place.options.identity.checksum) = (Some(7), false);
        }),
    ],
    &[
        ("attributes shared", |_| {}),
        ("digests", |place| place.options.metadata.content_digests = ContentDigests::Named(DigestName::Usual)),
        ("fs-verity digests", |place| {
            place.options.metadata.content_digests = ContentDigests::Named(DigestName::Usual);
            place.options.metadata.digest_hash = Some(ContentHash::ALL[2]);
        }),
        ("announced digests", |place| {
            place.options.metadata.content_digests =
                ContentDigests::Named(DigestName::Prefix(b"erofs.fingerprint.v1".to_vec()));
            place.options.metadata.xattr_prefixes = vec![b"user.long.".to_vec()];
        }),
        ("attributes not shared", |place| {
            (place.options.metadata.xattr_share_min, place.options.metadata.root_xattr_len) = (u64::MAX, 6000);
        }),
        ("all attributes shared", |place| {
            (place.options.metadata.xattr_share_min, place.options.metadata.root_xattr_len) = (1, 1);
            place.options.metadata.xattr_prefixes = vec![b"user.l".to_vec(), b"security.capa".to_vec()];
        }),
        ("extents of 64K", |place| place.options.compression.extent_max_len = Some(64 << 10)),
        ("extents of 300K", |place| place.options.compression.extent_max_len = Some(300_000)),
    ],
    &[("short entries", |_| {}), ("indexes", |place| place.options.layout.chunk_entries = ChunkEntries::Indexes)],
    &[("one device", |_| {}), ("extra device", |place| place.has_blob = true)],
    &[
        ("contiguous", |_| {}),
        ("chunks of 4K", |place| place.options.layout.chunk_bits = Some(12)),
        ("chunks of 64K", |place| place.options.layout.chunk_bits = Some(16)),
        ("chunks of 8M", |place| place.options.layout.chunk_bits = Some(23)),
    ],
    &[
        ("blocks of 4K", |place| blocks(place, 12)),
        ("blocks of 512", |place| blocks(place, 9)),
        ("blocks of 2K", |place| blocks(place, 11)),
        ("blocks of 64K", |place| blocks(place, 16)),
    ],
];

/// Returns hints with all algorithms and lengths, and with none, in turn; every sixth file has no
/// hint.
fn hints(tree: &Tree, options: &BuildOptions) -> Hints {
    let mut hints = Hints::default();
    let spec = |method, level, pcluster_len| Some(Spec { method, level, pcluster_len, window_len: None });
    let ways = [
        None,
        spec(Method::Lz4hc, 9, 64 << 10),
        spec(Method::Lzma, 0, 128 << 10),
        spec(Method::Zstd, 1, 4 << 10),
        spec(Method::Deflate, 1, 12 << 10),
    ];
    let files = tree.walk().filter(|&node| matches!(tree.node(node).kind, Kind::File { .. }));
    for (idx, file) in files.enumerate() {
        if let Some(way) = ways.get(idx % 6) {
            hints.insert(file, way.map(|spec| fit(spec, options)));
        }
    }
    hints
}

/// Returns the number of choices in each dimension.
pub fn dimensions() -> Vec<usize> {
    DIMENSIONS.iter().map(|all| all.len()).chain(PLACES.iter().map(|all| all.len())).collect()
}

/// Returns rows of choices in which every pair of choices occurs; `dimensions` has the number of
/// choices per dimension. Works greedily: each row begins with a missing pair, and takes the choice
/// with the most new pairs in every other dimension.
///
/// # Panics
/// If a dimension has no choices.
pub fn pairwise(dimensions: &[usize]) -> Vec<Vec<usize>> {
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
            // Rotate among equal choices.
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

/// Returns the names of a row of choices, which is in the order of [`dimensions`].
///
/// # Panics
/// If the row has a number that is out of range.
pub fn names(row: &[usize]) -> String {
    let (choices, places) = row.split_at(DIMENSIONS.len());
    let choices = choices.iter().zip(DIMENSIONS).map(|(&idx, dimension)| dimension[idx].0);
    let places = places.iter().zip(PLACES).map(|(&idx, dimension)| dimension[idx].0);
    choices.chain(places).collect::<Vec<_>>().join(", ")
}

/// Returns options and placement of a row of choices for `tree`, built by `threads` threads.
///
/// # Panics
/// If the row has a number that is out of range.
pub fn place(row: &[usize], tree: &Tree, threads: usize) -> Place {
    let (choices, places) = row.split_at(DIMENSIONS.len());
    let options = options(Some((Method::Zstd, 3)), 64 << 10, threads);
    let mut place = Place { options, offset: 0, has_blob: false, has_hints: false };
    choices.iter().zip(DIMENSIONS).for_each(|(&idx, dimension)| dimension[idx].1(&mut place.options, tree));
    places.iter().zip(PLACES).for_each(|(&idx, dimension)| dimension[idx].1(&mut place));
    if place.has_hints {
        place.options.compression.hints = hints(tree, &place.options);
    }
    place
}
