//! The sources of an image that is to be served, and how a mount opens them.

use kiln_read::{FileSource, Image, OpenOptions, ReadAt, ReadError, Reader};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The sources of an image. [`serve`](crate::fuse::serve) opens it with the policy that a mount needs: the kernel keeps what it gets and
/// reads ahead in files, so the server fetches what is asked for, keeps decoded data until all of them were handed out, and can push what
/// it decodes beside that.
#[derive(Clone)]
pub struct ImageSources {
    /// What errors call the image: its path, or nothing.
    pub name: PathBuf,
    /// The file or device with the image.
    pub primary: Arc<dyn ReadAt>,
    /// Extra devices of the image: all of them in the order of its table, or none if they are part of `primary`.
    pub devices: Vec<Arc<dyn ReadAt>>,
    /// Where the image begins in `primary`, in bytes.
    pub offset: u64,
    /// Bytes of metadata and decoded data that the server keeps.
    pub cache_bytes: u64,
}

impl ImageSources {
    /// An image that is all of `primary`, with 64 MiB of cache.
    pub fn new(primary: Arc<dyn ReadAt>) -> Self {
        let OpenOptions { cache_bytes, offset, .. } = OpenOptions::default();
        Self { name: PathBuf::new(), primary, devices: Vec::new(), offset, cache_bytes }
    }

    /// Files or block devices: that of the image, which begins at byte `offset`, and its extra devices. The system's readahead is switched
    /// off for them, as it would come behind that of the mount.
    ///
    /// # Errors
    /// A path cannot be opened, or leads to something else. The error names it.
    pub fn open_paths(image: &Path, devices: &[PathBuf], offset: u64, cache_bytes: u64) -> Result<Self, ReadError> {
        let source = |path: &Path| {
            let file = FileSource::open(path)?;
            file.refuse_read_ahead();
            Ok::<_, ReadError>(Arc::new(file) as Arc<dyn ReadAt>)
        };
        let devices = devices.iter().map(|path| source(path)).collect::<Result<_, _>>()?;
        let mut name = image.as_os_str().to_owned();
        if offset > 0 {
            name.push(format!(" (image at byte {offset})"));
        }
        Ok(Self { name: name.into(), devices, offset, cache_bytes, ..Self::new(source(image)?) })
    }

    /// Open the image as a mount needs it.
    pub(super) fn open(self) -> Result<Image, ReadError> {
        let Self { name, primary, devices, offset, cache_bytes } = self;
        let options = OpenOptions { cache_bytes, offset, reader: Reader::Kernel, ..OpenOptions::default() };
        Image::open(primary, devices, &options).map_err(|error| match name.as_os_str().as_bytes() {
            b"" => error,
            name => error.at_path(name),
        })
    }
}

impl fmt::Debug for ImageSources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, offset, cache_bytes, .. } = self;
        let mut shown = f.debug_struct("ImageSources");
        shown.field("name", name).field("offset", offset).field("cache_bytes", cache_bytes).finish_non_exhaustive()
    }
}
