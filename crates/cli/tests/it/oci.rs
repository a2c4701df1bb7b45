//! `kiln oci`

use crate::common::{Scratch, fails, json, run, stdout};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fs;

const TAR: &str = "application/vnd.oci.image.layer.v1.tar";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// A layout being made.
struct Layout(String);

impl Layout {
    fn new(scratch: &Scratch, name: &str) -> Self {
        let dir = scratch.path(name);
        fs::create_dir_all(format!("{dir}/blobs/sha256")).unwrap();
        fs::write(format!("{dir}/oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
        Self(dir)
    }

    /// A blob; its descriptor.
    fn blob(&self, media_type: &str, bytes: &[u8]) -> Value {
        let hex = hex(bytes);
        fs::write(format!("{}/blobs/sha256/{hex}", self.0), bytes).unwrap();
        json!({ "mediaType": media_type, "digest": format!("sha256:{hex}"), "size": bytes.len() })
    }

    /// The manifest of an image.
    fn image(&self, config: &Value, layers: &[Value]) -> Value {
        let config = self.blob(CONFIG, config.to_string().as_bytes());
        let manifest = json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers,
                               "annotations": { "org.example.note": "kept" } });
        self.blob(MANIFEST, manifest.to_string().as_bytes())
    }

    fn index(&self, manifests: &[Value]) {
        let index = json!({ "schemaVersion": 2, "manifests": manifests });
        fs::write(format!("{}/index.json", self.0), index.to_string()).unwrap();
    }
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn tagged(mut manifest: Value, tag: &str) -> Value {
    manifest["annotations"] = json!({ "org.opencontainers.image.ref.name": tag });
    manifest
}

/// The layer that holds these files.
fn tar(scratch: &Scratch, name: &str, files: &[(&str, &str)]) -> Vec<u8> {
    let root = scratch.path(name);
    for (path, text) in files {
        let path = std::path::Path::new(&root).join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    stdout(&["convert", "--to", "tar", &root, "-"])
}

/// Two layers, the upper of which takes away a file of the lower one, in `layout`. The manifest of their image.
fn two_layers(scratch: &Scratch, layout: &Layout) -> Value {
    let lower = tar(scratch, "lower", &[("a", "below"), ("dir/gone", "x"), ("dir/stays", "y")]);
    let upper = tar(scratch, "upper", &[("a", "above"), ("dir/.wh.gone", ""), ("opaque/.wh..wh..opq", "")]);
    let config = json!({ "os": "linux", "architecture": "arm64", "config": { "Cmd": ["sh"] },
        "history": [{ "created_by": "one" }, { "created_by": "none", "empty_layer": true }, { "created_by": "two" }],
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", hex(&lower)), format!("sha256:{}", hex(&upper))] } });
    layout.image(&config, &[layout.blob(TAR, &lower), layout.blob(TAR, &upper)])
}

#[test]
fn layouts_are_listed() {
    let scratch = Scratch::new();
    let layout = Layout::new(&scratch, "layout");
    let manifest = two_layers(&scratch, &layout);
    let missing = json!({ "mediaType": MANIFEST, "digest": format!("sha256:{}", "0".repeat(64)), "size": 9,
                          "platform": { "os": "linux", "architecture": "s390x" } });
    layout.index(&[tagged(manifest.clone(), "name:1"), missing]);
    let listed = json(&stdout(&["oci", "inspect", "--json", &layout.0]));
    assert_eq!(crate::json::undocumented(&listed), Vec::<String>::new());
    let [image, other] = &listed["images"].as_array().unwrap()[..] else { panic!("{listed}") };
    assert_eq!(image["names"], json!(["name:1"]));
    assert_eq!((&image["digest"], &image["platform"]), (&manifest["digest"], &json!("linux/arm64")));
    let layers = image["layers"].as_array().unwrap();
    assert_eq!(layers.len(), 2);
    for layer in layers {
        let hex = layer["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
        let blob = fs::metadata(format!("{}/blobs/sha256/{hex}", layout.0)).unwrap();
        assert_eq!((&layer["media_type"], &layer["size"]), (&json!(TAR), &json!(blob.len())));
    }
    assert_eq!((&other["platform"], &image["unreadable"]), (&json!("linux/s390x"), &Value::Null));
    assert!(other["unreadable"].as_str().unwrap().contains("0000"), "{other}");
    // People see the same, and an archive of the layout is the layout.
    let text = String::from_utf8(stdout(&["oci", "inspect", &layout.0])).unwrap();
    let digests = [&image["digest"], &layers[0]["digest"], &layers[1]["digest"]].map(|digest| digest.as_str().unwrap());
    assert!(digests.iter().all(|digest| text.contains(digest)), "{text}");
    assert!(text.starts_with("name:1  linux/arm64\n"), "{text}");
    let archive = scratch.path("layout.tar");
    stdout(&["convert", &layout.0, &archive]);
    assert_eq!(json(&stdout(&["oci", "inspect", "--json", &archive]))["images"][0], *image);
}

#[test]
fn what_is_no_layout_is_not_listed() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("dir")).unwrap();
    fails(&["oci", "inspect", &scratch.path("dir")], 2, "no image of a container");
    fails(&["oci", "inspect", &scratch.path("none")], 1, "none");
    assert_eq!(run(&["oci"]).status.code(), Some(2));
}
