//! The image that a command reads.

use crate::console::report::note;
use crate::console::size;
use crate::exit::Failure;
use crate::objects::ObjectsArgs;
use crate::patch::left_over;
use crate::root_hash::{self, RootHashArgs};
use crate::view;
use kiln_read::{
    FileSource, FollowLast, Image, ImageOptions, ImageSources, Inode, OffsetSource, ReadAt, ReadError, SourceLayer,
};
use kiln_verity::UnverifiedTree;
use kiln_verity::verify::Report;
use kilnfs::OpenOptions;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

/// Image to read.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args, Serialize, Deserialize)]
pub struct ImageArgs {
    /// Image: a file or a block device; an archive, or an image of another format
    #[serde(with = "crate::process::request::absolute_paths")]
    pub image: PathBuf,

    /// Extra device of the image that is read; repeat for each, in order
    #[arg(long, value_name = "FILE")]
    #[serde(with = "crate::process::request::absolute_paths")]
    pub device: Vec<PathBuf>,

    /// Byte of the file or device at which the image begins
    #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value = "0", hide_default_value = true)]
    pub offset: u64,

    /// Keep the list of an archive's files in this file, and read it there the next time
    #[arg(long, value_name = "FILE")]
    #[serde(with = "crate::process::request::absolute_paths")]
    pub index: Option<PathBuf>,

    /// Use this generation of an updated image (see `kiln log`)
    #[arg(long, value_name = "N")]
    pub generation: Option<u32>,

    #[command(flatten)]
    pub verified: RootHashArgs,

    #[command(flatten)]
    pub objects: ObjectsArgs,

    /// The option that names extra devices, for messages
    #[arg(skip = DEVICE_OPTION)]
    #[serde(skip, default = "device_option")]
    pub device_option: &'static str,
}

/// The option that names extra devices, where one image is read.
pub const DEVICE_OPTION: &str = "--device";

fn device_option() -> &'static str {
    DEVICE_OPTION
}

impl Default for ImageArgs {
    /// Returns arguments without an image.
    fn default() -> Self {
        Self {
            image: PathBuf::new(),
            device: Vec::new(),
            offset: 0,
            index: None,
            generation: None,
            verified: RootHashArgs::default(),
            objects: ObjectsArgs::default(),
            device_option: DEVICE_OPTION,
        }
    }
}

impl ImageArgs {
    /// Opens the image to read contents.
    pub fn open(&self) -> Result<Image, Failure> {
        self.open_with(&ImageOptions::default())
    }

    /// Opens the image to read contents. Its place in the file comes from the arguments.
    pub fn open_with(&self, options: &ImageOptions) -> Result<Image, Failure> {
        let image = self.open_path(&options.clone().with_objects(self.objects.open()?))?;
        image.require_devices().map_err(|error| self.failure(error))?;
        Ok(image)
    }

    /// Opens the image as it is stored: without the objects of composefs.
    pub fn open_without_objects(&self) -> Result<Image, Failure> {
        let image = self.open_path(&ImageOptions::default())?;
        image.require_devices().map_err(|error| self.failure(error))?;
        Ok(image)
    }

    /// Opens the image whose devices have been compared with their root hashes, with these `reports`: the same bytes,
    /// and no more than the hash trees cover. Without reports, opens it like [`ImageArgs::open_with`].
    ///
    /// # Errors
    /// As [`ImageArgs::open_with`].
    pub fn open_compared(&self, options: &ImageOptions, reports: &[Report]) -> Result<Image, Failure> {
        if reports.is_empty() {
            return self.open_with(options);
        }
        let lens: Vec<u64> = reports.iter().map(|report| report.superblock.parameters.data_len()).collect();
        let front = move |device: u16, source| {
            let len = lens.get(usize::from(device)).copied().unwrap_or_default();
            Ok(Arc::new(OffsetSource::new(source, 0)?.with_max_len(len)) as Arc<dyn ReadAt>)
        };
        let sources = ImageSources::from_paths(&self.image, &self.device).with_offset(self.offset);
        let sources = sources.with_generation(self.generation).with_layer(SourceLayer::new(front));
        let image = sources.open(options).and_then(|image| image.require_devices().map(|()| image));
        image.map_err(|error| self.failure(error))
    }

    /// Opens the image to read metadata only. Missing devices are reported, and are not an error.
    pub fn open_metadata(&self) -> Result<Image, Failure> {
        self.open_metadata_with(&ImageOptions::default(), &|failure| note(format_args!("{failure}")))
    }

    /// Opens like [`ImageArgs::open_metadata`], and reports through `warn`.
    pub fn open_metadata_with(&self, options: &ImageOptions, warn: &dyn Fn(Failure)) -> Result<Image, Failure> {
        let image = self.open_path(&options.clone().with_objects(self.objects.open()?))?;
        if let Err(error) = image.require_devices() {
            warn(self.failure(error));
        }
        Ok(image)
    }

    /// Refuses an image with missing devices before the kernel mounts it: every file would fail. The kernel reports
    /// any other error.
    pub fn require_devices(&self) -> Result<(), Failure> {
        if self.is_view()? {
            return Ok(());
        }
        let image = self.open_path(&ImageOptions::default());
        image.map_or(Ok(()), |image| image.require_devices()).map_err(|error| self.failure(error))
    }

    /// Prints a note if a journal lies beside the image.
    pub fn note_left_over(&self) {
        if let Some(journal) = left_over::find(&self.image) {
            note(format_args!("{}: {}", self.image.display(), left_over::hint(&self.image, &journal)));
        }
    }

    /// Refuses a half-written image, which has a journal beside it, before the kernel is asked to mount it: the
    /// kernel would not give the reason.
    pub fn refuse_unfinished(&self) -> Result<(), Failure> {
        match left_over::find(&self.image) {
            None => Ok(()),
            Some(_) => self.open_path(&ImageOptions::default()).map(drop),
        }
    }

    fn open_path(&self, options: &ImageOptions) -> Result<Image, Failure> {
        self.sources(None)?.open(options).map_err(|error| self.failure(error))
    }

    /// Returns the sources of the image as [`ImageArgs::sources`] does, with the objects of composefs, for a server
    /// that keeps up to `cache_bytes` decoded.
    pub fn sources_with_objects(&self, cache_bytes: u64) -> Result<ImageSources, Failure> {
        Ok(self.sources(Some(cache_bytes))?.with_objects(self.objects.open()?))
    }

    /// Returns the sources of the image: with a root hash, everything that is read of them is verified. A source of
    /// another kind keeps up to `cache_bytes` decoded.
    ///
    /// # Errors
    /// Another number of root hashes than the image and its devices need.
    fn sources(&self, cache_bytes: Option<u64>) -> Result<ImageSources, Failure> {
        if self.is_view()? {
            return view::open(&self.image, self.index.as_deref(), cache_bytes);
        }
        if self.index.is_some() {
            let image = self.image.display();
            return Err(Failure::Usage(format!("{image}: an image needs no --index: it is one itself")));
        }
        self.opening().sources(&self.image).map_err(of_opening)
    }

    /// Returns the bytes of the image, from its first one on.
    ///
    /// # Errors
    /// A file that cannot be read, or whose hash tree has another root hash.
    pub fn source(&self) -> Result<Arc<dyn ReadAt>, Failure> {
        let failed = |source| Failure::File { path: self.image.clone(), action: "read", source };
        let file = FileSource::open(&self.image).map_err(|error| self.failure(error))?;
        let source: Arc<dyn ReadAt> = Arc::new(OffsetSource::new(file, self.offset).map_err(failed)?);
        match self.verified.layer(&self.image, &self.device)? {
            Some(layer) => layer.over(0, source).map_err(failed),
            None => Ok(source),
        }
    }

    /// Finds the hash trees of the image and of its devices, with the paths of what they cover: none without a root
    /// hash.
    ///
    /// # Errors
    /// A file that cannot be read; one without a tree.
    pub fn hash_trees(&self) -> Result<Vec<(PathBuf, UnverifiedTree)>, Failure> {
        self.opening().trees(&self.image).map_err(of_opening)
    }

    /// Returns true if the file is no image of EROFS, but a source of which a view is read: FUSE alone can mount it.
    ///
    /// # Errors
    /// A file whose compression is damaged.
    pub fn is_view(&self) -> Result<bool, Failure> {
        Ok(self.view_kind()?.is_some())
    }

    /// Returns the kind of the source of which a view is read; `None` for an image of EROFS.
    ///
    /// # Errors
    /// As [`ImageArgs::is_view`].
    pub fn view_kind(&self) -> Result<Option<&'static str>, Failure> {
        let asks_for_image = !self.device.is_empty()
            || self.offset > 0
            || self.generation.is_some()
            || self.verified.is_given()
            || !self.objects.dirs.is_empty();
        if asks_for_image { Ok(None) } else { view::kind(&self.image) }
    }

    /// Returns true if the file is an image of composefs.
    pub fn is_composefs(&self) -> bool {
        self.open_path(&ImageOptions::default()).is_ok_and(|image| image.is_composefs())
    }

    fn opening(&self) -> OpenOptions {
        let read = ImageOptions::default().with_offset(self.offset).with_generation(self.generation);
        OpenOptions { devices: self.device.clone(), root_hashes: self.verified.root_hashes(), read }
    }

    /// Returns an error about this image.
    pub fn failure(&self, source: ReadError) -> Failure {
        Failure::of_image(&self.image, self.offset, self.device_option, source)
    }

    /// Returns the inode at `path`, and the path without slashes around it, as a walk from there requires.
    pub fn resolve(&self, image: &Image, path: &OsStr, last: FollowLast) -> Result<(Inode, Vec<u8>), Failure> {
        let path = path.as_bytes();
        let inode = image.resolve(path, last).map_err(|error| self.failure(error))?;
        let names: Vec<&[u8]> = path.split(|&b| b == b'/').filter(|name| !name.is_empty()).collect();
        Ok((inode, names.join(&b'/')))
    }
}

fn of_opening(error: kilnfs::Error) -> Failure {
    match error {
        kilnfs::Error::Verity { image, source } => root_hash::failure(&image, source),
        kilnfs::Error::Read { image, source } => Failure::Read { image, source },
        error => Failure::Library(error),
    }
}
