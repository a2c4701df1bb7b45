//! Where an image goes: a file that appears or is replaced when the image is complete, or a place inside something that
//! exists, a block device or a larger file, which is written then.

use crate::exit::Failure;
use crate::output::{Existing, Output};
use crate::vmdk::{Descriptor, SECTOR_LEN};
use kiln_build::{Blob, Out, Summary};
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Opening a block device with this fails while it is mounted, or in use otherwise.
const IN_USE_FAILS: i32 = rustix::fs::OFlags::EXCL.bits() as i32;
/// Bytes of what an image calls its extra device.
const TAG_LEN: usize = 64;

/// Where an image goes.
pub struct Target {
    path: PathBuf,
    output: Output,
    offset: u64,
    place: Option<Place>,
    blob: Option<BlobFile>,
    /// With the name that it gives the image.
    descriptor: Option<(Descriptor, PathBuf)>,
}

/// A file for the data of chunks.
struct BlobFile {
    path: PathBuf,
    output: Output,
    tag: [u8; TAG_LEN],
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
            return Ok(Self { path: path.to_owned(), output, offset, place: None, blob: None, descriptor: None });
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
        Ok(Self { path, output, offset, place, blob: None, descriptor: None })
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
        let blob = BlobFile { path: path.to_owned(), output: Output::create(path, existing)?, tag };
        Ok(Self { blob: Some(blob), ..self })
    }

    /// With a descriptor of all that, once it is complete, in which the image is called `image`.
    pub fn with_descriptor(self, path: &Path, image: &Path, existing: Existing) -> Result<Self, Failure> {
        let files = [image].into_iter().chain(self.blob.as_ref().map(|blob| blob.path.as_path()));
        let descriptor = Descriptor::create(path, existing, files)?;
        Ok(Self { descriptor: Some((descriptor, image.to_owned())), ..self })
    }

    /// For the builder.
    pub fn out(&self) -> Out<'_> {
        let offset = if self.place.is_some() { 0 } else { self.offset };
        let blob = self.blob.as_ref().map(|blob| Blob { file: blob.output.file(), tag: blob.tag });
        Out { image: self.output.file(), offset, blob }
    }

    /// The image is complete. What it needs is there before it is.
    pub fn commit(self, summary: &Summary) -> Result<(), Failure> {
        let mut blob_extent = None;
        if let Some(BlobFile { path, output, .. }) = self.blob {
            let found = output.file().metadata();
            let found = found.map_err(|source| Failure::File { path: path.clone(), action: "measure", source })?;
            output.commit()?;
            blob_extent = Some((path, found.len()));
        }
        match self.place {
            None => self.output.commit(),
            Some(place) => place.write(self.output.file(), self.offset),
        }?;
        let Some((descriptor, image)) = self.descriptor else { return Ok(()) };
        let mut extents = vec![(image.as_path(), self.offset, summary.image_bytes)];
        extents.extend(blob_extent.as_ref().map(|(path, len)| (path.as_path(), 0, *len)));
        descriptor.commit(summary.uuid, &extents)
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
