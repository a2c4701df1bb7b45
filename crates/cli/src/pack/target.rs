//! Targets of images: a file that appears or is replaced when the image is complete; a place inside something that
//! exists, a block device or a larger file, which is written then; or a stream, which gets it then.

use crate::exit::Failure;
use crate::pack::output::{Destination, Stream, spool_dir, spool_failure};
use crate::pack::vmdk::{self, Descriptor, SECTOR_LEN};
use crate::process::signals::Signals;
use crate::verity::sealing::{self, BesideFile, ImageIn, Sealing};
use crate::verity::{Hashing, MadeTree, TreeWanted};
use kiln_builder::{Blob, BuildError, Out, PhaseClock, Summary};
use kiln_format::BlockBits;
use kiln_output::{AtomicFile, Durability, Existing, Output, OutputError, Place, Spool};
use kiln_source::dir::FileId;
use kiln_tree::Device;
use kilnfs::Packer;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Bytes of what an image calls its extra device.
const TAG_LEN: usize = 64;

/// Target of an image.
pub struct Target {
    image: Image,
    offset: u64,
    blob: Option<BlobFile>,
    /// With the name that it gives the image.
    descriptor: Option<(Descriptor, PathBuf)>,
    /// Devices to which the image refers, if the descriptor is to name them: file and length in bytes.
    referred: Vec<(PathBuf, u64)>,
    /// The hash tree that the image gets.
    sealing: Option<Sealing>,
    /// Names of the image's file.
    names: Vec<PathBuf>,
    durability: Durability,
}

enum Image {
    New(AtomicFile),
    /// Builders want a file in which they can go back and which grows; what takes less gets the image when it is
    /// complete.
    Spooled(Spool, Sink),
}

enum Sink {
    Place(Place),
    Stream(Stream),
}

/// The place that `open` makes of `path`, which exists.
fn place(path: &Path, existing: Existing, open: fn(&Path) -> Result<Place, OutputError>) -> Result<Place, Failure> {
    match existing {
        Existing::Keep => Err(Failure::Exists { path: path.to_owned() }),
        Existing::Replace => Ok(open(path)?),
    }
}

/// The files that an output is and replaces.
pub fn ids(file: &AtomicFile) -> impl Iterator<Item = FileId> {
    let replaced = file.replaced().and_then(|old| FileId::of(old).ok());
    FileId::of(file.file()).ok().into_iter().chain(replaced)
}

/// A file for the data of chunks.
struct BlobFile {
    path: PathBuf,
    file: AtomicFile,
    tag: [u8; TAG_LEN],
}

impl Target {
    /// Start an image that shall begin at byte `offset` of `destination`, where `spool` says, if it must wait.
    pub fn create(
        destination: Destination,
        existing: Existing,
        offset: u64,
        spool: Option<&Path>,
    ) -> Result<Self, Failure> {
        if !offset.is_multiple_of(SECTOR_LEN) || offset > i64::MAX as u64 {
            return Err(Failure::Usage(format!("--offset {offset}: use a multiple of {SECTOR_LEN} bytes")));
        }
        let names = if let Destination::File(path) = &destination { vec![path.clone()] } else { Vec::new() };
        let image = match destination {
            Destination::Stream(stream) if offset > 0 => {
                let name = stream.name().display();
                return Err(Failure::Usage(format!(
                    "{name} takes an image from its beginning on: no offset is possible"
                )));
            }
            Destination::Stream(stream) => Image::Spooled(Spool::create(&spool_dir(spool))?, Sink::Stream(stream)),
            Destination::BlockDevice(path) => Image::in_place(place(&path, existing, Place::device)?, spool)?,
            Destination::File(path) if offset > 0 && path.is_file() => {
                Image::in_place(place(&path, existing, Place::in_file)?, spool)?
            }
            Destination::File(path) => Image::New(AtomicFile::create(&path, existing)?),
        };
        let (referred, durability) = (Vec::new(), Durability::Synced);
        Ok(Self { image, offset, blob: None, descriptor: None, referred, sealing: None, names, durability })
    }

    /// With the data of chunks in a file of its own, which appears or is replaced when the image is complete, too.
    pub fn with_blob(self, path: &Path, existing: Existing) -> Result<Self, Failure> {
        let file = self.companion(path, existing, "the chunks need a file of their own")?;
        let mut tag = [0; TAG_LEN];
        // A name that is cut still says more than none. A zero ends it.
        let name = path.file_name().unwrap_or_default().as_bytes();
        let len = name.len().min(TAG_LEN - 1);
        tag[..len].copy_from_slice(&name[..len]);
        Ok(Self { blob: Some(BlobFile { path: path.to_owned(), file, tag }), ..self })
    }

    /// With a descriptor of all that, once it is complete, in which the image is called `image`.
    pub fn with_descriptor(self, path: &Path, image: &Path, existing: Existing) -> Result<Self, Failure> {
        let file = self.companion(path, existing, "the descriptor needs a file of its own")?;
        let files = [image].into_iter().chain(self.blob.as_ref().map(|blob| blob.path.as_path()));
        let descriptor = Descriptor::create(path, file, files)?;
        Ok(Self { descriptor: Some((descriptor, image.to_owned())), ..self })
    }

    /// With a hash tree, if one is `wanted`, of the image that is called `image`.
    pub fn with_tree(
        mut self,
        wanted: Option<TreeWanted<'_>>,
        image: &Path,
        existing: Existing,
    ) -> Result<Self, Failure> {
        let has_name = !self.names.is_empty();
        if has_name && !self.names.iter().any(|name| name == image) {
            self.names.push(image.to_owned());
        }
        let Some(wanted) = wanted else { return Ok(self) };
        let is_usual = has_name && self.offset == 0;
        let files = wanted.files(is_usual.then_some(image))?;
        let mut target = Self { sealing: Some(Sealing::new(wanted.salt.cloned())), ..self };
        for (kind, path) in files {
            let file = target.sibling(&path, existing, kind.of_its_own())?;
            if let Some(sealing) = &mut target.sealing {
                sealing.files.push(BesideFile { kind, path, file });
            }
        }
        Ok(target)
    }

    /// Makes the hash tree of the image, which is complete, if it is to have one.
    pub fn seal(&self, summary: &mut Summary, name: &Path, hashing: Hashing<'_>) -> Result<Option<MadeTree>, Failure> {
        let Some(sealing) = &self.sealing else { return Ok(None) };
        let clock = PhaseClock::start();
        let (file, offset) = match &self.image {
            Image::New(file) => (file.file(), self.offset),
            Image::Spooled(spool, _) => (spool.file(), 0),
        };
        let made = sealing.seal(&ImageIn { file, offset, name }, summary, hashing)?;
        clock.finish("hash tree");
        summary.phases.extend(clock.phases());
        Ok(Some(made))
    }

    /// An image, and what belongs to it, that the caller syncs, if they are new files.
    pub fn with_durability(self, durability: Durability) -> Self {
        Self { durability, ..self }
    }

    /// Let the descriptor, if there is one, name the devices to which the image, of such blocks, refers.
    pub fn refer_to(&mut self, devices: Vec<Device>, block_bits: BlockBits) -> Result<(), Failure> {
        if self.descriptor.is_none() {
            return Ok(());
        }
        for (number, Device { path, len, .. }) in (1..).zip(devices) {
            let refuse = |reason: &str| Failure::Usage(format!("a descriptor cannot name device {number}: {reason}"));
            let path = path.ok_or_else(|| refuse("no file is known to be it"))?;
            if !vmdk::can_name(&path) {
                return Err(refuse("the name of its file has a quotation mark or a line feed"));
            }
            if !len.is_multiple_of(block_bits.len()) {
                return Err(refuse("its length is not a multiple of the image's blocks"));
            }
            self.referred.push((path, len));
        }
        Ok(())
    }

    /// A further file that is read together with the image, as [`Target::sibling`] makes it.
    fn companion(&self, path: &Path, existing: Existing, of_its_own: &str) -> Result<AtomicFile, Failure> {
        if let Image::Spooled(_, Sink::Stream(stream)) = &self.image {
            let (path, stream) = (path.display(), stream.name().display());
            let what = format!("{path}: of no use beside an image that goes to {stream}, which has no name");
            return Err(Failure::Usage(what));
        }
        self.sibling(path, existing, of_its_own)
    }

    /// A further file, which is none of those before: `of_its_own` says so if it is. Symbolic links are followed.
    pub fn sibling(&self, path: &Path, existing: Existing, of_its_own: &str) -> Result<AtomicFile, Failure> {
        let refuse = |reason: &str| Err(Failure::Usage(format!("{}: {reason}", path.display())));
        let Destination::File(resolved) = Destination::of_path(path)? else { return refuse("only a file can be this") };
        let file = AtomicFile::create(&resolved, existing)?;
        let blob = self.blob.as_ref().map(|blob| &blob.file);
        let descriptor = self.descriptor.as_ref().map(|(descriptor, _)| descriptor.file());
        let image = match &self.image {
            Image::New(image) => Some(image),
            Image::Spooled(..) => None,
        };
        let has_name = |other: &AtomicFile| file.has_name_of(other);
        let beside = self.sealing.iter().flat_map(|sealing| &sealing.files).map(|beside| &beside.file);
        let is_taken = blob.into_iter().chain(descriptor).chain(image).chain(beside).any(has_name)
            || matches!(&self.image, Image::Spooled(_, sink)
                if ids(&file).any(|id| FileId::of(sink.file()).is_ok_and(|other| id == other)));
        if is_taken { refuse(of_its_own) } else { Ok(file) }
    }

    /// For the builder.
    pub fn out(&self) -> Out<'_> {
        let (image, offset) = match &self.image {
            Image::New(file) => (file as &dyn Output, self.offset),
            Image::Spooled(spool, _) => (spool.file() as &dyn Output, 0),
        };
        let blob = self.blob.as_ref().map(|blob| Blob { file: &blob.file, tag: blob.tag });
        Out { image, offset, blob, behind: None }
    }

    /// Returns `packer` for this output: what is written here is left out of the tree, and temporary files are put
    /// where there must be room anyway.
    pub fn prepare(&self, packer: Packer) -> Packer {
        packer.outputs(self.ids()).scratch_dir(self.scratch_dir())
    }

    /// Directory of temporary files: there must be room for the image anyway.
    pub fn scratch_dir(&self) -> &Path {
        match &self.image {
            Image::New(file) => file.dir_path(),
            Image::Spooled(spool, _) => spool.dir(),
        }
    }

    /// All that is written, and what standard output and standard error lead to, as far as these are files or FIFOs.
    pub fn ids(&self) -> Vec<FileId> {
        let sink = match &self.image {
            Image::New(_) => None,
            Image::Spooled(_, sink) => Some(sink.file()),
        };
        let image = match &self.image {
            Image::New(file) => Some(file),
            Image::Spooled(..) => None,
        };
        let blob = self.blob.as_ref().map(|blob| &blob.file);
        let descriptor = self.descriptor.as_ref().map(|(descriptor, _)| descriptor.file());
        let beside = self.sealing.iter().flat_map(|sealing| &sealing.files).map(|beside| &beside.file);
        let files = image.into_iter().chain(blob).chain(descriptor).chain(beside).flat_map(ids);
        let sink = sink.and_then(FileId::of_written);
        files.chain(sink).chain(FileId::of_written(io::stdout())).chain(FileId::of_written(io::stderr())).collect()
    }

    /// Returns the failure of a build: the temporary file could not be written, if the image waits in one.
    pub fn failure(&self, failure: Failure) -> Failure {
        match (&self.image, failure) {
            (Image::Spooled(spool, _), Failure::Build { source: BuildError::Write { source, .. }, .. }) => {
                spool_failure(spool, source)
            }
            (_, failure) => failure,
        }
    }

    /// The image is complete. What it needs is there before it is.
    pub fn commit(self, summary: &Summary, signals: &Signals) -> Result<(), Failure> {
        let mut blob_extent = None;
        if let Some(BlobFile { path, file, .. }) = self.blob {
            let found = file.file().metadata();
            let found = found.map_err(|source| Failure::File { path: path.clone(), action: "measure", source })?;
            file.commit_as(self.durability)?;
            blob_extent = Some((path, found.len()));
        }
        // From now on nothing tells of another tree than the image will have.
        for name in &self.names {
            sealing::set_aside(name, self.sealing.as_ref())?;
        }
        let named = self.sealing.map(|sealing| sealing.commit(self.durability)).transpose()?;
        let committed = match self.image {
            Image::New(file) => file.commit_as(self.durability).map_err(Failure::from),
            Image::Spooled(spool, Sink::Place(place)) => {
                if named.is_none() {
                    sealing::blank_behind(&spool, place.path(), self.offset)?;
                }
                place.write(&spool, self.offset).map_err(Failure::from)
            }
            Image::Spooled(spool, Sink::Stream(stream)) => stream.send(&spool, signals),
        };
        if let (Err(_), Some(named)) = (&committed, &named) {
            named.remove_new();
        }
        committed?;
        let Some((descriptor, image)) = self.descriptor else { return Ok(()) };
        let mut extents = vec![(image.as_path(), self.offset, summary.image_bytes)];
        extents.extend(self.referred.iter().map(|(path, len)| (path.as_path(), 0, *len)));
        extents.extend(blob_extent.as_ref().map(|(path, len)| (path.as_path(), 0, *len)));
        descriptor.commit(summary.uuid, &extents)
    }
}

impl Image {
    /// In a file without name until it is complete: beside `place`, or, for a device, where spools are.
    fn in_place(place: Place, spool: Option<&Path>) -> Result<Self, Failure> {
        let beside = place.dir().filter(|_| spool.is_none());
        let spool = Spool::create(&beside.map_or_else(|| spool_dir(spool), Path::to_owned))?;
        Ok(Self::Spooled(spool, Sink::Place(place)))
    }
}

impl Sink {
    fn file(&self) -> &File {
        match self {
            Sink::Place(place) => place.file(),
            Sink::Stream(stream) => stream.file(),
        }
    }
}
