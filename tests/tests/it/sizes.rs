//! Sizes and SHA-256 of images of one tree, by options. `sizes.txt` has all of them, so that a
//! reviewer sees the effect of a change on images. After an intended change, `KILN_BLESS=1 cargo
//! test -p kiln-tests --test it sizes` updates it.

use kiln_builder::{Blob, Out};
use kiln_format::inode::Rdev;
use kiln_tests::choices;
use kiln_tests::data::Texture;
use kiln_tests::image::build_to;
use kiln_tests::mem::{MemFile, MemTree};
use kiln_tests::reviewed::{assert_reviewed, line};
use kiln_tree::{Kind, NodeId, Tree};
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;

const ROOT: NodeId = NodeId(0);

/// Returns a tree that is the same on every machine: files of all textures, versions of them,
/// holes, names, links, attributes, devices.
fn tree() -> Tree {
    let mut tree = MemTree::default();
    let bin = tree.dir(ROOT, b"bin");
    for (number, texture) in (0..).zip(Texture::ALL) {
        let bytes = texture.bytes(number, 150_000);
        let cut = 50_000 + 97 * number as usize;
        let spliced = [&bytes[cut..], b"between", &bytes[..cut]].concat();
        let short = texture.bytes(10 + number, 300 * (1 + number as usize));
        for (name, contents) in [("whole", bytes.clone()), ("again", bytes), ("spliced", spliced), ("short", short)] {
            tree.file(bin, format!("{name}-{number}").as_bytes(), MemFile::whole(contents));
        }
    }
    tree.file(bin, b"long", MemFile::whole(Texture::Mixed.bytes(20, 1_300_000)));
    let mut holes = MemFile::whole(Texture::Text.bytes(21, 70_000));
    holes.push_hole(3 << 20);
    holes.push(Texture::Noise.bytes(22, 5000));
    holes.push_hole(100_000);
    tree.file(bin, b"holes", holes);
    let many = tree.dir(ROOT, b"many");
    for number in 0..400_u64 {
        let contents = Texture::Text.bytes(1000 + number, (number * 37 % 1500) as usize);
        let file = tree.file(many, format!("file number {number}").as_bytes(), MemFile::whole(contents));
        tree.meta(file).mtime = 1_600_000_000 + number as i64 % 3;
    }
    others(&mut tree);
    tree.finish().unwrap()
}

/// Adds special files, and files with attributes.
fn others(tree: &mut MemTree) {
    let etc = tree.dir(ROOT, b"etc");
    let empty = tree.file(etc, b"empty", MemFile::default());
    tree.name(ROOT, b"empty too", empty);
    tree.add(etc, b"short", Kind::Symlink(b"../bin".to_vec().into()));
    tree.add(etc, b"long", Kind::Symlink("../bin/".repeat(90).into_bytes().into()));
    tree.add(etc, b"fifo", Kind::Fifo);
    tree.add(etc, b"null", Kind::CharDevice(Rdev { major: 1, minor: 3 }));
    for number in 0..30_u32 {
        let file = tree.file(etc, format!("tagged {number}").as_bytes(), MemFile::whole(vec![b'x'; 10]));
        tree.xattr(file, b"security.selinux", b"system_u:object_r:etc_t:s0\0");
        tree.xattr(file, b"user.long.name.of.it", format!("{}", number % 7).as_bytes());
        let meta = tree.meta(file);
        (meta.uid, meta.gid, meta.permissions) = (1000 + number * 3000, 70_000 + number, 0o600);
    }
}

fn in_memory() -> File {
    File::from(memfd_create("kiln-test", MemfdFlags::CLOEXEC).unwrap())
}

/// Returns all bytes of a file in memory.
fn bytes(mut file: File) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.rewind().and_then(|()| file.read_to_end(&mut bytes)).unwrap();
    bytes
}

#[test]
fn images_are_those_of_the_table() {
    let tree = tree();
    let mut table = String::new();
    for row in choices::pairwise(&choices::dimensions()) {
        let what = choices::names(&row);
        let place = choices::place(&row, &tree, 2);
        let (image, device) = (in_memory(), in_memory());
        let blob = place.has_blob.then_some(Blob { file: &device, tag: [b'b'; 64] });
        let out = Out { image: &image, offset: place.offset, blob, behind: None };
        build_to(&tree, out, &place.options).unwrap_or_else(|error| panic!("{what}: {error}"));
        for (file, name) in [(image, "image"), (device, "device")] {
            let bytes = bytes(file);
            if !bytes.is_empty() {
                table += &line(&bytes, &format!("{name}: {what}"));
            }
        }
    }
    assert_reviewed(&table, &Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sizes.txt"));
}
