//! `kiln oci`

mod layers;
mod platforms;
mod verity;

use crate::common::{Scratch, fails, json, names, run, skip, stderr, stdout};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fs;
use std::path::Path;
use std::process::Command;

const TAR: &str = "application/vnd.oci.image.layer.v1.tar";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// A layout to be filled.
struct Layout(String);

impl Layout {
    fn new(scratch: &Scratch, name: &str) -> Self {
        let dir = scratch.path(name);
        fs::create_dir_all(format!("{dir}/blobs/sha256")).unwrap();
        fs::write(format!("{dir}/oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
        Self(dir)
    }

    /// Adds a blob, and returns its descriptor.
    fn blob(&self, media_type: &str, bytes: &[u8]) -> Value {
        let hex = hex(bytes);
        fs::write(format!("{}/blobs/sha256/{hex}", self.0), bytes).unwrap();
        json!({ "mediaType": media_type, "digest": format!("sha256:{hex}"), "size": bytes.len() })
    }

    /// Adds the manifest of an image.
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

/// Returns the SHA-256 of bytes in hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn tagged(mut manifest: Value, tag: &str) -> Value {
    manifest["annotations"] = json!({ "org.opencontainers.image.ref.name": tag });
    manifest
}

/// Makes the layer with these files.
fn tar(scratch: &Scratch, name: &str, files: &[(&str, &str)]) -> Vec<u8> {
    let root = scratch.path(name);
    for (path, text) in files {
        let path = std::path::Path::new(&root).join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    stdout(&["convert", "--to", "tar", &root, "-"])
}

/// Adds two layers, the upper of which removes a file of the lower one, to `layout`. Returns the manifest of their
/// image.
fn two_layers(scratch: &Scratch, layout: &Layout) -> Value {
    let lower = tar(scratch, "lower", &[("a", "below"), ("dir/gone", "x"), ("dir/stays", "y")]);
    let upper = tar(scratch, "upper", &[("a", "above"), ("dir/.wh.gone", ""), ("opaque/.wh..wh..opq", "")]);
    let diff_ids = [&lower, &upper].map(|layer| format!("sha256:{}", hex(layer)));
    let config = json!({ "os": "linux", "architecture": "arm64", "config": { "Cmd": ["sh"] },
        "history": [{ "created_by": "one" }, { "created_by": "none", "empty_layer": true }, { "created_by": "two" }],
        "rootfs": { "type": "layers", "diff_ids": diff_ids } });
    layout.image(&config, &[layout.blob(TAR, &lower), layout.blob(TAR, &upper)])
}

/// Makes a layout of an image with one layer, which is this archive, and returns its path.
pub fn layout_of(scratch: &Scratch, layer: &[u8]) -> String {
    layout_of_layers(scratch, &[layer])
}

/// As [`layout_of`], of several layers, the lowest first.
pub fn layout_of_layers<L: AsRef<[u8]>>(scratch: &Scratch, layers: &[L]) -> String {
    let layout = Layout::new(scratch, "layout-of-layers");
    let diff_ids: Vec<String> = layers.iter().map(|layer| format!("sha256:{}", hex(layer.as_ref()))).collect();
    let config =
        json!({ "os": "linux", "architecture": "amd64", "rootfs": { "type": "layers", "diff_ids": diff_ids } });
    let blobs: Vec<Value> = layers.iter().map(|layer| layout.blob(TAR, layer.as_ref())).collect();
    let manifest = layout.image(&config, &blobs);
    layout.index(&[manifest]);
    layout.0
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
    // The text shows the same, and an archive of the layout is equal to the layout.
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
    fails(&["oci", "inspect", &scratch.path("dir")], 2, "it is not a container image");
    fails(&["oci", "inspect", &scratch.path("none")], 1, "none");
    assert_eq!(run(&["oci"]).status.code(), Some(2));
}

/// Returns the document of a descriptor, after checking that its blob has the stated length and digest.
pub fn document(layout: &str, descriptor: &Value) -> Value {
    let bytes = blob(layout, descriptor);
    serde_json::from_slice(&bytes).unwrap()
}

fn blob(layout: &str, descriptor: &Value) -> Vec<u8> {
    let bytes = fs::read(blob_path(layout, descriptor)).unwrap();
    assert_eq!(descriptor["digest"], format!("sha256:{}", hex(&bytes)));
    assert_eq!(descriptor["size"], bytes.len());
    bytes
}

fn blob_path(layout: &str, descriptor: &Value) -> String {
    let hex = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
    format!("{layout}/blobs/sha256/{hex}")
}

pub fn index(layout: &str) -> Vec<Value> {
    let index: Value = serde_json::from_slice(&fs::read(format!("{layout}/index.json")).unwrap()).unwrap();
    assert_eq!(index["schemaVersion"], 2);
    index["manifests"].as_array().unwrap().clone()
}

/// Makes a tree from which layers are made.
fn tree(scratch: &Scratch) -> String {
    let root = scratch.path("root");
    fs::create_dir_all(format!("{root}/dir/empty")).unwrap();
    fs::write(format!("{root}/dir/text"), "some text ".repeat(5000)).unwrap();
    fs::write(format!("{root}/short"), "x").unwrap();
    fs::hard_link(format!("{root}/short"), format!("{root}/dir/link")).unwrap();
    root
}

#[test]
fn a_tree_becomes_an_image() {
    let scratch = Scratch::new();
    let root = tree(&scratch);
    let [layout, again, other] = ["layout", "again", "other"].map(|name| scratch.path(name));
    for layout in [&layout, &again] {
        stdout(&["oci", "pack", "--quiet", "--tag", "app:1", "--as-platform", "linux/arm64/v8", &root, layout]);
    }
    assert_eq!(names(&layout), ["blobs", "index.json", "oci-layout"]);
    let blobs = format!("{layout}/blobs/sha256");
    assert_eq!(names(&blobs), names(format!("{again}/blobs/sha256")), "the same tree is the same image");
    assert_eq!(names(&blobs).len(), 3, "a layer, a configuration, a manifest, and nothing hidden");
    assert_eq!(fs::read(format!("{layout}/index.json")).unwrap(), fs::read(format!("{again}/index.json")).unwrap());
    let version: Value = serde_json::from_slice(&fs::read(format!("{layout}/oci-layout")).unwrap()).unwrap();
    assert_eq!(version, json!({ "imageLayoutVersion": "1.0.0" }));

    let [entry] = &index(&layout)[..] else { panic!() };
    let platform = json!({ "os": "linux", "architecture": "arm64", "variant": "v8", "os.features": ["erofs"] });
    assert_eq!((&entry["mediaType"], &entry["platform"]), (&json!(MANIFEST), &platform));
    assert_eq!(entry["annotations"], json!({ "org.opencontainers.image.ref.name": "app:1" }));
    let manifest = document(&layout, entry);
    assert_eq!((&manifest["schemaVersion"], &manifest["mediaType"]), (&json!(2), &json!(MANIFEST)));
    let [layer] = &manifest["layers"].as_array().unwrap()[..] else { panic!("{manifest}") };
    assert_eq!(
        (&layer["mediaType"], &manifest["config"]["mediaType"]),
        (&json!("application/vnd.erofs"), &json!(CONFIG))
    );
    let config = json!({ "os": "linux", "architecture": "arm64", "variant": "v8", "os.features": ["erofs"],
                         "rootfs": { "type": "layers", "diff_ids": [layer["digest"]] } });
    assert_eq!(document(&layout, &manifest["config"]), config);

    // The blob is an image, and the layout a source.
    blob(&layout, layer);
    let image = blob_path(&layout, layer);
    stdout(&["check", &image]);
    assert_eq!(stdout(&["diff", &root, &image]), b"");
    stdout(&["pack", "--from", "oci", "--quiet", &layout, &scratch.path("image")]);
    assert_eq!(stdout(&["diff", &root, &scratch.path("image")]), b"");
    stdout(&["oci", "pack", "--quiet", "--media-type", "containerd", "--preset", "plain", &root, &other]);
    let manifest = document(&other, &index(&other)[0]);
    assert_eq!(manifest["layers"][0]["mediaType"], "application/vnd.erofs.layer.v1");
    assert_eq!(stdout(&["diff", &root, &blob_path(&other, &manifest["layers"][0])]), b"");
    assert_eq!(index(&other)[0].get("annotations"), None);

    let dir = scratch.path("mnt");
    fs::create_dir(&dir).unwrap();
    if !run(&["mount", "--via", "kernel", &image, &dir]).status.success() {
        return skip("the kernel does not mount EROFS for us");
    }
    let text = fs::read(format!("{dir}/dir/text"));
    stdout(&["umount", &dir]);
    assert_eq!(text.unwrap(), fs::read(format!("{root}/dir/text")).unwrap());
}

#[test]
fn images_are_added_to_a_layout() {
    let scratch = Scratch::new();
    let root = tree(&scratch);
    let layout = Layout::new(&scratch, "layout");
    let mut first = tagged(two_layers(&scratch, &layout), "first");
    first["annotations"]["org.example.more"] = "stays".into();
    first["unknown"] = json!({ "as": "well" });
    layout.index(&[first.clone()]);
    let pack = |tag: &[&str], sources: &[&str]| {
        stdout(&[&["oci", "pack", "--quiet"], tag, sources, &[&*layout.0]].concat());
        index(&layout.0)
    };
    let two = pack(&["--tag", "second"], &[&root]);
    assert_eq!((two.len(), &two[0]), (2, &first));
    // The upper source has another text: this is another image of the same name.
    let upper = scratch.path("top");
    fs::create_dir(&upper).unwrap();
    fs::write(format!("{upper}/short"), "other").unwrap();
    let replaced = pack(&["--tag", "second"], &[&root, &upper]);
    assert_eq!((replaced.len(), &replaced[0]), (2, &first));
    assert_ne!(replaced[1]["digest"], two[1]["digest"]);
    let out = scratch.path("out");
    stdout(&["pack", "--from", "oci", "--image", "second", "--quiet", &layout.0, &out]);
    assert_eq!(stdout(&["cat", &out, "short"]), b"other");
    // Without a name, an image is listed once.
    assert_eq!(pack(&[], &[&root]).len(), 3);
    let all = pack(&[], &[&root]);
    assert_eq!(all.len(), 3);
    assert_eq!(all[2]["digest"].as_str().map(str::len), Some(71));
    let listed = json(&stdout(&["oci", "inspect", "--json", &layout.0]));
    assert_eq!(listed["images"].as_array().unwrap().iter().filter(|image| image["unreadable"].is_null()).count(), 3);
}

#[test]
fn what_is_no_layout_is_not_added_to() {
    let scratch = Scratch::new();
    let root = tree(&scratch);
    let files = scratch.path("files");
    fs::create_dir(&files).unwrap();
    fs::write(format!("{files}/mine"), "x").unwrap();
    fails(&["oci", "pack", &root, &files], 2, "name an OCI layout");
    assert_eq!(names(&files), ["mine"]);
    fails(&["oci", "pack", &root], 2, "2 values required");
    for tag in ["", "a b", ":bad", "a::b", "app:"] {
        fails(&["oci", "pack", "--tag", tag, &root, &scratch.path("new")], 2, "--tag");
    }
    fails(&["oci", "pack", "--kernel", "5.3", &root, &scratch.path("new")], 2, "5.3");
    fails(&["oci", "pack", "-", "-", &scratch.path("new")], 2, "one source only");
    fails(&["oci", "pack", &scratch.path("none"), &scratch.path("new")], 1, "none");
    assert!(!Path::new(&scratch.path("new")).exists(), "nothing is made before the sources are there");
    let broken = Layout::new(&scratch, "broken");
    fs::write(format!("{}/index.json", broken.0), "[]").unwrap();
    fails(&["oci", "pack", &root, &broken.0], 2, "manifests is no list");
    assert_eq!(fs::read_to_string(format!("{}/index.json", broken.0)).unwrap(), "[]");
}

#[test]
fn converted_images_keep_their_names() {
    let scratch = Scratch::new();
    let layout = Layout::new(&scratch, "layout");
    let manifest = two_layers(&scratch, &layout);
    let (name, containerd) = ("org.opencontainers.image.ref.name", "io.containerd.image.name");
    let mut first = tagged(manifest.clone(), "1");
    first["annotations"][containerd] = "docker.io/b/l2:1".into();
    layout.index(&[first.clone(), tagged(manifest, "latest")]);
    let out = scratch.path("out");
    let named = |out: &str| index(out).iter().map(|entry| entry["annotations"].clone()).collect::<Vec<_>>();
    let kept = [first["annotations"].clone(), json!({ name: "latest" })];
    // Every name has one image again.
    for _ in 0..2 {
        stdout(&["oci", "convert", "--quiet", &layout.0, &out]);
        assert_eq!(named(&out), kept);
    }
    stdout(&["oci", "convert", "--quiet", "--tag", "other", &layout.0, &out]);
    assert_eq!(named(&out), [&kept[..], &[json!({ name: "other" })]].concat());
    stdout(&["oci", "convert", "--quiet", "--image", "latest", &layout.0, &scratch.path("one")]);
    assert_eq!(named(&scratch.path("one")), kept[1..]);
    // The output of `docker save` has tags.
    let layer = tar(&scratch, "saved", &[("a", "text")]);
    let rootfs = json!({ "diff_ids": [format!("sha256:{}", hex(&layer))] });
    let files = [
        ("config.json", json!({ "os": "linux", "architecture": "arm64", "rootfs": rootfs })),
        ("manifest.json", json!([{ "Config": "config.json", "RepoTags": ["b/l2:1", "b/l2:2"], "Layers": ["layer"] }])),
    ];
    let files: Vec<_> = files.iter().map(|(path, document)| (*path, document.to_string())).collect();
    let files: Vec<_> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
    tar(&scratch, "archive", &files);
    fs::write(scratch.path("archive/layer"), layer).unwrap();
    let (archive, saved) = (scratch.path("saved.tar"), scratch.path("from-docker"));
    stdout(&["convert", "--to", "tar", &scratch.path("archive"), &archive]);
    stdout(&["oci", "convert", "--quiet", &archive, &saved]);
    assert_eq!(named(&saved), [json!({ name: "b/l2:1" }), json!({ name: "b/l2:2" })]);
}

#[test]
fn layers_become_erofs_layers() {
    let scratch = Scratch::new();
    let layout = Layout::new(&scratch, "layout");
    let source = two_layers(&scratch, &layout);
    layout.index(&[tagged(source.clone(), "from:1")]);
    let [out, again, archive] = ["out", "again", "layout.tar"].map(|name| scratch.path(name));
    stdout(&["convert", &layout.0, &archive]);
    stdout(&["oci", "convert", "--quiet", "--tag", "to:1", &layout.0, &out]);
    stdout(&["oci", "convert", "--quiet", "--tag", "to:1", "--image", "from:1", &archive, &again]);
    assert_eq!(names(format!("{out}/blobs/sha256")), names(format!("{again}/blobs/sha256")));
    assert_eq!(names(format!("{out}/blobs/sha256")).len(), 4);

    let [entry] = &index(&out)[..] else { panic!() };
    assert_eq!(entry["platform"], json!({ "os": "linux", "architecture": "arm64", "os.features": ["erofs"] }));
    assert_eq!(entry["annotations"], json!({ "org.opencontainers.image.ref.name": "to:1" }));
    let manifest = document(&out, entry);
    assert_eq!(manifest["annotations"], json!({ "org.example.note": "kept" }));
    let layers = manifest["layers"].as_array().unwrap();
    let digests: Vec<_> = layers.iter().map(|layer| layer["digest"].clone()).collect();
    // Nothing else changes in the configuration.
    let mut config = document(&layout.0, &document(&layout.0, &source)["config"]);
    config["os.features"] = json!(["erofs"]);
    config["rootfs"]["diff_ids"] = digests.into();
    assert_eq!(document(&out, &manifest["config"]), config);

    let [lower, upper] = &layers[..] else { panic!("{manifest}") };
    assert!(layers.iter().all(|layer| layer["mediaType"] == "application/vnd.erofs"));
    let [lower, upper] = [lower, upper].map(|layer| {
        blob(&out, layer);
        blob_path(&out, layer)
    });
    stdout(&["check", &lower]);
    assert_eq!(stdout(&["diff", &scratch.path("lower"), &lower]), b"");
    let stat = |path: &str| json(&stdout(&["stat", "--json", &upper, path]));
    assert_eq!((&stat("dir/gone")["type"], &stat("dir/gone")["rdev"]), (&json!("character device"), &json!([0, 0])));
    assert_eq!(stat("opaque")["xattrs"][0]["name"], "trusted.overlay.opaque");
    // A container sees the same.
    let [before, after] = ["before", "after"].map(|name| scratch.path(name));
    stdout(&["pack", "--from", "oci", "--quiet", &layout.0, &before]);
    stdout(&["pack", "--from", "oci", "--quiet", &out, &after]);
    assert_eq!(stdout(&["diff", &before, &after]), b"");
    assert_eq!(stdout(&["cat", &after, "a"]), b"above");
    assert_eq!(run(&["cat", &after, "dir/gone"]).status.code(), Some(1));
    // A layout with EROFS layers is converted like any other, and the marks stay marks.
    stdout(&["oci", "convert", "--quiet", "--preset", "plain", &out, &scratch.path("plain")]);
    // Layers that are EROFS images are copied.
    let copied = scratch.path("copied");
    stdout(&["oci", "convert", "--quiet", &out, &copied]);
    let layers = |layout: &str| document(layout, &index(layout)[0])["layers"].clone();
    assert_eq!(layers(&copied), layers(&out));
    assert_ne!(layers(&scratch.path("plain")), layers(&out));
    fails(&["oci", "convert", &out, &out], 2, "--tag");
    stdout(&["pack", "--from", "oci", "--quiet", "--force", &scratch.path("plain"), &after]);
    assert_eq!(stdout(&["diff", &before, &after]), b"");
    fails(&["oci", "convert", "--image", "none", &layout.0, &out], 2, "no image matches --image");
    assert_eq!(index(&out).len(), 1);
}

#[test]
fn a_full_disk_leaves_the_layout_as_it_was() {
    let scratch = Scratch::new();
    let (disk, small, big) = (scratch.path("disk"), scratch.path("small"), scratch.path("big"));
    [&disk, &small, &big].iter().for_each(|dir| fs::create_dir(dir).unwrap());
    fs::write(format!("{small}/file"), "x").unwrap();
    fs::write(format!("{big}/file"), crate::common::text(3, 4 << 20)).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=256k", "tmpfs", &disk]).output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        return skip("mounting a small file system needs root");
    }
    let layout = format!("{disk}/layout");
    let all = || {
        let index = fs::read(format!("{layout}/index.json")).unwrap_or_default();
        (names(&layout), names(format!("{layout}/blobs/sha256")), index)
    };
    let first = run(&["oci", "pack", "--quiet", "--tag", "same", &small, &layout]);
    let before = all();
    let second = run(&["oci", "pack", "--quiet", "--tag", "same", &big, &layout]);
    let after = all();
    Command::new("umount").arg(&disk).status().unwrap();
    assert_eq!((first.status.code(), second.status.code()), (Some(0), Some(1)));
    assert!(stderr(&second).contains("No space left"), "{}", stderr(&second));
    assert_eq!((before.1.len(), &before), (3, &after));
}
