//! The same tree and options give the same bytes, with any number of threads that pack and that read,
//! with any memory that the index of parts fits into, and from a source of any speed.

use kiln_builder::{BuildOptions, Choices, Compression, Dedupe, Fragments, MethodChoice, Preset, Summary, Trial};
use kiln_codec::{Method, Spec};
use kiln_format::KernelVersion;
use kiln_tests::choices::pairwise;
use kiln_tests::data::Texture;
use kiln_tests::image::{build, exactly, open};
use kiln_tests::mem::{MemFile, MemTree};
use kiln_tests::rng::Rng;
use kiln_tests::rounds;
use kiln_tests::slow::Slow;
use kiln_tests::snapshot::{assert_same, of_image, of_tree};
use kiln_tree::{NodeId, Tree};
use std::time::Duration;

const MIB: usize = 1 << 20;
const THREADS: [usize; 3] = [1, 2, 7];
const READERS: [usize; 2] = [1, 16];
const MEMORY: [usize; 2] = [64 << 20, 2 << 30];
/// Longest delays of reads.
const DELAYS: [Option<Duration>; 2] = [None, Some(Duration::from_millis(2))];

/// A name, options, and a condition that shows that the tree is not too simple for them.
type Case = (&'static str, fn() -> BuildOptions, fn(&Summary) -> bool);

/// Cases; the quick form of the test has the first ones.
const CASES: [Case; 7] = [
    (
        "zstd, parts",
        || preset(Preset::Balanced),
        |found| found.shared_bytes > 2 << 20 && found.read_back_bytes > 0 && found.duplicate_files > 20,
    ),
    ("encoded extents, parts", encoded, |found| found.shared_bytes > 2 << 20 && found.packed_files > 100),
    ("zstd, others tried", tried, |found| found.compression_uses.len() > 1),
    ("lz4, files", || preset(Preset::Fast), |found| found.duplicate_files > 20 && found.shared_bytes == 0),
    ("plain", || preset(Preset::Plain), |found| found.hole_bytes > 0 && found.inline_files > 100),
    ("lzma, all packed", archive, |found| found.packed_bytes > 8 << 20),
    ("chunks", chunks, |found| found.shared_bytes > 2 << 20 && found.hole_bytes > 0),
];
/// Number of cases in the quick form.
const QUICK: u64 = 3;

fn preset(preset: Preset) -> BuildOptions {
    Choices { preset, ..Choices::default() }.build_options().unwrap()
}

fn encoded() -> BuildOptions {
    let kernel = Some(KernelVersion::new(6, 15));
    let choices = Choices { kernel, encoded_extents: Some(true), ..Choices::default() };
    choices.build_options().unwrap().with(|o| o.packing.fragments = Fragments::UpTo(64 << 10))
}

fn tried() -> BuildOptions {
    let spec = |method| Spec { method, level: 1, pcluster_len: 64 << 10, window_len: None };
    preset(Preset::Balanced).with(|o| {
        o.packing.fragments = Fragments::Tails(16 << 10);
        o.compression.trial = Trial { specs: [Method::Deflate, Method::Lz4].map(spec).into(), budget_percent: 400 };
    })
}

fn archive() -> BuildOptions {
    let method = MethodChoice { level: Some(0), ..MethodChoice::from(Method::Lzma) };
    let compression = Some(Compression::By(method));
    Choices { preset: Preset::Archive, compression, ..Choices::default() }.build_options().unwrap()
}

fn chunks() -> BuildOptions {
    preset(Preset::Plain).with(|o| (o.layout.chunk_bits, o.dedupe) = (Some(14), Dedupe::Files))
}

/// Returns a tree of 36 MiB: equal files, texts that are partly equal to near and far ones, holes, long
/// files, small files and tails.
fn tree() -> Tree {
    let mut mem = MemTree::default();
    let mut rng = Rng::new(41);
    let text = Texture::Text.bytes(1, 6 * MIB);
    let changed = |at: usize| {
        let mut other = text.clone();
        other[at..at + 5000].copy_from_slice(&Texture::Noise.bytes(2, 5000));
        MemFile::whole(other)
    };
    let mut sparse = MemFile::whole(text[..MIB / 2].to_vec());
    sparse.push_hole(MIB as u64);
    sparse.push(Texture::Binary.bytes(3, 300_000));
    let long = [
        ("a-long", MemFile::whole(text.clone())),
        // Equal for a piece, and all of it, and not in the beginning.
        ("b-late", changed(5 * MIB)),
        ("c-twin", MemFile::whole(text.clone())),
        ("d-early", changed(100_000)),
        ("e-sparse", sparse.clone()),
        ("f-sparse-twin", sparse),
        ("g-mixed", MemFile::whole(Texture::Mixed.bytes(4, 2 * MIB + 77))),
        // Behind all others: its parts are far from those that they equal.
        (
            "z-far",
            MemFile::whole([&text[MIB + 1..2 * MIB], &Texture::Binary.bytes(5, 50_000), &text[..MIB / 2]].concat()),
        ),
    ];
    let small = mem.dir(NodeId::ROOT, b"h-small");
    for (name, file) in long {
        mem.file(NodeId::ROOT, name.as_bytes(), file);
    }
    for nth in 0..300 {
        let len = *rng.pick(&[0, 100, 4095, 4097, 9000, 20_000, 70_001]);
        // Few seeds: some files are equal.
        let bytes = rng.pick(&Texture::ALL).bytes(rng.below(8), len);
        let near = rng.below(5 * MIB as u64) as usize;
        let file = if rng.below(5) == 0 { [&bytes, &text[near..near + 10_000]].concat() } else { bytes };
        mem.file(small, format!("{nth}").as_bytes(), MemFile::whole(file));
    }
    mem.finish().unwrap()
}

#[test]
fn neither_threads_nor_memory_nor_a_slow_source_show_in_the_bytes() {
    let dimensions = [THREADS.len(), READERS.len(), MEMORY.len(), DELAYS.len()];
    let is_long = rounds("KILN_SAME_BYTES", QUICK, CASES.len() as u64) > QUICK;
    let rows = match is_long {
        true => (0..24).map(|nth| vec![nth % 3, nth / 3 % 2, nth / 6 % 2, nth / 12]).collect(),
        false => pairwise(&dimensions),
    };
    for (name, options, is_rich) in &CASES[..if is_long { CASES.len() } else { QUICK as usize }] {
        let mut first: Option<Vec<u8>> = None;
        for row in &rows {
            let (threads, readers) = (THREADS[row[0]], READERS[row[1]]);
            let (memory, delay) = (MEMORY[row[2]], DELAYS[row[3]]);
            let what = format!("{name}: {threads} threads, {readers} readers, memory of {memory}, {delay:?}");
            let options = options().with(|o| {
                (o.work.threads, o.work.readers, o.work.memory) = (exactly(threads), exactly(readers), memory);
                o.work.scratch_dir = std::env::temp_dir();
            });
            let tree = match delay {
                None => tree(),
                Some(longest) => Slow::tree(tree(), row.iter().sum::<usize>() as u64, longest, usize::MAX),
            };
            let (bytes, summary) = build(&tree, &options).unwrap();
            assert!(is_rich(&summary) && summary.dropped_chunks == 0, "{what}: {summary:?}");
            match &first {
                Some(first) => assert!(*first == bytes, "{what}: other bytes"),
                None => {
                    assert_same(&of_tree(&tree).unwrap(), &of_image(&open(bytes.clone()).unwrap()).unwrap(), &what);
                    first = Some(bytes);
                }
            }
        }
    }
}
