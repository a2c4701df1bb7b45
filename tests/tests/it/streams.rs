//! Contents that come once are stored as they come: the image has the tree that remains in the end.
//!
//! `KILN_STREAMS=n` sets the number of archives: 24 by default, 400 with `./test.sh --long`.

use kiln_builder::{
    BuildError, BuildOptions, ContentDigests, Control, Dedupe, Fragments, Out, build_stored, store_stream,
};
use kiln_codec::Method;
use kiln_diff::{DiffOptions, diff};
use kiln_output::{MemoryOutput, Output};
use kiln_read::{FollowLast, Image, Threads};
use kiln_source::archive::tar::{TarOptions, TarSource};
use kiln_source::{ScanOptions, Source, SourceOptions};
use kiln_tests::generator::make_random;
use kiln_tests::image::{open, options, scan_image};
use kiln_tests::mnt::Mount;
use kiln_tests::rng::Rng;
use kiln_tests::temp::TempDir;
use kiln_tests::{choices, rounds, skipped};
use kiln_tree::{
    Builder, ContentId, DigestName, Incoming, Intake, IntakeError, Kind, Metadata, NoContents, Node, ThinSlice, Tree,
};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const ARCHIVES: u64 = 24;
const LONG_ARCHIVES: u64 = 400;

/// Contents by path, as they are to be in the image.
type Expected = BTreeMap<&'static str, Vec<u8>>;

fn build_of(
    options: &BuildOptions,
    scan: impl FnOnce(&mut dyn Intake) -> Tree + Send,
) -> (Vec<u8>, kiln_builder::Summary) {
    let (stop, output) = (AtomicBool::new(false), MemoryOutput::default());
    let control = Control { stop: &stop, progress: &|progress| assert_eq!(progress.total_bytes, 0) };
    let out = Out { image: &output, offset: 0, blob: None, behind: None };
    let stored = store_stream(out, options, &control, |intake| Ok::<_, io::Error>(scan(intake)));
    let (tree, stored) = stored.unwrap().unwrap();
    let (summary, reasons) = build_stored(&tree, stored, out, options, &control).unwrap();
    assert_eq!(reasons.explain().count() as u64, summary.files);
    (output.into_bytes(), summary)
}

fn text(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let words: Vec<String> = (0..500).map(|_| format!("{:x} ", rng.word() >> (20 + rng.below(40)))).collect();
    let mut text = Vec::new();
    while text.len() < len {
        text.extend_from_slice(rng.pick(&words).as_bytes());
    }
    text.truncate(len);
    text
}

/// Takes `bytes` as a file without holes.
fn take(intake: &mut dyn Intake, bytes: &[u8]) -> ContentId {
    let all = 0..bytes.len() as u64;
    let data = if bytes.is_empty() { vec![] } else { vec![all] };
    let file = Incoming { len: bytes.len() as u64, data: &data, xattrs: (0, 0) };
    match intake.take(file, &mut &bytes[..]) {
        // The build has failed, and tells why.
        Err(IntakeError::Closed) => ContentId(0),
        taken => taken.unwrap(),
    }
}

fn file(len: usize, content: ContentId) -> Node {
    let kind = Kind::File { len: len as u64, content, sparse: false };
    Node { meta: Metadata { permissions: 0o644, ..Metadata::default() }, xattrs: ThinSlice::default(), kind }
}

/// Options in which contents take all ways through a build.
fn ways() -> Vec<(&'static str, BuildOptions)> {
    let zstd = |dedupe, fragments| {
        options(Some((Method::Zstd, 1)), 64 << 10, 2).with(|o| {
            (o.dedupe, o.packing.fragments) = (dedupe, fragments);
        })
    };
    vec![
        ("plain", options(None, 4096, 2).with(|o| o.dedupe = Dedupe::Files)),
        ("files", zstd(Dedupe::Files, Fragments::Off)),
        ("files, packed", zstd(Dedupe::Files, Fragments::UpTo(u64::MAX))),
        ("parts", zstd(Dedupe::Parts, Fragments::UpTo(128 << 10))),
        ("parts, packed", zstd(Dedupe::Parts, Fragments::UpTo(u64::MAX))),
        ("off", zstd(Dedupe::Off, Fragments::Off)),
    ]
}

fn assert_has(image: &Image, expected: &Expected, what: &str) {
    let report = image.check(Threads::at_least_one(2)).unwrap();
    assert_eq!(report.problem_count, 0, "{what}: {}", report.problems[0]);
    for (path, bytes) in expected {
        let inode = image.resolve(path.as_bytes(), FollowLast::Keep).unwrap();
        let mut found = vec![0; bytes.len() + 1];
        let len = image.read_at(&inode, &mut found, 0).unwrap();
        assert!(found[..len] == *bytes, "{what}: {path}");
    }
    assert_eq!(
        scan_image(image).unwrap().nodes().filter(|(_, node)| matches!(node.kind, Kind::File { .. })).count(),
        { expected.len() }
    );
}

#[test]
fn a_file_that_is_replaced_leaves_its_data_to_those_that_share_it() {
    for (what, options) in ways() {
        let (long, other, short) = (text(1, 9 << 20), text(2, 300_000), text(3, 3000));
        let expected = Expected::from([
            ("again", long.clone()),
            ("and-again", long.clone()),
            ("copy", short.clone()),
            ("empty", Vec::new()),
            ("first", other.clone()),
            ("last", short[..2999].to_vec()),
        ]);
        let (bytes, summary) = build_of(&options, |intake| {
            let mut tree = Builder::default();
            let mut add = |path: &[u8], bytes: &[u8]| {
                let content = take(intake, bytes);
                tree.insert(path, file(bytes.len(), content)).unwrap();
            };
            add(b"first", &long);
            add(b"last", &short);
            add(b"empty", b"");
            add(b"again", &long);
            add(b"copy", &short);
            add(b"and-again", &long);
            add(b"first", &other);
            add(b"last", &short[..2999]);
            tree.finish(Box::new(NoContents)).unwrap()
        });
        assert_eq!((summary.files, summary.read_bytes), (6, 3 * (9 << 20) + 300_000 + 3000 * 2 + 2999), "{what}");
        assert_has(&open(bytes).unwrap(), &expected, what);
    }
}

#[test]
fn long_files_that_are_alike_at_first_are_stored_as_they_are() {
    for (what, options) in ways() {
        let one = text(4, (17 << 20) + 5);
        let mut two = one.clone();
        two[(16 << 20) + 9] ^= 1;
        let mut three = one.clone();
        three[(8 << 20) + 1] ^= 1;
        let expected =
            Expected::from([("1", one.clone()), ("2", two.clone()), ("3", three.clone()), ("4", one.clone())]);
        let build = |threads: usize| {
            let options = options.clone().with(|o| o.work.threads = kiln_tests::image::exactly(threads));
            build_of(&options, |intake| {
                let mut tree = Builder::default();
                for (path, bytes) in &expected {
                    let content = take(intake, bytes);
                    tree.insert(path.as_bytes(), file(bytes.len(), content)).unwrap();
                }
                tree.finish(Box::new(NoContents)).unwrap()
            })
        };
        let (bytes, summary) = build(1);
        assert_eq!(summary.read_bytes, 4 * one.len() as u64, "{what}: nothing is read twice");
        assert!(bytes == build(7).0, "{what}");
        let room = if options.dedupe == Dedupe::Off { 4 } else { 3 } * one.len() as u64 + (1 << 20);
        assert!(bytes.len() as u64 <= room, "{what}: {} bytes", bytes.len());
        assert_has(&open(bytes).unwrap(), &expected, what);
    }
}

#[test]
#[allow(clippy::single_range_in_vec_init)] // a file without holes
fn contents_that_end_early_are_left_out_and_others_go_on() {
    /// Text that fails behind its first bytes.
    struct Torn(Vec<u8>);
    impl Read for Torn {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            match self.0.len() {
                0 => Err(io::Error::other("torn")),
                len => {
                    let part = len.min(buf.len());
                    buf[..part].copy_from_slice(&self.0.drain(..part).collect::<Vec<u8>>());
                    Ok(part)
                }
            }
        }
    }
    for (what, options) in ways() {
        let (torn, whole) = (text(5, 20 << 20), text(6, 40_000));
        let expected = Expected::from([("a", whole.clone()), ("c", whole.clone()), ("d", torn[..100].to_vec())]);
        let (bytes, _) = build_of(&options, |intake| {
            let mut tree = Builder::default();
            let content = take(intake, &whole);
            tree.insert(b"a", file(whole.len(), content)).unwrap();
            let lost = Incoming { len: torn.len() as u64, data: &[0..torn.len() as u64], xattrs: (0, 0) };
            for len in [9 << 20, 100] {
                let taken = intake.take(lost, &mut Torn(torn[..len].to_vec()));
                assert!(matches!(taken, Err(IntakeError::Read(_))));
            }
            let content = take(intake, &whole);
            tree.insert(b"c", file(whole.len(), content)).unwrap();
            let content = take(intake, &torn[..100]);
            tree.insert(b"d", file(100, content)).unwrap();
            tree.finish(Box::new(NoContents)).unwrap()
        });
        assert_has(&open(bytes).unwrap(), &expected, what);
    }
}

#[test]
fn several_inodes_may_have_the_same_contents() {
    for (what, options) in ways() {
        let options = options.with(|o| o.metadata.content_digests = ContentDigests::Named(DigestName::Usual));
        let (one, two) = (text(7, 70_000), text(8, 5000));
        let expected = Expected::from([("a", one.clone()), ("b", one.clone()), ("c", two.clone()), ("d", two.clone())]);
        let (bytes, summary) = build_of(&options, |intake| {
            let mut tree = Builder::default();
            for (paths, bytes) in [([b"a", b"b"], &one), ([b"c", b"d"], &two)] {
                let content = take(intake, bytes);
                for path in paths {
                    tree.insert(&path[..], file(bytes.len(), content)).unwrap();
                }
            }
            tree.finish(Box::new(NoContents)).unwrap()
        });
        assert_eq!((summary.files, summary.digested_bytes), (4, 2 * 75_000), "{what}");
        assert_has(&open(bytes).unwrap(), &expected, what);
    }
}

#[test]
fn a_scan_that_waits_is_told_to_stop_when_the_build_fails() {
    /// An output that is full.
    struct Full;
    impl Output for Full {
        fn write_at(&self, _: &[u8], _: u64) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }

        fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<usize> {
            Ok(0)
        }

        fn set_len(&self, _: u64) -> io::Result<()> {
            Ok(())
        }

        fn sync(&self) -> io::Result<()> {
            Ok(())
        }
    }
    let (stop, options) = (AtomicBool::new(false), options(None, 4096, 2));
    let control = Control { stop: &stop, progress: &|_| {} };
    let out = Out { image: &Full, offset: 0, blob: None, behind: None };
    let stored = store_stream(out, &options, &control, |intake| {
        let text = text(9, 40 << 20);
        take(intake, &text);
        // As a pipe to which nobody writes.
        while !stop.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
        Err::<(), _>("asked to stop")
    });
    let Err(BuildError::Write { source, .. }) = stored else { panic!("the output is full") };
    assert_eq!(source.kind(), io::ErrorKind::StorageFull);
    assert!(!stop.load(Ordering::Relaxed), "the flag is the caller's");
}

/// Packs the archive at `path` as it comes.
fn stream(path: &Path, options: &BuildOptions) -> Vec<u8> {
    let source = TarSource::open(path, &SourceOptions::default(), TarOptions::default()).unwrap();
    assert!(source.is_stream());
    let stop = AtomicBool::new(false);
    build_of(options, |intake| source.scan_into(&ScanOptions::new(&stop), intake).unwrap().tree).0
}

/// Packs an archive of a random tree, in which some files are there twice. Returns why parts were left out.
fn trip(seed: u64) -> Option<String> {
    let dir = TempDir::new("stream").unwrap();
    let (root, tar) = (dir.path().join("root"), dir.path().join("x.tar"));
    fs::create_dir(&root).unwrap();
    make_random(&root, seed).unwrap();
    let mut rng = Rng::new(seed ^ 0x57EA);
    let append = |how: &str, what: &Path| {
        let mut command = Command::new("tar");
        command.args(["--format=posix", "--xattrs", "--acls", "-S", "-C"]).arg(&root).arg(how).arg(&tar).arg(what);
        let done = command.output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    append("-cf", Path::new("."));
    if rng.below(2) == 0 {
        append("-rf", Path::new("."));
    }
    let packed = dir.path().join("x.tar.gz");
    assert!(Command::new("gzip").args(["-1k"]).arg(&tar).status().unwrap().success());
    let row: Vec<usize> = choices::dimensions().iter().map(|&count| rng.below(count as u64) as usize).collect();
    let what = format!("seed {seed}: {}", choices::names(&row));
    let options = |threads| {
        choices::place(&row, &Tree::default(), threads).options.with(|options| {
            options.layout.order.clear();
            options.layout.hot = Default::default();
        })
    };
    let bytes = stream(&packed, &options(1));
    assert!(bytes == stream(&packed, &options(3)), "{what}");
    let path = dir.path().join("image");
    fs::write(&path, &bytes).unwrap();
    let image = open(bytes).unwrap();
    let report = image.check(Threads::at_least_one(2)).unwrap();
    assert_eq!(report.problem_count, 0, "{what}: {}", report.problems[0]);
    let stop = AtomicBool::new(false);
    let scan = ScanOptions::new(&stop);
    let of_tar = TarSource::open(&tar, &SourceOptions::default(), TarOptions::default()).unwrap().scan(&scan).unwrap();
    let compare = DiffOptions {
        path: b"",
        ignore: &[],
        latest_mtime: None,
        is_same: None,
        brief: false,
        threads: Threads::at_least_one(2),
        stop: &stop,
        progress: None,
    };
    let mut changes = Vec::new();
    let compared = diff(&of_tar.tree, &scan_image(&image).unwrap(), &compare, &mut |change| {
        changes.push(format!("{change:?}"));
        ControlFlow::Continue(())
    });
    assert_eq!(changes, [""; 0], "{what}: {:?}", compared.unwrap());
    match image.superblock().block_bits <= kiln_format::BlockBits::DEFAULT {
        true => Mount::by_kernel_at(&path, 0, &[]).err(),
        false => None,
    }
}

#[test]
fn archives_that_come_once_make_the_trees_that_they_make_otherwise() {
    let count = rounds("KILN_STREAMS", ARCHIVES, LONG_ARCHIVES);
    (0..count).filter_map(trip).for_each(|reason| skipped(&reason));
    println!("{count} archives");
}
