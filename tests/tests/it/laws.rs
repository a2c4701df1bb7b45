//! Laws over trees in memory: a built image reads back completely and passes the check, with any
//! options and any number of threads.

use kiln_builder::{BuildError, BuildOptions, ContentDigests, Dedupe, Fragments};
use kiln_codec::{Method, Spec};
use kiln_format::inode::Rdev;
use kiln_format::{BlockBits, KernelVersion};
use kiln_read::Threads;
use kiln_tests::data::Texture;
use kiln_tests::image::{build, exactly, open, options, with_block_bits};
use kiln_tests::mem::{MemFile, MemTree};
use kiln_tests::snapshot::{diff, of_image, of_tree};
use kiln_tree::{DigestName, Kind, NodeId, Tree};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::RngSeed;
use std::collections::BTreeMap;

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, rng_seed: RngSeed::Fixed(0x4B11), failure_persistence: None, ..Default::default() }
}

#[derive(Clone, Debug)]
enum Piece {
    Hole(u64),
    Data(Texture, u64, usize),
}

#[derive(Clone, Debug)]
struct Meta {
    permissions: u16,
    ids: (u32, u32),
    mtime: (i64, u32),
    xattrs: BTreeMap<&'static str, Vec<u8>>,
}

#[derive(Clone, Debug)]
enum What {
    File(Vec<Piece>),
    Symlink(Vec<u8>),
    Device { block: bool, rdev: (u32, u32) },
    Fifo,
    Socket,
    Dir(BTreeMap<Vec<u8>, Spot>),
}

#[derive(Clone, Debug)]
struct Spot {
    meta: Meta,
    what: What,
}

/// A length near one that affects the layout, or any.
fn len(max: usize) -> impl Strategy<Value = usize> {
    let edges = [0, 4032, 4064, 4096, 8192, 65_536, 131_072, 1 << 20, 4 << 20, 8 << 20];
    let near = (select(edges.into_iter().filter(|edge| *edge < max).collect::<Vec<_>>()), 0..5_usize);
    prop_oneof![3 => near.prop_map(|(edge, more)| (edge + more).saturating_sub(2)), 1 => 0..max.min(20_000), 1 => 0..max]
}

fn piece(max: usize) -> impl Strategy<Value = Piece> {
    // Few seeds, so that duplicates occur.
    let data = (select(Texture::ALL.to_vec()), 0..3_u64, len(max))
        .prop_map(|(texture, seed, len)| Piece::Data(texture, seed, len));
    let hole = prop_oneof![Just(1), Just(4096), Just(65_536), Just(65_537), 0..400_000_u64, Just(3 << 20)];
    prop_oneof![3 => data, 1 => hole.prop_map(Piece::Hole)]
}

fn meta() -> impl Strategy<Value = Meta> {
    let id = select(vec![0, 1000, 65_535, 65_536, u32::MAX]);
    let secs = select(vec![-1, 0, 1_700_000_000, 1_700_000_000, 1 << 33, -(1 << 40)]);
    let names = ["user.a", "user.b", "trusted.t", "security.s", "system.posix_acl_access", "user.shared"];
    // Short values of few bytes, so that inodes share attributes.
    let value = prop_oneof![vec(0..2_u8, 0..3), vec(any::<u8>(), 0..600)];
    let xattrs = prop_oneof![2 => Just(BTreeMap::new()), 1 => btree_map(select(names.to_vec()), value, 1..5)];
    (0..0o10000_u16, (id.clone(), id), (secs, select(vec![0, 0, 1, 999_999_999])), xattrs)
        .prop_map(|(permissions, ids, mtime, xattrs)| Meta { permissions, ids, mtime, xattrs })
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    let any_name = vec(any::<u8>().prop_filter("no separator", |b| !matches!(b, 0 | b'/')), 1..12);
    let long = (1..=255_usize, b'a'..=b'z').prop_map(|(len, letter)| vec![letter; len]);
    let dots = select(vec![&b"!"[..], b"-", b".a", b"..a", b"..."]).prop_map(<[u8]>::to_vec);
    prop_oneof![4 => any_name, 1 => long, 1 => dots]
        .prop_filter("dot entries", |name| !matches!(&name[..], b"." | b".."))
}

fn spot(max: usize, pieces: usize) -> impl Strategy<Value = Spot> {
    let target = vec(1..=255_u8, 1..200).prop_union(vec(1..=255_u8, 4000..4096)).boxed();
    let leaf = prop_oneof![
        8 => vec(piece(max), 0..pieces).prop_map(What::File),
        1 => target.prop_map(What::Symlink),
        1 => (any::<bool>(), (0..4096_u32, 0..1_048_576_u32)).prop_map(|(block, rdev)| What::Device { block, rdev }),
        1 => Just(What::Fifo),
        1 => Just(What::Socket),
    ];
    let leaf = (meta(), leaf).prop_map(|(meta, what)| Spot { meta, what });
    leaf.prop_recursive(3, 24, 8, |inner| {
        (meta(), btree_map(name(), inner, 0..8)).prop_map(|(meta, entries)| Spot { meta, what: What::Dir(entries) })
    })
}

/// Entries of a root, and further names of any files.
type Shape = (BTreeMap<Vec<u8>, Spot>, Vec<(Index, Vec<u8>)>);

fn shape() -> impl Strategy<Value = Shape> {
    (btree_map(name(), spot(300_000, 4), 0..8), vec((any::<Index>(), name()), 0..4))
}

/// Returns the tree of a shape. With `xattrs_reversed`, the source lists attributes in another
/// order.
fn tree((entries, links): &Shape, xattrs_reversed: bool) -> Tree {
    let mut mem = MemTree::default();
    let mut linkable = Vec::new();
    let root = mem.dir(NodeId::ROOT, b"tree");
    grow(&mut mem, root, entries, xattrs_reversed, &mut linkable);
    let links_dir = mem.dir(NodeId::ROOT, b"links");
    for (idx, (which, name)) in links.iter().enumerate().filter(|_| !linkable.is_empty()) {
        let name = [format!("{idx}").as_bytes(), &name[..name.len().min(250)]].concat();
        mem.name(links_dir, &name, *which.get(&linkable));
    }
    mem.finish().unwrap()
}

fn grow(mem: &mut MemTree, dir: NodeId, entries: &BTreeMap<Vec<u8>, Spot>, reversed: bool, linkable: &mut Vec<NodeId>) {
    for (name, Spot { meta, what }) in entries {
        let node = match what {
            What::File(pieces) => mem.file(dir, name, contents(pieces)),
            What::Symlink(target) => mem.add(dir, name, Kind::Symlink(target.as_slice().into())),
            What::Device { block, rdev: (major, minor) } => {
                let rdev = Rdev { major: *major, minor: *minor };
                mem.add(dir, name, if *block { Kind::BlockDevice(rdev) } else { Kind::CharDevice(rdev) })
            }
            What::Fifo => mem.add(dir, name, Kind::Fifo),
            What::Socket => mem.add(dir, name, Kind::Socket),
            What::Dir(entries) => {
                let node = mem.dir(dir, name);
                grow(mem, node, entries, reversed, linkable);
                node
            }
        };
        if !matches!(what, What::Dir(_)) {
            linkable.push(node);
        }
        let slot = mem.meta(node);
        (slot.permissions, (slot.uid, slot.gid)) = (meta.permissions, meta.ids);
        (slot.mtime, slot.mtime_nsec) = meta.mtime;
        let mut xattrs: Vec<_> = meta.xattrs.iter().collect();
        if reversed {
            xattrs.reverse();
        }
        xattrs.into_iter().for_each(|(name, value)| mem.xattr(node, name.as_bytes(), value));
    }
}

fn contents(pieces: &[Piece]) -> MemFile {
    let mut file = MemFile::default();
    for piece in pieces {
        match *piece {
            Piece::Hole(len) => file.push_hole(len),
            Piece::Data(texture, seed, len) => file.push(texture.bytes(seed, len)),
        }
    }
    file
}

fn build_options() -> impl Strategy<Value = BuildOptions> {
    let methods = [
        (Method::Lz4, 1),
        (Method::Lz4hc, 3),
        (Method::Lzma, 0),
        (Method::Deflate, 1),
        (Method::Zstd, 1),
        (Method::Zstd, 9),
    ];
    let method = prop_oneof![1 => Just(None), 6 => select(methods.to_vec()).prop_map(Some)];
    let pcluster_len = select(vec![4096, 8192, 12_288, 65_536, 131_072, 1 << 20]);
    let kernel = select(vec![
        None,
        None,
        Some((5, 4)),
        Some((5, 10)),
        Some((5, 15)),
        Some((5, 16)),
        Some((6, 1)),
        Some((6, 6)),
        Some((6, 12)),
    ]);
    let dedupe = select(vec![Dedupe::Off, Dedupe::Files, Dedupe::Parts]);
    let fragments =
        select(vec![Fragments::Off, Fragments::UpTo(2000), Fragments::UpTo(64 << 10), Fragments::UpTo(u64::MAX)]);
    let packed = select(vec![None, Some(4096), Some(16_384)]);
    let clamp = select(vec![None, Some(1_600_000_000)]);
    let metabox = prop_oneof![2 => Just(None), 1 => select(vec![4096, 32_768]).prop_map(Some)];
    let metadata = (any::<bool>(), any::<bool>(), metabox);
    let block_bits = select(vec![9, 10, 11, 12, 12, 12, 13, 14, 15, 16]);
    // log2 of the number of blocks in a chunk, blocks of alignment, inline tails, digests.
    let chunk_shift = prop_oneof![2 => Just(None), 1 => (0..6_u8).prop_map(Some)];
    let place = (chunk_shift, select(vec![0, 0, 3]), any::<bool>(), any::<bool>());
    let packing = (fragments, packed, any::<Option<bool>>());
    let choices = (method, pcluster_len, kernel, dedupe, packing, clamp, metadata, block_bits, place);
    choices.prop_map(|(method, pcluster_len, kernel, dedupe, packing, clamp, metadata, bits, place)| {
        let (fragments, packed_pcluster_len, encoded) = packing;
        let (own_mtimes, pack_directories, metabox) = metadata;
        let metabox = metabox.filter(|_| kernel.is_none());
        let metabox =
            metabox.map(|pcluster_len| Spec { method: Method::Lz4, level: 1, pcluster_len, window_len: None });
        let (chunk_shift, align_blocks, inline_tails, digests) = place;
        with_block_bits(
            bits,
            options(method, pcluster_len, 1).with(|o| {
                o.compression.encoded_extents = encoded == Some(true) && kernel.is_none();
                o.packing.tail_packing = encoded == Some(false);
                o.metadata.own_mtimes = own_mtimes;
                o.packing.directories = pack_directories;
                o.metadata.metabox = metabox;
                o.packing.fragments = fragments;
                o.packing.pcluster_len = packed_pcluster_len;
                o.layout.chunk_bits = chunk_shift.map(|shift| bits + shift);
                o.layout.data_align = (align_blocks << bits).max(1);
                o.layout.inline_tails = inline_tails;
                o.metadata.content_digests =
                    if digests { ContentDigests::Named(DigestName::Usual) } else { ContentDigests::Off };
                o.kernel = kernel.map(|(major, minor)| KernelVersion::new(major, minor));
                o.dedupe = dedupe;
                o.identity.source_date_epoch = clamp;
            }),
        )
    })
}

/// Checks the law. Returns true if an image could be made.
fn reads_back(tree: &Tree, options: &BuildOptions) -> Result<Option<Vec<u8>>, TestCaseError> {
    let (bytes, summary) = match build(tree, options) {
        // Only options that were requested by name are refused.
        Err(BuildError::Kernel { needs, kernel, .. }) => {
            let chunks = options.layout.chunk_bits.is_some();
            let named = options.compression.spec.is_some() || options.block_bits < BlockBits::DEFAULT || chunks;
            prop_assert!(needs > kernel && named && Some(kernel) == options.kernel);
            return Ok(None);
        }
        built => built.map_err(|error| TestCaseError::fail(error.to_string()))?,
    };
    prop_assert!(options.kernel.is_none_or(|kernel| summary.oldest_kernel.unwrap() <= kernel));
    prop_assert_eq!(summary.image_bytes, bytes.len() as u64);
    let mut expected = of_tree(tree).unwrap();
    for record in expected.values_mut() {
        record.mtime = options.identity.source_date_epoch.map_or(record.mtime, |secs| record.mtime.min((secs, 0)));
    }
    let image = open(bytes.clone()).unwrap();
    let lines = diff(&expected, &of_image(&image).unwrap());
    prop_assert!(lines.is_empty(), "{}", lines.join("\n"));
    let report = image.check(Threads::ONE).unwrap();
    prop_assert!(report.problem_count == 0, "{}", report.problems[0]);
    Ok(Some(bytes))
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn every_tree_reads_back(shape in shape(), options in build_options(), threads in 2..5_usize) {
        let tree = tree(&shape, false);
        if let Some(bytes) = reads_back(&tree, &options)? {
            let (other, _) = build(&tree, &options.with(|o| o.work.threads = exactly(threads))).unwrap();
            prop_assert!(bytes == other, "{threads} threads show in the bytes");
        }
    }

    /// The shared xattr area does not depend on the order in which the source lists attributes.
    #[test]
    fn the_order_of_attributes_does_not_show(shape in shape()) {
        let built = [false, true].map(|reversed| build(&tree(&shape, reversed), &BuildOptions::default()).unwrap().0);
        prop_assert!(built[0] == built[1]);
    }
}

proptest! {
    #![proptest_config(config(12))]

    /// Files of several segments, and small ones after them.
    #[test]
    fn large_files_read_back(
        pieces in vec(piece(9 << 20), 1..4),
        small in vec(piece(5000), 0..3),
        options in build_options(),
        threads in 2..5_usize,
    ) {
        let mut mem = MemTree::default();
        mem.file(NodeId::ROOT, b"large", contents(&pieces));
        mem.file(NodeId::ROOT, b"small", contents(&small));
        let tree = mem.finish().unwrap();
        if let Some(bytes) = reads_back(&tree, &options)? {
            let (other, _) = build(&tree, &options.with(|o| o.work.threads = exactly(threads))).unwrap();
            prop_assert!(bytes == other, "{threads} threads show in the bytes");
        }
    }
}

/// A pcluster that is not a multiple of the block size is either refused or makes no difference to
/// readers.
#[test]
fn odd_pclusters_do_no_harm() {
    for pcluster_len in [512, 2048, 4608, 5120] {
        let mut mem = MemTree::default();
        for (idx, texture) in Texture::ALL.into_iter().enumerate() {
            mem.file(NodeId::ROOT, &[b'a' + idx as u8], MemFile::whole(texture.bytes(1, 30_000)));
        }
        // Several segments, so that it stays compressed.
        mem.file(NodeId::ROOT, b"large", MemFile::whole(Texture::Mixed.bytes(1, 5 << 20)));
        let tree = mem.finish().unwrap();
        let compression = Spec::new(Method::Zstd, None, pcluster_len).unwrap();
        let options = BuildOptions::default().with(|o| o.compression.spec = Some(compression));
        let Ok((bytes, _)) = build(&tree, &options) else { continue };
        let image = open(bytes).unwrap();
        let lines = diff(&of_tree(&tree).unwrap(), &of_image(&image).unwrap());
        assert!(lines.is_empty(), "{pcluster_len}: {}", lines.join("\n"));
        assert_eq!(image.check(Threads::ONE).unwrap().problem_count, 0);
    }
}
