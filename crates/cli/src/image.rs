//! The image that a command reads.

use crate::exit::Failure;
use crate::size;
use kiln_read::{FollowLast, Image, Inode, OpenOptions, ReadError};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Which image.
#[derive(clap::Args)]
pub struct ImageArgs {
    /// The image: a file or a block device
    pub image: PathBuf,

    /// An extra device of the image; name all of them, in order
    #[arg(long, value_name = "FILE")]
    pub device: Vec<PathBuf>,

    /// Where the image begins in its file
    #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value = "0", hide_default_value = true)]
    pub offset: u64,
}

impl ImageArgs {
    /// Open the image.
    pub fn open(&self) -> Result<Image, Failure> {
        self.open_with(&OpenOptions::default())
    }

    /// Open the image. Its place in the file is that of the arguments.
    pub fn open_with(&self, options: &OpenOptions) -> Result<Image, Failure> {
        let options = OpenOptions { offset: self.offset, ..options.clone() };
        Image::open_path(&self.image, &self.device, &options).map_err(|error| self.failure(error))
    }

    /// An error about this image.
    pub fn failure(&self, source: ReadError) -> Failure {
        let mut image = self.image.clone().into_os_string();
        if self.offset > 0 {
            image.push(format!(" (image at byte {})", self.offset));
        }
        Failure::Read { image: image.into(), source }
    }

    /// The inode at `path`, and the path without slashes around it, as a walk from there wants it.
    pub fn resolve(&self, image: &Image, path: &OsStr, last: FollowLast) -> Result<(Inode, Vec<u8>), Failure> {
        let path = path.as_bytes();
        let inode = image.resolve(path, last).map_err(|error| self.failure(error))?;
        let names: Vec<&[u8]> = path.split(|&b| b == b'/').filter(|name| !name.is_empty()).collect();
        Ok((inode, names.join(&b'/')))
    }
}
