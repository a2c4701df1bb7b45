//! Compressed metadata: directories in the packed inode, inodes in the metabox. Trees at the limits
//! of these forms are unchanged according to our reader and the kernel, with the same bytes at any
//! number of threads.

use kiln_builder::{BuildError, BuildOptions, Fragments};
use kiln_codec::{Method, Spec};
use kiln_format::feature::Feature;
use kiln_format::inode::DataLayout;
use kiln_format::{BlockBits, Compat, KernelVersion};
use kiln_mount::fuse::ImageSources;
use kiln_read::{FollowLast, Image, MemorySource, Threads};
use kiln_tests::data::Texture;
use kiln_tests::image::{build, exactly, open, options, with_block_bits};
use kiln_tests::mem::{MemFile, MemTree};
use kiln_tests::mnt::Mount;
use kiln_tests::skipped;
use kiln_tests::snapshot::{assert_same, of_dir, of_image, of_tree};
use kiln_tests::temp::TempDir;
use kiln_tree::{Kind, NodeId, Tree};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

const ROOT: NodeId = NodeId::ROOT;

fn spec(method: Method, pcluster_len: u32) -> Option<Spec> {
    Some(Spec { method, level: method.default_level(), pcluster_len, window_len: None })
}

/// Some ways to compress metadata.
fn ways() -> Vec<(&'static str, BuildOptions)> {
    let zstd = options(Some((Method::Zstd, 3)), 64 << 10, 1);
    let metabox = |options: &BuildOptions, spec| {
        options.clone().with(|o| {
            o.metadata.metabox = spec;
            o.metadata.own_mtimes = true;
        })
    };
    let encoded = zstd.clone().with(|o| o.compression.encoded_extents = true);
    let packed = zstd.clone().with(|o| {
        o.packing.directories = true;
        o.packing.fragments = Fragments::UpTo(64 << 10);
    });
    vec![
        ("directories", zstd.clone().with(|o| o.packing.directories = true)),
        ("directories behind files", packed.clone()),
        ("encoded directories", packed.clone().with(|o| o.compression.encoded_extents = true)),
        ("metabox", metabox(&zstd, spec(Method::Zstd, 4096))),
        ("encoded metabox", metabox(&encoded, spec(Method::Deflate, 4096))),
        ("both", metabox(&packed, spec(Method::Lz4, 16 << 10))),
        ("metabox, files as they are", metabox(&options(None, 4096, 1), spec(Method::Lzma, 1 << 20))),
        ("both encoded", metabox(&encoded, spec(Method::Zstd, 32 << 10)).with(|o| o.packing.directories = true)),
    ]
}

/// Returns the image of a tree, after comparing it with the tree by our reader, its check and the
/// kernel.
fn image_of(tree: &Tree, options: &BuildOptions, what: &str) -> Image {
    let expected = of_tree(tree).unwrap();
    let (bytes, summary) = build(tree, options).unwrap();
    for threads in [2, 7] {
        let (other, _) = build(tree, &options.clone().with(|o| o.work.threads = exactly(threads))).unwrap();
        assert!(bytes == other, "{what}: {threads} threads show in the bytes");
    }
    let out = TempDir::new("image").unwrap();
    let path = out.path().join("image");
    fs::write(&path, &bytes).unwrap();
    let image = open(bytes).unwrap();
    assert_same(&expected, &of_image(&image).unwrap(), what);
    let report = image.check(Threads::ONE).unwrap();
    assert_eq!(report.problem_count, 0, "{what}: {}", report.problems[0]);
    let since = summary.oldest_kernel.unwrap();
    assert!(options.metadata.metabox.is_none() || since == Feature::Metabox.since(), "{what}: {since}");
    match Mount::by_kernel(&path) {
        Ok(mount) => assert_same(&expected, &of_dir(mount.path()).unwrap(), &format!("{what}, by the kernel")),
        Err(reason) => skipped(&reason),
    }
    image
}

#[test]
fn a_root_alone() {
    for (what, options) in ways() {
        let image = image_of(&MemTree::default().finish().unwrap(), &options, what);
        let sb = image.superblock();
        assert_eq!(sb.metabox_nid.is_some(), options.metadata.metabox.is_some(), "{what}");
        assert_eq!(sb.root_nid.in_metabox(), options.metadata.metabox.is_some(), "{what}");
        assert_eq!(sb.packed_nid, None, "{what}");
    }
}

/// The metabox is much shorter than its decoded contents; a check must not reject it for having too
/// many inodes.
#[test]
fn very_many_empty_files_are_no_problem() {
    const COUNT: u32 = 70_000;
    let mut tree = MemTree::default();
    for idx in 0..COUNT {
        tree.file(ROOT, format!("{idx:05}").as_bytes(), MemFile::default());
    }
    let tree = tree.finish().unwrap();
    let plain = options(None, 4096, 1);
    let metabox = plain.clone().with(|o| {
        o.metadata.metabox = spec(Method::Zstd, 64 << 10);
        o.metadata.own_mtimes = true;
    });
    for (what, options) in [("plain", plain), ("metabox", metabox)] {
        let (bytes, _) = build(&tree, &options).unwrap();
        let report = open(bytes).unwrap().check(Threads::ONE).unwrap();
        assert_eq!((report.problem_count, report.notes.len()), (0, 0), "{what}: {report:?}");
        assert!(report.inodes > COUNT.into(), "{what}");
    }
}

/// Returns the output of `ls -a`, which reads directories as C libraries do: entries with inode
/// number 0 are skipped.
fn listed(dir: &Path) -> Vec<String> {
    let output = Command::new("ls").arg("-a").arg(dir).env("LC_ALL", "C").output().unwrap();
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn ls_lists_the_dots_of_the_root() {
    let mut mem = MemTree::default();
    mem.file(ROOT, b"file", MemFile::whole(Texture::Text.bytes(1, 9000)));
    let tree = mem.finish().unwrap();
    let plain = options(None, 4096, 1);
    let others = [
        ("no entry for itself", plain.clone().with(|o| o.metadata.omit_dot = true)),
        ("extended inodes", plain.clone().with(|o| o.metadata.compact_inodes = false)),
        ("room for attributes", plain.clone().with(|o| o.metadata.root_xattr_len = 6000)),
        ("aligned data", plain.clone().with(|o| o.layout.data_align = 1 << 20)),
    ];
    let blocks = (9..=16).map(|bits| ("blocks of all sizes", with_block_bits(bits, plain.clone())));
    for (what, options) in ways().into_iter().chain(others).chain(blocks) {
        let (bytes, _) = build(&tree, &options).unwrap();
        let out = TempDir::new("image").unwrap();
        let path = out.path().join("image");
        fs::write(&path, &bytes).unwrap();
        let sources = ImageSources::new(Arc::new(MemorySource::new(bytes.clone())));
        let image = open(bytes).unwrap();
        let (sb, metabox) = (image.superblock(), options.metadata.metabox.is_some());
        assert_eq!(sb.root_nid.0 > 0xFFFF, metabox, "{what}: {}", sb.root_nid);
        assert!([Some(sb.root_nid), sb.packed_nid, sb.metabox_nid].iter().flatten().all(|nid| nid.0 != 0), "{what}");
        let large = sb.block_bits > BlockBits::DEFAULT;
        let by_kernel = (!large).then(|| ("the kernel", Mount::by_kernel(&path)));
        for (how, mount) in by_kernel.into_iter().chain([("FUSE", Mount::by_fuse(sources))]) {
            match mount {
                Ok(mount) => assert_eq!(listed(mount.path()), [".", "..", "file"], "{what}, by {how}"),
                Err(reason) => skipped(&format!("{what}, by {how}: {reason}")),
            }
        }
    }
}

#[test]
fn directories_of_every_size_around_the_limits() {
    let mut mem = MemTree::default();
    // 27 bytes with "." and ".."; 20 for each of these names.
    for count in [0, 1, 23, 24, 25, 202, 203, 204, 205, 409, 3000] {
        let dir = mem.dir(ROOT, format!("dir-{count}").as_bytes());
        for n in 0..count {
            let name = format!("{n:08}");
            match n % 3 {
                0 => mem.file(dir, name.as_bytes(), MemFile::whole(Texture::Text.bytes(n, 50 + n as usize))),
                1 => mem.file(dir, name.as_bytes(), MemFile::default()),
                _ => mem.dir(dir, name.as_bytes()),
            };
        }
    }
    // Its target has no room beside the inode.
    mem.add(ROOT, b"link", Kind::Symlink(vec![b'x'; 4095].into()));
    let tree = mem.finish().unwrap();
    for (what, options) in ways() {
        let image = image_of(&tree, &options, what);
        let layout = |path: &str| image.resolve(path.as_bytes(), FollowLast::Keep).unwrap().meta.layout();
        for (path, len) in [("dir-23", 27 + 23 * 20), ("dir-24", 27 + 24 * 20), ("dir-25", 27 + 25 * 20)] {
            let packed = options.packing.directories && len > 512;
            assert_eq!(layout(path) == DataLayout::CompressedFull, packed, "{what}: {path}");
        }
    }
}

#[test]
fn attributes_and_times_of_their_own() {
    let mut mem = MemTree::default();
    for n in 0..500_u32 {
        let node = mem.file(ROOT, format!("{n}").as_bytes(), MemFile::whole(Texture::Mixed.bytes(n.into(), 3000)));
        mem.xattr(node, b"user.shared", b"a value that many have");
        mem.xattr(node, b"user.few", format!("{}", n / 3).as_bytes());
        let meta = mem.meta(node);
        (meta.mtime, meta.mtime_nsec) = (i64::from(n) * 1_000_003 - 7, if n % 9 == 0 { n } else { 0 });
    }
    let tree = mem.finish().unwrap();
    for (what, options) in ways() {
        let image = image_of(&tree, &options, what);
        let shared = image.superblock().compat.contains(Compat::SHARED_EA_IN_METABOX);
        assert_eq!(shared, options.metadata.metabox.is_some(), "{what}");
    }
}

#[test]
fn the_kernel_must_have_the_metabox() {
    let tree = MemTree::default().finish().unwrap();
    let with = |minor| {
        BuildOptions::default().with(|o| {
            o.kernel = Some(KernelVersion::new(6, minor));
            o.metadata.metabox = spec(Method::Lz4, 4096);
        })
    };
    assert!(build(&tree, &with(17)).is_ok());
    let error = build(&tree, &with(16)).unwrap_err();
    assert!(matches!(error, BuildError::Kernel { .. }), "{error}");
    assert_eq!(error.to_string(), "compressed metadata needs Linux 6.17, but the image is for Linux 6.16");
}

#[test]
fn compression_that_does_not_exist_is_refused() {
    let tree = MemTree::default().finish().unwrap();
    let zstd = |level, pcluster_len| Some(Spec { method: Method::Zstd, level, pcluster_len, window_len: None });
    for (metabox, message) in [
        (zstd(3, 5000), "pclusters of 5000 bytes: use a multiple of the block size, 4096 bytes"),
        (zstd(3, 0), "0 bytes"),
        (zstd(3, 2 << 20), "2097152 bytes"),
        (zstd(99, 4096), "zstd has no level 99: use 1 to 22"),
    ] {
        let error =
            build(&tree, &BuildOptions::default().with(|o| o.metadata.metabox = metabox)).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn the_uuid_covers_compressed_metadata() {
    for (what, options) in ways() {
        let uuid = |name: &str, mtime| {
            let mut mem = MemTree::default();
            for n in 0..100 {
                mem.file(ROOT, format!("{n:08}").as_bytes(), MemFile::whole(vec![n]));
            }
            let node = mem.file(ROOT, name.as_bytes(), MemFile::whole(vec![7]));
            mem.meta(node).mtime = mtime;
            build(&mem.finish().unwrap(), &options).unwrap().1.uuid
        };
        assert_eq!(uuid("name", 5), uuid("name", 5), "{what}");
        assert_ne!(uuid("name", 5), uuid("nama", 5), "{what}");
        assert_ne!(uuid("name", 5), uuid("name", 6), "{what}");
    }
}
