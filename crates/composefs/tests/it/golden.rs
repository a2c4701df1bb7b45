//! Ids of images that composefs 1.0.8 made.

use super::common::{ROOT, VERSIONS, image, read, write};
use kiln_composefs::image::{ImageOptions, Version};
use kiln_digest::Algorithm;
use kiln_digest::fsverity::digest;

/// Returns the id of an image.
pub fn id(image: &[u8]) -> String {
    digest(Algorithm::Sha256, image).to_string()
}

/// Returns the dumps of the table, with the beginnings of the ids of their images, V0 and V1.
fn table() -> Vec<(String, [&'static str; 2])> {
    let a = |len| "a".repeat(len);
    let many: String =
        (0..30).map(|idx| format!("/d{idx:03}{} 0 100644 1 0 0 0 0.0 - - -\n", "x".repeat(200))).collect();
    let object = format!("ab/{}", "ab".repeat(31));
    let rows = [
        (String::new(), ["8f589e8f57ecb88823736b0d", "14a26c957c84f6eb774b9120"]),
        // A whiteout raises the version.
        ("/w 0 20644 1 0 0 0 0.0 - - -\n".into(), ["24ba4ca8a5b48485654f7ff2"; 2]),
        (
            "/a 0 100644 2 0 0 0 0.0 - - -\n/b 0 @100644 2 0 0 0 0.0 /a - -\n".into(),
            ["0bd2b42cea0acab281a44ef4", "94430745c5602b8111131cd4"],
        ),
        (format!("/a 64 100644 1 0 0 0 0.0 - {} -\n", a(64)), ["6f4169fc92c5ec7b3580ddc2", "27ad0189209369faa3690b68"]),
        (
            format!("/a 1 120777 1 0 0 0 0.0 {} - -\n", a(1024)),
            ["8571e7dcd81bfa4e7c27460b", "199186f611b8ca15138427b1"],
        ),
        (
            ["/a", "/b"].map(|path| format!("{path} 0 100644 1 0 0 0 0.0 - - - user.k=v user.l=w\n")).concat(),
            ["e359410be047eef2bc22f606", "fbe76545c2a1e7ae667aa352"],
        ),
        ("/a 0 100644 1 0 0 0 1.1 - - -\n".into(), ["7fc96c386b6fcf8a5370b721", "f4b35ce407d2ec545669c46d"]),
        (
            format!("/a 9999 100644 1 0 0 0 0.0 {object} - {}\n", "ab".repeat(32)),
            ["6988371538e298f5cf2e6e0f", "4b5e8b21362ff2d8d18f387e"],
        ),
        (
            "/a 0 100644 1 0 0 0 0.0 - - - lustre.lov=1\n".into(),
            ["c73ea0d4f1ba2a6262338bd5", "b91bba15a53a102b9923503f"],
        ),
        ("/aa 0 40755 2 0 0 0 0.0 - - -\n".into(), ["29073e5f7aa76190642834a6", "2d2114501c7ecc1edb56a427"]),
        (
            "/a 4503599627370496 100644 1 0 0 0 0.0 aa/b - -\n".into(),
            ["ae625aa401314133217c9661", "a29bd8beefcc66130cf103b3"],
        ),
        (
            format!("/a 1 120777 1 0 0 0 0.0 {} - -\n", a(4095)),
            ["37ce9c0a2bac0e9ee6844708", "eeecb249c181238b302461b8"],
        ),
        (many, ["8db73f576e3c3f84f26d4744", "980eb4c1c87dbf0943901313"]),
    ];
    rows.map(|(lines, ids)| (format!("{ROOT}{lines}"), ids)).into()
}

#[test]
fn images_have_the_ids_of_composefs() {
    for (text, ids) in table() {
        let tree = read(text.as_bytes());
        for (version, expected) in VERSIONS.into_iter().zip(ids) {
            let id = id(&image(&tree, version));
            assert!(id.starts_with(expected), "{id} for {version:?} of {}", &text[..text.len().min(300)]);
        }
    }
}

#[test]
fn images_of_their_own_dumps_are_the_same() {
    for (text, _) in table() {
        let tree = read(text.as_bytes());
        let again = write(&tree);
        assert_eq!(write(&read(&again)), again);
        for version in VERSIONS {
            assert_eq!(image(&read(&again), version), image(&tree, version));
        }
    }
}

/// The inode of a hard link is where its line is, not at the first path.
#[test]
fn the_line_decides_which_name_has_the_inode() {
    let names = "/z 0 100644 2 0 0 0 0.0 - - -\n/zz 0 100644 1 0 0 0 0.0 - - -\n/d 0 40755 2 0 0 0 0.0 - - -\n";
    let text = format!("{ROOT}{names}/d/b 0 @100644 2 0 0 0 0.0 /z - -\n");
    let id_of = |text: &[u8]| id(&image(&read(text), Version::V1));
    assert!(id_of(text.as_bytes()).starts_with("d1aee639d900c1903ea59ac0"));
    // Its canonical dump moves the inode to `/d/b`, where composefs-rs has it.
    let canonical = write(&read(text.as_bytes()));
    assert!(id_of(&canonical).starts_with("7a4b907f0aebccde552da9d9"));
}

#[test]
fn other_algorithms_and_versions_are_options() {
    let options = ImageOptions { algorithm: Some(Algorithm::Sha512), ..ImageOptions::default() };
    let write = |text: &str, options: &ImageOptions| {
        kiln_composefs::image::write(&read(text.as_bytes()), options, &mut Vec::new()).unwrap()
    };
    let summary = write(ROOT, &options);
    assert!(summary.digest.unwrap().to_string().starts_with("ae399f4c2c5c1fed2238affa"));
    assert_eq!((summary.version, summary.inodes), (Version::V0, 257));

    let whiteout = format!("{ROOT}/w 0 20644 1 0 0 0 0.0 - - -\n");
    let version = |min_version, max_version| {
        write(&whiteout, &ImageOptions { min_version, max_version, algorithm: None }).version
    };
    assert_eq!(version(Version::V0, Version::V1), Version::V1);
    assert_eq!(version(Version::V0, Version::V0), Version::V0);
    assert_eq!(version(Version::V1, Version::V0), Version::V1);
}
