//! Limits of the format, and the errors beyond them; times, identity, the oldest kernel.

use kiln_builder::{BuildError, BuildOptions, ContentDigests, Fragments, Summary};
use kiln_codec::Method;
use kiln_format::KernelVersion;
use kiln_format::dirent::PATH_MAX_LEN;
use kiln_format::inode::{Form, Rdev};
use kiln_read::{DigestCheck, FollowLast, Image, Threads};
use kiln_tests::data::Texture;
use kiln_tests::image::{build, build_to, open, options};
use kiln_tests::mem::{MemFile, MemTree};
use kiln_tests::mnt::Mount;
use kiln_tests::require;
use kiln_tests::rng::Rng;
use kiln_tests::snapshot::{assert_same, of_dir, of_image, of_tree};
use kiln_tests::temp::TempDir;
use kiln_tree::{DigestName, Entry, Kind, Metadata, Node, NodeId, ThinSlice, Tree, TreeError, TreeProblem};
use std::fs::File;

const ROOT: NodeId = NodeId::ROOT;

/// Returns the image of a tree, after comparing it with the tree and checking it.
fn image_of(tree: &Tree, options: &BuildOptions) -> (Image, Summary) {
    let (bytes, summary) = build(tree, options).unwrap();
    let image = open(bytes).unwrap();
    assert_same(&of_tree(tree).unwrap(), &of_image(&image).unwrap(), "the image");
    let report = image.check(Threads::ONE).unwrap();
    assert_eq!(report.problem_count, 0, "{}", report.problems[0]);
    (image, summary)
}

/// Returns a tree of one file that `change` has changed.
fn one(change: impl FnOnce(&mut MemTree, NodeId)) -> Tree {
    let mut mem = MemTree::default();
    let node = mem.file(ROOT, b"file", MemFile::whole(b"contents".to_vec()));
    change(&mut mem, node);
    mem.finish().unwrap()
}

/// Returns a tree of a file and a node of another kind.
fn with_odd(kind: Kind) -> Tree {
    one(|mem, _| {
        mem.add(ROOT, b"odd", kind);
    })
}

/// Returns why the only odd node of a tree cannot be represented. Without it, the tree can be.
fn refusal(tree: &Tree, path: &str) -> String {
    let plain = BuildOptions::default();
    let (_, summary) = build(tree, &plain.clone().with(|o| o.work.keep_going = true)).unwrap();
    assert_eq!(summary.skipped.iter().map(|s| &s.path[..]).collect::<Vec<_>>(), [path.as_bytes()]);
    input_error(tree, path, &plain)
}

/// Returns why a node of a tree cannot be represented.
fn input_error(tree: &Tree, path: &str, options: &BuildOptions) -> String {
    match build(tree, options).unwrap_err() {
        BuildError::Input { path: named, reason } => {
            assert_eq!(named, path.as_bytes());
            reason.to_string()
        }
        error => panic!("{error}"),
    }
}

/// Returns why the attributes of a tree's file cannot be represented. They cannot be left out, even
/// if files can.
fn refused_attributes(tree: &Tree) -> String {
    let [one, other] = [false, true]
        .map(|keep_going| input_error(tree, "file", &BuildOptions::default().with(|o| o.work.keep_going = keep_going)));
    assert_eq!(one, other);
    one
}

fn form(image: &Image, path: &str) -> Form {
    image.resolve(path.as_bytes(), FollowLast::Keep).unwrap().meta.form
}

/// Returns a directory with these entries.
fn dir_of(entries: &[(&[u8], u32)]) -> Kind {
    let entries = entries.iter().map(|&(name, node)| Entry { name, node: NodeId(node) });
    Kind::Directory(Box::new(entries.collect()))
}

/// Returns why nodes of these types are not a tree.
fn no_tree(kinds: impl IntoIterator<Item = Kind>) -> (String, TreeProblem) {
    let node = |kind| Node { meta: Metadata::default(), xattrs: ThinSlice::default(), kind };
    match Tree::new(kinds.into_iter().map(node).collect(), Box::new(kiln_tree::NoContents)) {
        Err(TreeError { path, problem }) => (String::from_utf8(path).unwrap(), problem),
        Ok(_) => panic!("not refused"),
    }
}

#[test]
fn invalid_trees_are_refused() {
    let bad_names = [&b""[..], b".", b"..", b"a/b", b"/", b"nul\0", &[b'x'; 256]];
    for name in bad_names {
        assert_eq!(no_tree([dir_of(&[(name, 1)]), Kind::Fifo]).1, TreeProblem::BadName, "{}", name.escape_ascii());
        let mut mem = MemTree::default();
        mem.file(ROOT, name, MemFile::default());
        assert!(matches!(mem.finish(), Err(TreeError { problem: TreeProblem::BadName, .. })));
    }
    let twice = no_tree([dir_of(&[(b"d", 1)]), dir_of(&[(b"a", 2), (b"a", 3)]), Kind::Fifo, Kind::Fifo]);
    assert_eq!(twice, ("d/a".to_owned(), TreeProblem::DoubleName));
    let cycle = no_tree([dir_of(&[]), dir_of(&[(b"b", 2)]), dir_of(&[(b"a", 1)])]);
    assert_eq!(cycle.1, TreeProblem::NoName);
    let up = no_tree([dir_of(&[(b"d", 1)]), dir_of(&[(b"root", 0)])]);
    assert_eq!(up, ("d/root".to_owned(), TreeProblem::SecondNameOfDirectory));
    let second_name = no_tree([dir_of(&[(b"d", 1), (b"e", 1)]), dir_of(&[])]);
    assert_eq!(second_name, ("e".to_owned(), TreeProblem::SecondNameOfDirectory));
    assert_eq!(no_tree([dir_of(&[(b"x", 9)])]), ("x".to_owned(), TreeProblem::NoSuchNode));
    assert_eq!(no_tree([dir_of(&[]), Kind::Socket]).1, TreeProblem::NoName);
    assert_eq!(no_tree([]).1, TreeProblem::RootNotADirectory);
    assert_eq!(no_tree([Kind::Fifo]).1, TreeProblem::RootNotADirectory);
    assert_eq!(no_tree([dir_of(&[(b"self", 0)])]).1, TreeProblem::SecondNameOfDirectory);
}

#[test]
fn unrepresentable_values_are_refused() {
    let with_symlink = |len: usize| with_odd(Kind::Symlink(vec![b'x'; len].into()));
    for len in [0, 4096, 100_000] {
        assert_eq!(refusal(&with_symlink(len), "odd"), format!("symbolic link of {len} bytes: targets have 1 to 4095"));
    }
    for len in [1, 4095] {
        image_of(&with_symlink(len), &BuildOptions::default());
    }
    let with_device = |major, minor| with_odd(Kind::CharDevice(Rdev { major, minor }));
    for (major, minor) in [(4096, 0), (0, 1 << 20), (u32::MAX, u32::MAX)] {
        let reason = format!("device number {major}:{minor} is beyond 12 and 20 bits");
        assert_eq!(refusal(&with_device(major, minor), "odd"), reason);
    }
    image_of(&with_device(4095, (1 << 20) - 1), &BuildOptions::default());
}

#[test]
fn attributes_up_to_the_limits_are_kept() {
    let with = |attrs: &[(&str, usize)]| {
        one(|mem, file| attrs.iter().for_each(|(name, len)| mem.xattr(file, name.as_bytes(), &vec![b'v'; *len])))
    };
    let longest = format!("user.{}", "n".repeat(250));
    let fits =
        with(&[("user.a", 65_535), ("security.b", 65_535), ("trusted.c", 65_535), (&longest, 1000), ("user.e", 0)]);
    let (image, _) = image_of(&fits, &BuildOptions::default());
    let inode = image.resolve(b"file", FollowLast::Keep).unwrap();
    assert_eq!(image.get_xattr(&inode, b"security.b").unwrap().unwrap().len(), 65_535);
    // Exactly full, and a byte (which is padded to four) too many.
    let full = |last| with(&[("user.a", 65_535), ("user.b", 65_535), ("user.c", 65_535), ("user.d", last)]);
    let rest = 262_148 - 12 - 3 * 65_540 - 5;
    image_of(&full(rest), &BuildOptions::default());
    let reason = refused_attributes(&full(rest + 1));
    assert_eq!(reason, "extended attributes need 262152 bytes: the format holds 262148 of one file");
    for (attrs, reason) in [
        (&[("user.a", 65_536)][..], "user.a: the value is longer than 65535 bytes".to_owned()),
        (&[(&format!("{longest}n"), 1)], format!("{longest}n: the name is longer than 255 bytes")),
        (&[("user.a", 1), ("user.a", 2)], "user.a: is there twice".to_owned()),
    ] {
        assert_eq!(refused_attributes(&with(attrs)), format!("extended attribute {reason}"));
    }
    for name in ["user.", "system.nfs4_acl", "os2.x", "nothing", ""] {
        let reason = refused_attributes(&with(&[(name, 1)]));
        assert!(reason.starts_with(&format!("extended attribute {name}: EROFS holds user.")), "{reason}");
    }
}

/// Each inode has its own copy of the tail that equal files share, beside attributes of its own.
#[test]
fn equal_files_share_tails_only_where_all_have_room() {
    for len in [4000_usize, 4064, 9000] {
        for attribute in [1, 20, 700, 3500] {
            let mut mem = MemTree::default();
            for name in [b"a", b"b", b"c"] {
                let node = mem.file(ROOT, name, MemFile::whole(Texture::Noise.bytes(1, len)));
                if name == b"b" {
                    mem.xattr(node, b"user.large", &Texture::Noise.bytes(2, attribute));
                    mem.meta(node).uid = 70_000;
                }
            }
            let (_, summary) = image_of(&mem.finish().unwrap(), &BuildOptions::default());
            assert_eq!(summary.duplicate_files, 2);
        }
    }
}

#[test]
fn an_inode_can_have_more_attributes_than_it_can_share() {
    let mut mem = MemTree::default();
    for file in 0..3_u8 {
        let node = mem.file(ROOT, &[b'a' + file], MemFile::whole(vec![file; 100]));
        for n in 0..300 - i32::from(file) {
            mem.xattr(node, format!("user.attribute-{n}").as_bytes(), format!("value {n}").as_bytes());
        }
    }
    let tree = mem.finish().unwrap();
    let (image, _) = image_of(&tree, &BuildOptions::default());
    let inode = image.resolve(b"a", FollowLast::Keep).unwrap();
    for n in 0..300 {
        let value = image.get_xattr(&inode, format!("user.attribute-{n}").as_bytes()).unwrap();
        assert_eq!(value.unwrap(), format!("value {n}").as_bytes());
    }
    let expected = of_tree(&tree).unwrap();
    let out = TempDir::new("image").unwrap();
    let path = out.path().join("image");
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    build_to(&tree, &file, &BuildOptions::default()).unwrap();
    let mount = require!(Mount::by_kernel(&path));
    assert_same(&expected, &of_dir(mount.path()).unwrap(), "by the kernel");
}

#[test]
fn inodes_are_compact_where_they_can_be() {
    let mut mem = MemTree::default();
    let sparse = |len: u64| {
        let mut file = MemFile::whole(vec![1]);
        file.push_hole(len - 1);
        file
    };
    let set = |mem: &mut MemTree, node, change: &dyn Fn(&mut Metadata)| change(mem.meta(node));
    let time = |secs: i64, nsec: u32| move |meta: &mut Metadata| (meta.mtime, meta.mtime_nsec) = (secs, nsec);
    // Three files with a time of 5.7, and three, one of them not eligible, with a later one;
    // otherwise both times would be equally frequent.
    for name in [b"a", b"b", b"c"] {
        let node = mem.file(ROOT, name, MemFile::default());
        set(&mut mem, node, &time(5, 7));
    }
    for (name, uid, gid) in [("d", 65_535, 65_535), ("e", 1, 2), ("large-uid", 65_536, 0), ("large-gid", 0, 65_536)] {
        let node = mem.file(ROOT, name.as_bytes(), MemFile::default());
        set(&mut mem, node, &time(9, 0));
        set(&mut mem, node, &|meta| (meta.uid, meta.gid) = (uid, gid));
    }
    for (name, len) in [("4g", 1 << 32), ("4g-1", (1 << 32) - 1)] {
        let node = mem.file(ROOT, name.as_bytes(), sparse(len));
        set(&mut mem, node, &time(5, 7));
    }
    set(&mut mem, ROOT, &time(-9, 1));
    let (image, _) = image_of(&mem.finish().unwrap(), &BuildOptions::default());
    assert_eq!((image.superblock().epoch, image.superblock().fixed_nsec), (5, 7));
    for compact in ["a", "b", "c", "4g-1"] {
        assert_eq!(form(&image, compact), Form::Compact, "{compact}");
    }
    for extended in ["/", "d", "e", "large-uid", "large-gid", "4g"] {
        assert_eq!(form(&image, extended), Form::Extended, "{extended}");
    }
}

#[test]
fn compact_inodes_have_times_of_their_own_where_the_kernel_reads_them() {
    let mut mem = MemTree::default();
    for (name, secs, nsec) in [(b"a", 7, 0), (b"b", -7, 0), (b"c", 1 << 31, 0), (b"d", 5, 5), (b"e", 1 << 33, 0)] {
        let node = mem.file(ROOT, name, MemFile::whole(name.to_vec()));
        let meta = mem.meta(node);
        (meta.mtime, meta.mtime_nsec) = (secs, nsec);
    }
    let tree = mem.finish().unwrap();
    let forms = |image: &Image| ["a", "b", "c", "d", "e"].map(|path| form(image, path) == Form::Compact);
    for (kernel, own_mtimes, compact, since) in [
        (None, true, [true, true, true, false, false], "6.15"),
        (Some("6.15"), true, [true, true, true, false, false], "6.15"),
        (Some("6.14"), true, [false, true, false, false, false], "5.4"),
        (Some("6.15"), false, [false, true, false, false, false], "5.4"),
    ] {
        let kernel = kernel.map(|kernel| kernel.parse().unwrap());
        let (image, summary) = image_of(
            &tree,
            &BuildOptions::default().with(|o| {
                o.kernel = kernel;
                o.metadata.own_mtimes = own_mtimes;
            }),
        );
        assert_eq!(forms(&image), compact, "{kernel:?}");
        assert_eq!(summary.oldest_kernel.unwrap().to_string(), since);
        let mtime = |path: &[u8]| image.resolve(path, FollowLast::Keep).unwrap().meta.mtime;
        assert_eq!([mtime(b"a"), mtime(b"b"), mtime(b"c"), mtime(b"e")], [7, -7, 1 << 31, 1 << 33]);
    }
}

#[test]
fn of_times_that_are_equally_frequent_the_earliest_is_the_epoch() {
    let mut mem = MemTree::default();
    for (name, secs) in [(b"a", 7), (b"b", -7), (b"c", 7), (b"d", -7)] {
        let node = mem.file(ROOT, name, MemFile::default());
        mem.meta(node).mtime = secs;
    }
    let (image, _) = image_of(&mem.finish().unwrap(), &BuildOptions::default());
    assert_eq!(image.superblock().epoch, -7);
}

#[test]
fn a_file_can_have_70000_names() {
    let mut mem = MemTree::default();
    let dir = mem.dir(ROOT, b"dir");
    let [many, some] = [b"many", b"some"].map(|name| mem.file(ROOT, name, MemFile::whole(name.to_vec())));
    for n in 0..69_999 {
        mem.name(dir, format!("{n}").as_bytes(), many);
        if n < 65_534 {
            mem.name(dir, format!("some-{n}").as_bytes(), some);
        }
    }
    let (image, summary) = image_of(&mem.finish().unwrap(), &BuildOptions::default());
    assert_eq!(summary.hard_links, 69_999 + 65_534);
    assert_eq!([form(&image, "many"), form(&image, "some")], [Form::Extended, Form::Compact]);
    let nlink = |path: &[u8]| image.resolve(path, FollowLast::Keep).unwrap().meta.nlink;
    assert_eq!([nlink(b"dir/69998"), nlink(b"some")], [70_000, 65_535]);
}

#[test]
fn a_directory_can_have_70000_directories() {
    let mut mem = MemTree::default();
    let dir = mem.dir(ROOT, b"dir");
    for n in 0..70_000 {
        mem.dir(dir, format!("{n}").as_bytes());
    }
    let (image, summary) = image_of(&mem.finish().unwrap(), &BuildOptions::default());
    assert_eq!(summary.directories, 70_002);
    assert_eq!(form(&image, "dir"), Form::Extended);
}

#[test]
fn the_uuid_is_that_of_the_contents() {
    let of = |change: &dyn Fn(&mut MemTree, NodeId), options: &BuildOptions| {
        let bytes = Texture::Binary.bytes(1, 100_000);
        let mut mem = MemTree::default();
        let node = mem.file(ROOT, b"file", MemFile::whole(bytes));
        change(&mut mem, node);
        let (image, summary) = image_of(&mem.finish().unwrap(), options);
        assert_eq!(summary.uuid, image.superblock().uuid);
        summary.uuid
    };
    for options in [options(None, 4096, 1), options(Some((Method::Zstd, 3)), 65_536, 2)] {
        let same = of(&|_, _| {}, &options);
        assert_eq!(same, of(&|_, _| {}, &options));
        assert_eq!((same[6] >> 4, same[8] >> 6), (8, 2), "version 8 of the RFC's variant");
        let mut uuids = vec![
            same,
            of(&|mem, node| mem.meta(node).mtime += 1, &options),
            of(&|mem, node| mem.meta(node).permissions = 0o600, &options),
            of(&|mem, node| mem.xattr(node, b"user.x", b""), &options),
            of(&|mem, _| _ = mem.file(ROOT, b"other", MemFile::default()), &options),
            of(&|mem, _| _ = mem.file(ROOT, b"other", MemFile::whole(vec![1; 4096])), &options),
            // Only data blocks differ.
            of(&|mem, _| _ = mem.file(ROOT, b"other", MemFile::whole(vec![2; 4096])), &options),
            of(&|_, _| {}, &options.clone().with(|o| o.identity.label = *b"label\0\0\0\0\0\0\0\0\0\0\0")),
        ];
        uuids.sort_unstable();
        uuids.dedup();
        assert_eq!(uuids.len(), 8);
        assert_eq!(of(&|_, _| {}, &options.clone().with(|o| o.identity.uuid = Some([7; 16]))), [7; 16]);
    }
}

#[test]
fn the_source_date_clamps_later_times() {
    let clamp = 1_500_000_000;
    for epoch_of_most in [1_400_000_000, 1_600_000_000] {
        let mut mem = MemTree::default();
        for (name, secs, nsec) in
            [("old", 1_000, 5), ("equal", clamp, 0), ("a-bit-later", clamp, 1), ("new", clamp + 1, 9)]
        {
            let node = mem.file(ROOT, name.as_bytes(), MemFile::default());
            (mem.meta(node).mtime, mem.meta(node).mtime_nsec) = (secs, nsec);
        }
        for n in 0..9_u8 {
            let node = mem.file(ROOT, &[b'0' + n], MemFile::default());
            mem.meta(node).mtime = epoch_of_most;
        }
        let tree = mem.finish().unwrap();
        let options = BuildOptions::default().with(|o| o.identity.source_date_epoch = Some(clamp));
        let image = open(build(&tree, &options).unwrap().0).unwrap();
        let time = |path: &str| {
            let meta = image.resolve(path.as_bytes(), FollowLast::Keep).unwrap().meta;
            (meta.mtime, meta.mtime_nsec)
        };
        assert_eq!(["old", "equal", "a-bit-later", "new"].map(time), [(1_000, 5), (clamp, 0), (clamp, 0), (clamp, 0)]);
        assert_eq!(time("0"), (epoch_of_most.min(clamp), 0));
        // The time of building counts from the epoch.
        let sb = image.superblock();
        assert_eq!(sb.epoch + i64::from(sb.build_time), clamp);
    }
}

#[test]
fn the_chosen_kernel_limits_the_options() {
    let tree = one(|mem, _| _ = mem.file(ROOT, b"text", MemFile::whole(Texture::Text.bytes(1, 100_000))));
    let with =
        |choice, kernel: &str| BuildOptions { kernel: Some(kernel.parse().unwrap()), ..options(choice, 65_536, 1) };
    for (method, since, before) in [
        (Method::Lz4, "5.13", "5.12"),
        (Method::Lz4hc, "5.13", "5.12"),
        (Method::Lzma, "5.16", "5.15"),
        (Method::Deflate, "6.6", "6.5"),
        (Method::Zstd, "6.10", "6.9"),
    ] {
        let choice = Some((method, method.default_level()));
        let (_, summary) = image_of(&tree, &with(choice, since));
        assert_eq!(summary.oldest_kernel.unwrap().to_string(), since);
        let error = build(&tree, &with(choice, before)).unwrap_err();
        let BuildError::Kernel { feature, needs, kernel } = &error else { panic!("{error}") };
        assert_eq!((needs.to_string(), kernel.to_string()), (since.to_owned(), before.to_owned()));
        assert_eq!(error.to_string(), format!("{feature} needs Linux {since}, but the image is for Linux {before}"));
    }
    let (_, summary) = image_of(&tree, &with(None, "5.4"));
    assert_eq!((summary.oldest_kernel, summary.oldest_kernel_because), (Some(KernelVersion::new(5, 4)), None));
}

/// Digests of contents have their full name if long prefixes would need a later kernel than the
/// rest of the image.
#[test]
fn digests_do_not_raise_the_floor() {
    let mut mem = MemTree::default();
    for (name, len) in [("large", 100_000), ("small", 3000), ("empty", 0)] {
        let file = mem.file(ROOT, name.as_bytes(), MemFile::whole(Texture::Text.bytes(1, len)));
        mem.xattr(file, b"user.shown", b"value");
    }
    mem.file(ROOT, b"twin", MemFile::whole(Texture::Text.bytes(1, 3000)));
    let tree = mem.finish().unwrap();
    let (lz4, zstd) = (Some((Method::Lz4, 1)), Some((Method::Zstd, 3)));
    let packed = Fragments::UpTo(64 << 10);
    for (choice, fragments, kernel, oldest, is_announced) in [
        (None, Fragments::Off, "", "5.4", false),
        (None, Fragments::Off, "6.3", "5.4", false),
        (None, Fragments::Off, "6.4", "6.4", true),
        (lz4, Fragments::Off, "5.4", "5.4", false),
        (zstd, packed, "", "6.10", false),
        (zstd, packed, "6.17", "6.10", false),
        (zstd, packed, "6.18", "6.18", true),
        (zstd, Fragments::Off, "6.10", "6.10", true),
    ] {
        let what = format!("{choice:?}, {fragments:?}, {kernel}");
        let kernel = (!kernel.is_empty()).then(|| kernel.parse().unwrap());
        let options = options(choice, 4096, 1).with(|o| {
            o.kernel = kernel;
            o.packing.fragments = fragments;
        });
        let options = options.with(|o| o.metadata.content_digests = ContentDigests::Named(DigestName::Usual));
        let (image, summary) = image_of(&tree, &options);
        assert_eq!(summary.oldest_kernel.unwrap().to_string(), oldest, "{what}");
        assert_eq!(image.superblock().oldest_kernel().to_string(), oldest, "{what}");
        assert_eq!(image.has_content_digests(), is_announced, "{what}");
        let digest = |path: &str| {
            let inode = image.resolve(path.as_bytes(), FollowLast::Keep).unwrap();
            (image.content_digest(&inode).unwrap(), image.check_digest(&inode).unwrap())
        };
        assert_eq!(digest("empty"), (None, DigestCheck::Absent), "{what}");
        assert_eq!(digest("small"), digest("twin"), "{what}");
        assert_ne!(digest("small").0, digest("large").0, "{what}");
        assert!(["small", "large"].iter().all(|path| digest(path).1 == DigestCheck::Equal), "{what}");
    }
    // Other contents are found.
    let plain = BuildOptions::default().with(|o| o.metadata.content_digests = ContentDigests::Named(DigestName::Usual));
    let (mut bytes, _) = build(&tree, &plain).unwrap();
    let text = Texture::Text.bytes(1, 100_000);
    let at = bytes.windows(100).position(|window| *window == text[50_000..50_100]).unwrap();
    bytes[at] ^= 1;
    let report = open(bytes).unwrap().check(Threads::ONE).unwrap();
    let found: Vec<String> = report.problems.iter().map(ToString::to_string).collect();
    assert!(matches!(&found[..], [one] if one.contains("stored digest") && one.contains("large")), "{found:?}");
}

/// LZ4 finds no matches in these files, but they have few different byte values: entropy coding
/// saves a quarter or more.
#[test]
fn small_files_of_few_different_bytes_are_packed() {
    let mut rng = Rng::new(7);
    let mut mem = MemTree::default();
    for (number, alphabet) in [&b"0123456789abcdef"[..], b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", BASE64]
        .into_iter()
        .cycle()
        .enumerate()
        .take(150)
    {
        let len = 800 + rng.below(20_000) as usize;
        let text = (0..len).map(|_| *rng.pick(alphabet)).collect();
        mem.file(ROOT, format!("text-{number}").as_bytes(), MemFile::whole(text));
        let mut noise = vec![0; len];
        rng.fill(&mut noise);
        mem.file(ROOT, format!("noise-{number}").as_bytes(), MemFile::whole(noise));
    }
    let tree = mem.finish().unwrap();
    for method in Method::ALL {
        let options = options(Some((method, method.levels().start().max(&1).to_owned())), 64 << 10, 2);
        let (_, summary) = image_of(&tree, &options.with(|o| o.packing.fragments = Fragments::UpTo(128 << 10)));
        let is_packed = method.has_entropy_coder();
        assert_eq!(summary.packed_files, if is_packed { 150 } else { 0 }, "{method:?}");
        // Half of the bytes are noise; the others have 4 to 6 bits of entropy, slightly more next
        // to each other.
        let share = summary.image_bytes as f64 / summary.bytes_in as f64;
        assert!(!is_packed || share < 0.9, "{method:?}: {share}");
    }
}

const BASE64: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Holes in a compressed file: shared zeros from 6.1 on, compressed zeros before.
#[test]
fn holes_do_not_need_a_newer_kernel_than_was_chosen() {
    let mut file = MemFile::whole(Texture::Text.bytes(1, 400_000));
    file.push_hole(300_000);
    file.push(Texture::Text.bytes(2, 200_000));
    let mut mem = MemTree::default();
    mem.file(ROOT, b"sparse", file);
    let tree = mem.finish().unwrap();
    for (kernel, hole_bytes) in [(KernelVersion::new(6, 1), 294_912), (KernelVersion::new(6, 0), 0)] {
        let options = BuildOptions { kernel: Some(kernel), ..options(Some((Method::Lz4, 1)), 65_536, 2) };
        let (_, summary) = image_of(&tree, &options);
        assert!(summary.oldest_kernel.unwrap() <= kernel);
        assert_eq!(summary.hole_bytes, hole_bytes);
    }
}

/// No path is built that readers do not follow.
#[test]
fn paths_end_where_readers_do() {
    // Nested directories whose names make up a path of `len` bytes.
    let tree_of = |len: usize| {
        let mut mem = MemTree::default();
        let (mut dir, mut left) = (ROOT, len);
        while left > 0 {
            let name = vec![b'd'; left.min(253)];
            dir = mem.add(dir, &name, Kind::Directory(Box::default()));
            // A slash follows, except after the last name.
            left = (left - name.len()).saturating_sub(1);
        }
        mem.finish().unwrap()
    };
    // Readers count a leading slash.
    image_of(&tree_of(PATH_MAX_LEN - 1), &BuildOptions::default());
    for keep_going in [false, true] {
        let options = BuildOptions::default().with(|o| o.work.keep_going = keep_going);
        match build(&tree_of(PATH_MAX_LEN), &options).unwrap_err() {
            BuildError::Input { path, reason } => {
                assert_eq!(path, [b'd'; 64], "its front");
                assert!(reason.to_string().starts_with("a path of 65537 bytes"), "{reason}");
            }
            error => panic!("{error}"),
        }
    }
}
