//! Dumps of composefs.

use kilnfs::composefs::image::{ImageOptions, Version, write};
use kilnfs::composefs::{dump, read_image};

/// Reads a dump. One that is taken is written so that it reads as the same again, and makes an image
/// from which it comes back.
pub fn dump(data: &[u8]) {
    let Ok(tree) = dump::read(data, &mut |_| {}) else { return };
    let mut canonical = Vec::new();
    dump::write(&tree, &mut canonical).expect("memory");
    let again = dump::read(&*canonical, &mut |_| {}).expect("a written dump");
    let mut twice = Vec::new();
    dump::write(&again, &mut twice).expect("memory");
    assert!(canonical == twice);
    for version in [Version::V0, Version::V1] {
        let options = ImageOptions { min_version: version, ..ImageOptions::default() };
        let mut image = Vec::new();
        let summary = write(&again, &options, &mut image).expect("an image");
        assert_eq!(summary.len, image.len() as u64);
        let image = crate::image::open(image).expect("an image that was written");
        read_image(&image).expect("the tree of an image that was written");
    }
}
