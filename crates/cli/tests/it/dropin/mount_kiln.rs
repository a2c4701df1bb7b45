//! `mount.kiln`, `mount.fuse.kiln` and `mount.erofs`: by themselves, and called by mount(8).

use super::Names;
use crate::common::{Scratch, skip, stderr, stdout};
use crate::mount::{Place, has_fuse};
use kiln_tests::temp::TempDir;
use std::fs;
use std::path::Path;
use std::process::Command;

fn image(scratch: &Scratch) -> String {
    let (tree, image) = (scratch.path("tree"), scratch.path("image"));
    fs::create_dir(&tree).unwrap();
    fs::write(format!("{tree}/file"), "contents").unwrap();
    stdout(&["pack", "--quiet", &tree, &image]);
    image
}

/// Returns the type and the options of the mount at a directory.
fn mounted(dir: &str) -> (String, String) {
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    let line = table.lines().rfind(|line| line.split(' ').nth(1) == Some(dir)).unwrap_or_else(|| panic!("{table}"));
    let fields: Vec<&str> = line.split(' ').collect();
    (fields[2].to_owned(), fields[3].to_owned())
}

#[test]
fn options_of_fstab_mount_an_image() {
    if !has_fuse() {
        return skip("mounting needs root and /dev/fuse");
    }
    let names = Names::new();
    let scratch = Scratch::new();
    let (image, dir) = (image(&scratch), scratch.path("dir"));
    fs::create_dir(&dir).unwrap();
    // As mount(8) calls it.
    let options = "rw,nofail,x-systemd.automount,cache=8M,fsname=shown";
    for (name, list, kind, wanted) in [
        ("mount.fuse.kiln", options, "fuse.kiln", "allow_other"),
        ("mount.kiln", "rw,via=fuse,nosuid", "fuse.kiln", "nosuid"),
        ("mount.erofs", "rw,via=fuse,nodev,uhelper=udisks2", "fuse.kiln", "nodev"),
    ] {
        let _place = Place(&dir);
        names.stdout(name, &[&image, &dir, "-n", "-o", list]);
        assert_eq!(fs::read(format!("{dir}/file")).unwrap(), b"contents");
        let (found, shown) = mounted(&dir);
        assert_eq!(found, kind);
        assert!(shown.split(',').any(|option| option == wanted) && shown.starts_with("ro"), "{shown}");
        assert_eq!(shown.contains("nosuid"), list.contains("nosuid"), "{shown}");
        names.stdout(name, &[&image, &dir, "-o", "remount,nosuid,noexec"]);
        let (_, shown) = mounted(&dir);
        assert!(["ro", "nosuid", "noexec"].iter().all(|name| shown.split(',').any(|one| one == *name)), "{shown}");
        assert!(Command::new("umount").arg(&dir).status().unwrap().success());
    }
    names.stdout("mount.kiln", &["-f", &image, &dir]);
    {
        let _place = Place(&dir);
        names.stdout("mount.erofs", &["-t", "erofs.fuse", &image, &dir]);
        assert_eq!(mounted(&dir).0, "fuse.kiln");
        names.stdout("mount.erofs", &["-u", &dir]);
        names.stdout("mount.erofs", &["-vnterofs.fuse", &image, &dir]);
        names.stdout("mount.erofs", &[&dir, "-u"]);
    }
    for (args, words) in [
        (&["-u", &dir][..], "not mounted"),
        (&["-u", &dir, &dir], "one mount point"),
        (&["--reattach", "/dev/nbd0"], "NBD"),
        (&["-t", "erofs.nbd", &image, &dir], "erofs.nbd"),
    ] {
        let told = names.exits("mount.erofs", args, 1);
        assert!(told.contains(words), "{args:?}: {told}");
    }
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
    for (list, words) in [("frob", "no such mount option"), ("cache=x", "cache"), ("via=nbd", "nbd")] {
        let told = names.exits("mount.kiln", &[&image, &dir, "-o", list], 1);
        assert!(told.contains(words), "{list}: {told}");
    }
    let told = names.exits("mount.kiln", &[&image, &dir, "-o", "remount"], 1);
    assert!(told.contains("not mounted"), "{told}");
    let told = names.exits("mount.kiln", &[&scratch.path("missing"), &dir], 1);
    assert!(told.contains("missing"), "{told}");
}

/// Installs the helper where mount(8) looks for it, in a mount namespace of the test's own.
#[test]
fn mount_calls_it() {
    if !has_fuse() {
        return skip("mounting needs root and /dev/fuse");
    }
    let scratch = Scratch::new();
    let (image, dir) = (image(&scratch), scratch.path("dir"));
    fs::create_dir(&dir).unwrap();
    let upper = TempDir::new("sbin").unwrap();
    for name in ["upper", "work"] {
        fs::create_dir(upper.join(name)).unwrap();
    }
    // /usr/sbin with two names more, for this script only.
    let script = "set -e; mount -t tmpfs none \"$1\"; mkdir \"$1/upper\" \"$1/work\"; sbin=$(readlink -f /sbin); \
                  mount -t overlay -o \"lowerdir=$sbin,upperdir=$1/upper,workdir=$1/work\" none \"$sbin\"; \
                  \"$2\" install-names --force \"$sbin\" >&2; \
                  show() { cat \"$1/file\"; findmnt -n -o FSTYPE \"$1\"; umount \"$1\"; }; \
                  mount -t kiln \"$3\" \"$4\"; show \"$4\"; \
                  mount -t erofs -o acl \"$3\" \"$4\"; show \"$4\"; \
                  mount -t fuse.kiln -o noexec \"$3\" \"$4\"; show \"$4\"; \
                  echo \"$3 $4 kiln noauto,via=fuse 0 0\" >\"$1/fstab\"; mount -T \"$1/fstab\" \"$4\"; \
                  cat \"$4/file\"; \
                  df --output=fstype \"$4\" | tail -n 1; umount \"$4\"";
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(upper.path())
        .args([env!("CARGO_BIN_EXE_kiln"), &image, &dir])
        .output()
        .unwrap();
    let told = stderr(&output);
    if told.contains("overlay") {
        return skip("a namespace with another /usr/sbin needs overlayfs");
    }
    assert!(output.status.success(), "{told}");
    let shown = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = shown.lines().collect();
    let [
        "contentserofs" | "contentsfuse.kiln",
        "contentserofs" | "contentsfuse.kiln",
        "contentsfuse.kiln",
        "contentsfuse.kiln",
    ] = lines[..]
    else {
        panic!("{shown}")
    };
    assert!(!Path::new(&dir).join("file").exists());
}
