//! Hash trees of layers.

use super::{Layout, blob_path, document, hex, index, tar, two_layers};
use crate::common::{Scratch, fails, json, names, number, run, stderr, stdout};
use serde_json::json;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

const GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// Verifies the image by the file for containerd beside it.
fn assert_verified(image: &str) {
    let sidecar = json(&fs::read(format!("{image}.dmverity")).unwrap());
    stdout(&["verity", "verify", "-q", image, "--root-hash", sidecar["roothash"].as_str().unwrap()]);
    assert_eq!(
        number(&json(&stdout(&["verity", "show", "--json", image])), "hash_offset"),
        number(&sidecar, "hashoffset")
    );
}

#[test]
fn layers_of_a_layout_have_trees_that_annotations_describe() {
    let scratch = Scratch::new();
    let layout = Layout::new(&scratch, "layout");
    layout.index(&[two_layers(&scratch, &layout)]);
    let [converted, packed] = ["converted", "packed"].map(|name| scratch.path(name));
    stdout(&["oci", "convert", "--json", "--verity", &layout.0, &converted]);
    let told =
        json(&stdout(&["oci", "pack", "--json", "--verity", "--verity-salt", "none", &scratch.path("lower"), &packed]));
    assert_eq!(crate::json::undocumented(&told), [""; 0]);
    for (out, count) in [(&converted, 2), (&packed, 1)] {
        let manifest = document(out, &index(out)[0]);
        let layers = manifest["layers"].as_array().unwrap();
        assert_eq!(layers.len(), count);
        for layer in layers {
            let (blob, annotations) = (blob_path(out, layer), &layer["annotations"]);
            let root_hash = annotations["org.erofs.dmverity.root_digest"].as_str().unwrap();
            let root_hash = root_hash.strip_prefix("sha256:").unwrap();
            stdout(&["verity", "verify", "-q", &blob, "--root-hash", root_hash]);
            let shown = json(&stdout(&["verity", "show", "--json", &blob]));
            assert_eq!(annotations["org.erofs.dmverity.hash_offset"], number(&shown, "hash_offset").to_string());
            assert_eq!(annotations["org.erofs.dmverity.block_size"], number(&shown, "data_block_size").to_string());
        }
    }
    assert_eq!(stdout(&["pack", "-q", "--from", "oci", &converted, &scratch.path("merged")]), b"");
}

#[test]
fn each_packed_layer_has_a_tree_and_a_file_for_containerd() {
    let scratch = Scratch::new();
    let layout = Layout::new(&scratch, "layout");
    layout.index(&[two_layers(&scratch, &layout)]);
    let [out, other] = ["out", "other"].map(|name| scratch.path(name));
    let told = json(&stdout(&["pack", "--json", "--layers", "--verity", &layout.0, &out]));
    assert_eq!(crate::json::undocumented(&told), [""; 0]);
    assert_eq!(names(&out).len(), 4);
    for layer in told["layers"].as_array().unwrap() {
        let image = format!("{out}/{}.erofs", layer["digest"].as_str().unwrap().trim_start_matches("sha256:"));
        assert_verified(&image);
    }
    // Without trees, what tells of them goes.
    stdout(&["pack", "-q", "--force", "--layers", &layout.0, &out]);
    assert_eq!(names(&out).iter().filter(|name| name.ends_with(".dmverity")).count(), 0);
    fails(&["pack", "--layers", "--verity=tree", &layout.0, &other], 2, "DIGEST.erofs.dmverity");
    fails(&["pack", "--layers", "--verity", "--root-hash-file", "x", &layout.0, &other], 2, "DIGEST.erofs.dmverity");
}

/// Compresses bytes.
fn gzip(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut child = Command::new("gzip").arg("-nc").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(bytes).unwrap();
    drop(stdin);
    child.wait_with_output().unwrap().stdout
}

#[test]
fn a_cache_of_containerd_is_filled_by_digests_of_uncompressed_layers() {
    let scratch = Scratch::new();
    let layout = Layout::new(&scratch, "layout");
    let lower = tar(&scratch, "lower", &[("a", "below"), ("dir/stays", "y")]);
    let upper = tar(&scratch, "upper", &[("a", "above"), ("dir/new", "z")]);
    let diff_ids = [&lower, &upper].map(|layer| format!("sha256:{}", hex(layer)));
    let config =
        json!({ "os": "linux", "architecture": "amd64", "rootfs": { "type": "layers", "diff_ids": diff_ids } });
    let blobs = [&lower, &upper].map(|layer| layout.blob(GZIP, &gzip(layer)));
    layout.index(&[layout.image(&config, &blobs)]);
    let cache = scratch.path("cache");
    let fill = |more: &[&str]| {
        run(&[&["pack", "--layers", "--containerd-cache", &cache, "--verity", &layout.0], more].concat())
    };
    let filled = fill(&[]);
    assert!(filled.status.success(), "{}", stderr(&filled));
    let image = |layer: &[u8]| {
        let digest = hex(layer);
        format!("{cache}/sha256/{}/{digest}.erofs", &digest[..2])
    };
    for layer in [&lower, &upper] {
        let image = image(layer);
        assert_verified(&image);
        for file in [image.clone(), format!("{image}.dmverity")] {
            assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o644, "{file}");
        }
    }
    // What is there is used; what lacks its file for containerd is of no use there.
    let before = fs::metadata(image(&lower)).unwrap().modified().unwrap();
    let again = fill(&[]);
    assert!(again.status.success() && stderr(&again).contains("is there already"), "{}", stderr(&again));
    assert_eq!(fs::metadata(image(&lower)).unwrap().modified().unwrap(), before);
    fs::remove_file(format!("{}.dmverity", image(&upper))).unwrap();
    let refused = fill(&[]);
    assert!(refused.status.code() == Some(1) && stderr(&refused).contains("--force"), "{}", stderr(&refused));
    assert!(fill(&["--force"]).status.success());
    assert_verified(&image(&upper));
    // The same layer over others is the same image there.
    let other = Layout::new(&scratch, "other");
    let config =
        json!({ "os": "linux", "architecture": "amd64", "rootfs": { "type": "layers", "diff_ids": [diff_ids[1]] } });
    other.index(&[other.image(&config, &[other.blob(GZIP, &gzip(&upper))])]);
    let alone = scratch.path("alone");
    stdout(&["pack", "-q", "--layers", "--containerd-cache", &alone, "--verity", &other.0]);
    let of_other = image(&upper).replace(&cache, &alone);
    assert!(fs::read(of_other).unwrap() == fs::read(image(&upper)).unwrap());
}
