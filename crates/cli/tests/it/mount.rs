//! `kiln mount` and `kiln umount`.

use crate::common::{Scratch, fails, golden, kiln, names, run, skip, stderr, stdout};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The user `nobody` of most systems.
const NOBODY: u32 = 65534;

/// A mount point that is unmounted at the end in any case.
pub struct Place<'a>(pub &'a str);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let _ = run(&["umount", self.0]);
    }
}

pub fn is_mounted(dir: &str) -> bool {
    fs::read_to_string("/proc/self/mounts").unwrap().lines().any(|line| line.split(' ').nth(1) == Some(dir))
}

pub fn has_fuse() -> bool {
    geteuid().is_root() && Path::new("/dev/fuse").exists()
}

/// Starts a server in the foreground, and returns it with the line that it prints when it is ready.
pub fn foreground(args: &[&str]) -> (Child, String) {
    let mut command = kiln();
    command.args(["mount", "--via=fuse", "--foreground"]).args(args).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
    (child, line)
}

#[test]
fn the_kernel_or_fuse_serves_it() {
    let (scratch, image) = (Scratch::new(), golden("lz4.erofs"));
    let dir = scratch.path("mnt");
    fs::create_dir(&dir).unwrap();
    if !has_fuse() {
        return skip("mounting needs root and /dev/fuse");
    }
    for via in [&[][..], &["--via=fuse"], &["--via=fuse", "--threads=2", "--cache=1M", "-oallow_other"]] {
        let place = Place(&dir);
        let output = run(&[&["mount"], via, &[&image, &dir]].concat());
        let told = stderr(&output);
        assert_eq!(output.status.code(), Some(0), "{told}");
        assert!(told.contains("mounted on") && (told.contains("FUSE") || via.is_empty()), "{told}");
        assert!(is_mounted(&dir));
        assert!(fs::read(format!("{dir}/big/text")).unwrap() == stdout(&["cat", &image, "big/text"]));
        stdout(&["umount", &dir]);
        assert!(!is_mounted(&dir));
        drop(place);
    }
    fails(&["umount", &dir], 1, "not mounted");
}

#[test]
fn a_relative_path_is_found_from_the_background() {
    if !has_fuse() {
        return skip("mounting needs root and /dev/fuse");
    }
    let scratch = Scratch::new();
    let dir = scratch.path("mnt");
    fs::create_dir(&dir).unwrap();
    fs::copy(golden("lz4.erofs"), scratch.path("image")).unwrap();
    let _place = Place(&dir);
    let output = kiln().args(["mount", "--via=fuse", "image", "mnt"]).current_dir(scratch.path("")).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(is_mounted(&dir));
}

#[test]
fn the_background_reports_why_it_failed() {
    let scratch = Scratch::new();
    let dir = scratch.path("mnt");
    fs::create_dir(&dir).unwrap();
    fails(&["mount", "--via=fuse", &scratch.path("missing"), &dir], 1, "missing");
    fails(&["mount", &scratch.path("missing"), &dir], 1, "missing");
    fs::write(scratch.path("text"), vec![b'x'; 10_000]).unwrap();
    fails(&["mount", "--via=fuse", &scratch.path("text"), &dir], 1, "not an EROFS image");
    fails(&["mount", "--via=fuse", &golden("lz4.erofs"), &scratch.path("nowhere")], 1, "nowhere");
    assert!(!is_mounted(&dir));
}

#[test]
fn the_foreground_ends_with_a_signal() {
    if !has_fuse() {
        return skip("mounting needs root and /dev/fuse");
    }
    let scratch = Scratch::new();
    let dir = scratch.path("mnt");
    fs::create_dir(&dir).unwrap();
    let _place = Place(&dir);
    let (mut child, line) = foreground(&[&golden("zstd.erofs"), &dir]);
    assert!(line.contains("by FUSE"), "{line}");
    assert!(is_mounted(&dir));
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(!is_mounted(&dir));
}

/// Returns a program that another user runs.
pub fn as_nobody(program: &str) -> Command {
    let mut command = Command::new(program);
    command.uid(NOBODY).gid(NOBODY).env("LC_ALL", "C");
    command
}

/// Makes an image with a file that only root may read, and one for everyone.
fn secret_image(scratch: &Scratch) -> String {
    let (tree, image) = (scratch.path("tree"), scratch.path("image"));
    fs::create_dir(&tree).unwrap();
    for (name, mode) in [("secret", 0o600), ("open", 0o644)] {
        fs::write(format!("{tree}/{name}"), name).unwrap();
        fs::set_permissions(format!("{tree}/{name}"), fs::Permissions::from_mode(mode)).unwrap();
    }
    chown(format!("{tree}/open"), Some(7), Some(8)).unwrap();
    stdout(&["pack", "--quiet", &tree, &image]);
    image
}

#[test]
fn modes_are_enforced_or_shown() {
    if !has_fuse() {
        return skip("mounting needs root and /dev/fuse");
    }
    let scratch = Scratch::new();
    let (image, dir) = (secret_image(&scratch), scratch.path("mnt"));
    fs::create_dir(&dir).unwrap();
    stdout(&["install-names", &scratch.path("")]);
    let erofsfuse = scratch.path("erofsfuse");
    let kiln = env!("CARGO_BIN_EXE_kiln");
    for (program, args, is_read) in [
        (kiln, &["mount", "-q", "--via=fuse", "-oallow_other"][..], false),
        (kiln, &["mount", "-q", "--via=fuse", "-o", "allow_other", "--modes=show"], true),
        (kiln, &["mount", "-q", "--via=fuse", "-o", "allow_other,default_permissions"], false),
        (kiln, &["mount", "-q", "--owner", "65534:65534", "-oallow_other"], true),
        (&erofsfuse, &["-o", "allow_other"], true),
        (&erofsfuse, &["-o", "allow_other,default_permissions"], false),
    ] {
        let _place = Place(&dir);
        let output = Command::new(program).args(args).args([&image, &dir]).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        let [secret, open] =
            ["secret", "open"].map(|name| as_nobody("cat").arg(format!("{dir}/{name}")).output().unwrap());
        assert_eq!(&open.stdout[..], b"open", "{args:?}");
        assert_eq!(secret.status.success(), is_read, "{args:?}: {}", stderr(&secret));
        assert_eq!(&secret.stdout[..], if is_read { &b"secret"[..] } else { b"" }, "{args:?}");
    }
}

#[test]
fn owners_are_translated() {
    if !has_fuse() {
        return skip("mounting needs root and /dev/fuse");
    }
    let scratch = Scratch::new();
    let (image, dir) = (secret_image(&scratch), scratch.path("mnt"));
    fs::create_dir(&dir).unwrap();
    let me = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    for (args, secret, open) in [
        (&["--owner", "me"][..], me, me),
        (&["--owner", "5:6"], (5, 6), (5, 6)),
        // The ids that `pack --uid-map` with the same ranges makes from 0 and 7.
        (&["--uid-map", "0:1000:1", "--uid-map", "5:100:10", "--gid-map", "8:9:1"], (1000, 65534), (102, 9)),
    ] {
        let _place = Place(&dir);
        stdout(&[&["mount", "--quiet"], args, &[&image, &dir]].concat());
        let owner = |name: &str| {
            // With the attributes of a listing, and with those of the inode.
            fs::read_dir(&dir).unwrap().for_each(drop);
            let found = fs::metadata(format!("{dir}/{name}")).unwrap();
            (found.uid(), found.gid())
        };
        assert_eq!((owner("secret"), owner("open")), (secret, open), "{args:?}");
    }
    fails(&["mount", "--via=kernel", "--owner=me", &image, &dir], 2, "--owner");
    fails(&["mount", "--owner=you", &image, &dir], 2, "`me`");
    fails(&["mount", "--uid-map=0:1:5", "--uid-map=2:50:1", &image, &dir], 2, "overlap in the image");
    assert!(!is_mounted(&dir));
}

/// No option that FUSE alone has is left out because the kernel could mount the image.
#[test]
fn options_of_fuse_choose_it() {
    if !has_fuse() {
        return skip("mounting needs root and /dev/fuse");
    }
    let (scratch, image) = (Scratch::new(), golden("lz4.erofs"));
    let (dir, log) = (scratch.path("mnt"), scratch.path("log"));
    fs::create_dir(&dir).unwrap();
    for args in [&["--log", &log][..], &["--metrics", &log], &["--modes=show"], &["-o", "fsname=shown"]] {
        let _place = Place(&dir);
        stdout(&[&["mount", "--quiet"], args, &[&image, &dir]].concat());
        assert_eq!(table(&dir).0, "fuse.kiln", "{args:?}");
        let option = args[0].split('=').next().unwrap();
        fails(&[&["mount", "--over", "--via=kernel"], args, &[&image, &dir]].concat(), 2, option);
    }
    let _place = Place(&dir);
    let told = stderr(&run(&["mount", "--cache=64M", "--threads=2", &image, &dir]));
    assert!(told.contains("by FUSE") || told.contains("--cache, --threads: not used"), "{told}");
    fails(&["mount", "--over", "--subdir=/nowhere", &image, &dir], 1, "/nowhere: No such file");
}

/// Returns type and options in the mount table.
fn table(dir: &str) -> (String, Vec<String>) {
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    let fields: Vec<&str> =
        table.lines().map(|line| line.split(' ').collect()).rfind(|f: &Vec<_>| f[1] == dir).unwrap();
    (fields[2].to_owned(), fields[3].split(',').map(str::to_owned).collect())
}

#[test]
fn attributes_are_chosen_and_told() {
    if !has_fuse() {
        return skip("mounting needs root and /dev/fuse");
    }
    let (scratch, image) = (Scratch::new(), golden("lz4.erofs"));
    let dir = scratch.path("mnt");
    fs::create_dir(&dir).unwrap();
    for via in ["--via=kernel", "--via=fuse"] {
        for (options, told, absent) in [
            (&[][..], "ro,nosuid,nodev", &["noexec"][..]),
            (&["-o", "suid,dev"], "ro,suid,dev", &["nosuid", "nodev"]),
            (&["-oro,noexec,noatime", "-o", "dev"], "ro,nosuid,dev,noexec", &["nodev"]),
        ] {
            let _place = Place(&dir);
            let output = run(&[&["mount", via], options, &[&image, &dir]].concat());
            if via == "--via=kernel" && !output.status.success() {
                skip(&stderr(&output));
                continue;
            }
            assert!(stderr(&output).ends_with(&format!(": {told}\n")), "{}", stderr(&output));
            let (_, flags) = table(&dir);
            let expected = told.split(',').filter(|flag| !["suid", "dev"].contains(flag));
            assert!(expected.clone().all(|flag| flags.iter().any(|found| found == flag)), "{told}: {flags:?}");
            assert!(absent.iter().all(|flag| !flags.contains(&(*flag).to_owned())), "{told}: {flags:?}");
        }
    }
    fails(&["mount", "-o", "ro,frob", &image, &dir], 2, "frob");
    fails(&["mount", "-o", "rw", &image, &dir], 2, "read-only");
    assert!(!is_mounted(&dir));
}

#[test]
fn nothing_is_hidden_unasked() {
    if !has_fuse() {
        return skip("mounting needs root and /dev/fuse");
    }
    let (scratch, image) = (Scratch::new(), golden("lz4.erofs"));
    let (full, dir) = (scratch.path("full"), scratch.path("mnt"));
    fs::create_dir(&dir).unwrap();
    fs::create_dir(&full).unwrap();
    fs::write(format!("{full}/file"), "").unwrap();
    for via in ["--via=fuse", "--via=kernel"] {
        fails(&["mount", via, &image, &full], 1, "not empty");
        assert!(!is_mounted(&full));
        let _places = [Place(&dir), Place(&dir)];
        stdout(&["mount", "--via=fuse", "--quiet", &image, &dir]);
        fails(&["mount", via, &image, &dir], 1, "an image is mounted there (fuse.kiln)");
        stdout(&["mount", "--via=fuse", "--quiet", "--over", &image, &dir]);
        stdout(&["umount", &dir]);
        assert!(is_mounted(&dir));
    }
    stdout(&["install-names", &scratch.path("")]);
    for (program, args) in
        [(env!("CARGO_BIN_EXE_kiln"), &["mount", "-q", "--over"][..]), (&scratch.path("erofsfuse"), &[])]
    {
        let _place = Place(&full);
        assert!(Command::new(program).args(args).args([&image, &full]).status().unwrap().success(), "{args:?}");
        assert!(is_mounted(&full));
    }
}

/// Kernels with small pages do not mount this block size, so FUSE does.
#[test]
fn quiet_is_quiet() {
    if !has_fuse() {
        return skip("mounting needs root and /dev/fuse");
    }
    let scratch = Scratch::new();
    let (tree, image, dir, list) =
        (scratch.path("tree"), scratch.path("image"), scratch.path("mnt"), scratch.path("list"));
    fs::create_dir(&tree).unwrap();
    fs::create_dir(&dir).unwrap();
    fs::write(&list, "missing\n").unwrap();
    stdout(&["pack", "--quiet", "--block-size=64k", &tree, &image]);
    for (image, words) in [(&image, "trying FUSE"), (&golden("lz4.erofs"), "missing: not preloaded")] {
        for args in [&["mount", "--preload", &list][..], &["mount", "-q", "--preload", &list]] {
            let _place = Place(&dir);
            let output = run(&[args, &[image, &dir]].concat());
            let told = stderr(&output);
            assert!(output.status.success(), "{told}");
            if args.contains(&"-q") {
                assert_eq!(told, "");
            } else if !told.contains(words) {
                skip(&format!("this kernel mounts differently: {told}"));
            }
        }
    }
}

#[test]
fn an_idle_mount_ends_by_itself() {
    if !has_fuse() {
        return skip("mounting needs root and /dev/fuse");
    }
    let scratch = Scratch::new();
    let (tree, image, dir) = (scratch.path("tree"), scratch.path("image"), scratch.path("dir"));
    fs::create_dir(&tree).unwrap();
    fs::create_dir(&dir).unwrap();
    fs::write(format!("{tree}/file"), "contents").unwrap();
    stdout(&["pack", "--quiet", &tree, &image]);
    let _place = Place(&dir);
    let (mut server, _) = foreground(&["--idle", "1", &image, &dir]);
    // An open file keeps it, however long nobody reads.
    let open = fs::File::open(format!("{dir}/file")).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(3500));
    assert!(server.try_wait().unwrap().is_none());
    drop(open);
    assert_eq!(server.wait().unwrap().code(), Some(0));
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
}

#[test]
fn a_directory_of_an_image_is_mounted() {
    if !has_fuse() {
        return skip("mounting needs root and /dev/fuse");
    }
    let scratch = Scratch::new();
    let (tree, image, dir) = (scratch.path("tree"), scratch.path("image"), scratch.path("dir"));
    fs::create_dir_all(format!("{tree}/usr/share/deep")).unwrap();
    fs::create_dir(&dir).unwrap();
    fs::write(format!("{tree}/usr/share/deep/file"), "contents").unwrap();
    std::os::unix::fs::symlink("/usr/share", format!("{tree}/link")).unwrap();
    stdout(&["pack", "--quiet", &tree, &image]);
    for subdir in ["usr/share", "/usr/share/", "link"] {
        for via in ["--via=kernel", "--via=fuse"] {
            let _place = Place(&dir);
            let output = run(&["mount", via, "--subdir", subdir, &image, &dir]);
            if via == "--via=kernel" && stderr(&output).contains("no EROFS") {
                skip("the kernel does not mount EROFS");
                continue;
            }
            assert_eq!(output.status.code(), Some(0), "{subdir} {via}: {}", stderr(&output));
            assert_eq!(names(&dir), ["deep"], "{subdir} {via}");
            assert_eq!(fs::read(format!("{dir}/deep/file")).unwrap(), b"contents");
            stdout(&["umount", &dir]);
            assert_eq!(names(&dir), [""; 0], "{subdir} {via}");
        }
    }
    for (subdir, words) in [("usr/none", "usr/none"), ("usr/share/deep/file", "file")] {
        for via in ["--via=kernel", "--via=fuse"] {
            let output = run(&["mount", via, "--subdir", subdir, &image, &dir]);
            assert_eq!(output.status.code(), Some(1), "{subdir} {via}");
            assert!(stderr(&output).contains(words), "{subdir} {via}: {}", stderr(&output));
            assert_eq!(names(&dir), [""; 0], "{subdir} {via}");
        }
    }
}
