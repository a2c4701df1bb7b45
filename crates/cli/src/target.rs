//! Where an image goes: a file that appears or is replaced when the image is complete, or a place inside something that
//! exists, a block device or a larger file, which is written then.

use crate::exit::Failure;
use crate::output::{Existing, Output};
use kiln_build::{Blob, Out};
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Opening a block device with this fails while it is mounted, or in use otherwise.
const IN_USE_FAILS: i32 = rustix::fs::OFlags::EXCL.bits() as i32;
/// Bytes of what an image calls its extra device.
const TAG_LEN: usize = 64;
/// Loop devices and partitions begin at multiples of so many bytes.
const SECTOR_LEN: u64 = 512;

/// Where an image goes.
pub struct Target {
    path: PathBuf,
    output: Output,
    offset: u64,
    place: Option<Place>,
    blob: Option<(Output, [u8; TAG_LEN])>,
}

/// A place inside something that exists. What lies before and behind the image stays.
struct Place {
    path: PathBuf,
    file: File,
    is_device: bool,
}

impl Target {
    /// Start an image that shall begin at byte `offset` of `path`. Symbolic links to places are followed.
    pub fn create(path: &Path, existing: Existing, offset: u64) -> Result<Self, Failure> {
        if !offset.is_multiple_of(SECTOR_LEN) || offset > i64::MAX as u64 {
            return Err(Failure::Usage(format!("--offset {offset}: use a multiple of {SECTOR_LEN} bytes")));
        }
        let found = fs::metadata(path).ok().map(|found| found.file_type());
        let is_device = found.is_some_and(|found| found.is_block_device());
        if !is_device && (offset == 0 || found.is_none_or(|found| !found.is_file())) {
            let output = Output::create(path, existing)?;
            return Ok(Self { path: path.to_owned(), output, offset, place: None, blob: None });
        }
        if existing == Existing::Keep {
            return Err(Failure::Exists { path: path.to_owned() });
        }
        let failed = |action| move |source| Failure::File { path: path.to_owned(), action, source };
        let path = path.canonicalize().map_err(failed("find"))?;
        let flags = if is_device { IN_USE_FAILS } else { 0 };
        let file = File::options().write(true).custom_flags(flags).open(&path).map_err(failed("open"))?;
        // Builders want a file that grows; this one never gets its name.
        let name = format!("kiln-image-{}", std::process::id());
        let output = Output::create(&scratch_dir(&path).join(name), Existing::Keep)?;
        let place = Some(Place { path: path.clone(), file, is_device });
        Ok(Self { path, output, offset, place, blob: None })
    }

    /// With the data of chunks in a file of its own, which appears or is replaced when the image is complete, too.
    pub fn with_blob(self, path: &Path, existing: Existing) -> Result<Self, Failure> {
        if path == self.path {
            return Err(Failure::Usage(format!("{}: the chunks need a file of their own", path.display())));
        }
        let mut tag = [0; TAG_LEN];
        // A name that is cut still says more than none. A zero ends it.
        let name = path.file_name().unwrap_or_default().as_bytes();
        let len = name.len().min(TAG_LEN - 1);
        tag[..len].copy_from_slice(&name[..len]);
        Ok(Self { blob: Some((Output::create(path, existing)?, tag)), ..self })
    }

    /// For the builder.
    pub fn out(&self) -> Out<'_> {
        let offset = if self.place.is_some() { 0 } else { self.offset };
        let blob = self.blob.as_ref().map(|(output, tag)| Blob { file: output.file(), tag: *tag });
        Out { image: self.output.file(), offset, blob }
    }

    /// The image is complete. What it needs is there before it is.
    pub fn commit(self) -> Result<(), Failure> {
        if let Some((output, _)) = self.blob {
            output.commit()?;
        }
        match self.place {
            None => self.output.commit(),
            Some(place) => place.write(self.output.file(), self.offset),
        }
    }
}

impl Place {
    fn write(mut self, mut image: &File, offset: u64) -> Result<(), Failure> {
        let failed = |source| Failure::File { path: self.path.clone(), action: "write", source };
        let room = self.file.seek(SeekFrom::End(0)).map_err(failed)?.saturating_sub(offset);
        let len = image.metadata().map_err(failed)?.len();
        if self.is_device && room < len {
            let message = format!("the image has {len} bytes, the device {room} from byte {offset} on");
            return Err(failed(io::Error::new(io::ErrorKind::StorageFull, message)));
        }
        let copied = self.file.seek(SeekFrom::Start(offset)).and_then(|_| image.rewind());
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
