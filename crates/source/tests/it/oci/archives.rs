//! Archives of images as programs write them, and archives that only look like them.

use super::layouts::{config, diff_id, gzip, hex};
use super::{assert_expected, expected, layers, layout, oci, scan};
use crate::common::GOING;
use crate::tar::records::Archive;
use kiln_source::oci::looks_like_dir_transport;
use kiln_source::{KINDS, ScanOptions, SourceOptions, open};
use kiln_tests::snapshot::{assert_same, of_tree};
use kiln_tests::temp::TempDir;
use kiln_tree::Tree;
use serde_json::{Value, json};
use std::fs;

/// Members of an archive in order.
type Members = Vec<(String, Vec<u8>)>;
/// Function that returns the name of a member from its kind, its index within the kind, and its
/// digest.
type Name<'n> = &'n dyn Fn(&str, usize, &str) -> String;

fn archive(members: &[(String, Vec<u8>)]) -> Vec<u8> {
    members.iter().fold(Archive::default(), |archive, (name, data)| archive.member(name, b'0', data)).end()
}

/// Returns the tree of the archive `bytes`, and the texts of its notes.
fn told(bytes: &[u8]) -> (Tree, Vec<String>) {
    let dir = TempDir::in_memory("archives").unwrap();
    fs::write(dir.join("a.tar"), bytes).unwrap();
    let scan = open(&dir.join("a.tar"), &SourceOptions::default()).unwrap().scan(&ScanOptions::new(&GOING)).unwrap();
    (scan.tree, scan.notes.into_iter().map(|note| note.text).collect())
}

/// Returns an archive whose list names the configuration and the layers by `name`, which gets the
/// kind and the digest. The members are in the order layers, configuration, list.
fn listed(packed: bool, name: Name<'_>) -> Members {
    let parts = layers([false; 3]);
    let config = config("amd64", &parts.each_ref().map(|part| diff_id(part))).to_string().into_bytes();
    let blobs = parts.map(|part| if packed { gzip(&part) } else { part });
    let mut members: Members =
        blobs.into_iter().enumerate().map(|(at, blob)| (name("layer", at, &hex(&blob)), blob)).collect();
    let names: Vec<&str> = members.iter().map(|(name, _)| &**name).collect();
    let config_name = name("config", 0, &hex(&config));
    let list = json!([{ "Config": config_name, "RepoTags": ["name:tag"], "Layers": names }]).to_string();
    members.extend([(config_name, config), ("manifest.json".into(), list.into_bytes())]);
    members
}

#[test]
fn archives_of_all_builders_are_known() {
    let crane = |kind: &str, _: usize, digest: &str| match kind {
        "layer" => format!("{digest}.tar.gz"),
        _ => format!("sha256:{digest}"),
    };
    let jib = |kind: &str, _: usize, digest: &str| match kind {
        "layer" => format!("{digest}.tar.gz"),
        _ => "config.json".to_owned(),
    };
    let bazel = |kind: &str, at: usize, _: &str| match kind {
        "layer" => format!("bazel/image/{at}.tar"),
        _ => "bazel/image/config".to_owned(),
    };
    let by_hand = |kind: &str, at: usize, _: &str| format!("./{kind}{at}");
    let builders: [(&str, bool, Name<'_>); 5] = [
        ("crane, ko, kaniko", true, &crane),
        ("jib", true, &jib),
        ("Bazel", false, &bazel),
        ("by hand", true, &by_hand),
        ("by hand, plain", false, &by_hand),
    ];
    for (what, packed, name) in builders {
        let mut members = listed(packed, name);
        for _ in 0..members.len() {
            let (tree, notes) = told(&archive(&members));
            assert_expected(&tree, what);
            assert!(notes.is_empty(), "{what}: {notes:?}");
            members.rotate_left(1);
        }
        let (tree, _) = told(&gzip(&archive(&members)));
        assert_expected(&tree, what);
    }
    // A layout whose first member is unrelated.
    let mut members: Members = layout().0.into_iter().collect();
    members.reverse();
    assert_expected(&told(&archive(&members)).0, "a layout");
}

#[test]
fn doubtful_archives_get_a_note() {
    let name = |kind: &str, at: usize, _: &str| format!("parts/{kind}{at}");
    let has = |tree: &Tree, path: &str| tree.find(path.split('/').map(str::as_bytes)).is_some();
    // A layer that the list names is missing.
    let mut members = listed(false, &name);
    members.remove(1);
    let (tree, notes) = told(&archive(&members));
    assert!(has(&tree, "parts/layer0") && has(&tree, "manifest.json"));
    assert!(matches!(&*notes, [note] if note.contains("\"parts/layer1\" is missing; use --from oci")), "{notes:?}");
    // Files that belong to no image.
    let mut members = listed(false, &name);
    members.insert(0, ("etc/passwd".into(), b"root".to_vec()));
    let (tree, notes) = told(&archive(&members));
    assert_expected(&tree, "with a file");
    assert!(matches!(&*notes, [note] if note.contains("1 other members of its root, such as \"etc\"")), "{notes:?}");
    // A list of something else, and none.
    for list in [json!([{ "name": "application" }]), json!([]), json!({ "name": "application" })] {
        let members = [("manifest.json".to_owned(), list.to_string().into_bytes()), ("file".to_owned(), vec![])];
        let (tree, notes) = told(&archive(&members));
        assert!(has(&tree, "manifest.json") && has(&tree, "file") && notes.is_empty(), "{list}: {notes:?}");
    }
}

#[test]
fn references_are_to_archives_of_files_only() {
    let dir = TempDir::new("archives").unwrap();
    let path = dir.join("a.tar");
    let options = SourceOptions { reference: true, ..SourceOptions::default() };
    let name = |kind: &str, at: usize, _: &str| format!("parts/{kind}{at}");
    fs::write(&path, archive(&listed(false, &name))).unwrap();
    let source = open(&path, &options).unwrap();
    assert!(source.block_bits().is_none(), "the layers of an image are no devices");
    assert_expected(&source.scan(&ScanOptions::new(&GOING)).unwrap().tree, "an image");
    let plain = archive(&[("file".to_owned(), vec![7; 3000])]);
    fs::write(&path, &plain).unwrap();
    let source = open(&path, &options).unwrap();
    assert!(source.block_bits().is_some());
    let tree = source.scan(&ScanOptions::new(&GOING)).unwrap().tree;
    assert_eq!(tree.stores().devices.len(), 1);
    fs::write(&path, gzip(&plain)).unwrap();
    assert!(open(&path, &options).map(drop).unwrap_err().to_string().contains("compressed archive"));
}

/// Checks the `dir:` format of skopeo: the manifest, and the blobs beside it, named by digest.
#[test]
fn directories_of_skopeo_are_read() {
    let layout = layout();
    let index: Value = serde_json::from_slice(&layout.0["index.json"]).unwrap();
    let digest = index["manifests"][0]["digest"].as_str().unwrap();
    let blob = |digest: &str| layout.0[&digest.replace("sha256:", "blobs/sha256/")].clone();
    let mut flat: Members = layout
        .0
        .iter()
        .filter_map(|(path, bytes)| path.strip_prefix("blobs/sha256/").map(|name| (name.to_owned(), bytes.clone())))
        .collect();
    flat.push(("version".into(), b"Directory Transport Version: 1.1\n".to_vec()));
    let one = [&flat[..], &[("manifest.json".to_owned(), blob(digest))]].concat();
    // With several platforms, the manifests are separate documents.
    let manifest = (format!("{}.manifest.json", digest.trim_start_matches("sha256:")), blob(digest));
    let several = [&flat[..], &[manifest, ("manifest.json".to_owned(), layout.0["index.json"].clone())]].concat();
    for members in [one, several] {
        let dir = TempDir::in_memory("archives").unwrap();
        for (name, bytes) in members.iter().filter(|(name, _)| *name != digest[7..]) {
            fs::write(dir.join(name), bytes).unwrap();
        }
        assert!(looks_like_dir_transport(dir.path()));
        assert_expected(&scan(&[oci()], dir.path(), &SourceOptions::default()).unwrap(), "a directory");
        let as_files = scan(KINDS, dir.path(), &SourceOptions::default()).unwrap();
        assert!(as_files.find([&b"version"[..]]).is_some(), "a directory is meant as it is");
        let (tree, notes) = told(&archive(&members));
        assert_same(&of_tree(&expected()).unwrap(), &of_tree(&tree).unwrap(), "an archive of it");
        assert!(notes.is_empty(), "{notes:?}");
        fs::write(dir.join(&hex(&layers([false; 3])[0])), b"other bytes").unwrap();
        assert!(scan(&[oci()], dir.path(), &SourceOptions::default()).is_err());
    }
}
