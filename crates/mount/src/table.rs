//! The mount table of this process, `/proc/self/mountinfo`.

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Types of mounts of EROFS images: the kernel's driver, kiln's FUSE server, and that of
/// erofs-utils.
const IMAGE_TYPES: [&str; 3] = ["erofs", "fuse.kiln", "fuse.erofsfuse"];

/// Line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mounted {
    /// Absolute path of its root, for this process.
    pub dir: PathBuf,
    /// Type of the filesystem, with its subtype: `erofs`, `fuse.kiln`.
    pub fs_type: String,
    /// Source of the mount: a device, an image, or another string.
    pub source: OsString,
}

impl Mounted {
    /// Returns the mount whose root is `dir`: the topmost one, if several are stacked there.
    /// Returns `None` if `dir` is not the root of a mount. The filesystem itself is not accessed,
    /// so that a FUSE mount whose server has ended is found, too.
    ///
    /// # Errors
    /// [`io::ErrorKind::Other`] if `/proc` is not mounted; errors of `dir`.
    pub(crate) fn at(dir: &Path) -> io::Result<Option<Self>> {
        let opened = open(dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let fd = opened.as_raw_fd();
        let id = fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).map_err(without_proc)?;
        let id = id.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok());
        let id: u64 = id.ok_or_else(|| io::Error::from(Errno::OPNOTSUPP))?;
        let dir = fs::read_link(format!("/proc/self/fd/{fd}"))?;
        let table = fs::read("/proc/self/mountinfo")?;
        let mut lines = table.split(|&byte| byte == b'\n').filter_map(Self::of_line);
        let line = lines.find_map(|(number, mounted)| (number == id).then_some(mounted));
        Ok(line.filter(|mounted| mounted.dir == dir))
    }

    /// Returns all mounts that this process sees.
    pub(crate) fn all() -> io::Result<Vec<Self>> {
        let table = fs::read("/proc/self/mountinfo")?;
        let lines = table.split(|&byte| byte == b'\n').filter_map(Self::of_line);
        Ok(lines.map(|(_, mounted)| mounted).collect())
    }

    /// Returns true if an EROFS image is mounted here, by any program; one of composefs lies below an overlay.
    pub(crate) fn is_image(&self) -> bool {
        IMAGE_TYPES.contains(&&*self.fs_type) || (self.fs_type == "overlay" && self.source == "composefs")
    }

    /// Returns the mount of a line, and its number.
    fn of_line(line: &[u8]) -> Option<(u64, Self)> {
        let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
        let number: u64 = str::from_utf8(fields.first()?).ok()?.parse().ok()?;
        // Optional fields, if any, end with a hyphen.
        let rest = fields.iter().skip(6).position(|field| *field == b"-").map(|idx| idx + 7)?;
        let [fs_type, source, ..] = fields.get(rest..)? else { return None };
        let fs_type = String::from_utf8_lossy(&unescape(fs_type)).into_owned();
        let (dir, source) = (OsString::from_vec(unescape(fields[4])), OsString::from_vec(unescape(source)));
        Some((number, Self { dir: dir.into(), fs_type, source }))
    }
}

/// Returns a field without its escapes: the kernel writes white space, `\` and `#` as `\` with
/// three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, behind @ ..] = rest {
        let (byte, behind) = match (first, behind) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', behind @ ..]) => {
                ((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'), behind)
            }
            _ => (*first, behind),
        };
        bytes.push(byte);
        rest = behind;
    }
    bytes
}

/// Returns an error that says which file is missing, instead of `dir`.
fn without_proc(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::NotFound => io::Error::other("/proc is not mounted"),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_with_their_escapes() {
        const LINE: &[u8] =
            br"36 35 98:0 / /mnt\040two\134\012 ro,nosuid shared:1 master:7 - fuse.kiln odd,\040name\043 ro,user_id=0";
        let (number, mounted) = Mounted::of_line(LINE).unwrap();
        assert_eq!(number, 36);
        assert_eq!(mounted.dir, Path::new("/mnt two\\\n"));
        assert_eq!((&*mounted.fs_type, mounted.source.to_str()), ("fuse.kiln", Some("odd, name#")));
        assert!(mounted.is_image());
        let (_, plain) = Mounted::of_line(b"1 0 0:2 / / rw - tmpfs none rw").unwrap();
        assert_eq!((&*plain.fs_type, plain.is_image()), ("tmpfs", false));
        for cut in 0..LINE.len() - 40 {
            assert_eq!(Mounted::of_line(&LINE[..cut]), None, "{cut}");
        }
    }

    #[test]
    fn only_roots_of_mounts_are_mounts() {
        assert_eq!(Mounted::at(Path::new("/proc")).unwrap().unwrap().fs_type, "proc");
        assert_eq!(Mounted::at(Path::new("/proc/self/..")).unwrap().unwrap().dir, Path::new("/proc"));
        assert_eq!(Mounted::at(Path::new("/proc/self")).unwrap(), None);
        assert!(Mounted::all().unwrap().iter().any(|mounted| mounted.dir == Path::new("/proc")));
        assert_eq!(Mounted::at(Path::new("/nonexistent")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
