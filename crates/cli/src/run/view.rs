//! The files that the program sees: the image, changes over it, and what is shown in it.

use super::{Args, Overlay, namespaces};
use crate::exit::Failure;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, mkdirat, openat2};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
};
use std::convert::Infallible;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

/// Directories of the system that a root needs.
const SYSTEM: [&str; 3] = ["/dev", "/proc", "/sys"];
/// Name of the directory of changed files, in the one of `--overlay`.
pub const UPPER: &str = "upper";

/// A file or a directory that is shown in the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bind {
    source: PathBuf,
    /// Path in the image.
    target: PathBuf,
    is_read_only: bool,
}

impl FromStr for Bind {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        // The ending that container engines have.
        let (paths, is_read_only) = match (text.strip_suffix(":ro"), text.strip_suffix(":rw")) {
            (Some(paths), _) => (paths, true),
            (_, Some(paths)) => (paths, false),
            _ => (text, false),
        };
        let (source, target) = paths.split_once(':').unwrap_or((paths, paths));
        Ok(Self { source: source.into(), target: target.into(), is_read_only })
    }
}

/// Mounts that make the view.
pub struct View {
    at: PathBuf,
    overlay: Option<Overlay>,
    binds: Vec<Bind>,
    is_root: bool,
}

/// Mounts that are made before the image hides what they are made of.
pub struct Prepared {
    upper: Option<Upper>,
    binds: Vec<(Bind, OwnedFd)>,
    system: Vec<(&'static str, OwnedFd)>,
}

/// Directories of changes.
struct Upper {
    dir: OwnedFd,
    work: OwnedFd,
}

impl View {
    /// Checks the paths of the arguments.
    pub fn new(args: &Args) -> Result<Self, Failure> {
        let at = args.at.canonicalize().map_err(file_error(&args.at, "mount there"))?;
        if at == Path::new("/") {
            return Err(Failure::Usage("--at /: use --chroot to make the image the root".into()));
        }
        Ok(Self { at, overlay: args.overlay.clone(), binds: args.bind.clone(), is_root: args.chroot })
    }

    /// Returns the directory where the image is mounted.
    pub fn dir(&self) -> &Path {
        &self.at
    }

    /// Returns true if the image becomes the root.
    pub fn is_root(&self) -> bool {
        self.is_root
    }

    /// Opens all that is put over the image once it is mounted.
    pub fn prepare(&self) -> Result<Prepared, Failure> {
        let bound = |bind: &Bind| {
            let fail = file_error(&bind.source, "show it in the image");
            let tree = clone_tree(&bind.source).map_err(&fail)?;
            if bind.is_read_only {
                namespaces::make_read_only(&tree).map_err(&fail)?;
            }
            Ok((bind.clone(), tree))
        };
        let binds = self.binds.iter().map(bound).collect::<Result<_, Failure>>()?;
        let mut system = Vec::new();
        for dir in SYSTEM.into_iter().filter(|_| self.is_root) {
            system.push((dir, clone_tree(Path::new(dir)).map_err(file_error(Path::new(dir), "show it in the image"))?));
        }
        let upper = match &self.overlay {
            None => None,
            Some(Overlay::Memory) => {
                let tmpfs = tmpfs().map_err(Failure::of_run("make a tmpfs for changes"))?;
                // Directories of a mount can be named once it is in the tree. The image is mounted over it.
                attach(&tmpfs, &self.at).map_err(Failure::of_run("make a tmpfs for changes"))?;
                Some(Upper::below(&self.at)?)
            }
            Some(Overlay::Directory(dir)) => Some(Upper::below(dir)?),
        };
        Ok(Prepared { upper, binds, system })
    }

    /// Completes the view, now that the image is mounted.
    pub fn complete(&self, prepared: &Prepared, is_user: bool) -> Result<(), Failure> {
        if let Some(upper) = &prepared.upper {
            overlay(&self.at, upper, is_user).map_err(|source| Failure::Run {
                action: "make the image writable",
                source,
                help: "overlayfs must take this directory for changes (not one of FUSE, NFS or overlayfs), and \
                       permit users to mount it (Linux 5.11)",
            })?;
        }
        let root = open(&self.at).map_err(file_error(&self.at, "open"))?;
        let can_make = prepared.upper.is_some();
        for (dir, tree) in &prepared.system {
            // An image without these directories is one without need of them.
            if let Some(target) = self.target(&root, Path::new(dir), true, can_make)? {
                attach_to(tree, &target).map_err(file_error(Path::new(dir), "show it in the image"))?;
            }
        }
        if self.is_root
            && let Some(target) = self.target(&root, Path::new("/tmp"), true, can_make)?
        {
            let tmpfs = tmpfs().map_err(Failure::of_run("make a tmpfs for /tmp"))?;
            attach_to(&tmpfs, &target).map_err(Failure::of_run("mount a tmpfs on /tmp"))?;
        }
        for (bind, tree) in &prepared.binds {
            let is_dir = bind.source.is_dir();
            let Some(target) = self.target(&root, &bind.target, is_dir, can_make)? else {
                let problem = format!(
                    "--bind {}: the image has no {}: --overlay tmpfs makes it",
                    bind.source.display(),
                    bind.target.display()
                );
                return Err(Failure::Usage(problem));
            };
            attach_to(tree, &target).map_err(file_error(&bind.target, "show a file there"))?;
        }
        Ok(())
    }

    /// Opens a path of the image, whose symbolic links lead nowhere else; makes it if it may. Returns `None` if it is
    /// not there.
    fn target(&self, root: &OwnedFd, path: &Path, is_dir: bool, can_make: bool) -> Result<Option<OwnedFd>, Failure> {
        let fail = |errno: Errno| file_error(path, "open it in the image")(errno.into());
        match open_in(root, path) {
            Err(Errno::NOENT) if can_make => make(root, path, is_dir).map(Some).map_err(fail),
            Err(Errno::NOENT) => Ok(None),
            found => found.map(Some).map_err(fail),
        }
    }
}

impl Upper {
    /// Makes the two directories that overlayfs needs, unless they exist.
    fn below(dir: &Path) -> Result<Self, Failure> {
        let made = |name: &str| {
            let path = dir.join(name);
            match fs::create_dir(&path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
                _ => open(&path),
            }
            .map_err(file_error(&path, "make it"))
        };
        Ok(Self { dir: made(UPPER)?, work: made("work")? })
    }
}

fn open(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

/// Opens a path in a root, as if that were the root of all.
fn open_in(root: &OwnedFd, path: &Path) -> rustix::io::Result<OwnedFd> {
    openat2(root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::IN_ROOT)
}

/// Makes a directory, or an empty file, with all directories above it.
fn make(root: &OwnedFd, path: &Path, is_dir: bool) -> rustix::io::Result<OwnedFd> {
    let names: Vec<&OsStr> = path
        .components()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(name),
            _ => None,
        })
        .collect();
    let mut so_far = PathBuf::from(".");
    for (idx, name) in names.iter().enumerate() {
        let parent = open_in(root, &so_far)?;
        so_far.push(name);
        if !matches!(open_in(root, &so_far), Err(Errno::NOENT)) {
            continue;
        }
        if is_dir || idx + 1 < names.len() {
            mkdirat(&parent, *name, Mode::from(0o755))?;
        } else {
            let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::EXCL | OFlags::CLOEXEC;
            rustix::fs::openat(&parent, *name, flags, Mode::from(0o644))?;
        }
    }
    open_in(root, &so_far)
}

/// Returns a copy of the mounts at a path and below it.
fn clone_tree(path: &Path) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    Ok(open_tree(CWD, path, flags)?)
}

fn tmpfs() -> io::Result<OwnedFd> {
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

/// Mounts an overlay on the image itself.
fn overlay(image: &Path, upper: &Upper, is_user: bool) -> io::Result<()> {
    let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let lower = open(image)?;
    for (key, fd) in [("lowerdir", &lower), ("upperdir", &upper.dir), ("workdir", &upper.work)] {
        fsconfig_set_string(&context, key, format!("/proc/self/fd/{}", fd.as_raw_fd()))?;
    }
    if is_user {
        // A user may not set attributes of trusted.*.
        fsconfig_set_flag(&context, "userxattr")?;
    }
    fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let mount = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    attach(&mount, image)
}

fn attach(mount: &OwnedFd, path: &Path) -> io::Result<()> {
    Ok(move_mount(mount, "", CWD, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

fn attach_to(mount: &OwnedFd, target: &OwnedFd) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(mount, "", target.as_fd(), "", flags)?)
}

/// Returns a failure about `path`.
pub fn file_error(path: &Path, action: &'static str) -> impl Fn(io::Error) -> Failure {
    move |source| Failure::File { path: path.to_path_buf(), action, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binds_have_one_path_or_two() {
        let bind = |text: &str| text.parse::<Bind>().unwrap();
        let expected = |source: &str, target: &str, is_read_only| Bind {
            source: source.into(),
            target: target.into(),
            is_read_only,
        };
        assert_eq!(bind("/home"), expected("/home", "/home", false));
        assert_eq!(bind("/a:/b:c"), expected("/a", "/b:c", false));
        assert_eq!(bind("/home:ro"), expected("/home", "/home", true));
        assert_eq!(bind("/a:/b:ro"), expected("/a", "/b", true));
        assert_eq!(bind("/a:/b:rw"), expected("/a", "/b", false));
    }
}
