//! Facts that the kernel and the system tell about themselves.

use super::Finding;
use kiln_mount::FUSERMOUNT_NAMES;
use rustix::process::geteuid;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;

/// Returns the release of the kernel.
pub fn kernel_release() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim_end().to_owned()
}

/// Returns true if the kernel knows a filesystem, by itself or by a module that it loads when needed.
pub fn has_filesystem(name: &str) -> bool {
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let modules = Path::new("/lib/modules").join(kernel_release());
    let lists =
        ["modules.dep", "modules.builtin"].map(|list| fs::read_to_string(modules.join(list)).unwrap_or_default());
    known.lines().any(|line| line.split_whitespace().last() == Some(name))
        || lists.iter().any(|list| list.contains(&format!("/{name}.ko")))
}

/// Returns what there is of FUSE.
pub fn fuse() -> Vec<Finding> {
    let device = File::options().read(true).write(true).open("/dev/fuse");
    let device = match device {
        Ok(_) => Finding::yes("FUSE", "/dev/fuse can be opened"),
        Err(error) if error.kind() == ErrorKind::NotFound => Finding::no(
            "FUSE",
            "no /dev/fuse",
            "modprobe fuse; in a container: --device /dev/fuse; kiln ls, cat and extract work without",
        ),
        Err(error) => {
            Finding::no("FUSE", format!("/dev/fuse: {error}"), "ask for the right to open it: mode 0666 is usual")
        }
    };
    if geteuid().is_root() {
        return vec![device];
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |name: &str| std::env::split_paths(&path).any(|dir| dir.join(name).exists());
    let helper = match FUSERMOUNT_NAMES.into_iter().find(|name| is_there(name)) {
        Some(name) => Finding::yes("FUSE mounts for you", format!("by {name}")),
        None => Finding::no(
            "FUSE mounts for you",
            "no fusermount3",
            "install the package fuse3 (Debian, Fedora) or fuse3 by your system's name; kiln run works without",
        ),
    };
    vec![device, helper]
}

/// Returns what else images are used with.
pub fn others() -> Vec<Finding> {
    let mut found = Vec::new();
    found.push(match has_filesystem("overlay") {
        true => Finding::yes("overlayfs", "writable tops, composefs, layers of containers"),
        false => Finding::no("overlayfs", "", "modprobe overlay; a kernel with CONFIG_OVERLAY_FS"),
    });
    let with_verity: Vec<&str> = ["ext4", "f2fs", "btrfs"]
        .into_iter()
        .filter(|name| Path::new(&format!("/sys/fs/{name}/features/verity")).exists())
        .collect();
    found.push(match with_verity.is_empty() {
        false => Finding::yes("fs-verity", format!("on {}", with_verity.join(", "))),
        true => {
            Finding::no("fs-verity", "", "a kernel with CONFIG_FS_VERITY; --via fuse and --root-hash verify without")
        }
    });
    let devices = fs::read_to_string("/proc/devices").unwrap_or_default();
    found.push(match devices.lines().any(|line| line.ends_with("device-mapper")) {
        true => Finding::yes("device-mapper", "dm-verity may be there"),
        false => Finding::no("device-mapper", "", "modprobe dm-verity; --root-hash verifies without"),
    });
    found.push(match fs::read_to_string("/proc/sys/kernel/io_uring_disabled").as_deref().map(str::trim) {
        Ok("0") => Finding::yes("io_uring", "kiln does not need it"),
        Ok(_) => Finding::no("io_uring", "switched off; kiln does not need it", ""),
        Err(_) => Finding::unknown("io_uring", "kiln does not need it", ""),
    });
    found
}
