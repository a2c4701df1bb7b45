//! Images with a hash tree that are changed in place.

use super::{SALT, assert_verified, files, has_veritysetup, is_unverified, root_hash};
use crate::common::{Scratch, fails, json, number, run, stderr, stdout, text};
use std::fs;
use std::process::Command;

/// Makes an image with a tree, and changes its source then.
fn image(more: &[&str]) -> (Scratch, String, String) {
    let scratch = Scratch::new();
    let [src, image] = ["src", "image"].map(|name| scratch.path(name));
    files(&src);
    stdout(&[&["pack", "-q", "--verity", &src, &image], more].concat());
    fs::write(format!("{src}/new"), text(9, 50_000)).unwrap();
    (scratch, src, image)
}

/// Asserts that the tree of the image is the one that `verity format` makes of it, with `options`.
fn assert_as_formatted(scratch: &Scratch, image: &str, options: &[&str]) {
    assert_verified(image);
    let (again, end) =
        (scratch.path("formatted"), number(&json(&stdout(&["verity", "show", "--json", image])), "hash_offset"));
    fs::write(&again, &fs::read(image).unwrap()[..end as usize]).unwrap();
    stdout(&[&["verity", "format", "-q", &again], options].concat());
    assert!(fs::read(image).unwrap() == fs::read(&again).unwrap(), "the tree of {image}");
    fs::remove_file(again).unwrap();
}

#[test]
fn an_update_refuses_a_tree_that_would_not_fit() {
    let (scratch, src, image) = image(&["--sidecar"]);
    let before = fs::read(&image).unwrap();
    let names = scratch.names();
    for args in [&["update", &image, &src][..], &["update", "--discard-tail", &image, &src]] {
        fails(args, 1, "--drop-verity");
        assert!(fs::read(&image).unwrap() == before);
    }
    fails(&["rollback", &image], 2, "nothing to go back to");
    assert_eq!(scratch.names(), names);
    fails(&["update", "--verity", "--drop-verity", &image, &src], 2, "--drop-verity");
    stdout(&["update", "-q", "--verity", &image, &src]);
    fails(&["rollback", &image], 1, "--drop-verity");
}

#[test]
fn an_update_drops_a_tree_with_all_that_tells_of_it() {
    let (scratch, src, image) = image(&["--sidecar"]);
    let before = root_hash(&image);
    let output = run(&["update", "--drop-verity", &image, &src]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("image.roothash: is about the image as it was"), "{}", stderr(&output));
    assert_eq!(scratch.names(), ["image", "image.dmverity.old", "image.roothash.old", "src"]);
    fails(&["verity", "show", &image], 1, "no hash tree");
    assert!(is_unverified(&image, &before));
    // The image is what it is without a tree in between.
    stdout(&["check", &image]);
    assert_eq!(stdout(&["cat", &image, "/new"]), text(9, 50_000));
    stdout(&["update", "-q", &image, &src]);
    stdout(&["rollback", "-q", &image]);
}

#[test]
fn an_update_makes_a_new_tree() {
    for options in [&[][..], &["--verity-salt", SALT], &["--block-size", "1k"]] {
        let (scratch, src, image) = image(options);
        let before = root_hash(&image);
        let format: &[&str] = if options.contains(&SALT) { &["--salt", SALT] } else { &[] };
        let told = json(&stdout(&["update", "--json", "--verity", &image, &src]));
        assert_eq!(told["verity"]["root_hash"], root_hash(&image));
        assert_eq!(crate::json::undocumented(&told), [""; 0]);
        assert_ne!(root_hash(&image), before);
        assert_as_formatted(&scratch, &image, format);
        stdout(&["update", "-q", "--verity", "--remove", "below/f4", &image]);
        assert_as_formatted(&scratch, &image, format);
        stdout(&["rollback", "-q", "--verity", &image]);
        assert_as_formatted(&scratch, &image, format);
        assert_eq!(stdout(&["cat", &image, "below/f4"]), text(4, 900_000));
        stdout(&["check", &image]);
        if has_veritysetup() {
            let offset = json(&stdout(&["verity", "show", "--json", &image]));
            let offset = format!("--hash-offset={}", number(&offset, "hash_offset"));
            let size = if options.contains(&"1k") { "1024" } else { "4096" };
            let made = Command::new("veritysetup")
                .args(["verify", &offset, &format!("--data-block-size={size}"), &image, &image, &root_hash(&image)])
                .output();
            assert!(made.as_ref().unwrap().status.success(), "{made:?}");
        }
        // Another salt than before: all is hashed again.
        stdout(&["update", "-q", "--verity", "--verity-salt", "none", "--remove", "below/f3", &image]);
        assert_as_formatted(&scratch, &image, &["--salt", "none"]);
        // An image without a tree gets one.
        stdout(&["update", "-q", "--drop-verity", "--remove", "below/f2", &image]);
        stdout(&["update", "-q", "--verity", "--remove", "below/f1", &image]);
        assert_as_formatted(&scratch, &image, &[]);
    }
}

#[test]
fn what_has_not_changed_keeps_its_tree() {
    let (scratch, src, image) = image(&[]);
    fs::remove_file(format!("{src}/new")).unwrap();
    // The directory has another time.
    stdout(&["pack", "-q", "--force", "--verity", &src, &image]);
    let before = fs::read(&image).unwrap();
    let hash = scratch.path("hash");
    stdout(&["update", "-q", "--verity", "--root-hash-file", &hash, &image, &src]);
    assert_eq!(fs::read_to_string(&hash).unwrap(), root_hash(&image));
    assert!(fs::read(&image).unwrap() == before);
    fs::remove_file(hash).unwrap();
    for option in ["--verity", "--drop-verity"] {
        let told = json(&stdout(&["update", "--json", option, &image, &src]));
        assert!(told["unchanged"] == true && told["verity"].is_null(), "{told}");
        assert!(fs::read(&image).unwrap() == before);
        assert_verified(&image);
    }
    assert_eq!(scratch.names(), ["image", "image.roothash", "src"]);
}

#[test]
fn damage_keeps_its_old_digest_through_an_update() {
    let (_scratch, src, image) = image(&["--preset", "plain"]);
    let mut bytes = fs::read(&image).unwrap();
    let end = number(&json(&stdout(&["verity", "show", "--json", &image])), "hash_offset") as usize;
    bytes[end / 2] ^= 1;
    fs::write(&image, bytes).unwrap();
    stdout(&["update", "-q", "--verity", &image, &src]);
    let output = run(&["verity", "verify", "--json", &image, "--root-hash", &root_hash(&image)]);
    let report = json(&output.stdout);
    assert_eq!((output.status.code(), number(&report, "problem_count")), (Some(4), 1), "{report}");
    assert_eq!(number(&report["problems"][0], "offset"), (end / 2 / 4096 * 4096) as u64);
}

#[test]
fn a_tree_that_does_not_fit_is_not_built_upon() {
    let (_scratch, src, image) = image(&[]);
    let good = fs::read(&image).unwrap();
    let end = number(&json(&stdout(&["verity", "show", "--json", &image])), "hash_offset") as usize;
    let refused = |what: &str| {
        let before = fs::read(&image).unwrap();
        let output = run(&["update", "--verity", &image, &src]);
        assert_eq!(output.status.code(), Some(1), "{what}: {}", stderr(&output));
        assert!(stderr(&output).contains("hash tree"), "{what}: {}", stderr(&output));
        assert!(fs::read(&image).unwrap() == before, "{what}");
    };
    for (what, at) in [("a leaf", good.len() - 4096), ("the top", end + 4096)] {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        fs::write(&image, bytes).unwrap();
        refused(what);
    }
    // The front of another image, in whose updates nothing else changes.
    let mut bytes = good.clone();
    bytes[0] ^= 1;
    fs::write(&image, bytes).unwrap();
    refused("the front");
    fs::write(&image, &good).unwrap();
    let hash = root_hash(&image);
    fs::write(format!("{image}.roothash"), "00".repeat(32)).unwrap();
    refused("the root hash");
    fs::write(format!("{image}.roothash"), hash).unwrap();
    stdout(&["update", "-q", "--verity", &image, &src]);
    assert_verified(&image);
}

#[test]
fn a_tree_beside_an_image_does_not_stand_by_a_changed_one() {
    let scratch = Scratch::new();
    let [src, image] = ["src", "image"].map(|name| scratch.path(name));
    let tree = format!("--verity={image}.verity");
    files(&src);
    stdout(&["pack", "-q", &tree, &src, &image]);
    assert_verified(&image);
    fs::write(format!("{src}/new"), text(9, 50_000)).unwrap();
    let unchanged = |names: &[&str]| assert_eq!(scratch.names(), names);
    stdout(&["update", "-q", &tree, &image, &src]);
    assert_verified(&image);
    unchanged(&["image", "image.roothash", "image.roothash.old", "image.verity", "image.verity.old", "src"]);
    stdout(&["update", "-q", "--remove", "new", &image]);
    unchanged(&["image", "image.roothash.old", "image.verity.old", "src"]);
    fs::write(format!("{image}.roothash"), "00".repeat(32)).unwrap();
    stdout(&["rollback", "-q", &image]);
    unchanged(&["image", "image.roothash.old", "image.verity.old", "src"]);
}

#[test]
fn a_repair_drops_a_tree_or_makes_a_new_one() {
    let (scratch, src, image) = image(&[]);
    stdout(&["update", "-q", "--verity", &image, &src]);
    // The front is lost; the first generation has a copy in the record of the second.
    let mut bytes = fs::read(&image).unwrap();
    bytes[1024..1536].fill(0);
    fs::write(&image, &bytes).unwrap();
    fails(&["repair", &image], 1, "--drop-verity");
    fails(&["repair", "--verity", "-o", &scratch.path("new"), &image], 2, "--output");
    assert!(fs::read(&image).unwrap() == bytes);
    stdout(&["repair", "-q", "--verity", &image]);
    assert_as_formatted(&scratch, &image, &[]);
    fails(&["cat", &image, "/new"], 1, "new");
    fs::write(&image, &bytes).unwrap();
    stdout(&["repair", "-q", "--drop-verity", &image]);
    assert!(!fs::exists(format!("{image}.roothash")).unwrap());
    fails(&["cat", &image, "/new"], 1, "new");
    fails(&["verity", "show", &image], 1, "no hash tree");
}
