//! Properties that tell one block device from another, whatever their names: read from sysfs.

use kiln_delta::in_place::Identity;
use rustix::fs::{major, minor};
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Properties of a disk, in the directories of its drivers.
const OF_DISK: [(&str, &str); 7] = [
    ("WWID", "wwid"),
    ("WWID", "device/wwid"),
    ("serial number", "serial"),
    ("serial number", "device/serial"),
    ("CID", "device/cid"),
    ("device mapper's UUID", "dm/uuid"),
    ("array's UUID", "md/uuid"),
];
/// Properties of a partition.
const OF_PARTITION: [(&str, &str); 2] = [("number of the partition", "partition"), ("first sector", "start")];

/// Returns the properties that distinguish the block device from others and survive a restart of the system, if
/// there are any. Numbers of devices and of their attachments (`diskseq`) do not survive it.
pub(super) fn identity(device: &Metadata) -> Identity {
    let (major, minor) = (major(device.rdev()), minor(device.rdev()));
    let place = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}"));
    Identity::new(place.map(|place| properties(&place)).unwrap_or_default())
}

fn properties(place: &Path) -> Vec<(String, String)> {
    let is_partition = place.join("partition").exists();
    let disk = if is_partition { place.parent().unwrap_or(place) } else { place };
    let mut found: Vec<(String, String)> = Vec::new();
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value.filter(|value| !value.is_empty() && found.iter().all(|(known, _)| known != name)) {
            found.push((name.to_owned(), value));
        }
    };
    OF_DISK.iter().for_each(|(name, file)| add(name, text(&disk.join(file))));
    add("inode of the loop device's file", loop_inode(disk));
    add("offset of the loop device", text(&disk.join("loop/offset")));
    if is_partition {
        OF_PARTITION.iter().for_each(|(name, file)| add(name, text(&place.join(file))));
        add("UUID of the partition", partition_uuid(place));
    }
    found
}

fn text(path: &PathBuf) -> Option<String> {
    let bytes = fs::read(path).ok()?;
    Some(String::from_utf8_lossy(&bytes).trim().to_owned())
}

/// Returns the file behind a loop device by its inode: its path may change if the system has another root.
fn loop_inode(disk: &Path) -> Option<String> {
    let backing = text(&disk.join("loop/backing_file"))?;
    Some(fs::metadata(backing).ok()?.ino().to_string())
}

/// Returns the UUID in the partition table, if the kernel reports it (Linux 6.12).
fn partition_uuid(place: &Path) -> Option<String> {
    let event = text(&place.join("uevent"))?;
    event.lines().find_map(|line| Some(line.strip_prefix("PARTUUID=")?.to_owned()))
}
