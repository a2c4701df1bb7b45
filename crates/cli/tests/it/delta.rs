//! `kiln delta` and `kiln apply`

use crate::common::{Scratch, fails, golden, kiln, stdout};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

/// Two images of a tree in two versions, and a patch between them.
fn versions(scratch: &Scratch) -> [String; 3] {
    let [root, old, new, patch] = ["src", "old", "new", "patch"].map(|name| scratch.path(name));
    fs::create_dir(&root).unwrap();
    let text: String = (0..40_000).map(|n: u32| format!("{:x} is a word\n", n.wrapping_mul(2_654_435_761))).collect();
    fs::write(format!("{root}/large"), &text).unwrap();
    fs::write(format!("{root}/small"), &text[..3000]).unwrap();
    stdout(&["pack", "-q", &root, &old]);
    fs::write(format!("{root}/large"), text.replacen("1 is", "one IS", 50)).unwrap();
    stdout(&["pack", "-q", "--preset", "fast", &root, &new]);
    stdout(&["delta", "-q", &old, &new, &patch]);
    [old, new, patch]
}

#[test]
fn a_patch_makes_the_new_image() {
    let scratch = Scratch::new();
    let [old, new, patch] = versions(&scratch);
    assert!(fs::metadata(&patch).unwrap().len() * 20 < fs::metadata(&new).unwrap().len());
    let made = scratch.path("made");
    stdout(&["apply", &old, &patch, &made]);
    assert!(fs::read(&made).unwrap() == fs::read(&new).unwrap());
    fails(&["apply", &old, &patch, &made], 1, "exists already");
    stdout(&["apply", "-q", "--force", &old, &patch, &made]);
    fails(&["delta", &old, &new, &patch], 1, "exists already");
}

#[test]
fn patches_go_through_pipes() {
    let scratch = Scratch::new();
    let [old, new, patch] = versions(&scratch);
    let made = scratch.path("made");
    let streamed = stdout(&["delta", "-q", &old, &new, "-"]);
    assert!(streamed == fs::read(&patch).unwrap());
    let input = fs::File::open(&patch).unwrap();
    let mut apply = kiln();
    let status = apply.args(["apply", "-q", &old, "-", &made]).stdin(Stdio::from(input)).status().unwrap();
    assert!(status.success());
    assert!(fs::read(&made).unwrap() == fs::read(&new).unwrap());
    fails(&["delta", "--json", &old, &new, "-"], 2, "--json");
}

#[test]
fn the_old_image_becomes_the_new_one() {
    let scratch = Scratch::new();
    let [old, new, patch] = versions(&scratch);
    stdout(&["apply", "--in-place", &old, &patch]);
    assert!(fs::read(&old).unwrap() == fs::read(&new).unwrap());
    assert_eq!(scratch.names(), ["new", "old", "patch", "src"], "the journal is gone");
    stdout(&["apply", "--in-place", &old, &patch]);
    fails(&["apply", "--in-place", &old, &patch, &new], 2, "cannot be used with");
    fails(&["apply", "--journal", &new, &old, &patch, "x"], 2, "--in-place");
}

#[test]
fn what_does_not_fit_is_refused_and_nothing_appears() {
    let scratch = Scratch::new();
    let [old, new, patch] = versions(&scratch);
    let made = scratch.path("made");
    let before = fs::read(&new).unwrap();
    fails(&["apply", &new, &patch, &made], 1, "not the image that the patch was made for");
    fails(&["apply", "--in-place", &golden("lz4.erofs"), &patch], 1, "not the image that the patch was made for");
    fails(&["apply", &old, &new, &made], 1, "not a patch of kiln");
    let bytes = fs::read(&patch).unwrap();
    fs::write(&patch, &bytes[..bytes.len() - 30]).unwrap();
    fails(&["apply", &old, &patch, &made], 1, "cannot read the patch at byte");
    let mut damaged = bytes.clone();
    damaged[bytes.len() - 40] ^= 4;
    fs::write(&patch, damaged).unwrap();
    fails(&["apply", &old, &patch, &made], 1, "damaged patch");
    fails(&["apply", "--in-place", &old, &patch], 1, "damaged patch");
    fails(&["delta", &patch, &new, &scratch.path("other")], 1, "patch");
    assert!(fs::read(&new).unwrap() == before);
    assert_eq!(scratch.names(), ["new", "old", "patch", "src"]);
    fs::write(&patch, bytes).unwrap();
    stdout(&["apply", "--in-place", "-q", &old, &patch]);
}

#[test]
fn images_of_mkfs_become_each_other() {
    let scratch = Scratch::new();
    for (old, new) in
        [("lz4.erofs", "zstd.erofs"), ("flat.erofs", "lzma.erofs"), ("deflate.erofs", "metabox-zstd.erofs")]
    {
        let (old, new, patch, made) = (golden(old), golden(new), scratch.path("patch"), scratch.path("made"));
        stdout(&["delta", "-q", "--force", &old, &new, &patch]);
        stdout(&["apply", "-q", "--force", &old, &patch, &made]);
        assert!(fs::read(&made).unwrap() == fs::read(&new).unwrap(), "{old} {new}");
    }
}

#[test]
fn a_journal_of_others_is_not_replayed() {
    let scratch = Scratch::new();
    let [old, _, patch] = versions(&scratch);
    let (journal, before) = (scratch.path("journal"), fs::read(&old).unwrap());
    fs::write(&journal, "").unwrap();
    fs::set_permissions(&journal, fs::Permissions::from_mode(0o622)).unwrap();
    fails(&["apply", "--in-place", "--journal", &journal, &old, &patch], 2, "another user could have written");
    assert!(fs::read(&old).unwrap() == before && fs::exists(&journal).unwrap());
}
