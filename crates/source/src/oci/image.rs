//! One image of a layout: its manifest, and its layers.

use std::collections::HashSet;
use std::sync::Arc;

use super::blobs::Blobs;
use super::choice::{ImageChoice, Listed, Platform};
use super::layer_blob::{LayerBlob, LayerPlace};
use super::records::{
    Annotations, CONTAINERD_NAME, ConfigPlatform, DOCKER_FILE, Descriptor, DockerImage, INDEX_FILE, Index, LAYOUT_FILE,
    Manifest, REF_NAME,
};
use super::stack::Stack;
use crate::error::{SourceError, Unreadable};
use crate::input::candidate::SourceOptions;
use crate::source::{ScanOptions, Source};

/// How deep indexes may lie in indexes.
const INDEX_DEPTH_MAX: u32 = 4;
/// Most images of a layout.
const IMAGES_MAX: usize = 10_000;
/// Most indexes of a layout, each counted as often as others list it.
const INDEXES_MAX: usize = 1000;
/// Most layers of an image. overlayfs takes 500.
const LAYERS_MAX: usize = 1000;
/// The longest name of an image, in bytes.
const NAME_MAX_LEN: usize = 1024;
/// Most images that an error lists.
const TOLD_MAX: usize = 20;
/// Media type of what tells about the layer in front of it, and is none.
const CHUNK_INDEX: &str = "application/vnd.erofs.chunk-index";
/// Annotation of manifests that are no images, but attest something about one.
const REFERENCE_TYPE: &str = "vnd.docker.reference.type";

/// An image of a layout.
pub struct OciImage {
    stack: Stack,
    /// How the layout lists it.
    pub listed: Listed,
    /// The document that says how to run it, as it is.
    pub config: Vec<u8>,
    /// What its manifest says about it.
    pub annotations: Annotations,
}

/// What a layout lists: manifests to open.
pub(super) struct Entry {
    pub(super) listed: Listed,
    place: EntryPlace,
}

enum EntryPlace {
    Manifest(Descriptor),
    Docker(DockerImage),
}

/// Whether the files of an archive are a layout, and not only called like those of one.
///
/// # Errors
/// Files that cannot be read.
pub(super) fn holds_images(blobs: &Blobs) -> Result<bool, SourceError> {
    if blobs.file(LAYOUT_FILE)?.is_some() && blobs.file(INDEX_FILE)?.is_some() {
        return Ok(true);
    }
    // Of what is called so, only `docker save` writes a list: manifests of web applications are objects.
    let Some(file) = blobs.file(DOCKER_FILE)? else { return Ok(false) };
    let unreadable = |source| Unreadable { path: blobs.path().join(DOCKER_FILE), source };
    let mut head = [b' '; 64];
    let len = file.len().map_err(unreadable)?.min(head.len() as u64) as usize;
    file.read_exact_at(&mut head[..len], 0).map_err(unreadable)?;
    Ok(head.trim_ascii_start().starts_with(b"["))
}

/// All images of a layout.
///
/// # Errors
/// No layout; documents that cannot be read; far more than a layout should hold.
pub(super) fn list(blobs: &Blobs, options: &ScanOptions<'_>) -> Result<Vec<Entry>, SourceError> {
    if blobs.file(INDEX_FILE)?.is_some() {
        let (index, _) = blobs.json::<Index>(INDEX_FILE)?;
        let mut listing = Listing { blobs, options, index_count: 0, entries: Vec::new() };
        listing.add(index, &[], INDEX_DEPTH_MAX)?;
        return Ok(listing.entries);
    }
    if blobs.file(DOCKER_FILE)?.is_none() {
        let reason = format!("neither {INDEX_FILE} nor {DOCKER_FILE} is in it: no image of a container");
        return Err(SourceError::Unknown { path: blobs.path().to_owned(), reason });
    }
    let (images, _) = blobs.json::<Vec<DockerImage>>(DOCKER_FILE)?;
    if images.len() > IMAGES_MAX {
        return Err(blobs.wrong(DOCKER_FILE, format!("it lists more than {IMAGES_MAX} images")));
    }
    let entry = |image: DockerImage| {
        options.check_stop()?;
        let (names, digest) = (image.repo_tags.clone().unwrap_or_default(), image.config.clone());
        let listed = Listed { names, digest, platform: docker_platform(blobs, &image) };
        Ok(Entry { listed, place: EntryPlace::Docker(image) })
    };
    images.into_iter().map(entry).collect()
}

fn docker_platform(blobs: &Blobs, image: &DockerImage) -> Option<Platform> {
    blobs.json::<ConfigPlatform>(&image.config).ok().map(|(config, _)| config.into())
}

/// What was found so far in indexes.
struct Listing<'a> {
    blobs: &'a Blobs,
    options: &'a ScanOptions<'a>,
    index_count: usize,
    entries: Vec<Entry>,
}

impl Listing<'_> {
    /// Add what an index lists, whose own entry had these names, and in which indexes may lie `depth` deep.
    fn add(&mut self, index: Index, names: &[String], depth: u32) -> Result<(), SourceError> {
        let wrong = |reason| Err(self.blobs.wrong(INDEX_FILE, reason));
        self.index_count += 1;
        if self.index_count > INDEXES_MAX {
            return wrong(format!("it leads to more than {INDEXES_MAX} indexes"));
        }
        for descriptor in index.manifests {
            self.options.check_stop()?;
            if descriptor.annotations.contains_key(REFERENCE_TYPE) {
                continue;
            }
            let own = [CONTAINERD_NAME, REF_NAME].iter().filter_map(|key| descriptor.annotations.get(*key));
            let own = own.filter(|name| name.len() <= NAME_MAX_LEN).cloned();
            let names: Vec<String> = names.iter().cloned().chain(own).collect();
            if descriptor.media_type.contains("index") || descriptor.media_type.contains("manifest.list") {
                let Some(depth) = depth.checked_sub(1) else {
                    return wrong(format!("indexes lie in indexes more than {INDEX_DEPTH_MAX} deep"));
                };
                let (inner, _) = self.blobs.document::<Index>(&descriptor, self.options)?;
                self.add(inner, &names, depth)?;
            } else if self.entries.len() == IMAGES_MAX {
                return wrong(format!("it lists more than {IMAGES_MAX} images"));
            } else {
                let platform = descriptor.platform.as_ref().map(Platform::from);
                let listed = Listed { names, digest: descriptor.digest.clone(), platform };
                self.entries.push(Entry { listed, place: EntryPlace::Manifest(descriptor) });
            }
        }
        Ok(())
    }
}

/// How many images a choice may mean.
#[derive(Clone, Copy)]
pub(super) enum Meant<'a> {
    /// One.
    Only,
    /// One for several platforms: these, or if none is named, all.
    Platforms(&'a [Platform]),
}

/// The images of `entries` that are meant: one at least.
///
/// # Errors
/// None is, or more are: they are listed.
pub(super) fn choose(
    entries: Vec<Entry>,
    choice: &ImageChoice,
    meant: Meant<'_>,
    blobs: &Arc<Blobs>,
) -> Result<Vec<Entry>, SourceError> {
    let refuse = |reason| Err(SourceError::Choice { path: blobs.path().to_owned(), reason });
    if entries.is_empty() {
        return refuse("no image is in it".to_owned());
    }
    let all = tell(entries.iter());
    let mut chosen: Vec<Entry> = entries.into_iter().filter(|entry| entry.listed.is(choice)).collect();
    // Several names of one manifest are one image.
    let mut digests = HashSet::new();
    chosen.retain(|entry| digests.insert(entry.listed.digest.clone()));
    if let Meant::Platforms(platforms @ [_, ..]) = meant {
        let runs_on = |entry: &Entry, wanted: &Platform| entry.listed.runs_on(wanted);
        if let Some(missing) = platforms.iter().find(|wanted| !chosen.iter().any(|entry| runs_on(entry, wanted))) {
            return refuse(format!("none of its images is meant by --platform {missing}: {all}"));
        }
        chosen.retain(|entry| platforms.iter().any(|wanted| runs_on(entry, wanted)));
    }
    match (&*chosen, meant) {
        ([], _) => refuse(format!("none of its images is meant by --image and --platform: {all}")),
        ([_], _) => Ok(chosen),
        (several, Meant::Platforms(_)) if are_one(several) => Ok(chosen),
        (several, _) => {
            let several = tell(several.iter());
            refuse(format!("several images are meant, choose one by --image or --platform: {several}"))
        }
    }
}

/// Whether entries are the same image for several platforms: it has one name, and each platform once.
fn are_one(entries: &[Entry]) -> bool {
    let mut platforms = HashSet::new();
    entries.iter().all(|Entry { listed, .. }| {
        let platform = listed.platform.as_ref();
        listed.names == entries[0].listed.names && platform.is_some_and(|platform| platforms.insert(platform))
    })
}

/// Images in a message.
fn tell<'a>(entries: impl ExactSizeIterator<Item = &'a Entry>) -> String {
    let more = entries.len().saturating_sub(TOLD_MAX);
    let mut told: Vec<String> = entries.take(TOLD_MAX).map(|entry| entry.listed.to_string()).collect();
    told.extend((more > 0).then(|| format!("and {more} more")));
    told.join("; ")
}

impl OciImage {
    /// The image that an entry lists.
    pub(super) fn open(entry: Entry, blobs: Arc<Blobs>, options: &ScanOptions<'_>) -> Result<Self, SourceError> {
        let Entry { mut listed, place } = entry;
        let (config, layers, annotations) = match place {
            EntryPlace::Manifest(descriptor) => {
                let (manifest, _) = blobs.document::<Manifest>(&descriptor, options)?;
                let (platform, config) = blobs.document::<ConfigPlatform>(&manifest.config, options)?;
                if listed.platform.is_none() && !platform.os.is_empty() {
                    listed.platform = Some(platform.into());
                }
                let layers = manifest.layers.into_iter().filter(|layer| !layer.media_type.starts_with(CHUNK_INDEX));
                let layers: Result<Vec<_>, _> = layers.map(|layer| LayerBlob::of_descriptor(layer, &blobs)).collect();
                (config, layers?, manifest.annotations)
            }
            EntryPlace::Docker(image) => {
                let (_, config) = blobs.json::<ConfigPlatform>(&image.config)?;
                (config, image.layers.into_iter().map(LayerBlob::of_path).collect(), Annotations::new())
            }
        };
        if layers.len() > LAYERS_MAX {
            let reason = format!("the image {} has more than {LAYERS_MAX} layers", listed.digest);
            return Err(SourceError::Unsupported { path: blobs.path().to_owned(), reason });
        }
        Ok(Self { stack: Stack::new(blobs, layers), listed, config, annotations })
    }

    /// The layers, the lowest first.
    pub fn layers(&self) -> &[LayerBlob] {
        &self.stack.layers
    }

    /// Layer `at` as a source, as overlayfs wants it over those below. Marks for lower layers are those of overlayfs; the lowest layer has
    /// none. A directory that a tar layer only implies, by the path of a file in it, has owner, permissions, times and attributes as the
    /// layers below have it: these are read for that, unless the layer below was the last one that was read.
    ///
    /// # Errors
    /// A blob that is missing or has another digest; what is neither a tar archive nor an EROFS image.
    ///
    /// # Panics
    /// There is no such layer.
    pub fn layer(
        &self,
        at: usize,
        source: &SourceOptions,
        options: &ScanOptions<'_>,
    ) -> Result<Box<dyn Source>, SourceError> {
        Ok(Box::new(self.stack.stacked(at, source, options)?))
    }

    /// Layer `at` as a source, as it is by itself, but for the marks.
    ///
    /// # Errors
    /// As [`OciImage::layer`].
    pub(super) fn lone_layer(
        &self,
        at: usize,
        source: &SourceOptions,
        options: &ScanOptions<'_>,
    ) -> Result<Box<dyn Source>, SourceError> {
        Ok(Box::new(self.stack.layer(at, source, options)?))
    }

    /// The digest of layer `at`: `sha256:` and 64 hexadecimal digits. What `docker save` wrote without one is read for it.
    ///
    /// # Errors
    /// A blob that is missing or cannot be read; a digest of another kind.
    ///
    /// # Panics
    /// There is no such layer.
    pub fn layer_digest(&self, at: usize, options: &ScanOptions<'_>) -> Result<String, SourceError> {
        let blobs = &self.stack.blobs;
        match &self.layers()[at].place {
            LayerPlace::Blob(descriptor) => blobs.blob_name(descriptor).map(|_| descriptor.digest.clone()),
            LayerPlace::Path(path) => blobs.digest(path, &*blobs.required(path)?, options),
        }
    }
}
