//! The image that a command reads.

use crate::console::report::note;
use crate::console::size;
use crate::exit::Failure;
use crate::objects::ObjectsArgs;
use crate::patch::left_over;
use kiln_read::{FollowLast, Image, ImageOptions, Inode, ReadError};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Image to read.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args, Serialize, Deserialize)]
pub struct ImageArgs {
    /// Image: a file or a block device
    #[serde(with = "crate::process::request::absolute_paths")]
    pub image: PathBuf,

    /// Extra device of the image that is read; repeat for each, in order
    #[arg(long, value_name = "FILE")]
    #[serde(with = "crate::process::request::absolute_paths")]
    pub device: Vec<PathBuf>,

    /// Byte of the file or device at which the image begins
    #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value = "0", hide_default_value = true)]
    pub offset: u64,

    /// Use this generation of an updated image (see `kiln log`)
    #[arg(long, value_name = "N")]
    pub generation: Option<u32>,

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
            generation: None,
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
        let options = options.clone().with_objects(self.objects.open()?);
        let image = self.open_path(&options).map_err(|error| self.failure(error))?;
        image.require_devices().map_err(|error| self.failure(error))?;
        Ok(image)
    }

    /// Opens the image as it is stored: without the objects of composefs.
    pub fn open_without_objects(&self) -> Result<Image, Failure> {
        let image = self.open_path(&ImageOptions::default()).map_err(|error| self.failure(error))?;
        image.require_devices().map_err(|error| self.failure(error))?;
        Ok(image)
    }

    /// Opens the image to read metadata only. Missing devices are reported, and are not an error.
    pub fn open_metadata(&self) -> Result<Image, Failure> {
        self.open_metadata_with(&ImageOptions::default(), &|failure| note(format_args!("{failure}")))
    }

    /// Opens like [`ImageArgs::open_metadata`], and reports through `warn`.
    pub fn open_metadata_with(&self, options: &ImageOptions, warn: &dyn Fn(Failure)) -> Result<Image, Failure> {
        let options = options.clone().with_objects(self.objects.open()?);
        let image = self.open_path(&options).map_err(|error| self.failure(error))?;
        if let Err(error) = image.require_devices() {
            warn(self.failure(error));
        }
        Ok(image)
    }

    /// Refuses an image with missing devices before the kernel mounts it: every file would fail. The kernel reports
    /// any other error.
    pub fn require_devices(&self) -> Result<(), Failure> {
        let devices = self.open_path(&ImageOptions::default()).map_or(Ok(()), |image| image.require_devices());
        devices.map_err(|error| self.failure(error))
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
            Some(_) => self.open_path(&ImageOptions::default()).map(drop).map_err(|error| self.failure(error)),
        }
    }

    fn open_path(&self, options: &ImageOptions) -> Result<Image, ReadError> {
        let options = options.clone().with_offset(self.offset).with_generation(self.generation);
        Image::open_path(&self.image, &self.device, &options)
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
