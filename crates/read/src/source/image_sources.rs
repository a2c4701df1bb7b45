//! The sources of one image, and how a policy opens them.

use super::file::FileSource;
use super::layer::SourceLayer;
use super::objects::Objects;
use super::offset::OffsetSource;
use super::read_at::ReadAt;
use super::timed::TimedSource;
use crate::error::ReadError;
use crate::image::Image;
use crate::options::ImageOptions;
use crate::options::read_policy::{ReadPolicy, Readahead};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Sources of an image: its primary source and its extra devices. Paths are opened together with
/// the image, as its [policy](ReadPolicy) needs them.
#[derive(Clone, Debug)]
pub struct ImageSources {
    primary: Place,
    devices: Vec<Place>,
    offset: u64,
    generation: Option<u32>,
    layer: Option<SourceLayer>,
    objects: Option<Objects>,
    has_xattrs: bool,
}

/// Place of the bytes of one device.
#[derive(Clone)]
enum Place {
    Path(PathBuf),
    Source(Arc<dyn ReadAt>),
}

impl ImageSources {
    /// Returns an image in `primary`, without extra devices.
    pub fn new(primary: Arc<dyn ReadAt>) -> Self {
        Self::of(Place::Source(primary), Vec::new())
    }

    /// Returns an image in a file or block device, and its extra devices: all of them in the order
    /// of its table, or none if they are part of the image.
    pub fn from_paths(image: &Path, devices: &[PathBuf]) -> Self {
        Self::of(Place::Path(image.to_owned()), devices.iter().cloned().map(Place::Path).collect())
    }

    fn of(primary: Place, devices: Vec<Place>) -> Self {
        Self { primary, devices, offset: 0, generation: None, layer: None, objects: None, has_xattrs: true }
    }

    /// Returns the same image with these extra devices: all of them in the order of its table.
    pub fn with_devices(self, devices: Vec<Arc<dyn ReadAt>>) -> Self {
        Self { devices: devices.into_iter().map(Place::Source).collect(), ..self }
    }

    /// Returns the same sources with an image that begins at byte `offset` of the primary one.
    pub fn with_offset(self, offset: u64) -> Self {
        Self { offset, ..self }
    }

    /// Returns the same sources with an older tree of an image that was updated in place, see
    /// [`ImageOptions::generation`].
    pub fn with_generation(self, generation: Option<u32>) -> Self {
        Self { generation, ..self }
    }

    /// Returns the same sources below a layer, which gets the primary one from the first byte of the
    /// image on.
    pub fn with_layer(self, layer: SourceLayer) -> Self {
        Self { layer: Some(layer), ..self }
    }

    /// Returns the same sources with the objects of a composefs image.
    pub fn with_objects(self, objects: impl Into<Option<Objects>>) -> Self {
        Self { objects: objects.into(), ..self }
    }

    /// Returns the same sources with the statement whether any inode has extended attributes. An image does not say
    /// it, but who has made it may know. It only saves work; by default any inode may have some.
    pub fn with_xattrs(self, has_xattrs: bool) -> Self {
        Self { has_xattrs, ..self }
    }

    /// Returns false if it was stated that no inode has extended attributes.
    pub fn has_xattrs(&self) -> bool {
        self.has_xattrs
    }

    /// Returns the path of the primary source, if it has one.
    pub fn path(&self) -> Option<&Path> {
        match &self.primary {
            Place::Path(path) => Some(path),
            Place::Source(_) => None,
        }
    }

    /// Opens the image. Its offset is that of the sources, not [that of the
    /// options](ImageOptions::offset). If the policy has [latency](ReadPolicy::latency), the
    /// sources note it there.
    ///
    /// # Errors
    /// As [`Image::open`]; paths that cannot be opened, or that lead to something else than a file
    /// or a block device. An image that has a path is named in errors.
    pub fn open(self, options: &ImageOptions) -> Result<Image, ReadError> {
        let Self { primary, devices, offset, generation, layer, objects, has_xattrs: _ } = self;
        let name = primary.name(offset);
        let named = |error: ReadError, name: &Option<Vec<u8>>| match name {
            Some(name) => error.at_path(name),
            None => error,
        };
        let policy = &options.policy;
        let over = |number: u16, name: &Option<Vec<u8>>, source: Arc<dyn ReadAt>| match &layer {
            Some(layer) => layer.over(number, source).map_err(|error| named(ReadError::of_source(error), name)),
            None => Ok(source),
        };
        let extra = |(number, place): (u16, Place)| {
            let name = place.name(0);
            over(number, &name, place.open(policy)?)
        };
        let devices = (1..).zip(devices).map(extra).collect::<Result<_, _>>()?;
        let mut options = options.clone().with_offset(offset).with_generation(generation.or(options.generation));
        options.objects = objects.or(options.objects);
        let mut source = primary.open(policy)?;
        if layer.is_some() && offset > 0 {
            let part = OffsetSource::new(source, offset);
            source = Arc::new(part.map_err(|error| named(ReadError::of_source(error), &name))?);
            options.offset = 0;
        }
        let source = over(0, &name, source)?;
        Image::open(source, devices, &options).map_err(|error| named(error, &name))
    }
}

impl Place {
    /// Returns the name in errors of an image at byte `offset` of this place.
    fn name(&self, offset: u64) -> Option<Vec<u8>> {
        let Place::Path(path) = self else { return None };
        let mut name = path.as_os_str().as_bytes().to_vec();
        if offset > 0 {
            name.extend(format!(" (image at byte {offset})").into_bytes());
        }
        Some(name)
    }

    fn open(self, policy: &ReadPolicy) -> Result<Arc<dyn ReadAt>, ReadError> {
        let source: Arc<dyn ReadAt> = match self {
            Place::Path(path) => {
                let file = FileSource::open(&path)?;
                // The readahead of the system would come behind that of the image.
                if policy.readahead == Readahead::Image {
                    file.refuse_read_ahead();
                }
                Arc::new(file)
            }
            Place::Source(source) => source,
        };
        Ok(match &policy.latency {
            Some(latency) => Arc::new(TimedSource::new(source, latency.clone())),
            None => source,
        })
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Path(path) => path.fmt(f),
            Place::Source(_) => f.write_str("ReadAt"),
        }
    }
}

impl Image {
    /// Opens an image in a file or block device.
    ///
    /// ```
    /// # fn main() -> Result<(), kiln_read::ReadError> {
    /// use kiln_read::{Image, ImageOptions};
    ///
    /// let options = ImageOptions::default().with_cache_bytes(16 << 20);
    /// # let path = "tests/golden/zstd.erofs";
    /// let image = Image::open_path(path.as_ref(), &[], &options)?;
    /// println!("{} inodes", image.superblock().inos);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Image::open`]; what cannot be opened is named.
    pub fn open_path(image: &Path, devices: &[PathBuf], options: &ImageOptions) -> Result<Image, ReadError> {
        ImageSources::from_paths(image, devices).with_offset(options.offset).open(options)
    }
}
