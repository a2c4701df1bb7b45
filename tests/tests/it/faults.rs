//! Faulty sources and interruptions: errors name the path, and nothing else of the tree is lost.

use kiln_builder::{BuildError, BuildOptions, ContentDigests, Control, Dedupe};
use kiln_codec::Method;
use kiln_format::inode::FileType;
use kiln_read::{DigestCheck, Threads};
use kiln_tests::data::Texture;
use kiln_tests::image::{Choice, build, exactly, open, options};
use kiln_tests::mem::{Fault, MemFile, MemTree};
use kiln_tests::snapshot::{Snapshot, assert_same, of_image, of_tree};
use kiln_tree::{DigestName, Kind, NodeId, Tree};
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const CHOICES: [Choice; 2] = [None, Some((Method::Zstd, 1))];
const MIB: usize = 1 << 20;

/// Files of [`tree`] that a test may break.
const VICTIMS: [&str; 7] = ["empty", "small", "twin-a", "twin-b", "linked", "large", "sparse"];

/// Returns a tree of files of all kinds, of which `victim` has a fault.
fn tree(victim: &str, fault: Option<Fault>) -> Tree {
    let mut mem = MemTree::default();
    let dir = mem.dir(NodeId::ROOT, b"dir");
    let twin = || MemFile::whole(Texture::Text.bytes(5, 30_000));
    let mut sparse = MemFile::whole(Texture::Text.bytes(9, MIB / 2));
    sparse.push_hole(MIB as u64);
    sparse.push(Texture::Binary.bytes(9, 300_000));
    let files = [
        ("empty", MemFile::default()),
        ("small", MemFile::whole(Texture::Text.bytes(1, 500))),
        ("twin-a", twin()),
        ("twin-b", twin()),
        ("linked", MemFile::whole(Texture::Noise.bytes(2, 9000))),
        ("large", MemFile::whole(Texture::Mixed.bytes(3, 4 * MIB + 70_000))),
        ("sparse", sparse),
        ("healthy", MemFile::whole(Texture::Binary.bytes(4, 200_000))),
    ];
    // The large file takes a while.
    let wanted = files.into_iter().filter(|(name, _)| *name != "large" || matches!(victim, "large" | ""));
    for (name, file) in wanted {
        let node = mem.file(dir, name.as_bytes(), file);
        if name == "linked" {
            mem.name(NodeId::ROOT, b"second-name-of-linked", node);
        }
        if let Some(fault) = fault.filter(|_| name == victim) {
            mem.fault(node, fault);
        }
    }
    mem.finish().unwrap()
}

fn without(mut expected: Snapshot, victim: &str) -> Snapshot {
    expected.retain(|path, _| !path.ends_with(victim.as_bytes()));
    expected
}

fn faults(victim: &str) -> Vec<Fault> {
    let last = match victim {
        "large" => 4 * MIB as u64 + 1,
        "sparse" => 3 * MIB as u64 / 2 + 100_000,
        _ => 0,
    };
    let mut faults = vec![Fault::Open, Fault::Changed, Fault::Read(0), Fault::Read(last)];
    // As often as such a file is opened, and once more.
    faults.extend((1..if victim.starts_with("twin") { 5 } else { 4 }).map(Fault::OpenAfter));
    faults
}

/// If `victim` is broken, the error names it without `keep_going`; with it, everything else is
/// stored.
fn breaks(victim: &str) {
    let whole = of_tree(&tree(victim, None)).unwrap();
    let path = format!("dir/{victim}").into_bytes();
    for (fault, choice) in faults(victim).into_iter().flat_map(|fault| CHOICES.map(|choice| (fault, choice))) {
        for threads in [1, 3] {
            let what = format!("{victim}, {fault:?}, {choice:?}, {threads} threads");
            let options = options(choice, 65_536, threads);
            let is_named = |error: &BuildError| matches!(error, BuildError::Read { path: named, .. } if *named == path || *named == b"second-name-of-linked");
            match build(&tree(victim, Some(fault)), &options) {
                // An empty file is not opened; other files may be opened less often.
                Ok((bytes, _)) => {
                    // A change that leaves the length as it is only tells of it.
                    let is_read = matches!(fault, Fault::OpenAfter(1..) | Fault::Changed);
                    assert!(victim == "empty" || is_read, "{what}");
                    assert_same(&whole, &of_image(&open(bytes).unwrap()).unwrap(), &what);
                }
                Err(error) => assert!(is_named(&error) && error.to_string().contains(victim), "{what}: {error}"),
            }
            let keep_going = options.with(|o| o.work.keep_going = true);
            match build(&tree(victim, Some(fault)), &keep_going) {
                Ok((bytes, summary)) => {
                    let image = open(bytes).unwrap();
                    assert_eq!(image.check(Threads::ONE).unwrap().problem_count, 0, "{what}");
                    let skipped: Vec<_> = summary.skipped.iter().map(|skipped| &skipped.path).collect();
                    let expected = match &skipped[..] {
                        [] => whole.clone(),
                        [one] => {
                            assert!(one.ends_with(victim.as_bytes()), "{what}: {}", one.escape_ascii());
                            assert!(is_named(&summary.skipped[0].error), "{what}");
                            without(whole.clone(), victim)
                        }
                        _ => panic!("{what}: skipped twice"),
                    };
                    assert_same(&expected, &of_image(&image).unwrap(), &what);
                    let changed = summary.changed.iter().filter(|one| is_named(&one.error)).count();
                    let may_change = fault == Fault::Changed && victim != "empty";
                    assert_eq!((changed, summary.changed.len()), (may_change.into(), may_change.into()), "{what}");
                    let files =
                        expected.iter().filter(|(path, r)| r.file_type == FileType::Regular && r.first_name == **path);
                    assert_eq!(summary.files, files.count() as u64, "{what}");
                }
                // Not even if others would share the data of a file that fails late.
                Err(error) => panic!("{what}: {error}"),
            }
        }
    }
}

#[test]
fn a_broken_file_is_named_and_no_other_is_lost() {
    VICTIMS.into_iter().for_each(breaks);
}

#[test]
fn equal_files_are_those_that_were_equal_when_they_were_read() {
    for (victim, threads) in [("twin-a", 1), ("twin-b", 1), ("twin-b", 3)] {
        for (count, duplicates) in [(0, 0), (1, 1)] {
            // From the second opening on, or from the first, the file is another one.
            let flipped = tree(victim, Some(Fault::FlipAfter(count)));
            let (bytes, summary) = build(&flipped, &options(Some((Method::Lz4, 1)), 4096, threads)).unwrap();
            assert_eq!(summary.duplicate_files, duplicates);
            let read = tree(victim, (count == 0).then_some(Fault::FlipAfter(0)));
            assert_same(&of_tree(&read).unwrap(), &of_image(&open(bytes).unwrap()).unwrap(), victim);
        }
    }
    let honest = tree("", None);
    let (_, summary) = build(&honest, &BuildOptions::default()).unwrap();
    assert_eq!((summary.duplicate_files, summary.duplicate_bytes), (1, 30_000));
    let (_, summary) = build(&honest, &BuildOptions { dedupe: Dedupe::Off, ..BuildOptions::default() }).unwrap();
    assert_eq!(summary.duplicate_files, 0);
}

/// Returns a tree in which other files share parts of the text of `victim`, or `victim` equals
/// another file.
fn sharing_tree(victim: &str, fault: Option<Fault>) -> Tree {
    let mut mem = MemTree::default();
    let text = |seed, len| Texture::Text.bytes(seed, len);
    let joined = |seeds: [u64; 2], len| seeds.iter().flat_map(|&seed| text(seed, len)).collect::<Vec<_>>();
    let mut sparse = MemFile::whole(text(24, 200_000));
    sparse.push_hole(MIB as u64);
    sparse.push(text(25, 300_000));
    let files = [
        ("first", MemFile::whole(joined([20, 21], 500_000))),
        ("second", MemFile::whole(joined([22, 20], 500_000))),
        ("small-first", MemFile::whole(joined([26, 27], 30_000))),
        ("small-second", MemFile::whole(joined([28, 26], 30_000))),
        ("sparse", sparse),
        ("third", MemFile::whole(joined([25, 23], 300_000))),
        ("twin-a", MemFile::whole(text(29, 40_000))),
        ("twin-b", MemFile::whole(text(29, 40_000))),
    ];
    for (name, file) in files {
        let node = mem.file(NodeId::ROOT, name.as_bytes(), file);
        if let Some(fault) = fault.filter(|_| name == victim) {
            mem.fault(node, fault);
        }
    }
    mem.finish().unwrap()
}

/// Returns how often a build opens `victim`.
fn openings(victim: &str, options: &BuildOptions) -> u32 {
    (1..).find(|&count| build(&sharing_tree(victim, Some(Fault::OpenAfter(count))), options).is_ok()).unwrap()
}

/// There is one reading: what is stored is what the file had in it, and other files do not notice.
#[test]
fn a_file_that_changes_without_a_sign_is_stored_as_it_was_read() {
    use kiln_builder::Fragments;
    let parts = BuildOptions { dedupe: Dedupe::Parts, ..options(Some((Method::Zstd, 1)), 65_536, 1) };
    let packed = parts.clone().with(|o| o.packing.fragments = Fragments::UpTo(128 << 10));
    let tails = parts.clone().with(|o| o.packing.fragments = Fragments::Tails(128 << 10));
    let encoded = packed.clone().with(|o| o.compression.encoded_extents = true);
    let files = options(Some((Method::Zstd, 1)), 65_536, 1);
    let flat = options(None, 4096, 1);
    let whole = of_tree(&sharing_tree("", None)).unwrap();
    for options in [&parts, &packed, &tails, &encoded, &files, &flat] {
        let (_, summary) = build(&sharing_tree("", None), options).unwrap();
        assert!(summary.duplicate_files == 1 && (options.dedupe == Dedupe::Files || summary.shared_bytes > 800_000));
        for victim in ["first", "small-first", "sparse", "twin-a"] {
            let count = openings(victim, options);
            assert!(count <= if victim == "sparse" { 3 } else { 1 }, "{victim} is opened {count} times");
            let honest = read_file(&build(&sharing_tree("", None), options).unwrap().0, victim);
            for count in 0..=count {
                let (bytes, summary) = build(&sharing_tree(victim, Some(Fault::FlipAfter(count))), options).unwrap();
                assert!(summary.changed.is_empty() && summary.skipped.is_empty());
                let found = read_file(&bytes, victim);
                assert!(found[1..] == honest[1..] && (found[0] == honest[0] || count < openings(victim, options)));
                let image = of_image(&open(bytes).unwrap()).unwrap();
                assert_same(&without(whole.clone(), victim), &without(image, victim), victim);
            }
        }
    }
}

/// Returns a tree with two long files that are equal up to the last of several pieces: what precedes it
/// is read again of the second file when the difference is seen. That is its third opening.
fn parting_tree(fault: Option<Fault>) -> Tree {
    let mut mem = MemTree::default();
    let front = Texture::Text.bytes(30, 4 * MIB);
    for (name, seed) in [("first", 31), ("second", 32)] {
        let text = [&front[..], &Texture::Text.bytes(seed, 100_000)].concat();
        let node = mem.file(NodeId::ROOT, name.as_bytes(), MemFile::whole(text));
        if let Some(fault) = fault.filter(|_| name == "second") {
            mem.fault(node, fault);
        }
    }
    mem.finish().unwrap()
}

#[test]
fn a_long_file_whose_front_cannot_be_read_again_is_left_out() {
    let whole = of_tree(&parting_tree(None)).unwrap();
    let options = options(Some((Method::Lz4, 1)), 65_536, 1).with(|o| o.work.keep_going = true);
    let (_, summary) = build(&parting_tree(Some(Fault::OpenAfter(3))), &options).unwrap();
    assert!(summary.skipped.is_empty());
    let (bytes, summary) = build(&parting_tree(Some(Fault::OpenAfter(2))), &options).unwrap();
    let skipped: Vec<_> = summary.skipped.iter().map(|one| &one.path[..]).collect();
    assert_eq!((skipped, summary.changed.len()), (vec![&b"second"[..]], 0));
    let image = open(bytes).unwrap();
    assert_eq!(image.check(Threads::ONE).unwrap().problem_count, 0);
    assert_same(&without(whole, "second"), &of_image(&image).unwrap(), "one is left out");
}

#[test]
fn the_digest_of_a_long_file_is_that_of_what_was_read_last() {
    let options = options(Some((Method::Lz4, 1)), 65_536, 1).with(|o| {
        o.work.keep_going = true;
        o.metadata.content_digests = ContentDigests::Named(DigestName::Usual);
    });
    let (bytes, summary) = build(&parting_tree(Some(Fault::FlipAfter(2))), &options).unwrap();
    let changed: Vec<_> = summary.changed.iter().map(|one| &one.path[..]).collect();
    assert_eq!((changed, summary.skipped.len()), (vec![&b"second"[..]], 0));
    let image = open(bytes).unwrap();
    for path in ["first", "second"] {
        let inode = image.resolve(path.as_bytes(), kiln_read::FollowLast::Keep).unwrap();
        assert_eq!(image.check_digest(&inode).unwrap(), DigestCheck::Equal, "{path}");
    }
}

/// Growing files such as logs are stored, without affecting others, whenever they change.
#[test]
fn a_file_that_changes_while_it_is_read_is_stored_as_it_is_and_not_shared() {
    use kiln_builder::Fragments;
    let parts = BuildOptions { dedupe: Dedupe::Parts, ..options(Some((Method::Zstd, 1)), 65_536, 3) };
    let packed = parts.clone().with(|o| o.packing.fragments = Fragments::UpTo(128 << 10));
    let tails = parts.clone().with(|o| {
        o.packing.fragments = Fragments::Tails(128 << 10);
        o.work.threads = exactly(1);
    });
    let digests = packed.clone().with(|o| o.metadata.content_digests = ContentDigests::Named(DigestName::Usual));
    let flat = options(None, 4096, 1);
    let chunks = flat.clone().with(|o| o.layout.chunk_bits = Some(14));
    let whole = of_tree(&sharing_tree("", None)).unwrap();
    let grown: &'static [u8] = Texture::Text.bytes(77, 3 * MIB).leak();
    for options in [&parts, &packed, &tails, &digests, &flat, &chunks] {
        for victim in ["first", "small-first", "sparse", "twin-a"] {
            let before = read_file(&build(&sharing_tree("", None), options).unwrap().0, victim);
            for count in 0..openings(victim, options) {
                // It grows or shrinks.
                let now = if count.is_multiple_of(2) { grown } else { &grown[..5000] };
                let what = format!("{victim} at opening {count}, {} bytes, {options:?}", now.len());
                let tree = || sharing_tree(victim, Some(Fault::Becomes(count, now)));
                let error = build(&tree(), options).unwrap_err();
                assert!(error.is_change() && error.to_string().starts_with(victim), "{what}: {error}");
                let keep_going = options.clone().with(|o| o.work.keep_going = true);
                let (bytes, summary) = build(&tree(), &keep_going).unwrap();
                let changed: Vec<_> = summary.changed.iter().map(|one| &one.path[..]).collect();
                assert_eq!((&changed[..], summary.skipped.len()), (&[victim.as_bytes()][..], 0), "{what}");
                let after = read_file(&bytes, victim);
                assert_eq!(after.len(), before.len(), "{what}");
                let is_right = |at: usize| after[at] == before[at] || after[at] == now.get(at).copied().unwrap_or(0);
                assert!((0..after.len()).all(is_right), "{what}");
                if count == 0 {
                    // Text in which holes and zeros are the same.
                    let dense = victim != "sparse";
                    let as_it_is = |at: usize| after[at] == now.get(at).copied().unwrap_or(0);
                    assert!(!dense || (0..after.len()).all(as_it_is), "{what}");
                    assert!(!victim.starts_with("twin") || summary.duplicate_files == 0, "{what}");
                }
                let image = open(bytes).unwrap();
                assert_eq!(image.check(Threads::ONE).unwrap().problem_count, 0, "{what}");
                let xattrs_aside = options.metadata.content_digests != ContentDigests::AsSource;
                if !xattrs_aside {
                    assert_same(&without(whole.clone(), victim), &without(of_image(&image).unwrap(), victim), &what);
                }
            }
        }
    }
}

/// Returns the contents of a file of an image.
fn read_file(image: &[u8], name: &str) -> Vec<u8> {
    let image = open(image.to_vec()).unwrap();
    let file = image.resolve(name.as_bytes(), kiln_read::FollowLast::Keep).unwrap();
    let mut bytes = vec![0; file.meta.size as usize];
    assert_eq!(image.read_at(&file, &mut bytes, 0).unwrap(), bytes.len());
    bytes
}

#[test]
fn a_stopped_build_is_interrupted() {
    let tree = tree("", None);
    for (choice, threads) in CHOICES.into_iter().flat_map(|choice| [1, 3].map(|threads| (choice, threads))) {
        let options = options(choice, 65_536, threads);
        let reports = AtomicU64::new(0);
        let run = |stop_at: u64| {
            let stop = AtomicBool::new(stop_at == 0);
            reports.store(0, Ordering::Relaxed);
            let progress = |_| {
                if reports.fetch_add(1, Ordering::Relaxed) + 1 == stop_at {
                    stop.store(true, Ordering::Relaxed);
                }
            };
            let out = File::from(memfd_create("kiln-test", MemfdFlags::CLOEXEC).unwrap());
            kiln_builder::build(&tree, &out, &options, &Control { stop: &stop, progress: &progress })
        };
        assert!(run(u64::MAX).is_ok());
        let total = reports.load(Ordering::Relaxed);
        assert!(total > 5);
        for stop_at in 0..=total {
            let outcome = run(stop_at);
            assert!(
                matches!(outcome, Err(BuildError::Interrupted)),
                "stopped at report {stop_at} of {total}: {outcome:?}"
            );
        }
    }
}

#[test]
fn a_file_that_changed_and_kept_its_length_is_stored_and_told() {
    let mut mem = MemTree::default();
    let node = mem.file(NodeId::ROOT, b"touched", MemFile::whole(vec![1; 100]));
    mem.fault(node, Fault::Changed);
    let tree = mem.finish().unwrap();
    assert!(matches!(tree.node(node).kind, Kind::File { len: 100, .. }));
    let (bytes, summary) = build(&tree, &BuildOptions::default()).unwrap();
    assert_eq!(read_file(&bytes, "touched"), [1; 100]);
    let [one] = &summary.changed[..] else { panic!("{:?}", summary.changed) };
    assert!(one.error.is_change() && !one.error.is_resize(), "{}", one.error);
    assert_eq!(one.error.to_string(), "touched: changed while the image was being built (its mtime)");
}
