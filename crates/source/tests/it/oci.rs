//! Container images as sources: layouts and archives made here, compared with a tar archive of the
//! expected tree.

mod archives;
mod digests;
mod layouts;

use crate::common::GOING;
use crate::tar::records::{Archive, header, patch};
use kiln_builder::BuildOptions;
use kiln_source::oci::{ImageChoice, OciSource};
use kiln_source::{KINDS, ScanOptions, SourceError, SourceKind, SourceOptions, open, open_as};
use kiln_tests::image::build;
use kiln_tests::snapshot::{assert_same, of_tree};
use kiln_tests::temp::TempDir;
use kiln_tree::filter::{Filter, Rule, Rules};
use kiln_tree::{Kind, Node, Tree};
use layouts::{INDEX, Layout, MANIFEST, TAR, gzip, hex, path_of};
use rustix::fs::{CWD, Mode, mkfifoat};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

fn oci() -> SourceKind {
    *KINDS.iter().find(|kind| kind.name == "oci").unwrap()
}

fn scan(kinds: &[SourceKind], path: &Path, options: &SourceOptions) -> Result<Tree, SourceError> {
    open_as(kinds, path, options)?.scan(&ScanOptions::new(&GOING)).map(|scan| scan.tree)
}

/// Returns the tree of the archive or image `bytes`.
fn tree_of(bytes: &[u8]) -> Tree {
    let dir = TempDir::in_memory("oci").unwrap();
    fs::write(dir.join("bytes"), bytes).unwrap();
    scan(KINDS, &dir.join("bytes"), &SourceOptions::default()).unwrap()
}

/// Returns the tree of the selected image of a layout, or the error message without the path.
fn chosen(layout: &Layout, name: Option<&str>, platform: Option<&str>) -> Result<Tree, String> {
    let dir = TempDir::in_memory("oci").unwrap();
    layout.write(dir.path());
    let platform = platform.map(|platform| platform.parse().unwrap());
    let image = ImageChoice { name: name.map(str::to_owned), platform, ..ImageChoice::default() };
    let tree = scan(&[oci()], dir.path(), &SourceOptions { image, ..SourceOptions::default() });
    tree.map_err(|error| error.to_string().replace(dir.path().to_str().unwrap(), ""))
}

fn error_of(layout: &Layout) -> String {
    chosen(layout, None, None).map(drop).unwrap_err()
}

/// Appends a member of user 42.
fn owned(archive: Archive, name: &str, flag: u8, data: &[u8]) -> Archive {
    let mut header = header(name, flag, data.len() as u64);
    patch(&mut header, 108, b"0000052\0");
    archive.raw(&header, data)
}

fn lower() -> Vec<u8> {
    let archive = owned(Archive::default(), "./", b'5', b"");
    let archive =
        owned(archive, "etc/", b'5', b"").member("etc/passwd", b'0', b"old").member("etc/keep", b'0', b"keep");
    let archive = archive.member("gone", b'0', b"x").member("dir/", b'5', b"").member("dir/a", b'0', b"a");
    let archive = archive.member("dir/b", b'0', b"b").member("opaque/", b'5', b"").member("opaque/old", b'0', b"old");
    let archive =
        archive.member("again/", b'5', b"").member("again/old", b'0', b"old").member(".wh.nothing", b'0', b"");
    archive.member("one", b'0', &[7; 5000]).link("two", b'1', "one").link("symlink", b'2', "one").end()
}

/// `etc` has no member: its metadata comes from below.
fn middle() -> Vec<u8> {
    let archive = Archive::default().member("etc/passwd", b'0', b"new").member(".wh.gone", b'0', b"");
    let archive = archive.member("dir/.wh.a", b'0', b"").member("opaque/new", b'0', b"new");
    let archive = archive.member("opaque/.wh..wh..opq", b'0', b"").member("opaque/", b'5', b"");
    // The directory was removed and created again.
    let archive = archive.member(".wh.again", b'0', b"").member("again/", b'5', b"").member("again/new", b'0', b"new");
    archive.member("three", b'0', b"3").link("four", b'1', "three").end()
}

/// Marks of overlayfs, for a layer that is an EROFS image.
fn upper() -> Vec<u8> {
    let opaque: &[(&str, &[u8])] = &[("SCHILY.xattr.trusted.overlay.opaque", b"y")];
    // An image always has the metadata of its directories.
    let archive = owned(Archive::default(), "./", b'5', b"").member("dir/", b'5', b"");
    let archive = archive.member("dir/b", b'3', b"").member("top", b'0', b"top");
    archive.pax(opaque).member("again/", b'5', b"").member("again/top", b'0', b"top").end()
}

/// Returns the expected tree of the three layers.
fn expected() -> Tree {
    let archive = owned(Archive::default(), "./", b'5', b"");
    let archive =
        owned(archive, "etc/", b'5', b"").member("etc/passwd", b'0', b"new").member("etc/keep", b'0', b"keep");
    let archive = archive.member("dir/", b'5', b"").member("opaque/", b'5', b"").member("opaque/new", b'0', b"new");
    let archive = archive.member("again/", b'5', b"").member("again/top", b'0', b"top").member("top", b'0', b"top");
    let archive = archive.member("one", b'0', &[7; 5000]).link("two", b'1', "one").link("symlink", b'2', "one");
    tree_of(&archive.member("three", b'0', b"3").link("four", b'1', "three").end())
}

/// Returns the three layers, as EROFS images where `erofs` says so.
fn layers(erofs: [bool; 3]) -> [Vec<u8>; 3] {
    let layers = [lower(), middle(), upper()];
    let image = |tar: &[u8]| build(&tree_of(tar), &BuildOptions::default()).unwrap().0;
    std::array::from_fn(|at| if erofs[at] { image(&layers[at]) } else { layers[at].clone() })
}

fn assert_expected(tree: &Tree, what: &str) {
    assert_same(&of_tree(&expected()).unwrap(), &of_tree(tree).unwrap(), what);
}

/// Returns a layout of one image.
fn layout_of(layers: &[(&str, Vec<u8>)]) -> Layout {
    let mut layout = Layout::default();
    let layers: Vec<Value> = layers.iter().map(|(media_type, bytes)| layout.blob(media_type, bytes)).collect();
    let image = layout.image("amd64", &layers);
    layout.index(&[image]);
    layout
}

fn layout() -> Layout {
    let [lower, middle, upper] = layers([false, false, true]);
    layout_of(&[
        (TAR, lower),
        ("application/vnd.oci.image.layer.v1.tar+gzip", gzip(&middle)),
        ("application/vnd.erofs", upper),
    ])
}

#[test]
fn layers_of_all_kinds_are_merged() {
    let zstd = |bytes: &[u8]| zstd::encode_all(bytes, 1).unwrap();
    assert_expected(&chosen(&layout(), None, None).unwrap(), "tar, gzip, EROFS");
    let [lower, middle, upper] = layers([false, false, true]);
    let packed = [
        ("application/vnd.docker.image.rootfs.diff.tar.gzip", gzip(&lower)),
        ("application/vnd.oci.image.layer.v1.tar+zstd", zstd(&middle)),
        ("application/vnd.erofs.layer.v1+zstd", zstd(&upper)),
        ("application/vnd.erofs.chunk-index.v1", b"no layer".to_vec()),
    ];
    assert_expected(&chosen(&layout_of(&packed), None, None).unwrap(), "gzip, zstd, EROFS in zstd");
}

#[test]
fn layouts_come_in_all_forms() {
    let dir = TempDir::in_memory("oci").unwrap();
    let archive = layout().archive();
    let [first, middle, upper] =
        layers([false, false, true]).map(|layer| (format!("{}/layer.tar", hex(&layer)), layer));
    let config = br#"{"os":"linux","architecture":"amd64"}"#;
    let config_path = format!("{}.json", hex(config));
    let manifest = |layers: [&str; 3]| {
        json!([{ "Config": config_path, "RepoTags": ["name:tag"], "Layers": layers }]).to_string().into_bytes()
    };
    // Podman and skopeo put layers at the top, with links at their old paths for older readers.
    let mut old = Archive::default().member(&config_path, b'0', config);
    for (path, layer) in [&first, &middle, &upper] {
        let own = format!("{}.tar", hex(layer));
        old = old.member(&own, b'0', layer).link(path, b'2', &format!("../{own}"));
    }
    let old = old.member("manifest.json", b'0', &manifest([&first.0, &middle.0, &upper.0])).end();
    let forms = [("oci-archive", archive.clone()), ("compressed", gzip(&archive)), ("docker save", old)];
    for (what, bytes) in &forms {
        let path = dir.join("archive");
        fs::write(&path, bytes).unwrap();
        assert_expected(&scan(KINDS, &path, &SourceOptions::default()).unwrap(), what);
        let fifo = dir.join("fifo");
        mkfifoat(CWD, &fifo, Mode::from_raw_mode(0o600)).unwrap();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| fs::write(&fifo, bytes));
            assert_expected(&scan(KINDS, &fifo, &SourceOptions::default()).unwrap(), what);
            writer.join().unwrap().unwrap();
        });
        fs::remove_file(&fifo).unwrap();
        let image = ImageChoice { name: Some("other".into()), ..ImageChoice::default() };
        let refused = scan(KINDS, &path, &SourceOptions { image, ..SourceOptions::default() });
        assert!(matches!(refused.map(drop).unwrap_err(), SourceError::Choice { .. }), "{what}");
    }
}

#[test]
fn output_of_docker_today_is_both_a_layout_and_a_list() {
    let mut layout = layout();
    let manifest: Value = serde_json::from_slice(&layout.0["index.json"]).unwrap();
    let manifest: Value = serde_json::from_slice(&layout.0[&path_of(&manifest["manifests"][0])]).unwrap();
    let layers: Vec<String> = manifest["layers"].as_array().unwrap().iter().map(path_of).collect();
    let list = json!([{ "Config": path_of(&manifest["config"]), "RepoTags": null, "Layers": layers }]);
    layout.0.insert("manifest.json".into(), list.to_string().into_bytes());
    let dir = TempDir::in_memory("oci").unwrap();
    let path = dir.join("saved.tar");
    for both in [true, false] {
        fs::write(&path, layout.archive()).unwrap();
        let source = OciSource::open(&path, &SourceOptions::default()).unwrap();
        let images = source.images(&ScanOptions::new(&GOING)).unwrap();
        assert_eq!(images.len(), 1);
        assert_eq!(images[0].digest.starts_with("sha256:"), both, "a layout has digests: {}", images[0]);
        assert_expected(&scan(KINDS, &path, &SourceOptions::default()).unwrap(), "saved");
        layout.0.retain(|path, _| !["index.json", "oci-layout"].contains(&path.as_str()));
    }
}

#[test]
fn each_layer_is_a_source() {
    let dir = TempDir::in_memory("oci").unwrap();
    let parts = layers([false, false, true]);
    let config = br#"{"os":"linux","architecture":"amd64","history":[]}"#;
    let list = json!([{ "Config": "config.json", "Layers": ["a/layer.tar", "b/layer.tar", "c/layer.tar"] }]);
    let mut archive = Archive::default().member("config.json", b'0', config);
    for (name, layer) in ["a/layer.tar", "b/layer.tar", "c/layer.tar"].iter().zip(&parts) {
        archive = archive.member(name, b'0', layer);
    }
    fs::write(dir.join("saved.tar"), archive.member("manifest.json", b'0', list.to_string().as_bytes()).end()).unwrap();
    let (options, scanning) = (SourceOptions::default(), ScanOptions::new(&GOING));
    let image = OciSource::open(&dir.join("saved.tar"), &options).unwrap().image(&scanning).unwrap();
    assert_eq!(image.config, config);
    let trees: Vec<Tree> = (0..image.layers().len())
        .map(|at| {
            assert_eq!(image.layer_digest(at, &scanning).unwrap(), format!("sha256:{}", hex(&parts[at])));
            image.layer(at, &options, &scanning).unwrap().scan(&scanning).unwrap().tree
        })
        .collect();
    let whiteouts = |tree: &Tree| {
        let is_whiteout =
            |node: &Node| matches!(node.kind, Kind::CharDevice(rdev) if (rdev.major, rdev.minor) == (0, 0));
        let found = tree.nodes().filter(|(_, node)| is_whiteout(node));
        let mut paths: Vec<String> = found.map(|(id, _)| String::from_utf8(tree.path(id)).unwrap()).collect();
        paths.sort();
        paths
    };
    // The lowest layer has nothing below it and so no marks. No layer has names of aufs.
    assert!(whiteouts(&trees[0]).is_empty());
    assert_eq!(whiteouts(&trees[1]), ["dir/a", "gone"]);
    assert_eq!(whiteouts(&trees[2]), ["dir/b"]);
    for tree in &trees {
        let is_mark = |(id, _): (_, &Node)| tree.path(id).windows(4).any(|name| name == b".wh.");
        assert!(!tree.nodes().any(is_mark));
    }
    let opaque = |path: &str| {
        let id = trees[1].find(path.split('/').map(str::as_bytes)).unwrap();
        trees[1].node(id).xattrs.iter().any(|x| &*x.name == b"trusted.overlay.opaque" && &*x.value == b"y")
    };
    assert!(opaque("opaque") && opaque("again") && !opaque("dir"));
}

#[test]
fn one_of_several_images_is_chosen() {
    let mut layout = Layout::default();
    let mut image = |arch: &str, name: &str| {
        let layer = layout.blob(TAR, &Archive::default().member(name, b'0', b"").end());
        let mut image = layout.image(arch, &[layer]);
        image["platform"] = json!({ "os": "linux", "architecture": arch });
        image
    };
    let (amd, arm, mut other) = (image("amd64", "amd"), image("arm64", "arm"), image("amd64", "other"));
    let mut attestation = image("unknown", "attestation");
    attestation["annotations"] = json!({ "vnd.docker.reference.type": "attestation-manifest" });
    let inner = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [amd, arm, attestation] });
    let mut inner = layout.document(INDEX, &inner);
    inner["annotations"] = json!({ "org.opencontainers.image.ref.name": "1.0" });
    let digest = other["digest"].as_str().unwrap().to_owned();
    let mut again = other.clone();
    other["annotations"] = json!({ "io.containerd.image.name": "docker.io/library/other:latest" });
    again["annotations"] = json!({ "org.opencontainers.image.ref.name": "2.0" });
    layout.index(&[inner.clone(), other, again]);
    let has = |name: Option<&str>, platform: Option<&str>, file: &str| {
        let tree = chosen(&layout, name, platform).unwrap();
        assert!(tree.find([file.as_bytes()].into_iter()).is_some(), "{name:?} {platform:?}: no {file}");
    };
    has(None, Some("linux/arm64"), "arm");
    has(Some("1.0"), Some("linux/amd64"), "amd");
    has(Some("other"), None, "other");
    has(Some("2.0"), None, "other");
    has(Some(&digest), None, "other");
    has(Some(&digest[7..20]), None, "other");
    let several = chosen(&layout, None, None).map(drop).unwrap_err();
    for told in ["several images", "1.0 (sha256:", "linux/arm64", "docker.io/library/other:latest", &digest] {
        assert!(several.contains(told), "{told}: {several}");
    }
    assert!(!several.contains("unknown"), "{several}");
    let none = chosen(&layout, Some("3.0"), None).map(drop).unwrap_err();
    assert!(none.contains("no image matches") && none.contains("1.0"), "{none}");
}

#[test]
fn damaged_layouts_are_refused() {
    let good = layout();
    let manifest: Value = serde_json::from_slice(&good.0["index.json"]).unwrap();
    let manifest = path_of(&manifest["manifests"][0]);
    let first = path_of(&serde_json::from_slice::<Value>(&good.0[&manifest]).unwrap()["layers"][0]);
    let with = |path: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let mut layout = good.clone();
        change(layout.0.get_mut(path).unwrap());
        error_of(&layout)
    };
    let mut missing = good.clone();
    missing.0.remove(&first);
    let layer = |media_type: &str| error_of(&layout_of(&[(media_type, lower())]));
    let far = format!(r#"{{"schemaVersion":2,"manifests":[]{}}}"#, " ".repeat(100 << 20)).into_bytes();
    let deep = [&b"{\"unknown\":"[..], &b"[".repeat(1 << 20)].concat();
    let cases = [
        (error_of(&missing), "entity not found"),
        (with(&first, &|bytes| bytes[600] ^= 1), "but the blob has sha256:"),
        (with(&first, &|bytes| bytes.truncate(700)), "but the blob has 700 bytes"),
        (with(&first, &|bytes| bytes.push(0)), "size = "),
        (with(&manifest, &|bytes| bytes[20] ^= 1), "digest = sha256:"),
        (with("index.json", &|bytes| bytes.truncate(30)), "EOF while parsing"),
        (with("index.json", &|bytes| bytes.clone_from(&far)), "a document of 104"),
        (with("index.json", &|bytes| bytes.clone_from(&deep)), "EOF while parsing"),
        (layer("application/vnd.oci.image.layer.v1.tar+gzip+encrypted"), "an encrypted layer"),
        (layer("application/vnd.in-toto+json"), "not a layer of files"),
        (error_of(&layout_of(&[(TAR, b"no archive".to_vec())])), "not a directory, archive or image"),
        (error_of(&layout_of(&[])), "the image has no layers"),
        (error_of(&Layout::default()), "it is not a container image"),
    ];
    for (message, part) in cases {
        assert!(message.contains(part), "{part}: {message}");
    }
}

#[test]
fn indexes_are_bounded() {
    // Each index lists the previous one a hundred times: without a limit, 100^4 indexes.
    let mut layout = Layout::default();
    let mut inner = json!([]);
    for depth in 0..5 {
        let index = layout.document(INDEX, &json!({ "schemaVersion": 2, "manifests": inner }));
        inner = Value::Array(vec![index; 100]);
        if depth == 3 {
            layout.index(inner.as_array().unwrap());
            assert!(error_of(&layout).contains("more than 1000 indexes"));
        }
    }
    layout.index(&inner.as_array().unwrap()[..1]);
    let message = error_of(&layout);
    assert!(message.contains("more than 4 levels deep") || message.contains("more than 1000 indexes"), "{message}");
    let manifest = json!({ "mediaType": MANIFEST, "digest": format!("sha256:{}", hex(b"")), "size": 0 });
    layout.index(&vec![manifest; 10_001]);
    assert!(error_of(&layout).contains("more than 10000 images"));
}

#[test]
fn archives_that_only_look_like_layouts_are_packed_as_they_are() {
    let dir = TempDir::in_memory("oci").unwrap();
    let path = dir.join("a.tar");
    let members: [&[(&str, &[u8])]; 4] = [
        &[("blobs/sha256", b"x"), ("other", b"")],
        &[("index.json", b"{}"), ("other", b"")],
        &[("manifest.json", b"{\"name\": \"a web application\"}"), ("other", b"")],
        &[("repositories", b""), ("other", b"")],
    ];
    for members in members {
        let archive = members.iter().fold(Archive::default(), |archive, (name, data)| archive.member(name, b'0', data));
        fs::write(&path, archive.end()).unwrap();
        let tree = scan(KINDS, &path, &SourceOptions::default()).unwrap();
        for (name, _) in members {
            assert!(tree.find(name.split('/').map(str::as_bytes)).is_some(), "{name}");
        }
        assert!(scan(&[oci()], &path, &SourceOptions::default()).is_err(), "{members:?} is no image if one is wanted");
        let image = ImageChoice { name: Some("latest".into()), ..ImageChoice::default() };
        assert!(scan(KINDS, &path, &SourceOptions { image, ..SourceOptions::default() }).is_err(), "{members:?}");
    }
}

#[test]
fn filters_are_about_what_a_container_sees() {
    let dir = TempDir::in_memory("oci").unwrap();
    layout().write(dir.path());
    let rules = [".wh.*", "/etc/keep"].map(|rule| Rule::new(rule.as_bytes()).unwrap());
    let filter = Filter { rules: vec![Rules::new(rules.into()).unwrap()], ..Filter::default() };
    let source = open_as(&[oci()], dir.path(), &SourceOptions::default()).unwrap();
    let tree = source.scan(&ScanOptions { filter: &filter, ..ScanOptions::new(&GOING) }).unwrap().tree;
    let (mut wanted, found) = (of_tree(&expected()).unwrap(), of_tree(&tree).unwrap());
    wanted.remove(&b"etc/keep"[..]).unwrap();
    assert_same(&wanted, &found, "names of whiteouts left out");
}

#[test]
fn compressed_images_are_sources() {
    let dir = TempDir::in_memory("oci").unwrap();
    let squashfs = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/squashfs/zstd.squashfs")).unwrap();
    // Incompressible, so that a decoder needs the whole first block.
    let noise: Vec<u8> =
        (0..300_000_u64).map(|at| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29) >> 24) as u8).collect();
    let erofs = build(&tree_of(&Archive::default().member("noise", b'0', &noise).end()), &BuildOptions::default());
    for (what, plain) in [("EROFS", erofs.unwrap().0), ("SquashFS", squashfs)] {
        let expected = of_tree(&tree_of(&plain)).unwrap();
        for packed in [zstd::encode_all(&*plain, 1).unwrap(), gzip(&plain)] {
            assert_same(&expected, &of_tree(&tree_of(&packed)).unwrap(), what);
            let path = dir.join("cut");
            fs::write(&path, &packed[..packed.len() - 9]).unwrap();
            assert!(open(&path, &SourceOptions::default()).is_err(), "{what}: a stream that ends early");
        }
    }
}

/// A layer that only has paths through a directory does not change the directory, even if it hides
/// its contents.
#[test]
fn implied_directories_change_no_lower_ones() {
    let mut tmp = header("tmp", b'5', 0);
    patch(&mut tmp, 100, b"0001777\0");
    let lower = Archive::default().raw(&tmp, b"").member("tmp/old", b'0', b"old").end();
    let mark = |path: &str| Archive::default().member(path, b'0', b"").member("tmp/new", b'0', b"new").end();
    for (what, upper, has_old) in [
        ("a path", Archive::default().member("tmp/new", b'0', b"new").end(), true),
        ("a whiteout", mark(".wh.tmp"), false),
        ("an opaque directory", mark("tmp/.wh..wh..opq"), false),
    ] {
        let layout = layout_of(&[(TAR, lower.clone()), (TAR, upper)]);
        let tree = chosen(&layout, None, None).unwrap();
        let find = |path: &str| tree.find(path.split('/').map(str::as_bytes));
        let meta = tree.node(find("tmp").unwrap()).meta;
        assert_eq!((meta.permissions, meta.uid, meta.gid), (0o1777, 7, 8), "{what}");
        assert_eq!((find("tmp/old").is_some(), find("tmp/new").is_some()), (has_old, true), "{what}");
    }
}

/// `..` as containerd treats it: it cannot lead out of the root.
#[test]
fn steps_up_in_layers_stay_within_the_root() {
    let layer = |path: &str| layout_of(&[(TAR, Archive::default().member(path, b'0', b"x").end())]);
    let tree = chosen(&layer("a/../etc/dd"), None, None).unwrap();
    assert!(tree.find([&b"etc"[..], b"dd"]).is_some() && tree.find([&b"a"[..]]).is_none());
    assert!(error_of(&layer("a/../../etc/dd")).ends_with("`..` has no meaning here"));
}
