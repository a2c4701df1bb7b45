//! Images for several platforms under one name.

use super::{Layout, MANIFEST, TAR, document, index, tagged, tar, two_layers};
use crate::common::{Scratch, fails, json, run, stderr, stdout};
use serde_json::{Value, json};
use std::fs;

const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// Returns the platforms of the entries that an index lists.
fn platforms(index: &Value) -> Vec<String> {
    let text = |platform: &Value| {
        format!("{}/{}", platform["os"].as_str().unwrap(), platform["architecture"].as_str().unwrap())
    };
    index["manifests"].as_array().unwrap().iter().map(|entry| text(&entry["platform"])).collect()
}

/// Adds an index of images for several platforms, with an entry for a missing one.
fn several(scratch: &Scratch, layout: &Layout) -> Value {
    let image = |architecture: &str| {
        let layer = layout.blob(TAR, &tar(scratch, architecture, &[("arch", architecture)]));
        let config = json!({ "os": "linux", "architecture": architecture });
        let mut manifest = layout.image(&config, &[layer]);
        manifest["platform"] = config;
        manifest
    };
    let missing = json!({ "mediaType": MANIFEST, "digest": format!("sha256:{}", "1".repeat(64)), "size": 7,
                          "platform": { "os": "linux", "architecture": "s390x" } });
    let inner =
        json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [image("amd64"), image("arm64"), missing] });
    layout.blob(INDEX, inner.to_string().as_bytes())
}

#[test]
fn a_name_has_an_image_for_each_platform() {
    let scratch = Scratch::new();
    let layout = scratch.path("layout");
    let pack = |architecture: &str, text: &str| {
        let dir = scratch.path(&format!("{architecture}-{text}"));
        fs::create_dir_all(&dir).unwrap();
        fs::write(format!("{dir}/text"), text).unwrap();
        let platform = format!("linux/{architecture}");
        stdout(&["oci", "pack", "--quiet", "--tag", "app:1", "--as-platform", &platform, &dir, &layout]);
        let [entry] = &index(&layout)[..] else { panic!("a name is listed once") };
        assert_eq!(entry["annotations"], json!({ "org.opencontainers.image.ref.name": "app:1" }));
        entry.clone()
    };
    let text = |platform: &str| {
        let image = scratch.path("image");
        let of = ["--from", "oci", "--image", "app:1", "--platform", platform];
        stdout(&[&["pack", "--quiet", "--force"], &of[..], &[&layout, &image]].concat());
        String::from_utf8(stdout(&["cat", &image, "text"])).unwrap()
    };
    let one = pack("amd64", "first");
    assert_eq!(one["mediaType"], MANIFEST);
    let two = pack("arm64", "second");
    let list = document(&layout, &two);
    assert_eq!((&two["mediaType"], &list["mediaType"]), (&json!(INDEX), &json!(INDEX)));
    assert_eq!(platforms(&list), ["linux/amd64", "linux/arm64"]);
    assert_eq!(list["manifests"][0]["digest"], one["digest"]);
    assert_eq!(list["manifests"][0].get("annotations").filter(|found| **found != json!({})), None);
    assert_eq!((text("linux/amd64"), text("linux/arm64")), ("first".into(), "second".into()));
    // An entry of the same platform is replaced.
    let replaced = pack("amd64", "third");
    assert_eq!(platforms(&document(&layout, &replaced)), ["linux/arm64", "linux/amd64"]);
    assert_eq!((text("linux/amd64"), text("linux/arm64")), ("third".into(), "second".into()));
    // The digest that was told, that of the index, names the image, too.
    let whole = replaced["digest"].as_str().unwrap();
    stdout(&["oci", "convert", "--quiet", "--image", whole, &layout, &scratch.path("by-digest")]);
    let listed = json(&stdout(&["oci", "inspect", "--json", &layout]));
    let names: Vec<_> = listed["images"].as_array().unwrap().iter().map(|image| &image["names"]).collect();
    assert_eq!(names, [&json!(["app:1"]), &json!(["app:1"])]);
    // Commands that read an image take that of this machine, from a directory, too.
    let own = if cfg!(target_arch = "x86_64") { "third" } else { "second" };
    assert_eq!(stdout(&["cat", &layout, "/text"]), own.as_bytes());
    let archive = scratch.path("layout.tar");
    stdout(&["convert", "--to", "tar", "--from", "dir", &layout, &archive]);
    assert_eq!(stdout(&["cat", &archive, "/text"]), own.as_bytes());
    let told = String::from_utf8(stdout(&["info", &layout])).unwrap();
    assert!(told.starts_with("Kind:          oci"), "{told}");
}

#[test]
fn all_platforms_are_converted_or_those_that_are_named() {
    let scratch = Scratch::new();
    let layout = Layout::new(&scratch, "layout");
    let inner = several(&scratch, &layout);
    layout.index(&[tagged(inner, "multi:1"), tagged(two_layers(&scratch, &layout), "other:1")]);
    fails(&["oci", "convert", &layout.0, &scratch.path("none")], 2, "several images match");
    let convert = |out: &str, options: &[&str]| {
        let args = ["oci", "convert", "--quiet", "--tag", "to:1", "--image", "multi:1"];
        run(&[&args, options, &[&layout.0, &scratch.path(out)]].concat())
    };
    let entry = |out: &str| index(&scratch.path(out))[0].clone();
    let all = convert("all", &[]);
    assert_eq!(all.status.code(), Some(3), "{}", stderr(&all));
    assert!(stderr(&all).contains("left out") && stderr(&all).contains("s390x"), "{}", stderr(&all));
    let list = document(&scratch.path("all"), &entry("all"));
    assert_eq!(platforms(&list), ["linux/amd64", "linux/arm64"]);
    for entry in list["manifests"].as_array().unwrap() {
        assert_eq!(entry["platform"]["os.features"], json!(["erofs"]));
        let architecture = entry["platform"]["architecture"].as_str().unwrap();
        let manifest = document(&scratch.path("all"), entry);
        let layer = super::blob_path(&scratch.path("all"), &manifest["layers"][0]);
        assert_eq!(stdout(&["cat", &layer, "arch"]), architecture.as_bytes());
    }
    let two = convert("two", &["--platform", "linux/arm64", "--platform", "linux/amd64"]);
    assert_eq!(two.status.code(), Some(0), "{}", stderr(&two));
    assert_eq!(entry("two")["digest"], entry("all")["digest"]);
    let one = convert("one", &["--platform", "linux/arm64"]);
    assert_eq!((one.status.code(), &entry("one")["mediaType"]), (Some(0), &json!(MANIFEST)));
    // A requested platform must exist, and a missing one leaves no layout behind.
    for (platform, code, words) in [("linux/s390x", 1, "1111"), ("linux/386", 2, "--platform linux/386")] {
        let failed = convert("failed", &["--platform", platform]);
        assert_eq!(failed.status.code(), Some(code), "{}", stderr(&failed));
        assert!(stderr(&failed).contains(words), "{}", stderr(&failed));
    }
    assert!(!scratch.names().contains(&"failed".to_owned()));
    // A platform is added to an existing name.
    assert_eq!(convert("one", &["--platform", "linux/amd64"]).status.code(), Some(0));
    assert_eq!(platforms(&document(&scratch.path("one"), &entry("one"))), ["linux/arm64", "linux/amd64"]);
    // An image for several platforms stays one when it is converted.
    stdout(&["oci", "convert", "--quiet", &scratch.path("one"), &scratch.path("again")]);
    assert_eq!(platforms(&document(&scratch.path("again"), &entry("again"))), ["linux/arm64", "linux/amd64"]);
}
