//! Ids of container images, and the annotations that seal them.

use super::text;
use crate::common::{Scratch, fails, json, run, stderr};
use crate::oci::{document, index, layout_of};
use std::fs;
use std::path::Path;
use std::process::Command;

/// An archive of a layout with an image of two layers, which has what composefs-rs treats in its own way: attributes, a
/// file in `/run`, whiteouts, an opaque directory, hard links, times with nanoseconds.
const IMAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/composefs/container.tar.zst");

/// Ids that `cfsctl oci compute-id` of composefs-rs 0.9.4 prints for this image.
const IDS: [(&str, &str); 2] = [
    ("sha256", "dbc034e100d4eef166b61a811fda2a8a67deb411a2c72f3cff9a8bee43658237"),
    (
        "sha512",
        "2242bbe933884cd10965e82625832c4aa5555eb5d8c5a0f82e6829ced1e6303b\
         88735456c691d064dcf54eee306b81e9a9bcae5cb04f99236850af2e02c2a428",
    ),
];

/// Returns the id of the image at `image`.
fn id(image: &str, options: &[&str]) -> String {
    text(&[&["composefs", "create", "--print-digest-only"], options, &[image]].concat()).trim_end().to_owned()
}

/// Returns an archive of these files of a directory, and of nothing above or below them.
fn archive(dir: &str, files: &[&str]) -> Vec<u8> {
    let mut command = Command::new("tar");
    command.args(["-C", dir, "-cf", "-", "--no-recursion"]).args(files);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    output.stdout
}

#[test]
fn container_images_have_the_ids_of_composefs_rs() {
    for (algorithm, expected) in IDS {
        let found = id(IMAGE, &["--digest-algorithm", algorithm]);
        assert_eq!(found, format!("v1 fsverity-{algorithm}-12 {expected}"));
        assert_ne!(id(IMAGE, &["--digest-algorithm", algorithm, "--container-rules", "no"]), found);
        // Another filter of composefs-rs, `keep-user-xattrs`.
        assert_ne!(id(IMAGE, &["--digest-algorithm", algorithm, "--user-xattrs"]), found);
    }
}

#[test]
fn annotations_seal_images() {
    let scratch = Scratch::new();
    for (algorithm, expected) in IDS {
        let out = scratch.path(algorithm);
        let option = format!("--composefs={algorithm}");
        text(&["oci", "convert", "-q", &option, IMAGE, &out]);
        let manifest = document(&out, &index(&out)[0]);
        assert_eq!(manifest["annotations"][format!("composefs.merged.erofs.v1.fsverity-{algorithm}-12")], expected);
        let config = &manifest["config"];
        let blob = format!("{out}/blobs/{}", config["digest"].as_str().unwrap().replace(':', "/"));
        let digest = text(&["digest", "--algorithm", algorithm, &blob]);
        let digest = digest.split_whitespace().next().unwrap().split_once(':').unwrap().1;
        assert_eq!(config["annotations"][format!("composefs.config.fsverity-{algorithm}-12")], digest);
        // The converted image has the same tree.
        assert_eq!(id(&out, &["--from", "oci", "--digest-algorithm", algorithm]).rsplit(' ').next(), Some(expected));
    }
    let default = scratch.path("default");
    text(&["oci", "convert", "-q", "--composefs", IMAGE, &default]);
    assert_eq!(index(&default), index(&scratch.path("sha512")));
    // A seal is not carried over by halves.
    let again = scratch.path("again");
    let output = run(&["oci", "convert", &default, &again]);
    assert!(stderr(&output).contains("its seal is not carried over"), "{}", stderr(&output));
    assert!(!document(&again, &index(&again)[0]).to_string().contains("composefs"));

    // A directory that becomes an image.
    let (dir, packed, sealed) = (scratch.path("dir"), scratch.path("packed"), scratch.path("sealed"));
    fs::create_dir_all(format!("{dir}/usr/bin")).unwrap();
    fs::write(format!("{dir}/usr/bin/program"), vec![7; 5000]).unwrap();
    text(&["oci", "pack", "-q", &dir, &packed]);
    text(&["oci", "pack", "-q", "--composefs=sha256", &dir, &sealed]);
    let manifest = document(&sealed, &index(&sealed)[0]);
    let expected = id(&dir, &["--container-rules", "yes"]);
    assert_eq!(
        manifest["annotations"]["composefs.merged.erofs.v1.fsverity-sha256-12"].as_str(),
        expected.rsplit(' ').next()
    );
    let plain = document(&packed, &index(&packed)[0]);
    assert_eq!(plain["layers"], manifest["layers"]);
    assert!(plain["annotations"].is_null() && plain["config"]["annotations"].is_null(), "{plain}");
}

#[test]
fn images_without_usr_and_directories_of_no_layer_have_no_id() {
    let scratch = Scratch::new();
    let dir = scratch.path("tree");
    fs::create_dir_all(Path::new(&dir).join("opt/app")).unwrap();
    fs::write(Path::new(&dir).join("opt/app/file"), "contents").unwrap();
    let layout = layout_of(&scratch, &archive(&dir, &["opt", "opt/app", "opt/app/file"]));
    fails(&["composefs", "create", "--print-digest-only", "--from", "oci", &layout], 1, "no directory /usr");
    fs::create_dir(Path::new(&dir).join("usr")).unwrap();
    let layout = layout_of(&scratch, &archive(&dir, &["usr", "opt/app/file"]));
    fails(&["composefs", "create", "--print-digest-only", "--from", "oci", &layout], 1, "/opt: no layer");
    text(&["composefs", "create", "--print-digest-only", "--container-rules", "no", "--from", "oci", &layout]);
    let told = json(text(&["composefs", "create", "--json", IMAGE, &scratch.path("image")]).as_bytes());
    assert_eq!(told["id"], format!("v1 fsverity-sha256-12 {}", IDS[0].1));
}
