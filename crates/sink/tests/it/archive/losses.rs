//! Properties that a format cannot represent are counted.

use super::{exported, image_of, losses};
use kiln_format::inode::Rdev;
use kiln_read::{Image, ImageOptions};
use kiln_sink::SinkError;
use kiln_sink::archive::{ExportOptions, Format, Loss};
use kiln_tests::golden;
use kiln_tests::mem::{MemFile, MemTree};
use kiln_tree::{Kind, NodeId};

const ROOT: NodeId = NodeId::ROOT;

/// Returns an image with one of each property that some format cannot represent.
fn odd() -> Image {
    let mut tree = MemTree::default();
    tree.add(ROOT, b"socket", Kind::Socket);
    tree.add(ROOT, b"fifo", Kind::Fifo);
    tree.add(ROOT, b"char", Kind::CharDevice(Rdev { major: 1, minor: 3 }));
    tree.add(ROOT, b"block", Kind::BlockDevice(Rdev { major: 7, minor: 0 }));
    let file = tree.file(ROOT, b"file", MemFile::whole(b"text".to_vec()));
    tree.name(ROOT, b"linked", file);
    tree.xattr(file, b"user.empty", b"");
    let old = tree.file(ROOT, b"old", MemFile::default());
    tree.meta(old).mtime = -3_000_000_000;
    let odd = tree.file(ROOT, b"odd", MemFile::default());
    tree.meta(odd).mtime_nsec = 7;
    let mut hollow = MemFile::default();
    hollow.push_hole(1 << 32);
    tree.file(ROOT, b"hollow", hollow);
    let link = tree.add(ROOT, b"line", Kind::Symlink(b"a\nb".as_slice().into()));
    tree.name(ROOT, b"line2", link);
    image_of(tree)
}

#[test]
fn each_loss_is_counted() {
    let image = odd();
    // Without the large file, which would be written as zeros.
    let parts = ["socket", "fifo", "char", "block", "file", "linked", "old", "odd", "line", "line2"];
    let of = |format, patterns: &[&str]| {
        let (_, report) = exported(&image, patterns, &ExportOptions::new(format));
        let missing = report.losses.keys().any(|loss| loss.is_missing());
        assert_eq!(report.is_incomplete(), missing);
        losses(&report)
    };
    assert_eq!(of(Format::Tar, &["/"]), [(Loss::Sockets, 1)]);
    let zip = [
        (Loss::Sockets, 1),
        (Loss::Devices, 2),
        (Loss::Fifos, 1),
        (Loss::Xattrs, 2),
        (Loss::HardLinks, 2),
        (Loss::Times, 1),
        (Loss::Nanoseconds, 1),
    ];
    assert_eq!(of(Format::Zip, &parts), zip);
    let cpio =
        [(Loss::LargeFiles, 1), (Loss::Xattrs, 1), (Loss::HardLinks, 1), (Loss::Times, 1), (Loss::Nanoseconds, 1)];
    assert_eq!(of(Format::Cpio, &["/"]), cpio);
    assert_eq!(of(Format::Mtree, &parts), [(Loss::Xattrs, 2), (Loss::HardLinks, 2)]);
    let pseudo = [(Loss::Names, 2), (Loss::Xattrs, 1), (Loss::Times, 1), (Loss::Nanoseconds, 1)];
    assert_eq!(of(Format::SquashfsPseudo, &parts), pseudo);
    assert_eq!(of(Format::Zip, &["odd"]), [(Loss::Nanoseconds, 1)]);
}

#[test]
fn holes_take_no_room_in_tar() {
    let (tar, report) = exported(&odd(), &["hollow"], &ExportOptions::new(Format::Tar));
    assert_eq!((report.files, report.bytes, report.is_incomplete()), (1, 1 << 32, false));
    assert_eq!(tar.len(), 10240);
}

#[test]
fn files_of_composefs_are_named_and_left_out() {
    let image = golden::file("composefs/image.erofs");
    let image = Image::open_path(&image, &[], &ImageOptions::default()).unwrap();
    for format in [Format::Tar, Format::Zip, Format::Cpio, Format::Mtree, Format::SquashfsPseudo] {
        let (_, report) = exported(&image, &["/"], &ExportOptions::new(format));
        assert!(report.is_incomplete() && !report.skipped.is_empty());
        assert!(report.skipped.iter().all(|(_, error)| matches!(error, SinkError::NeedsObject { .. })));
    }
}
