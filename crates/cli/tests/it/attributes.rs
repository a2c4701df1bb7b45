//! Extended attributes that EROFS cannot hold, and those whose names are hard to write.

use crate::common::{Scratch, fails, json, run, skip, stderr, stdout};
use kiln_tests::rng::Rng;
use kiln_tests::temp::TempDir;
use rustix::fs::{XattrFlags, setxattr};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

/// Returns a PAX record with its length.
fn record(keyword: &str, value: &str) -> Vec<u8> {
    let text = format!(" {keyword}={value}\n");
    let len = (text.len()..).find(|len| len.to_string().len() + text.len() == *len).unwrap();
    format!("{len}{text}").into_bytes()
}

fn header(name: &str, flag: u8, len: usize) -> Vec<u8> {
    let mut header = vec![0; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[100..124].copy_from_slice(b"0000644\x000000000\x000000000\0");
    header[124..136].copy_from_slice(format!("{len:011o}\0").as_bytes());
    header[136..148].copy_from_slice(b"00000000000\0");
    header[148..156].fill(b' ');
    header[156] = flag;
    header[257..265].copy_from_slice(b"ustar\x0000");
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}

/// Makes an archive of empty files, each with its records.
pub fn tar(files: &[(&str, &[(&str, &str)])]) -> Vec<u8> {
    let mut archive = Vec::new();
    for (name, records) in files {
        let payload: Vec<u8> = records.iter().flat_map(|(keyword, value)| record(keyword, value)).collect();
        archive.extend(header("pax", b'x', payload.len()));
        archive.extend(payload);
        archive.resize(archive.len().next_multiple_of(512), 0);
        archive.extend(header(name, b'0', 0));
    }
    archive.resize(archive.len() + 1024, 0);
    archive
}

const PROVENANCE: (&str, &str) = ("SCHILY.xattr.com.apple.provenance", "v");
const ACL: (&str, &str) = ("SCHILY.acl.access", "user::rw-,user:tom:rw-,group::r--,mask::rw-,other::---");

/// Attributes as in archives of macOS and of NFS, and ACLs as `tar --acls` writes them.
fn mac(scratch: &Scratch) -> String {
    let path = scratch.path("mac.tar");
    let files: [(&str, &[(&str, &str)]); 3] = [
        ("f", &[PROVENANCE, ("SCHILY.xattr.user.kept", "1")]),
        ("g", &[PROVENANCE, ("SCHILY.xattr.system.nfs4_acl", "x")]),
        ("h", &[ACL]),
    ];
    fs::write(&path, tar(&files)).unwrap();
    path
}

const LINE: &str =
    " without an id: com.apple.provenance (2), system.nfs4_acl (1), user:tom in system.posix_acl_access (1)";

fn names(image: &str, path: &str) -> Vec<String> {
    let entry = json(&stdout(&["stat", "--json", image, path]));
    let xattrs = entry["xattrs"].as_array().unwrap().iter();
    xattrs.map(|xattr| xattr["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn what_erofs_cannot_hold_is_left_out_and_told_in_one_line() {
    let scratch = Scratch::new();
    let (archive, image) = (mac(&scratch), scratch.path("mac.erofs"));
    let expected = |image: &str| {
        assert_eq!(names(image, "f"), ["user.kept"]);
        assert_eq!((names(image, "g"), names(image, "h")), (Vec::new(), vec!["system.posix_acl_access".to_owned()]));
    };
    for args in [&["pack", "-q"][..], &["pack", "-q", "--keep-going"], &["convert", "-q"]] {
        let output = run(&[args, &["--force", &archive, &image]].concat());
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {said}");
        assert_eq!(said.matches("left out").count(), 1, "{said}");
        assert!(said.contains(LINE), "{said}");
        expected(&image);
    }
    let told = json(&stdout(&["pack", "-q", "--json", "--force", &archive, &image]));
    assert_eq!(crate::json::undocumented(&told), Vec::<String>::new());
    let left_out = told["left_out_xattrs"].as_array().unwrap();
    let counts: Vec<_> = left_out.iter().map(|one| (one["name"].as_str().unwrap(), one["count"].as_u64())).collect();
    assert_eq!(counts[..2], [("com.apple.provenance", Some(2)), ("system.nfs4_acl", Some(1))]);
    assert_eq!((&left_out[0]["path"], &left_out[2]["entry"]), (&"f".into(), &"user:tom".into()));
    // Stacked, in an update, as a layer, under another name.
    let output = run(&["pack", "-q", "--force", "--at", "/sub", &archive, &archive, "-o", &image]);
    assert!(output.status.success() && stderr(&output).contains("com.apple.provenance (4)"), "{}", stderr(&output));
    let output = run(&["update", "-q", &image, "--add", &archive]);
    assert!(output.status.success() && stderr(&output).contains(LINE), "{}", stderr(&output));
    let layout = crate::oci::layout_of(&scratch, &fs::read(&archive).unwrap());
    let output = run(&["pack", "-q", "--force", "--from", "oci", &layout, &image]);
    assert!(output.status.success() && stderr(&output).contains(LINE), "{}", stderr(&output));
    expected(&image);
    let mkfs = scratch.path("mkfs.erofs");
    symlink(env!("CARGO_BIN_EXE_kiln"), &mkfs).unwrap();
    let output = Command::new(&mkfs).args(["--tar=f", &image, &archive]).output().unwrap();
    let said = stderr(&output);
    assert!(output.status.success() && said.contains("<W> erofs: ") && said.contains(LINE), "{said}");
    expected(&image);
}

#[test]
fn strict_attributes_are_an_error_that_names_the_way_out() {
    let scratch = Scratch::new();
    let (archive, image) = (mac(&scratch), scratch.path("mac.erofs"));
    let strict = ["pack", "-q", "--strict-xattrs", &archive, &image];
    fails(&strict, 1, "f: extended attribute com.apple.provenance: EROFS holds user.");
    fails(&strict, 1, "use --xattr-exclude 'com.apple.provenance'");
    // The preset for backups is strict in every command that has it.
    fails(&["pack", "-q", "--preset", "backup", &archive, &image], 1, "com.apple.provenance");
    fails(&["convert", "-q", "--preset", "backup", &archive, &image], 1, "com.apple.provenance");
    let layout = scratch.path("layout");
    fails(&["oci", "pack", "-q", "--preset", "backup", &archive, &layout], 1, "com.apple.provenance");
    fails(&["oci", "pack", "-q", "--preset", "backup", "--keep-going", &archive, &layout], 1, "com.apple.provenance");
    // --keep-going concerns inputs that cannot be read.
    fails(&[&strict[..], &["--keep-going"]].concat(), 1, "com.apple.provenance");
    let without = |globs: &[&str]| {
        let globs: Vec<&str> = globs.iter().flat_map(|glob| ["--xattr-exclude", glob]).collect();
        run(&[&strict[..], &globs].concat())
    };
    let output = without(&["com.apple.*", "system.nfs4_acl"]);
    assert!(
        stderr(&output).contains("h: extended attribute system.posix_acl_access: user:tom: "),
        "{}",
        stderr(&output)
    );
    assert!(!fs::exists(&image).unwrap());
    let output = without(&["com.apple.*", "system.*"]);
    assert_eq!((output.status.code(), &*stderr(&output)), (Some(0), ""));
    assert_eq!(names(&image, "f"), ["user.kept"]);
}

/// A directory may have values that are too long for EROFS, if its filesystem accepts them.
#[test]
fn attributes_of_directories_are_counted_too() {
    // A filesystem on which attributes may be longer than on ext4.
    let Ok(memory) = TempDir::inside(Path::new("/dev/shm"), "attributes") else { return skip("no tmpfs at /dev/shm") };
    let scratch = Scratch::new();
    let (src, image) = (memory.path().join("src").display().to_string(), scratch.path("image"));
    fs::create_dir(&src).unwrap();
    for name in ["a", "b"] {
        fs::write(format!("{src}/{name}"), name).unwrap();
        if setxattr(format!("{src}/{name}"), "user.long", &vec![1; 1 << 16], XattrFlags::empty()).is_err() {
            return skip("no attributes of 64 KiB in /dev/shm");
        }
    }
    let output = run(&["pack", "-q", &src, &image]);
    assert!(output.status.success() && stderr(&output).contains("without an id: user.long (2)"), "{}", stderr(&output));
    fails(&["pack", "-q", "--force", "--strict-xattrs", &src, &image], 1, "its value is longer than 65535 bytes");
}

/// Checks that names are the same after an export and a pack: GNU tar writes `=` in names as `%3D`, and so does
/// `kiln export`.
#[test]
fn names_of_attributes_survive_an_archive() {
    let scratch = Scratch::new();
    let (src, image) = (scratch.path("src"), scratch.path("image"));
    fs::create_dir(&src).unwrap();
    let mut rng = Rng::new(0x3D25);
    let parts = ["=", "%", "%3D", "%25", "%253D", "3D", "25", "a", " ", "%20", "%3d", "\u{e9}", "."];
    for file in 0..40 {
        let path = format!("{src}/{file}");
        fs::write(&path, "").unwrap();
        for _ in 0..rng.below(5) {
            let name: String = (0..=rng.below(6)).map(|_| parts[rng.below(parts.len() as u64) as usize]).collect();
            if setxattr(&path, format!("user.{name}"), name.as_bytes(), XattrFlags::empty()).is_err() {
                return skip("no attributes in the temporary directory");
            }
        }
    }
    stdout(&["pack", "-q", &src, &image]);
    for name in ["a.tar", "a.tar.zst"] {
        let (archive, again) = (scratch.path(name), scratch.path("again"));
        stdout(&["export", "-q", &image, &archive]);
        stdout(&["pack", "-q", "--force", &archive, &again]);
        let output = run(&["diff", &image, &again]);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stdout));
    }
}
