//! Unmounting, and mounts of users who are not root.
//!
//! Users are played by this program: a test runs a copy of it under another user id, with [`PART`]
//! naming the action.
#![allow(missing_docs)]

use crate::common::{KernelMount, Served, TempDir, snapshot};
use kiln_mount::fuse::{FuseOptions, ImageSources, Modes};
use kiln_mount::{Attributes, MountError, kernel, unmount};
use kiln_read::FollowLast;
use rustix::fs::{CWD, FileType, Mode};
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// User `nobody` of most systems.
const NOBODY: u32 = 65534;
/// Environment variable with the action.
const PART: &str = "KILN_MOUNT_TEST_PART";
/// Environment variable with the directory for the action: `image.erofs`, and mount points.
const STAGE: &str = "KILN_MOUNT_TEST_STAGE";

/// Directory that user `id` owns, with an image, mount points, and a copy of this program.
struct Stage {
    temp: TempDir,
    id: u32,
}

impl Stage {
    fn new(id: u32) -> Stage {
        let temp = TempDir::new("mount").unwrap();
        for name in ["mine", "empty", "foreign"] {
            chown(temp.dir(name), Some(id), Some(id)).unwrap();
        }
        chown(temp.path(), Some(id), Some(id)).unwrap();
        for (name, golden) in [("image.erofs", "inline.erofs"), ("secret.erofs", "lz4.erofs")] {
            fs::copy(crate::common::golden(golden), temp.path().join(name)).unwrap();
        }
        make_secret(&temp.path().join("secret.erofs"));
        // Copied by another process: a process that another test starts meanwhile would inherit a
        // descriptor that is open for writing, and the copy could not be run.
        let copied = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(temp.path().join("program")).status();
        assert!(copied.unwrap().success());
        Stage { temp, id }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }

    fn command(&self, part: &str) -> Command {
        let mut command = Command::new(self.path("program"));
        command.args(["--exact", "unmount::play", "--nocapture"]).env(PART, part).env(STAGE, self.temp.path());
        command.current_dir("/").uid(self.id).gid(self.id);
        command
    }

    /// Runs an action to its end, which must be a success.
    fn play(&self, part: &str) {
        let Output { status, stdout, stderr } = self.command(part).output().unwrap();
        let text = [stdout, stderr].concat();
        assert!(status.success(), "{part}: {}", String::from_utf8_lossy(&text));
    }
}

/// File of root in the image `secret.erofs`.
const SECRET: &str = "big/text";

/// Gives [`SECRET`] mode 0600: no golden image has such a file.
fn make_secret(image: &Path) {
    let opened = crate::common::open(image, &[]);
    let inode = opened.resolve(SECRET.as_bytes(), FollowLast::Follow).unwrap();
    let sb = opened.superblock();
    let off = (sb.meta_blkaddr.0 << sb.block_bits.bits()) + (inode.nid.0 << 5);
    let file = fs::File::options().read(true).write(true).open(image).unwrap();
    let mut inode = [0; 8];
    file.read_exact_at(&mut inode, off).unwrap();
    assert_eq!(u16::from_le_bytes([inode[4], inode[5]]), 0o100_644);
    file.write_all_at(&0o100_600_u16.to_le_bytes(), off + 4).unwrap();
}

fn open_secret(stage: &Path) -> ImageSources {
    crate::common::sources(&stage.join("secret.erofs"), &[])
}

/// Process that is killed when the test ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Not a test by itself: runs the action of the other user.
#[test]
fn play() {
    let (Some(part), Some(stage)) = (std::env::var_os(PART), std::env::var_os(STAGE)) else { return };
    let stage = Path::new(&stage);
    match part.to_str().unwrap() {
        "serve and unmount" => serve_and_unmount(stage),
        "ask the kernel" => ask_the_kernel(stage),
        "unmount what is not there" => unmount_what_is_not_there(stage),
        "unmount what is not mine" => unmount_what_is_not_mine(stage),
        "read all files" => read_all_files(stage),
        "ask for suid" => ask_for_suid(stage),
        "unmount what is left" => unmount(&stage.join("mine")).unwrap(),
        "serve forever" => {
            let served = serve(stage);
            fs::write(stage.join("ready"), "").unwrap();
            served.wait().unwrap();
        }
        other => panic!("no such part: {other}"),
    }
}

fn serve(stage: &Path) -> Served {
    let image = stage.join("image.erofs");
    let mut options = crate::common::options(&image);
    options.allow_other = false;
    options.fsname = "odd, \\name".into();
    Served::start(crate::common::sources(&image, &[]), &stage.join("mine"), options).unwrap()
}

fn serve_and_unmount(stage: &Path) {
    let served = serve(stage);
    let line = crate::common::mount_table_line(&served.dir).unwrap();
    assert_eq!((&line[0][..], &line[2][..]), ("odd,\\040\\134name", "fuse.kiln"));
    let has = |flag: &str| line[3].split(',').any(|found| found == flag);
    assert!(["ro", "nosuid", "nodev"].into_iter().all(has) && !has("default_permissions"), "{line:?}");
    assert!(fs::read_dir(&served.dir).unwrap().count() > 0);

    let held = fs::File::open(&served.dir).unwrap();
    let error = unmount(&served.dir).unwrap_err();
    assert!(matches!(error, MountError::Busy { .. }), "{error}");
    drop(held);
    unmount(&served.dir).unwrap();
    let dir = served.dir.clone();
    served.wait().unwrap();
    assert!(!crate::common::is_mounted(&dir));

    // Stopped, idle and in use.
    serve(stage).stop().unwrap();
    assert!(!crate::common::is_mounted(&dir));
    let served = serve(stage);
    let held = fs::File::open(&served.dir).unwrap();
    served.stop().unwrap();
    assert!(!crate::common::is_mounted(&dir));
    drop(held);
}

fn ask_the_kernel(stage: &Path) {
    let error = kernel::mount(&stage.join("image.erofs"), &[], 0, &stage.join("mine")).unwrap_err();
    assert!(matches!(error, MountError::NotPermitted { .. }), "{error}");
    assert!(error.falls_back_to_fuse());
    // An error that FUSE would have, too.
    let error = kernel::mount(&stage.join("missing"), &[], 0, &stage.join("mine")).unwrap_err();
    assert!(!error.falls_back_to_fuse(), "{error}");
}

/// A user who is alone can read all of a mounted image, for any owners and modes in it. If modes
/// are enforced, reads are limited by them.
fn read_all_files(stage: &Path) {
    for modes in [Modes::AmongUsers, Modes::Enforced] {
        let options = FuseOptions { modes, ..FuseOptions::default() };
        let served = Served::start(open_secret(stage), &stage.join("mine"), options).unwrap();
        let secret = served.dir.join(SECRET);
        let metadata = fs::metadata(&secret).unwrap();
        assert_eq!((metadata.uid(), metadata.mode() & 0o7777), (0, 0o600));
        match modes {
            Modes::AmongUsers => assert_eq!(fs::read(&secret).unwrap().len() as u64, metadata.len()),
            _ => assert_eq!(fs::read(&secret).unwrap_err().kind(), io::ErrorKind::PermissionDenied),
        }
        served.stop().unwrap();
    }
}

fn ask_for_suid(stage: &Path) {
    let attributes = Attributes { suid: true, ..Attributes::default() };
    let options = FuseOptions { attributes, ..FuseOptions::default() };
    let Err(error) = Served::start(open_secret(stage), &stage.join("mine"), options) else { panic!("mounted") };
    assert!(matches!(error, MountError::NotPermitted { .. }), "{error}");
}

fn unmount_what_is_not_there(stage: &Path) {
    for name in ["empty", "missing", "image.erofs"] {
        let error = unmount(&stage.join(name)).unwrap_err();
        assert!(matches!(error, MountError::NotMounted { .. }), "{name}: {error}");
    }
}

fn unmount_what_is_not_mine(stage: &Path) {
    let error = unmount(&stage.join("foreign")).unwrap_err();
    assert!(matches!(error, MountError::NotPermitted { .. } | MountError::Unmount { .. }), "{error}");
    assert!(crate::common::is_mounted(&stage.join("foreign")));
}

/// Environment variable that is set in a process whose `/dev/fuse` is a copy for all users.
const OPEN_DEVICE: &str = "KILN_MOUNT_TEST_OPEN_DEVICE";

/// Returns true if users can mount by FUSE in this process. If the system reserves `/dev/fuse` for
/// root, `test` runs in a separate mount namespace with an open one; otherwise, prints a skip with
/// the reason.
fn users_can_mount(test: &str) -> bool {
    let found = ["/usr/bin/fusermount3", "/bin/fusermount3"].iter().any(|path| Path::new(path).exists());
    if !found {
        crate::common::skip("fusermount3 is not installed");
    }
    if !found || !crate::common::has_fuse() {
        return false;
    }
    let device = fs::metadata("/dev/fuse").unwrap();
    if device.mode() & 0o006 == 0o006 {
        return true;
    }
    assert!(std::env::var_os(OPEN_DEVICE).is_none());
    let temp = TempDir::new("mount").unwrap();
    let node = temp.path().join("fuse");
    let mode = Mode::from_raw_mode(0o666);
    rustix::fs::mknodat(CWD, &node, FileType::CharacterDevice, mode, device.rdev()).unwrap();
    fs::set_permissions(&node, fs::Permissions::from_mode(0o666)).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c"]);
    command.args([r#"mount --bind "$0" /dev/fuse && exec "$@""#]).arg(node).arg(std::env::current_exe().unwrap());
    match command.args(["--exact", test, "--nocapture"]).env(OPEN_DEVICE, "1").output() {
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => crate::common::skip(&format!("unshare: {error}")),
    }
    false
}

#[test]
fn a_user_serves_and_unmounts() {
    if users_can_mount("unmount::a_user_serves_and_unmounts") {
        Stage::new(NOBODY).play("serve and unmount");
    }
}

#[test]
fn a_user_alone_reads_all_files() {
    if users_can_mount("unmount::a_user_alone_reads_all_files") {
        Stage::new(NOBODY).play("read all files");
    }
}

#[test]
fn a_user_asks_for_suid() {
    if users_can_mount("unmount::a_user_asks_for_suid") {
        Stage::new(NOBODY).play("ask for suid");
    }
}

#[test]
fn only_images_are_unmounted() {
    if !crate::common::has_fuse() {
        return;
    }
    let temp = TempDir::new("mount").unwrap();
    let dir = temp.dir("a place");
    let tmpfs = || rustix::mount::mount("none", &dir, "tmpfs", rustix::mount::MountFlags::empty(), c"").unwrap();
    let type_at = || crate::common::mount_table_line(&temp.path().join("a\\040place")).map(|line| line[2].clone());
    let refused = || match unmount(&dir).unwrap_err() {
        MountError::NotAnImage { fs_type, .. } => fs_type,
        error => panic!("{error}"),
    };
    tmpfs();
    assert_eq!(refused(), "tmpfs");
    // Of several mounts at one path, the topmost counts.
    let image = crate::common::golden("inline.erofs");
    let served = Served::start(crate::common::sources(&image, &[]), &dir, crate::common::options(&image)).unwrap();
    tmpfs();
    assert_eq!((refused(), type_at()), ("tmpfs".into(), Some("tmpfs".into())));
    rustix::mount::unmount(&dir, rustix::mount::UnmountFlags::empty()).unwrap();
    // A path below the root of a mount is not mounted.
    assert!(matches!(unmount(&dir.join("big")).unwrap_err(), MountError::NotMounted { .. }));
    unmount(&dir).unwrap();
    served.wait().unwrap();
    assert_eq!((refused(), type_at()), ("tmpfs".into(), Some("tmpfs".into())));
}

#[test]
fn a_user_asks_the_kernel() {
    if crate::common::is_root() {
        Stage::new(NOBODY).play("ask the kernel");
    }
}

#[test]
fn a_user_unmounts_what_is_not_there() {
    if crate::common::is_root() {
        Stage::new(NOBODY).play("unmount what is not there");
    }
}

#[test]
fn a_user_unmounts_what_belongs_to_root() {
    if !crate::common::has_fuse() {
        return;
    }
    let stage = Stage::new(NOBODY);
    let (image, dir) = (crate::common::golden("inline.erofs"), stage.path("foreign"));
    let served = Served::start(crate::common::sources(&image, &[]), &dir, crate::common::options(&image)).unwrap();
    stage.play("unmount what is not mine");
    served.stop().unwrap();
    match KernelMount::new(&image, 0, &[], &dir) {
        Ok(_mount) => stage.play("unmount what is not mine"),
        Err(error) => crate::common::skip(&error.to_string()),
    }
}

#[test]
fn there_is_nothing_to_unmount() {
    if crate::common::is_root() {
        Stage::new(0).play("unmount what is not there");
    }
}

#[test]
fn a_mount_in_use_and_through_a_symbolic_link() {
    if !crate::common::has_fuse() {
        return;
    }
    let temp = TempDir::new("mount").unwrap();
    let image = crate::common::golden("inline.erofs");
    let served =
        Served::start(crate::common::sources(&image, &[]), &temp.dir("fuse"), crate::common::options(&image)).unwrap();
    let held = fs::File::open(&served.dir).unwrap();
    let error = unmount(&served.dir).unwrap_err();
    assert!(matches!(error, MountError::Busy { .. }), "{error}");
    assert!(error.to_string().starts_with(&served.dir.display().to_string()), "{error}");
    drop(held);
    let link = temp.path().join("link");
    symlink(&served.dir, &link).unwrap();
    unmount(&link).unwrap();
    served.wait().unwrap();
}

/// Returns a stage with the mount of a killed server, which only answers ENOTCONN.
fn dead_server(id: u32) -> Stage {
    let stage = Stage::new(id);
    let mut command = stage.command("serve forever");
    let mut server = Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    crate::common::wait_until(|| stage.path("ready").exists());
    assert!(crate::common::is_mounted(&stage.path("mine")));
    server.0.kill().unwrap();
    server.0.wait().unwrap();
    crate::common::wait_until(|| fs::read_dir(stage.path("mine")).is_err());
    assert!(crate::common::is_mounted(&stage.path("mine")));
    stage
}

#[test]
fn the_server_was_killed() {
    if crate::common::has_fuse() {
        let stage = dead_server(0);
        unmount(&stage.path("mine")).unwrap();
        assert!(!crate::common::is_mounted(&stage.path("mine")));
    }
}

#[test]
fn a_users_server_was_killed() {
    if users_can_mount("unmount::a_users_server_was_killed") {
        let stage = dead_server(NOBODY);
        stage.play("unmount what is left");
        assert!(!crate::common::is_mounted(&stage.path("mine")));
    }
}

#[test]
fn relative_paths() {
    if !crate::common::has_fuse() {
        return;
    }
    let temp = TempDir::new("mount").unwrap();
    let image = crate::common::golden("lz4.erofs");
    let dir = temp.dir("fuse");
    let served =
        Served::start(crate::common::sources(&image, &[]), &dir.join("../fuse"), crate::common::options(&image))
            .unwrap();
    assert!(snapshot::take(&dir).len() > 10);
    unmount(&dir.join(".")).unwrap();
    served.wait().unwrap();
}

/// The number of a device is reused as soon as it is free: the first server must not mistake the
/// second mount for its own.
#[test]
fn a_mount_in_the_place_of_another_stays() {
    if !crate::common::has_fuse() {
        return crate::common::skip("mounting needs root and /dev/fuse");
    }
    let temp = TempDir::new("mount").unwrap();
    let dir = temp.dir("mnt");
    let image = crate::common::golden("inline.erofs");
    for _ in 0..5 {
        let first = Served::start(crate::common::sources(&image, &[]), &dir, crate::common::options(&image)).unwrap();
        kiln_mount::unmount(&dir).unwrap();
        let second = Served::start(crate::common::sources(&image, &[]), &dir, crate::common::options(&image)).unwrap();
        first.wait().unwrap();
        assert!(crate::common::is_mounted(&dir));
        second.stop().unwrap();
        assert!(!crate::common::is_mounted(&dir));
    }
}
