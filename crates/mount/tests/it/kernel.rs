//! Kernel mounts: ways, refusals, reasons.
#![allow(missing_docs)]

use crate::common::{KernelMount, TempDir, snapshot};
use kiln_mount::kernel::{self, KernelVia};
use kiln_mount::{MountError, unmount};
use std::fs;
use std::path::{Path, PathBuf};

/// Returns true if this kernel has EROFS. Otherwise prints a skip.
fn has_erofs() -> bool {
    let known = fs::read_to_string("/proc/filesystems").unwrap().contains("\terofs\n");
    if !known {
        crate::common::skip("this kernel has no EROFS");
    }
    known && crate::common::is_root()
}

fn refusal(image: &Path, devices: &[PathBuf], dir: &Path) -> MountError {
    match KernelMount::new(image, 0, devices, dir) {
        Err(error) => {
            let text = error.to_string();
            assert!(text.starts_with(&image.display().to_string()), "{text}");
            assert!(!crate::common::is_mounted(dir));
            error
        }
        Ok(_) => panic!("{} was mounted", image.display()),
    }
}

#[test]
fn a_file_as_it_is() {
    if !has_erofs() {
        return;
    }
    let temp = TempDir::new("mount").unwrap();
    let dir = temp.dir("kernel");
    let via = kernel::mount(&temp.copy(&crate::common::golden("inline.erofs")), &[], 0, &dir).unwrap();
    let guard = KernelMount(dir.clone());
    match via {
        KernelVia::File => {}
        // Kernels before 6.12, or an overlayfs below the temporary directory.
        KernelVia::Loop(_) => crate::common::skip("file-backed mounts do not work in the temporary directory"),
    }
    let line = crate::common::mount_table_line(&dir).unwrap();
    assert_eq!(line[2], "erofs");
    for flag in ["ro", "nosuid", "nodev"] {
        assert!(line[3].split(',').any(|found| found == flag), "{line:?}");
    }
    unmount(&dir).unwrap();
    assert!(!crate::common::is_mounted(&dir));
    assert!(matches!(unmount(&dir), Err(MountError::NotMounted { .. })));
    drop(guard);
}

/// Returns the file of a loop device, while it has one.
fn backing_file(device: &Path) -> Option<String> {
    let name = device.file_name().unwrap().to_str().unwrap();
    fs::read_to_string(format!("/sys/block/{name}/loop/backing_file")).ok()
}

#[test]
fn a_loop_device_where_files_cannot_be_mounted() {
    if !has_erofs() {
        return;
    }
    if !Path::new("/dev/shm").exists() || !Path::new("/dev/loop-control").exists() {
        return crate::common::skip("no tmpfs at /dev/shm, or no loop devices");
    }
    for name in ["inline", "blobdev"] {
        let temp = TempDir::inside(Path::new("/dev/shm"), "mount").unwrap();
        let (image, devices) = crate::common::golden_with_devices(name);
        let (image, devices) = (temp.copy(&image), devices.iter().map(|path| temp.copy(path)).collect::<Vec<_>>());
        let dir = temp.dir("kernel");
        let via = kernel::mount(&image, &devices, 0, &dir).unwrap();
        let guard = KernelMount(dir.clone());
        let KernelVia::Loop(device) = via else { panic!("{via:?}") };
        let backing = backing_file(&device).unwrap();
        // The name field has 64 bytes, but the backing file's name is not truncated.
        assert_eq!(backing.trim_end(), image.display().to_string());
        let loop_flag = |flag: &str| {
            let name = device.file_name().unwrap().to_str().unwrap();
            fs::read_to_string(format!("/sys/block/{name}/{flag}")).unwrap().trim().to_string()
        };
        assert_eq!((loop_flag("ro"), loop_flag("loop/autoclear")), ("1".into(), "1".into()));
        assert!(fs::read_dir(&dir).unwrap().count() > 0);
        drop(guard);
        // Another process may have the device by now.
        crate::common::wait_until(|| backing_file(&device).is_none_or(|other| other != backing));
    }
}

#[test]
fn a_refused_loop_device_is_not_left_behind() {
    if !has_erofs() {
        return;
    }
    if !Path::new("/dev/shm").exists() || !Path::new("/dev/loop-control").exists() {
        return crate::common::skip("no tmpfs at /dev/shm, or no loop devices");
    }
    let temp = TempDir::inside(Path::new("/dev/shm"), "mount").unwrap();
    let image = temp.path().join("zeros");
    fs::write(&image, vec![0; 1 << 16]).unwrap();
    assert!(matches!(refusal(&image, &[], &temp.dir("kernel")), MountError::Refused { .. }));
    let ours = || {
        let all = fs::read_dir("/sys/block").unwrap().flatten();
        all.filter_map(|entry| backing_file(&entry.path())).any(|file| file.trim_end() == image.display().to_string())
    };
    crate::common::wait_until(|| !ours());
}

#[test]
fn extra_devices_in_order() {
    if !has_erofs() {
        return;
    }
    let temp = TempDir::new("mount").unwrap();
    let (image, devices) = crate::common::golden_with_devices("blobdev");
    assert_eq!(devices.len(), 1);
    let mount = KernelMount::new(&image, 0, &devices, &temp.dir("kernel")).unwrap();
    assert!(fs::read_dir(&mount.0).unwrap().count() > 0);
    let error = refusal(&image, &[devices[0].clone(), devices[0].clone()], &temp.dir("too many"));
    assert!(!error.falls_back_to_fuse(), "{error}");
}

/// Writes `image` at byte `offset` of a larger file, with other bytes before and after it.
fn embedded(image: &Path, offset: u64, into: &Path) {
    let mut bytes = vec![0xE2; offset as usize];
    bytes.extend(fs::read(image).unwrap());
    bytes.extend(vec![0xE2; 10_000]);
    fs::write(into, bytes).unwrap();
}

#[test]
fn images_inside_larger_files() {
    if !has_erofs() {
        return;
    }
    // The last is at the end of a block of 512 bytes, which only a loop device supports, and only
    // without direct I/O.
    for (name, offset) in [("lz4", 1 << 20), ("blobdev", 1 << 20), ("b512", 4096 + 512), ("lz4", 4096 + 512)] {
        let temp = TempDir::new("mount").unwrap();
        let (image, devices) = crate::common::golden_with_devices(name);
        let (plain, larger) = (temp.dir("plain"), temp.dir("larger"));
        let file = temp.path().join("file");
        embedded(&image, offset, &file);
        let _plain = KernelMount::new(&image, 0, &devices, &plain).unwrap();
        kernel::mount(&file, &devices, offset, &larger).unwrap();
        let guard = KernelMount(larger.clone());
        println!("{name} at byte {offset}");
        snapshot::assert_equal(&snapshot::take(&larger), &snapshot::take(&plain));
        drop(guard);
        let error = kernel::mount(&file, &devices, offset + 512, &larger).unwrap_err();
        assert!(matches!(error, MountError::Refused { .. }), "{error}");
        let error = kernel::mount(&file, &devices, 1 << 40, &larger).unwrap_err();
        assert!(matches!(error, MountError::Refused { .. }), "{error}");
    }
}

#[test]
fn paths_longer_than_a_parameter() {
    if !has_erofs() {
        return;
    }
    let temp = TempDir::new("mount").unwrap();
    let mut parent = temp.path().to_path_buf();
    for _ in 0..3 {
        parent.push("d".repeat(100));
    }
    fs::create_dir_all(&parent).unwrap();
    let image = parent.join("image.erofs");
    fs::copy(crate::common::golden("inline.erofs"), &image).unwrap();
    assert!(image.as_os_str().len() > 300);
    let mount = KernelMount::new(&image, 0, &[], &temp.dir("kernel")).unwrap();
    assert!(fs::read_dir(&mount.0).unwrap().count() > 0);
}

#[test]
fn not_an_image() {
    if !has_erofs() {
        return;
    }
    let temp = TempDir::new("mount").unwrap();
    let image = temp.path().join("zeros");
    for len in [0, 100, 1 << 16] {
        fs::write(&image, vec![0; len]).unwrap();
        let error = refusal(&image, &[], &temp.dir(&format!("zeros {len}")));
        assert!(matches!(error, MountError::Refused { .. }), "{error}");
        assert!(!error.falls_back_to_fuse());
    }
    // The kernel only returns an error number; our reader knows the reason.
    let text = refusal(&image, &[], &temp.dir("words")).to_string();
    assert!(text.contains("Invalid argument") && text.contains("not an EROFS image"), "{text}");
}

#[test]
fn a_damaged_superblock() {
    if !has_erofs() {
        return;
    }
    let temp = TempDir::new("mount").unwrap();
    let image = temp.copy(&crate::common::golden("inline.erofs"));
    let mut bytes = fs::read(&image).unwrap();
    bytes[1024 + 48] ^= 1; // the UUID: only the checksum detects it
    fs::write(&image, bytes).unwrap();
    let error = refusal(&image, &[], &temp.dir("kernel"));
    assert!(matches!(error, MountError::Refused { .. }), "{error}");
}

#[test]
fn things_that_cannot_hold_an_image() {
    if !crate::common::is_root() {
        return;
    }
    let temp = TempDir::new("mount").unwrap();
    let dir = temp.dir("kernel");
    let fifo = temp.path().join("fifo");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    // Opening the FIFO would wait forever.
    for path in [fifo.as_path(), temp.path(), Path::new("/dev/null")] {
        assert!(matches!(refusal(path, &[], &dir), MountError::NotASource { .. }));
    }
    assert!(matches!(refusal(&temp.path().join("missing"), &[], &dir), MountError::Source { .. }));
    // The same holds for extra devices.
    let image = crate::common::golden("inline.erofs");
    let error = kernel::mount(&image, &[fifo], 0, &dir).unwrap_err();
    assert!(matches!(error, MountError::NotASource { .. }), "{error}");
}

#[test]
fn places_where_nothing_can_be_mounted() {
    if !has_erofs() {
        return;
    }
    let temp = TempDir::new("mount").unwrap();
    let image = temp.copy(&crate::common::golden("inline.erofs"));
    for dir in [temp.path().join("missing"), image.clone()] {
        let error = kernel::mount(&image, &[], 0, &dir).unwrap_err();
        assert!(matches!(error, MountError::MountPoint { .. }), "{error}");
        assert!(error.to_string().starts_with(&dir.display().to_string()), "{error}");
        assert!(!error.falls_back_to_fuse());
    }
}
