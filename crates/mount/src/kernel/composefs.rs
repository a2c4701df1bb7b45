//! Images of composefs, mounted by the kernel: EROFS for names and metadata, and overlayfs, which puts the objects in
//! place of the files.

use super::calls::{measure_verity, set_idmap};
use super::{KernelVia, PARAMETER_MAX, Refusal, create_by_any_way, reason, short_name};
use crate::{Attributes, MountError, mount_source};
use kiln_digest::Digest;
use kiln_format::composefs::RawComposefsHeader;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, UnmountFlags, fsconfig_create, fsconfig_set_string,
    fsmount, fsopen, move_mount, unmount,
};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use zerocopy::FromBytes;

/// Flag of the header: files have ACLs.
const HAS_ACL: u32 = 1;

/// Verification of objects by the kernel. Without fs-verity in the kernel, or in the filesystem of the objects, the
/// reading of an object that must have it fails (EIO).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KernelVerity {
    /// None.
    #[default]
    Off,
    /// As [`KernelVerity::Required`], where overlayfs knows it.
    IfKnown,
    /// Each object must have fs-verity, with the digest that the image has.
    Required,
}

/// Directories for changes: the mount can then be written to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upper {
    /// Changed files.
    pub dir: PathBuf,
    /// An empty directory on the same filesystem.
    pub work: PathBuf,
}

/// A mount of a composefs image with its objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ComposefsMount {
    /// The image.
    pub image: PathBuf,
    /// Directories with the objects.
    pub objects: Vec<PathBuf>,
    /// Verification of objects.
    pub verity: KernelVerity,
    /// fs-verity digest that the kernel must enforce for the image.
    pub digest: Option<Digest>,
    /// Directories for changes, if files may be changed.
    pub upper: Option<Upper>,
    /// True to mount it read-only although there are directories for changes.
    pub is_read_only: bool,
    /// User namespace whose mapping of ids is used, as a file of `/proc/PID/ns/user`.
    pub idmap: Option<PathBuf>,
    /// Uses that the mount permits.
    pub attributes: Attributes,
}

impl ComposefsMount {
    /// Mounts the image at `dir`. `umount` ends all of it.
    ///
    /// # Errors
    /// See [`MountError`].
    pub fn mount(&self, dir: &Path) -> Result<KernelVia, MountError> {
        let dir = mount_source::mount_point(dir)?;
        let mut source = mount_source::source(&self.image)?;
        let (file, has_acl) = self.open_image()?;
        if self.digest.is_some() {
            // The file that was measured, whatever has its name now.
            source.path = format!("/proc/self/fd/{}", file.as_raw_fd()).into();
        }
        let flags: &[&str] = if has_acl { &[] } else { &["noacl"] };
        // Set-user-id bits and devices of the tree work as the mount above permits.
        let all = Attributes { suid: true, dev: true, exec: true, symfollow: true };
        let (lower, via) = create_by_any_way(&[source], 0, flags, all)?;
        if let Some(namespace) = &self.idmap {
            let failed = |source| MountError::Source { path: namespace.clone(), source };
            let namespace = File::open(namespace).map_err(failed)?;
            set_idmap(&lower, &namespace).map_err(failed)?;
        }
        let at_dir = |errno: Errno| MountError::MountPoint { path: dir.clone(), source: errno.into() };
        // A layer must be in a tree on most kernels. So the image is there for a moment, until the overlay holds it.
        move_mount(&lower, "", CWD, &dir, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).map_err(at_dir)?;
        let overlay = self.overlay(&dir);
        unmount(&dir, UnmountFlags::DETACH).map_err(at_dir)?;
        let overlay = overlay.map_err(|refusal| self.explain(refusal))?;
        move_mount(&overlay, "", CWD, &dir, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).map_err(at_dir)?;
        Ok(via)
    }

    /// Returns the fs-verity digest that the kernel enforces for the first of these objects that exists; `None` if it
    /// enforces none. `objects` are paths in the directories of objects.
    ///
    /// # Errors
    /// An object that cannot be opened.
    pub fn enforced_digest(&self, objects: &[PathBuf]) -> Result<Option<Digest>, MountError> {
        let paths = objects.iter().flat_map(|object| self.objects.iter().map(move |dir| dir.join(object)));
        let Some(path) = paths.into_iter().find(|path| path.is_file()) else { return Ok(None) };
        let measured = File::open(&path).and_then(|file| measure_verity(&file));
        measured.map_err(|source| MountError::Source { path, source })
    }

    /// Opens and checks the image. Returns true if its files have ACLs.
    fn open_image(&self) -> Result<(File, bool), MountError> {
        let path = || self.image.clone();
        let failed = |source| MountError::Source { path: path(), source };
        let file = File::open(&self.image).map_err(failed)?;
        let mut header = [0; size_of::<RawComposefsHeader>()];
        let refused = |reason: &str| MountError::Refused { path: path(), reason: reason.into() };
        file.read_exact_at(&mut header, 0).map_err(|_| refused("it is none of composefs"))?;
        let header = RawComposefsHeader::read_from_bytes(&header).expect("exact length");
        if !header.is_valid() {
            return Err(refused("it is none of composefs"));
        }
        if let Some(expected) = &self.digest {
            match measure_verity(&file).map_err(failed)? {
                None => return Err(refused("it has no fs-verity")),
                Some(found) if found != *expected => {
                    return Err(refused(&format!("its digest is {found}, not {expected}")));
                }
                Some(_) => {}
            }
        }
        let has_acl = header.flags.get() & HAS_ACL != 0;
        Ok((file, has_acl))
    }

    fn overlay(&self, lower: &Path) -> Result<OwnedFd, Refusal> {
        let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC).map_err(Refusal::of_overlay)?;
        let refusal = |errno| Refusal { errno, reason: reason(context.as_fd(), errno) };
        let mut held = Vec::new();
        self.configure(context.as_fd(), lower, &mut held).map_err(refusal)?;
        let mut attributes = self.attributes.of_fsmount();
        attributes.set(MountAttrFlags::MOUNT_ATTR_RDONLY, self.upper.is_none() || self.is_read_only);
        fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes).map_err(refusal)
    }

    /// Sets all options. `held` gets descriptors that these name.
    fn configure(&self, context: BorrowedFd<'_>, lower: &Path, held: &mut Vec<File>) -> rustix::io::Result<()> {
        fsconfig_set_string(context, "source", "composefs")?;
        fsconfig_set_string(context, "metacopy", "on")?;
        fsconfig_set_string(context, "redirect_dir", "on")?;
        match (self.verity, fsconfig_set_verity(context, self.verity)) {
            (KernelVerity::IfKnown, Err(Errno::INVAL)) => {}
            (_, set) => set?,
        }
        self.set_layers(context, lower, held)?;
        if let Some(Upper { dir, work }) = &self.upper {
            fsconfig_set_string(context, "upperdir", short_name(dir, held)?)?;
            fsconfig_set_string(context, "workdir", short_name(work, held)?)?;
        }
        fsconfig_create(context)
    }

    fn set_layers(&self, context: BorrowedFd<'_>, lower: &Path, held: &mut Vec<File>) -> rustix::io::Result<()> {
        let lower = short_name(lower, held)?;
        let objects = self.objects.iter().map(|dir| short_name(dir, held)).collect::<Result<Vec<_>, _>>()?;
        // Linux 6.7 takes layers one by one.
        match fsconfig_set_string(context, "lowerdir+", &lower) {
            Ok(()) => objects.iter().try_for_each(|dir| fsconfig_set_string(context, "datadir+", dir)),
            Err(Errno::INVAL) => set_layers_at_once(context, &lower, &objects),
            Err(errno) => Err(errno),
        }
    }

    fn explain(&self, Refusal { errno, reason }: Refusal) -> MountError {
        let path = self.image.clone();
        match errno {
            Errno::PERM | Errno::ACCESS => {
                MountError::NotPermitted { path, action: "mount it with its objects by overlayfs", reason }
            }
            _ => MountError::Unavailable { path, reason: format!("overlayfs: {reason}") },
        }
    }
}

fn fsconfig_set_verity(context: BorrowedFd<'_>, verity: KernelVerity) -> rustix::io::Result<()> {
    match verity {
        KernelVerity::Off => Ok(()),
        KernelVerity::IfKnown | KernelVerity::Required => fsconfig_set_string(context, "verity", "require"),
    }
}

/// Sets all layers by one list. Two colons make a layer one of objects only, since Linux 6.5; with one, older kernels
/// show the objects, which the image's root hides.
fn set_layers_at_once(context: BorrowedFd<'_>, lower: &Path, objects: &[PathBuf]) -> rustix::io::Result<()> {
    let set = |separator| match layers(lower, objects, separator) {
        list if list.len() <= PARAMETER_MAX => fsconfig_set_string(context, "lowerdir", list),
        _ => Err(Errno::NAMETOOLONG),
    };
    match set("::") {
        Err(Errno::INVAL) => set(":"),
        set => set,
    }
}

/// Returns a list of layers.
fn layers(lower: &Path, objects: &[PathBuf], separator: &str) -> OsString {
    let mut list = Vec::new();
    for (at, dir) in [lower].into_iter().chain(objects.iter().map(PathBuf::as_path)).enumerate() {
        list.extend_from_slice(if at == 0 { b"" } else { separator.as_bytes() });
        for &byte in dir.as_os_str().as_bytes() {
            list.extend(matches!(byte, b'\\' | b':').then_some(b'\\'));
            list.push(byte);
        }
    }
    OsString::from_vec(list)
}

impl Refusal {
    /// Returns the refusal of overlayfs itself.
    fn of_overlay(errno: Errno) -> Self {
        let reason = match errno {
            Errno::NODEV => "this kernel does not have it".into(),
            other => io::Error::from(other).to_string(),
        };
        Refusal { errno, reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_layers_are_escaped() {
        let objects = ["/a:b".into(), "/c\\d".into()];
        assert_eq!(layers(Path::new("/i,"), &objects, "::"), r"/i,::/a\:b::/c\\d");
        assert_eq!(layers(Path::new("/i"), &objects[..1], ":"), r"/i:/a\:b");
    }
}
