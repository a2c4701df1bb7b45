//! Layers whose decompressed bytes do not have the digests in the configuration.

use super::layouts::{Layout, TAR, config, diff_id, gzip, hex};
use super::{chosen, error_of, lower, middle, oci, owned, scan};
use crate::common::GOING;
use crate::tar::records::Archive;
use kiln_source::{ScanOptions, SourceOptions, open_as};
use kiln_tests::temp::TempDir;
use serde_json::{Value, json};
use sha2::{Digest, Sha512};
use std::fs;

const GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// Returns a layout of an image with these layers, whose configuration has these digests.
fn layout(layers: &[(&str, Vec<u8>)], diff_ids: &[String]) -> Layout {
    let mut layout = Layout::default();
    let layers: Vec<Value> = layers.iter().map(|(media_type, bytes)| layout.blob(media_type, bytes)).collect();
    let image = layout.image_of(&layers, &config("amd64", diff_ids));
    layout.index(&[image]);
    layout
}

/// Returns the output of `docker save` for an image with these layers.
fn saved(layers: &[Vec<u8>], config: &Value) -> Vec<u8> {
    let names: Vec<String> = layers.iter().map(|layer| format!("{}/layer.tar", hex(layer))).collect();
    let list = json!([{ "Config": "config.json", "RepoTags": ["name:tag"], "Layers": names }]);
    let archive = Archive::default().member("config.json", b'0', config.to_string().as_bytes());
    let archive = names.iter().zip(layers).fold(archive, |archive, (name, layer)| archive.member(name, b'0', layer));
    archive.member("manifest.json", b'0', list.to_string().as_bytes()).end()
}

/// Returns the error message about an archive, without its path, if there is one.
fn message_of(archive: &[u8]) -> Option<String> {
    let dir = TempDir::in_memory("digests").unwrap();
    let path = dir.join("saved.tar");
    fs::write(&path, archive).unwrap();
    let scanned = scan(&[oci()], &path, &SourceOptions::default());
    scanned.err().map(|error| error.to_string().replace(path.to_str().unwrap(), ""))
}

#[test]
fn layers_are_compared_with_the_configuration() {
    let (lower, middle) = (lower(), middle());
    let ids = [diff_id(&lower), diff_id(&middle)];
    let long = |bytes: &[u8]| {
        let digits: String = Sha512::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        format!("sha512:{digits}")
    };
    let wrong = diff_id(b"another");
    for layers in [[(TAR, lower.clone()), (GZIP, gzip(&middle))], [(GZIP, gzip(&lower)), (TAR, middle.clone())]] {
        chosen(&layout(&layers, &ids), None, None).unwrap();
        chosen(&layout(&layers, &[long(&lower), long(&middle)]), None, None).unwrap();
        for (at, wrong_ids) in [(0, [wrong.clone(), ids[1].clone()]), (1, [ids[0].clone(), wrong.clone()])] {
            let message = error_of(&layout(&layers, &wrong_ids));
            for told in [&*format!("rootfs.diff_ids[{at}] = {wrong}"), &ids[at], &hex(&layers[at].1)] {
                assert!(message.contains(told), "{told}: {message}");
            }
        }
        let message = error_of(&layout(&layers, &[long(&lower), long(b"another")]));
        assert!(message.contains("rootfs.diff_ids[1] = sha512:") && message.contains(&long(&middle)), "{message}");
        let message = error_of(&layout(&layers, &[ids[0].clone(), "sha1:00".into()]));
        assert!(message.contains("rootfs.diff_ids[1] = \"sha1:00\": only sha256 and sha512"), "{message}");
        for count in [0, 1] {
            let message = error_of(&layout(&layers, &ids[..count]));
            assert!(
                message.contains(&format!("has {count} rootfs.diff_ids, but its manifest has 2 layers")),
                "{message}"
            );
        }
    }
}

#[test]
fn layers_of_docker_save_are_verified() {
    let layers = [lower(), middle()];
    let ids = layers.each_ref().map(|layer| diff_id(layer));
    assert_eq!(message_of(&saved(&layers, &config("amd64", &ids))), None);
    assert_eq!(message_of(&saved(&layers.each_ref().map(|layer| gzip(layer)), &config("amd64", &ids))), None);
    for at in 0..2 {
        let mut damaged = layers.clone();
        // A changed byte of a file: the archive is still valid.
        let place = damaged[at].windows(3).position(|part| part == b"new" || part == b"old").unwrap();
        damaged[at][place] ^= 1;
        for packed in [damaged.clone(), damaged.each_ref().map(|layer| gzip(layer))] {
            let message = message_of(&saved(&packed, &config("amd64", &ids))).unwrap();
            assert!(message.contains(&format!("rootfs.diff_ids[{at}] = {}", ids[at])), "{message}");
            assert!(message.contains(&diff_id(&damaged[at])) && message.contains("/layer.tar"), "{message}");
        }
    }
    let message = message_of(&saved(&layers, &config("amd64", &ids[..1]))).unwrap();
    assert!(message.contains("config.json: its configuration has 1 rootfs.diff_ids"), "{message}");
}

/// Bytes after the end mark belong to no member, but count for the digest.
#[test]
fn bytes_after_the_end_mark_count() {
    let layer = [&lower()[..], &[0; 512], b"behind"].concat();
    for packed in [layer.clone(), gzip(&layer)] {
        let message = message_of(&saved(&[packed], &config("amd64", &[diff_id(&lower())]))).unwrap();
        assert!(message.contains(&diff_id(&layer)), "{message}");
    }
}

#[test]
fn layers_without_digests_are_read_with_a_note() {
    for config in [json!({ "os": "linux" }), json!({ "rootfs": null }), json!({ "rootfs": { "type": "layers" } })] {
        let dir = TempDir::in_memory("digests").unwrap();
        let path = dir.join("saved.tar");
        fs::write(&path, saved(&[lower()], &config)).unwrap();
        let source = open_as(&[oci()], &path, &SourceOptions::default()).unwrap();
        let notes = source.scan(&ScanOptions::new(&GOING)).unwrap().notes;
        assert!(notes.iter().any(|note| note.text.contains("no known digest")), "{notes:?}");
        let mut layout = Layout::default();
        let layer = layout.blob(TAR, &lower());
        let image = layout.image_of(&[layer], &config);
        layout.index(&[image]);
        chosen(&layout, None, None).unwrap();
    }
}

#[test]
fn scans_that_keep_going_list_layers_of_other_digests() {
    let dir = TempDir::in_memory("digests").unwrap();
    let wrong = [diff_id(b"another")];
    let cut = gzip(&owned(Archive::default(), "a", b'0', &[1; 5000]).end());
    for (layer, told) in [
        (lower(), "rootfs.diff_ids[0]"),
        (gzip(&lower()), "rootfs.diff_ids[0]"),
        (cut[..40].to_vec(), "cannot be read"),
    ] {
        let path = dir.join("saved.tar");
        fs::write(&path, saved(&[layer], &config("amd64", &wrong))).unwrap();
        let source = open_as(&[oci()], &path, &SourceOptions::default()).unwrap();
        let scan = source.scan(&ScanOptions { keep_going: true, ..ScanOptions::new(&GOING) });
        match scan {
            Ok(scan) => assert!(scan.skipped[0].to_string().contains(told), "{}", scan.skipped[0]),
            // So short a stream cannot be decompressed at all.
            Err(error) => assert!(told == "cannot be read", "{error}"),
        }
    }
}
