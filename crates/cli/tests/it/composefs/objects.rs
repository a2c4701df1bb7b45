//! The contents of composefs images: read, mounted, packed, and damaged.

use super::{dropin, output_of, peers, source, text};
use crate::common::{Scratch, fails, json, run, skip, stderr, stdout};
use crate::json::undocumented;
use crate::mount::{Place, as_nobody, has_fuse, is_mounted};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A directory, its image, and the store with the objects.
struct Sealed {
    scratch: Scratch,
    dir: String,
    image: String,
    store: String,
}

impl Sealed {
    fn new() -> Self {
        let scratch = Scratch::new();
        let dir = source(&scratch);
        let (image, store) = (scratch.path("image"), scratch.path("objects"));
        stdout(&["composefs", "create", "-q", "--digest-store", &store, &dir, &image]);
        Self { scratch, dir, image, store }
    }

    /// Returns the object of a file, and its digest.
    fn object(&self, file: &str) -> (PathBuf, String) {
        let path = Path::new(&self.dir).join(file);
        let digest = text(&["composefs", "info", "measure-file", path.to_str().unwrap()]);
        let digest = digest.trim_end().to_owned();
        (Path::new(&self.store).join(&digest[..2]).join(&digest[2..]), digest)
    }

    /// Creates a directory to mount on, which everybody may enter.
    fn mount_point(&self, name: &str) -> String {
        let dir = self.scratch.path(name);
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(self.scratch.path(""), fs::Permissions::from_mode(0o755)).unwrap();
        dir
    }

    /// Asserts that a mounted tree, or another one, is that of the directory.
    fn is_at(&self, found: &str) {
        assert_eq!(text(&["diff", &self.dir, found]), "", "{found}");
    }
}

/// Flips a bit of a file.
fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

pub fn has_overlay() -> bool {
    let known = fs::read_to_string("/proc/filesystems").unwrap();
    ["erofs", "overlay"].iter().all(|name| known.lines().any(|line| line.split_whitespace().last() == Some(name)))
        && rustix::process::geteuid().is_root()
}

#[test]
fn contents_are_read_from_a_store() {
    let sealed = Sealed::new();
    let (image, store) = (&*sealed.image, &*sealed.store);
    let file = |name: &str| fs::read(Path::new(&sealed.dir).join(name)).unwrap();
    assert!(stdout(&["cat", "--objects", store, image, "file6"]) == file("file6"));
    assert_eq!(run(&["cat", image, "file6"]).status.code(), Some(3));
    let out = sealed.scratch.path("out");
    stdout(&["extract", "-q", "--objects", store, image, &out]);
    sealed.is_at(&out);
    let tar = sealed.scratch.path("image.tar");
    stdout(&["export", "-q", "--objects", store, image, &tar]);
    // A tar archive has no fractions of times of its root, and this one has all.
    sealed.is_at(&tar);
    let erofs = sealed.scratch.path("image.erofs");
    stdout(&["pack", "-q", "--preset", "fast", "--objects", store, image, &erofs]);
    sealed.is_at(&erofs);
    assert_eq!(text(&["diff", "--objects", store, &sealed.dir, image]), "");
    let listed = json(&stdout(&["ls", "--json", "--objects", store, image]));
    assert_eq!(listed["entries"].as_array().unwrap().len(), fs::read_dir(&sealed.dir).unwrap().count());
    let shown = json(&stdout(&["stat", "--json", "--extents", "--objects", store, image, "file6"]));
    assert_eq!(shown["extents"][0]["stored_as"], "object");
    let checked = run(&["check", "--objects", store, image]);
    assert!(stderr(&checked).contains("have the digests that the image says"), "{}", stderr(&checked));
    // Without the objects nothing is taken for zeros.
    let packed = run(&["pack", "-q", "--preset", "fast", image, &sealed.scratch.path("no.erofs")]);
    assert_eq!(packed.status.code(), Some(1));
    assert!(stderr(&packed).contains("no directory of objects is given"), "{}", stderr(&packed));
    fails(&["cat", "--objects", "/nowhere", image, "file6"], 1, "/nowhere");
    fails(&["cat", "--trust-objects", image, "file6"], 2, "--objects");
    fails(&["mount", "--via=kernel", "--objects", store, image, &sealed.scratch.path("")], 2, "composefs mount");
}

#[test]
fn a_wrong_object_is_found() {
    let sealed = Sealed::new();
    let (image, store) = (&*sealed.image, &*sealed.store);
    let (object, digest) = sealed.object("file6");
    flip(&object, 1 << 20);
    fails(&["cat", "--objects", store, image, "file6"], 1, &digest);
    let unverified = stdout(&["cat", "--trust-objects", "--objects", store, image, "file6"]);
    assert!(unverified == fs::read(&object).unwrap());
    fails(&["extract", "-q", "--objects", store, image, &sealed.scratch.path("out")], 1, &digest);
    let output = run(&["extract", "--json", "--keep-going", "--objects", store, image, &sealed.scratch.path("kept")]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let told = json(&output.stdout);
    assert_eq!(told["skipped"].as_array().unwrap().len(), 1);
    assert_eq!(told["skipped"][0]["path"], "file6");
    let checked = run(&["check", "--objects", store, image]);
    assert_eq!(checked.status.code(), Some(4));
    assert!(stderr(&checked).contains(&digest), "{}", stderr(&checked));
    fails(&["pack", "-q", "--objects", store, image, &sealed.scratch.path("e")], 1, &digest);
    fs::remove_file(&object).unwrap();
    fails(&["cat", "--objects", store, image, "file6"], 1, "is missing");
    let failed = run(&["cat", "--objects", store, image, "file6"]);
    assert!(stderr(&failed).contains(&digest[2..]), "{}", stderr(&failed));
}

#[test]
fn fuse_serves_objects_that_are_verified() {
    if !has_fuse() {
        return skip("mounting needs root and /dev/fuse");
    }
    let sealed = Sealed::new();
    let dir = sealed.mount_point("mnt");
    let place = Place(&dir);
    let options = ["--via=fuse", "-q", "-o", "allow_other", "--objects", &sealed.store, &sealed.image, &dir];
    stdout(&[&["composefs", "mount"][..], &options].concat());
    sealed.is_at(&dir);
    let read = output_of(as_nobody("cmp").args([format!("{dir}/file5"), format!("{}/file5", sealed.dir)]));
    assert_eq!(read, "");
    drop(place);
    assert!(!is_mounted(&dir));
    let (object, _) = sealed.object("file6");
    flip(&object, 5);
    let _place = Place(&dir);
    stdout(&["mount", "-q", "--objects", &sealed.store, &sealed.image, &dir]);
    let error = fs::read(format!("{dir}/file6")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
    assert!(fs::read(format!("{dir}/file5")).is_ok());
}

/// Nothing shows zeros in place of objects, but the kernel's driver alone if it is asked for.
#[test]
fn files_without_objects_cannot_be_read() {
    if !has_fuse() {
        return skip("mounting needs root and /dev/fuse");
    }
    let sealed = Sealed::new();
    let dir = sealed.mount_point("mnt");
    {
        let _place = Place(&dir);
        let told = stderr(&run(&["mount", &sealed.image, &dir]));
        assert!(told.contains("by FUSE"), "{told}");
        let error = fs::read(format!("{dir}/file6")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
    }
    let output = run(&["run", "--at", &dir, &sealed.image, "--", "cat", &format!("{dir}/file6")]);
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(1), &b""[..]), "{}", stderr(&output));
    if has_overlay() {
        let _place = Place(&dir);
        let empty = sealed.mount_point("empty");
        let told = stderr(&run(&["composefs", "mount", "--via=kernel", "--objects", &empty, &sealed.image, &dir]));
        assert!(told.contains("are in no directory of --objects"), "{told}");
    }
    fails(&["composefs", "store", "verify", &sealed.dir], 2, "no store");
    let empty = sealed.scratch.path("other");
    fs::create_dir(&empty).unwrap();
    let told = stderr(&run(&["composefs", "store", "gc", &empty, &sealed.image]));
    assert!(told.contains("objects of the images are not in it"), "{told}");
}

#[test]
fn the_kernel_mounts_as_mount_composefs_does() {
    if !has_overlay() {
        return skip("mounting needs root, EROFS and overlayfs");
    }
    let sealed = Sealed::new();
    let (image, store) = (&*sealed.image, &*sealed.store);
    let own = sealed.mount_point("own");
    {
        let _place = Place(&own);
        stdout(&["composefs", "mount", "-q", "--via=kernel", "--objects", store, image, &own]);
        sealed.is_at(&own);
        // One mount: nothing of the image is left beside it.
        let table = fs::read_to_string("/proc/self/mounts").unwrap();
        assert_eq!(table.lines().filter(|line| line.contains(&own)).count(), 1, "{table}");
        assert!(table.lines().any(|line| line.contains(&own) && line.contains("nosuid")));
        fails(&["composefs", "mount", "--objects", store, image, &own], 1, "an image is mounted there");
    }
    assert!(!is_mounted(&own));
    fails(&["composefs", "mount", image, &own], 2, "--objects");
    // This kernel, or this filesystem, may have fs-verity, but the objects have none.
    fails(&["composefs", "mount", "--via=kernel", "--verity", "--objects", store, image, &own], 1, "no fs-verity");
    let program = dropin(&sealed.scratch, "mount.composefs");
    let dropped = sealed.mount_point("dropped");
    let _place = Place(&dropped);
    output_of(Command::new(&program).args(["-o", &format!("basedir={store}"), image, &dropped]));
    sealed.is_at(&dropped);
    fs::create_dir(sealed.scratch.path("upper")).unwrap();
    fs::create_dir(sealed.scratch.path("work")).unwrap();
    let writable = sealed.mount_point("writable");
    let upper = ["upper", "work"].map(|name| format!("{name}dir={}", sealed.scratch.path(name)));
    let list = format!("basedir={store},{}", upper.join(","));
    let _place = Place(&writable);
    output_of(Command::new(&program).args(["-t", "composefs", image, &writable, "-o", &list]));
    fs::write(format!("{writable}/file6"), "changed").unwrap();
    assert_eq!(fs::read(sealed.scratch.path("upper/file6")).unwrap(), b"changed");
    let Some([mkcomposefs, _]) = peers() else { return };
    let peer = mkcomposefs.with_file_name("mount.composefs");
    if !peer.exists() {
        return kiln_tests::without("mount.composefs 1.0.8");
    }
    let theirs = sealed.mount_point("theirs");
    let _place = Place(&theirs);
    output_of(Command::new(peer).args(["-o", &format!("basedir={store}"), image, &theirs]));
    assert_eq!(text(&["diff", &theirs, &dropped]), "");
}

/// Whiteouts and attributes of overlayfs are shown as by the kernel, by all ways.
#[test]
fn escaped_files_are_shown_as_by_overlayfs() {
    if !has_overlay() || !has_fuse() {
        return skip("mounting needs root, EROFS, overlayfs and /dev/fuse");
    }
    let scratch = Scratch::new();
    let lines = "/ 0 40755 4 0 0 0 5.0 - - -\n/00 0 20644 1 0 0 0 1.0 - - -\n\
                 /d 0 40700 3 1 2 0 3.0 - - - trusted.overlay.opaque=y user.a=b\n/d/e 0 40755 2 0 0 0 0.0 - - -\n\
                 /d/gone 0 20600 1 0 0 0 7.0 - - -\n/d/null 0 20666 1 0 0 259 0.0 - - -\n\
                 /l 3 120777 1 0 0 0 0.0 d/e - - trusted.overlay.overlay.x=y\n";
    fs::write(scratch.path("dump"), lines).unwrap();
    let (image, store) = (scratch.path("image"), scratch.path("objects"));
    stdout(&["composefs", "create", "-q", "--from-file", &scratch.path("dump"), &image]);
    fs::create_dir(&store).unwrap();
    let [kernel, fuse] = ["kernel", "fuse"].map(|via| {
        let dir = scratch.path(via);
        fs::create_dir(&dir).unwrap();
        dir
    });
    let _places = [Place(&kernel), Place(&fuse)];
    for dir in [&kernel, &fuse] {
        let via = format!("--via={}", Path::new(dir).file_name().unwrap().display());
        stdout(&["composefs", "mount", "-q", "-o", "dev", &via, "--objects", &store, &image, dir]);
    }
    assert_eq!(text(&["diff", &kernel, &fuse]), "");
    assert_eq!(text(&["diff", "--objects", &store, &kernel, &image]), "");
    let out = scratch.path("out");
    stdout(&["extract", "-q", "--objects", &store, &image, &out]);
    assert_eq!(text(&["diff", &kernel, &out]), "");
    assert_eq!(text(&["ls", "-R", "--objects", &store, &image]), "00\nd\nd/e\nd/gone\nd/null\nl\n");
}

#[test]
fn dumps_are_sources_and_exports() {
    let sealed = Sealed::new();
    let dump = sealed.scratch.path("dump");
    let (again, erofs) = (sealed.scratch.path("again"), sealed.scratch.path("image.erofs"));
    // Of an image of composefs, its own dump.
    stdout(&["export", "-q", "--to", "composefs-dump", &sealed.image, &dump]);
    assert_eq!(fs::read(&dump).unwrap(), stdout(&["composefs", "info", "dump", &sealed.image]));
    stdout(&["composefs", "create", "-q", "--from-file", &dump, &again]);
    assert!(fs::read(&again).unwrap() == fs::read(&sealed.image).unwrap());
    // A dump with its objects is a tree.
    stdout(&["pack", "-q", "--preset", "fast", "--objects", &sealed.store, &dump, &erofs]);
    sealed.is_at(&erofs);
    assert_eq!(text(&["diff", "--objects", &sealed.store, &dump, &sealed.image]), "");
    // Of any other image, the dump that makes the same image as the image itself.
    let of_erofs = sealed.scratch.path("of.composefs-dump");
    stdout(&["export", "-q", &erofs, "--to", "composefs-dump", &of_erofs]);
    let create = |args: &[&str]| text(&[&["composefs", "create", "--print-digest-only"][..], args].concat());
    assert_eq!(create(&["--from-file", &of_erofs]), create(&[&erofs]));
    assert_eq!(create(&["--from-file", &of_erofs]), create(&[&sealed.dir]));
    let told = json(&stdout(&["export", "--json", "--force", "--to", "composefs-dump", &erofs, &of_erofs]));
    assert_eq!((undocumented(&told), told["entries"].as_u64() > Some(5)), (Vec::new(), true));
    // A kind that is named.
    let piped = sealed.scratch.path("piped.erofs");
    stdout(&["pack", "-q", "--preset", "fast", "--from", "composefs-dump", "--objects", &sealed.store, &dump, &piped]);
    assert!(fs::read(&piped).unwrap() == fs::read(&erofs).unwrap());
    fails(&["pack", "-q", "--force", &dump, &piped], 1, "no directory of objects is given");
    fs::write(&dump, "/ 0 40755 2 0 0 0 0.0 - - -\n/a x 100644 1 0 0 0 0.0 - - -\n").unwrap();
    fails(&["pack", "-q", "--force", &dump, &piped], 1, "line 2, column 4: the size");
    fails(&["export", "--to", "composefs-dump", &erofs, "dir", &piped], 2, "whole image");
}
