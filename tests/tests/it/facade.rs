//! The library as a program uses it.

use kiln_tests::skipped;
use kiln_tests::temp::TempDir;
use kilnfs::builder::OptionError;
use kilnfs::output::{MemoryOutput, OutputError};
use kilnfs::{Error, MountVia, Packer, Preset};
use std::fs;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Returns a directory with a source in it.
fn place() -> TempDir {
    let dir = TempDir::new("facade").unwrap();
    fs::create_dir_all(dir.path().join("src/sub")).unwrap();
    fs::write(dir.path().join("src/sub/file"), "contents\n".repeat(1000)).unwrap();
    dir
}

#[test]
fn packed_trees_are_extracted() {
    let dir = place();
    let [src, image, out] = ["src", "image", "out"].map(|name| dir.path().join(name));
    for preset in Preset::ALL {
        let packed = Packer::new().preset(preset).replace().pack(&src, &image).unwrap();
        assert_eq!((packed.summary.files, packed.skipped.len()), (1, 0));
        kilnfs::extract(&image, &out).unwrap();
        assert_eq!(fs::read(out.join("sub/file")).unwrap(), fs::read(src.join("sub/file")).unwrap(), "{preset:?}");
        fs::remove_dir_all(&out).unwrap();
    }
    // An image is a source, too.
    let again = dir.path().join("again");
    kilnfs::pack(&image, &again, Preset::Plain).unwrap();
    assert_eq!(kilnfs::open(&again).unwrap().open_file("sub/file").unwrap().size(), 9000);
}

#[test]
fn memory_and_files_get_the_same_bytes() {
    let dir = place();
    let (src, image, memory) = (dir.path().join("src"), dir.path().join("image"), MemoryOutput::default());
    Packer::new().pack(&src, &image).unwrap();
    Packer::new().pack_to(&src, &memory).unwrap();
    assert_eq!(memory.into_bytes(), fs::read(&image).unwrap());
}

#[test]
fn errors_name_the_problem() {
    let dir = place();
    let (src, image) = (dir.path().join("src"), dir.path().join("image"));
    fs::write(&image, "old").unwrap();
    let error = kilnfs::pack(&src, &image, Preset::Fast).unwrap_err();
    assert!(matches!(error, Error::Output(OutputError::Exists { .. })), "{error}");
    assert!(matches!(kilnfs::open(&image), Err(Error::Read { .. })));
    let error = Packer::new().kernel("5.3".parse().unwrap()).replace().pack(&src, &image).unwrap_err();
    assert!(matches!(error, Error::Options(OptionError { .. })), "{error}");
    let error = Packer::new().replace().pack(dir.path().join("missing"), &image).unwrap_err();
    assert!(matches!(error, Error::Source(_)) && error.to_string().contains("missing"), "{error}");
    let stopped = Packer::new().stop(Arc::new(AtomicBool::new(true))).replace().pack(&src, &image);
    assert!(stopped.is_err());
    assert_eq!(fs::read(&image).unwrap(), b"old", "whatever fails");
}

#[test]
fn a_mount_ends_with_its_guard() {
    let dir = place();
    let [src, image, mnt] = ["src", "image", "mnt"].map(|name| dir.path().join(name));
    kilnfs::pack(&src, &image, Preset::Fast).unwrap();
    fs::create_dir(&mnt).unwrap();
    let expected = fs::read(src.join("sub/file")).unwrap();
    for by_drop in [false, true] {
        let mount = match kilnfs::mount(&image, &mnt) {
            Ok(mount) => mount,
            Err(error) => return skipped(&format!("nothing is mounted here: {error}")),
        };
        assert!(matches!(mount.via(), MountVia::Kernel(_) | MountVia::Fuse));
        assert_eq!(mount.dir(), mnt);
        assert_eq!(fs::read(mnt.join("sub/file")).unwrap(), expected);
        match by_drop {
            true => drop(mount),
            false => mount.unmount().unwrap(),
        }
        assert_eq!(fs::read_dir(&mnt).unwrap().count(), 0);
    }
}
