//! Opening of images with choices.

use crate::error::Error;
use kiln_read::{FileSource, Image, ImageOptions, ImageSources, OffsetSource, ReadAt, ReadError, SourceLayer};
use kiln_verity::{RootHashes, UnverifiedTree, VerityError};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Choices of opening an image.
///
/// ```
/// use kilnfs::OpenOptions;
/// use kilnfs::verity::RootHashes;
///
/// # let tmp = tempfile::tempdir().unwrap();
/// # let (dir, path) = (tmp.path().join("src"), tmp.path().join("out.erofs"));
/// # std::fs::create_dir(&dir).unwrap();
/// # std::fs::write(dir.join("hello"), "world").unwrap();
/// # kilnfs::pack(&dir, &path, kilnfs::Preset::Balanced)?;
/// # let image = kilnfs::read::FileSource::open(&path)?;
/// # let blocks = std::fs::metadata(&path)?.len() / 4096;
/// # use kilnfs::verity::{Control, Parameters, Tree};
/// # let tree = Tree::of_data(&image, &Parameters::new(blocks), &Control::unwatched())?;
/// # let file = std::fs::File::create(tmp.path().join("out.erofs.verity"))?;
/// # tree.write_at(&tree.superblock(None), 0, &file)?;
/// # let root_hash = *tree.root_hash();
/// // All that is read is verified, by the hash tree behind the image or beside it.
/// let options = OpenOptions { root_hashes: RootHashes::from(root_hash), ..OpenOptions::default() };
/// let image = kilnfs::open_with(&path, &options)?;
/// assert_eq!(std::io::read_to_string(image.open_file("hello")?)?, "world");
///
/// let other = OpenOptions { root_hashes: RootHashes::from("00".repeat(32).parse::<kilnfs::verity::Digest>()?), ..options };
/// assert!(kilnfs::open_with(&path, &other).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Extra devices of the image: all of them in the order of its table, or none if they are part of it.
    pub devices: Vec<PathBuf>,
    /// Root hashes of the image and of its extra devices, by which all is verified that is read; empty: nothing is.
    pub root_hashes: RootHashes,
    /// Offset, generation, cache and policy.
    pub read: ImageOptions,
}

impl OpenOptions {
    /// Returns the sources of the image at `image`: for [`ImageSources::open`], and for a mount.
    ///
    /// # Errors
    /// Another number of root hashes than the image and its devices need.
    pub fn sources(&self, image: &Path) -> Result<ImageSources, Error> {
        let sources = ImageSources::from_paths(image, &self.devices);
        let sources = sources.with_offset(self.read.offset).with_generation(self.read.generation);
        Ok(match self.layer(image)? {
            Some(layer) => sources.with_layer(layer),
            None => sources,
        })
    }

    /// Returns the layer that verifies what is read of the image at `image`, if something is to be verified.
    ///
    /// # Errors
    /// Those of [`OpenOptions::sources`].
    pub fn layer(&self, image: &Path) -> Result<Option<SourceLayer>, Error> {
        if self.root_hashes.is_empty() {
            return Ok(None);
        }
        self.root_hashes.layer(image, &self.devices).map(Some).map_err(of_tree(image))
    }

    /// Finds the hash trees of the image at `image` and of its extra devices, to verify all of them, and returns them
    /// with the paths of what they cover: none without root hashes.
    ///
    /// # Errors
    /// A file that cannot be read; one without a tree.
    pub fn trees(&self, image: &Path) -> Result<Vec<(PathBuf, UnverifiedTree)>, Error> {
        if self.layer(image)?.is_none() {
            return Ok(Vec::new());
        }
        let places = std::iter::once((image, self.read.offset));
        let places = places.chain(self.devices.iter().map(|device| (device.as_path(), 0)));
        let tree = |(device, (path, offset)): (u16, (&Path, u64))| {
            let failed = |source: ReadError| Error::Read { image: path.to_owned(), source };
            let file = FileSource::open(path).map_err(failed)?;
            let failed =
                |source| of_tree(path)(VerityError::Read { part: kiln_verity::Part::Data, off: offset, source });
            let source: Arc<dyn ReadAt> = Arc::new(OffsetSource::new(file, offset).map_err(failed)?);
            let found = self.root_hashes.find(device, Some(path), source).map_err(of_tree(path))?;
            Ok((path.to_owned(), found))
        };
        (0..).zip(places).map(tree).collect()
    }
}

/// Opens an image in a file or a block device, with choices.
///
/// # Errors
/// A file that cannot be read, or is no EROFS image; a hash tree that is missing or has another root hash. What is
/// wrong with blocks is an error of the reads that need them.
pub fn open_with(image: impl AsRef<Path>, options: &OpenOptions) -> Result<Image, Error> {
    let image = image.as_ref();
    let opened = options.sources(image)?.open(&options.read);
    opened.map_err(|source| Error::Read { image: image.to_owned(), source })
}

fn of_tree(image: &Path) -> impl Fn(VerityError) -> Error {
    move |source| Error::Verity { image: image.to_owned(), source }
}
