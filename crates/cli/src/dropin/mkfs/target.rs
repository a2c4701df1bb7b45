//! FILE: a regular file, which is replaced when the image is complete, or a block device, which is written then.

use crate::exit::Failure;
use crate::output::{Existing, Output};
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Opening a block device with this fails while it is mounted, or in use otherwise.
const IN_USE_FAILS: i32 = rustix::fs::OFlags::EXCL.bits() as i32;

/// Where an image goes.
pub struct Target {
    output: Output,
    device: Option<Device>,
}

struct Device {
    path: PathBuf,
    file: File,
}

impl Target {
    /// Start an image that shall be at `path`. A symbolic link is followed.
    pub fn create(path: &Path) -> Result<Self, Failure> {
        let Ok(found) = fs::metadata(path) else {
            return Ok(Self { output: Output::create(path, Existing::Replace)?, device: None });
        };
        let failed = |action| move |source| Failure::File { path: path.to_owned(), action, source };
        let path = path.canonicalize().map_err(failed("find"))?;
        if !found.file_type().is_block_device() {
            return Ok(Self { output: Output::create(&path, Existing::Replace)?, device: None });
        }
        let file = File::options().write(true).custom_flags(IN_USE_FAILS).open(&path).map_err(failed("open"))?;
        // Builders want a file that grows; this one never gets its name.
        let name = format!("mkfs.erofs-{}", std::process::id());
        let output = Output::create(&scratch_dir(&path).join(name), Existing::Keep)?;
        Ok(Self { output, device: Some(Device { path, file }) })
    }

    /// The file to write the image to.
    pub fn file(&self) -> &File {
        self.output.file()
    }

    /// The image is complete.
    pub fn commit(self) -> Result<(), Failure> {
        match self.device {
            None => self.output.commit(),
            Some(device) => device.write(self.output.file()),
        }
    }
}

impl Device {
    fn write(mut self, mut image: &File) -> Result<(), Failure> {
        let failed = |source| Failure::File { path: self.path.clone(), action: "write", source };
        let room = self.file.seek(SeekFrom::End(0)).map_err(failed)?;
        let len = image.metadata().map_err(failed)?.len();
        if room < len {
            let message = format!("the image has {len} bytes, the device {room}");
            return Err(failed(io::Error::new(io::ErrorKind::StorageFull, message)));
        }
        let copied = self.file.rewind().and_then(|()| image.rewind());
        let copied = copied.and_then(|()| io::copy(&mut image, &mut self.file));
        copied.and_then(|_| self.file.sync_all()).map_err(failed)
    }
}

/// Where files may be put aside for the image at `path`: beside it there must be room anyway.
pub fn scratch_dir(path: &Path) -> PathBuf {
    let is_device = fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device());
    match path.parent() {
        _ if is_device => std::env::var_os("TMPDIR").map_or_else(|| "/var/tmp".into(), PathBuf::from),
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => ".".into(),
    }
}
