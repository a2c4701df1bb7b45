//! Digests of contents that another builder stored: `tests/digests/sha256.erofs` was made by
//! mkfs.erofs 1.9.4 with `-zlz4 --xattr-inode-digest` from `hello` ("hello\n", also named `hard`),
//! `empty`, `text` and a symbolic link.

use kiln_read::{DigestCheck, FollowLast, Image, ImageOptions, MemorySource, Threads};
use std::sync::Arc;

const IMAGE: &[u8] = include_bytes!("../digests/sha256.erofs");

fn open(bytes: Vec<u8>) -> Image {
    let options = ImageOptions::default().with_any_checksum();
    Image::open(Arc::new(MemorySource::new(bytes)), Vec::new(), &options).unwrap()
}

#[test]
fn digests_are_those_of_the_contents() {
    let image = open(IMAGE.to_vec());
    assert!(image.has_content_digests());
    let digest = |path: &str| {
        let inode = image.resolve(path.as_bytes(), FollowLast::Keep).unwrap();
        (image.content_digest(&inode).unwrap(), image.check_digest(&inode).unwrap())
    };
    let (stored, compared) = digest("hello");
    assert_eq!(stored.unwrap().to_string(), "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03");
    assert_eq!(compared, DigestCheck::Equal);
    assert_eq!(digest("hard"), digest("hello"));
    assert_eq!(digest("text").1, DigestCheck::Equal);
    for without in ["empty", "link", ""] {
        assert_eq!(digest(without), (None, DigestCheck::Absent));
    }
    assert_eq!(image.check(Threads::at_least_one(2)).unwrap().problem_count, 0);
    // They stay out of sight.
    let hello = image.resolve(b"hello", FollowLast::Keep).unwrap();
    assert!(image.list_xattrs(&hello).unwrap().is_empty());
}

#[test]
fn other_contents_are_found() {
    let mut bytes = IMAGE.to_vec();
    let at = bytes.windows(6).position(|window| window == b"hello\n").expect("stored beside the inode");
    bytes[at] = b'j';
    let image = open(bytes);
    let hello = image.resolve(b"hello", FollowLast::Keep).unwrap();
    assert_eq!(image.check_digest(&hello).unwrap(), DigestCheck::Different);
    let report = image.check(Threads::ONE).unwrap();
    let found: Vec<String> = report.problems.iter().map(ToString::to_string).collect();
    assert!(found.iter().any(|problem| problem.contains("stored digest")), "{found:?}");
}
