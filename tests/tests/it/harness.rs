//! The harness itself: it makes what it should, copies are equal, and comparisons find differences.

use kiln_tests::data::Texture;
use kiln_tests::generator::{Scale, make};
use kiln_tests::slow::Slow;
use kiln_tests::snapshot::{assert_same, diff, of_dir};
use kiln_tests::temp::TempDir;
use kiln_tests::{copy, skipped};
use kiln_tree::ContentId;
use kiln_tree::conformance::{Echo, assert_forwards};
use std::time::Duration;

#[test]
fn a_copy_is_the_same_and_a_change_is_seen() {
    let [source, target] = ["source", "target"].map(|what| TempDir::new(what).unwrap());
    for reason in make(source.path(), 1, Scale::Reduced).unwrap() {
        skipped(&reason);
    }
    let before = of_dir(source.path()).unwrap();
    println!("{} names", before.len());
    copy::backwards(source.path(), target.path()).unwrap();
    assert_same(&before, &of_dir(target.path()).unwrap(), "the copy");
    std::fs::write(target.path().join("files/Text/100"), [b'x'; 100]).unwrap();
    let lines = diff(&before, &of_dir(target.path()).unwrap());
    assert!(lines.len() == 2 && lines.iter().all(|line| line.starts_with("files/Text/100: ")), "{lines:?}");
}

#[test]
fn every_texture_has_its_length_and_depends_on_its_seed() {
    for texture in Texture::ALL {
        for len in [0, 1, 4096, 300_001] {
            let bytes = texture.bytes(7, len);
            assert_eq!(bytes.len(), len, "{texture:?}");
            assert_eq!(bytes, texture.bytes(7, len));
            let other = texture.bytes(8, len);
            assert!(texture == Texture::Zeros || len < 100 || bytes != other, "{texture:?}");
        }
    }
}

#[test]
fn slow_contents_forward_all_questions() {
    let slow = Slow::new(Box::new(Echo), 1, Duration::from_micros(1), 100);
    assert_forwards(&slow, (ContentId(3), "a"), (ContentId(3), "a"), &[]);
}
