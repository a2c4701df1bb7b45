//! The image that a program reads, and the inode in it that the user names.

use super::Stop;
use super::getopt::{Misuse, number};
use super::log::Log;
use crate::exit::Failure;
use crate::image::ImageArgs;
use kiln_read::{FollowLast, Image, ImageOptions, Inode, Nid, ReadError};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// An image and an inode, as named on the command line.
#[derive(Default)]
pub struct Source {
    image: Option<PathBuf>,
    devices: Vec<PathBuf>,
    offset: u64,
    /// The inode; the last of `--nid` and `--path` counts.
    pub target: Option<Target>,
}

/// An inode as a user names it.
#[derive(Clone)]
pub enum Target {
    Nid(Nid),
    Path(OsString),
}

impl Target {
    /// Returns the user's name for the inode.
    pub fn name(&self) -> Vec<u8> {
        match self {
            Target::Path(path) => path.as_bytes().to_vec(),
            Target::Nid(nid) => format!("(nid {nid})").into_bytes(),
        }
    }
}

/// The inode that the user named.
#[derive(Clone)]
pub struct Named {
    pub name: Vec<u8>,
    pub inode: Inode,
}

/// An open image.
pub struct Opened {
    args: ImageArgs,
    pub image: Image,
}

impl Source {
    /// Handles an option that all programs have: `--device`, `--offset`, `--nid`, `--path`.
    pub fn option(&mut self, name: &str, value: OsString) -> Result<(), Misuse> {
        match name {
            "device" => self.devices.push(value.into()),
            "offset" => self.offset = numeric(&value, "invalid disk offset")?,
            "nid" => self.target = Some(Target::Nid(Nid(numeric(&value, "invalid nid")?))),
            _ => self.target = Some(Target::Path(value)),
        }
        Ok(())
    }

    /// Handles the only operand, the image.
    pub fn operand(&mut self, value: OsString) -> Result<(), Misuse> {
        match &self.image {
            None => self.image = Some(value.into()),
            Some(_) => return Err(Misuse::Other(format!("unexpected argument: {}", value.display()))),
        }
        Ok(())
    }

    /// Returns whether the user named an inode by its number.
    pub fn is_nid(&self) -> bool {
        matches!(self.target, Some(Target::Nid(_)))
    }

    /// Opens the image to read contents.
    pub fn open(&self, options: &ImageOptions) -> Result<Opened, Stop> {
        let args = self.image_args()?;
        let image = args.open_with(options)?;
        Ok(Opened { args, image })
    }

    /// Opens the image to read metadata only: missing devices cause a warning.
    pub fn open_metadata(&self, options: &ImageOptions) -> Result<Opened, Stop> {
        let args = self.image_args()?;
        let warn = |failure| Log::default().warning(format_args!("{failure}"));
        let image = args.open_metadata_with(options, &warn)?;
        Ok(Opened { args, image })
    }

    fn image_args(&self) -> Result<ImageArgs, Misuse> {
        let image = self.image.clone().ok_or_else(|| Misuse::other("missing argument: IMAGE"))?;
        Ok(ImageArgs { image, device: self.devices.clone(), offset: self.offset, ..ImageArgs::default() })
    }
}

impl Opened {
    /// Returns the inode that the user named, if any. A symbolic link at the end of a path is not followed.
    pub fn target(&self, source: &Source) -> Result<Option<Named>, Failure> {
        let Some(target) = &source.target else { return Ok(None) };
        let inode = match target {
            Target::Nid(nid) => self.image.inode(*nid),
            Target::Path(path) => self.image.resolve(path.as_bytes(), FollowLast::Keep),
        };
        let inode = inode.map_err(|error| self.failure(error))?;
        Ok(Some(Named { name: target.name(), inode }))
    }

    /// Returns an error about this image.
    pub fn failure(&self, error: ReadError) -> Failure {
        self.args.failure(error)
    }
}

/// Parses a number, or returns a message that begins with `wrong`.
pub fn numeric(text: &OsString, wrong: &str) -> Result<u64, Misuse> {
    number(text).ok_or_else(|| Misuse::Other(format!("{wrong} {}", text.display())))
}
