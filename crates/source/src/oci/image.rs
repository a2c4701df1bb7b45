//! Image of a layout: its manifest and layers.

use std::collections::hash_map::Entry::{Occupied, Vacant};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::blobs::{Blobs, Naming};
use super::choice::{ImageChoice, ListedImage, Platform};
use super::layer_blob::{LayerBlob, LayerPlace};
use super::records::{
    Annotations, CONTAINERD_NAME, ConfigRecord, DOCKER_FILE, Descriptor, DockerImage, INDEX_FILE, Index, Manifest,
    REF_NAME,
};
use super::stack::Stack;
use crate::error::SourceError;
use crate::input::candidate::SourceOptions;
use crate::source::{ScanOptions, Source};
use kiln_read::ReadAt;

/// Maximum depth of nested indexes.
const INDEX_DEPTH_MAX: usize = 4;
/// Maximum number of images in a layout.
const IMAGES_MAX: usize = 10_000;
/// Maximum number of indexes in a layout; an index that is listed several times counts each time.
const INDEXES_MAX: usize = 1000;
/// Maximum number of layers of an image. overlayfs supports 500.
const LAYERS_MAX: usize = 1000;
/// Maximum length in bytes of an image name.
const NAME_MAX_LEN: usize = 1024;
/// Maximum number of images listed in an error.
const TOLD_MAX: usize = 20;
/// Media type of an entry that describes the layer before it, and is not a layer.
const CHUNK_INDEX: &str = "application/vnd.erofs.chunk-index";
/// Media types of layers that are EROFS images.
const EROFS_TYPES: [&str; 2] = ["application/vnd.erofs", "application/vnd.erofs.layer.v1"];
/// Annotation of manifests that are attestations and not images.
const REFERENCE_TYPE: &str = "vnd.docker.reference.type";

/// An image of a layout.
pub struct OciImage {
    stack: Stack,
    /// Entry of the layout's list.
    pub listed: ListedImage,
    /// Configuration document: the raw bytes.
    pub config: Vec<u8>,
    /// Annotations of the manifest.
    pub annotations: Annotations,
}

/// A layer as it is stored.
pub struct StoredLayer<'a> {
    /// Its bytes, whose digest has been compared.
    pub bytes: Arc<dyn ReadAt>,
    /// Its descriptor in the manifest.
    pub descriptor: &'a Descriptor,
}

/// Entry of a layout's list of images.
pub(super) struct Entry {
    pub(super) listed: ListedImage,
    place: EntryPlace,
}

enum EntryPlace {
    /// Manifest, to be read.
    Manifest(Descriptor),
    /// Manifest of the `dir:` format of skopeo.
    Only(Box<Manifest>),
    /// Entry of the list of `docker save`.
    Docker(DockerImage),
}

/// Lists all images of a layout.
///
/// # Errors
/// A file that is not a layout; unreadable documents; far more entries than a layout should have.
pub(super) fn list(blobs: &Blobs, options: &ScanOptions<'_>) -> Result<Vec<Entry>, SourceError> {
    if blobs.file(INDEX_FILE)?.is_some() {
        let (index, _) = blobs.json::<Index>(INDEX_FILE)?;
        let mut listing = Listing { blobs, options, index_count: 0, entries: Vec::new() };
        listing.add(index, &[], &[])?;
        return Ok(listing.entries);
    }
    if blobs.file(DOCKER_FILE)?.is_none() {
        let reason = format!("it is not a container image: it has neither {INDEX_FILE} nor {DOCKER_FILE}");
        return Err(SourceError::Unknown { path: blobs.path().to_owned(), reason });
    }
    if blobs.naming() == Naming::Flat {
        return list_flat(blobs, options);
    }
    let (images, _) = blobs.json::<Vec<DockerImage>>(DOCKER_FILE)?;
    if images.len() > IMAGES_MAX {
        return Err(blobs.wrong(DOCKER_FILE, format!("it lists more than {IMAGES_MAX} images")));
    }
    let entry = |image: DockerImage| {
        options.check_stop()?;
        let naming = |tag| Annotations::from([(REF_NAME.to_owned(), tag)]);
        let namings = image.repo_tags.clone().unwrap_or_default().into_iter().map(naming).collect();
        let listed = ListedImage::named(namings, image.config.clone(), docker_platform(blobs, &image));
        Ok(Entry { listed, place: EntryPlace::Docker(image) })
    };
    images.into_iter().map(entry).collect()
}

/// Lists the image of the `dir:` format of skopeo, or its images for several platforms.
fn list_flat(blobs: &Blobs, options: &ScanOptions<'_>) -> Result<Vec<Entry>, SourceError> {
    let (document, _) = blobs.json::<serde_json::Value>(DOCKER_FILE)?;
    let wrong = |error: serde_json::Error| blobs.wrong(DOCKER_FILE, error.to_string());
    if document.get("manifests").is_some() {
        let mut listing = Listing { blobs, options, index_count: 0, entries: Vec::new() };
        listing.add(serde_json::from_value(document).map_err(wrong)?, &[], &[])?;
        return Ok(listing.entries);
    }
    let manifest = serde_json::from_value(document).map_err(wrong)?;
    let digest = blobs.digest(DOCKER_FILE, &*blobs.required(DOCKER_FILE)?, options)?;
    let listed = ListedImage::named(Vec::new(), digest, None);
    Ok(vec![Entry { listed, place: EntryPlace::Only(Box::new(manifest)) }])
}

fn docker_platform(blobs: &Blobs, image: &DockerImage) -> Option<Platform> {
    blobs.json::<ConfigRecord>(&image.config).ok().map(|(config, _)| config.into())
}

/// Entries found in indexes.
struct Listing<'a> {
    blobs: &'a Blobs,
    options: &'a ScanOptions<'a>,
    index_count: usize,
    entries: Vec<Entry>,
}

impl Listing<'_> {
    /// Adds the entries of an index, whose own entries had the names `namings`. It is nested in the indexes with the
    /// digests `outer`, the last of which is its own.
    fn add(&mut self, index: Index, namings: &[Annotations], outer: &[String]) -> Result<(), SourceError> {
        let wrong = |reason| Err(self.blobs.wrong(INDEX_FILE, reason));
        self.index_count += 1;
        if self.index_count > INDEXES_MAX {
            return wrong(format!("it refers to more than {INDEXES_MAX} indexes"));
        }
        for descriptor in index.manifests {
            self.options.check_stop()?;
            if descriptor.annotations.contains_key(REFERENCE_TYPE) {
                continue;
            }
            let is_name = |(key, name): &(&String, &String)| {
                [CONTAINERD_NAME, REF_NAME].contains(&key.as_str()) && name.len() <= NAME_MAX_LEN
            };
            let own = descriptor.annotations.iter().filter(is_name);
            let own: Annotations = own.map(|(key, name)| (key.clone(), name.clone())).collect();
            let own = (!own.is_empty()).then_some(own);
            let namings: Vec<Annotations> = namings.iter().cloned().chain(own).collect();
            if descriptor.media_type.contains("index") || descriptor.media_type.contains("manifest.list") {
                if outer.len() == INDEX_DEPTH_MAX {
                    return wrong(format!("indexes are nested more than {INDEX_DEPTH_MAX} levels deep"));
                }
                let (inner, _) = self.blobs.document::<Index>(&descriptor, self.options)?;
                self.add(inner, &namings, &[outer, std::slice::from_ref(&descriptor.digest)].concat())?;
            } else if self.entries.len() == IMAGES_MAX {
                return wrong(format!("it lists more than {IMAGES_MAX} images"));
            } else {
                let platform = descriptor.platform.as_ref().map(Platform::from);
                let listed = ListedImage::named(namings, descriptor.digest.clone(), platform);
                let listed = ListedImage { indexes: outer.to_vec(), ..listed };
                self.entries.push(Entry { listed, place: EntryPlace::Manifest(descriptor) });
            }
        }
        Ok(())
    }
}

/// Number of images that a choice may select.
#[derive(Clone, Copy)]
pub(super) enum Meant<'a> {
    /// One image.
    Only,
    /// One image for several platforms: these, or all of its platforms if the list is empty.
    Platforms(&'a [Platform]),
}

/// Returns the selected images of `entries`, at least one.
///
/// # Errors
/// A choice that selects none, or too many; the message lists the images.
pub(super) fn choose(
    entries: Vec<Entry>,
    choice: &ImageChoice,
    meant: Meant<'_>,
    blobs: &Arc<Blobs>,
) -> Result<Vec<Entry>, SourceError> {
    let refuse = |reason| Err(SourceError::Choice { path: blobs.path().to_owned(), reason });
    if entries.is_empty() {
        return refuse("it has no images".to_owned());
    }
    let all = tell(entries.iter());
    // Several names of one manifest are one image.
    let (mut chosen, mut places) = (Vec::<Entry>::new(), HashMap::<String, usize>::new());
    for entry in entries.into_iter().filter(|entry| entry.listed.is(choice)) {
        match places.entry(entry.listed.digest.clone()) {
            Occupied(place) => chosen[*place.get()].listed.add_names_of(entry.listed),
            Vacant(place) => {
                place.insert(chosen.len());
                chosen.push(entry);
            }
        }
    }
    if let Meant::Platforms(platforms @ [_, ..]) = meant {
        let runs_on = |entry: &Entry, wanted: &Platform| entry.listed.runs_on(wanted);
        if let Some(missing) = platforms.iter().find(|wanted| !chosen.iter().any(|entry| runs_on(entry, wanted))) {
            return refuse(format!("no image matches --platform {missing}; it has: {all}"));
        }
        chosen.retain(|entry| platforms.iter().any(|wanted| runs_on(entry, wanted)));
    }
    let preferred = choice.preferred.as_ref().filter(|_| choice.platform.is_none() && are_one(&chosen));
    if let (Meant::Only, Some(preferred)) = (meant, preferred)
        && chosen.iter().filter(|entry| entry.listed.runs_on(preferred)).count() == 1
    {
        chosen.retain(|entry| entry.listed.runs_on(preferred));
    }
    match (&*chosen, meant) {
        ([], _) => refuse(format!("no image matches --image and --platform; it has: {all}")),
        ([_], _) => Ok(chosen),
        (several, Meant::Platforms(_)) if are_one(several) => Ok(chosen),
        (several, _) => {
            let several = tell(several.iter());
            refuse(format!("several images match; choose one with --image or --platform: {several}"))
        }
    }
}

/// Returns true if the entries are one image for several platforms: they have the same names, and
/// each platform occurs once.
fn are_one(entries: &[Entry]) -> bool {
    let mut platforms = HashSet::new();
    entries.iter().all(|Entry { listed, .. }| {
        let platform = listed.platform.as_ref();
        listed.names == entries[0].listed.names && platform.is_some_and(|platform| platforms.insert(platform))
    })
}

/// Formats images for a message.
fn tell<'a>(entries: impl ExactSizeIterator<Item = &'a Entry>) -> String {
    let more = entries.len().saturating_sub(TOLD_MAX);
    let mut told: Vec<String> = entries.take(TOLD_MAX).map(|entry| entry.listed.to_string()).collect();
    told.extend((more > 0).then(|| format!("and {more} more")));
    told.join("; ")
}

/// Returns configuration, layers and annotations of a manifest. Sets the platform of `listed` from
/// the configuration if it is missing.
fn of_manifest(
    manifest: Manifest,
    listed: &mut ListedImage,
    blobs: &Blobs,
    options: &ScanOptions<'_>,
) -> Result<(Vec<u8>, Vec<LayerBlob>, Annotations), SourceError> {
    let (mut record, config) = blobs.document::<ConfigRecord>(&manifest.config, options)?;
    let diff_ids = record.rootfs.take().and_then(|rootfs| rootfs.diff_ids);
    if listed.platform.is_none() && !record.os.is_empty() {
        listed.platform = Some(record.into());
    }
    Ok((config, layers_of(manifest.layers, diff_ids, listed, blobs)?, manifest.annotations))
}

/// Returns the layers of a manifest. Entries that only describe the layer before them are not
/// layers, but may be counted in the digests of the configuration.
fn layers_of(
    all: Vec<Descriptor>,
    diff_ids: Option<Vec<String>>,
    listed: &ListedImage,
    blobs: &Blobs,
) -> Result<Vec<LayerBlob>, SourceError> {
    let is_layer = |layer: &Descriptor| !layer.media_type.starts_with(CHUNK_INDEX);
    let diff_ids = diff_ids.map(|ids| match ids.len() == all.len() {
        true => ids.into_iter().zip(&all).filter(|(_, layer)| is_layer(layer)).map(|(id, _)| id).collect(),
        false => ids,
    });
    let layers = all.into_iter().filter(is_layer).map(|layer| LayerBlob::of_descriptor(layer, blobs));
    let mut layers = layers.collect::<Result<Vec<_>, _>>()?;
    if let Some(diff_ids) = diff_ids {
        LayerBlob::set_diff_ids(&mut layers, diff_ids, listed, blobs)?;
    }
    Ok(layers)
}

impl OciImage {
    /// Opens the image of an entry.
    pub(super) fn open(entry: Entry, blobs: Arc<Blobs>, options: &ScanOptions<'_>) -> Result<Self, SourceError> {
        let Entry { mut listed, place } = entry;
        let (config, layers, annotations) = match place {
            EntryPlace::Manifest(descriptor) => {
                let (manifest, _) = blobs.document::<Manifest>(&descriptor, options)?;
                of_manifest(manifest, &mut listed, &blobs, options)?
            }
            EntryPlace::Only(manifest) => of_manifest(*manifest, &mut listed, &blobs, options)?,
            EntryPlace::Docker(image) => {
                let (record, config) = blobs.json::<ConfigRecord>(&image.config)?;
                let mut layers: Vec<_> = image.layers.into_iter().map(LayerBlob::of_path).collect();
                if let Some(diff_ids) = record.rootfs.and_then(|rootfs| rootfs.diff_ids) {
                    LayerBlob::set_diff_ids(&mut layers, diff_ids, &listed, &blobs)?;
                }
                (config, layers, Annotations::new())
            }
        };
        if layers.len() > LAYERS_MAX {
            let reason = format!("the image {} has more than {LAYERS_MAX} layers", listed.digest);
            return Err(SourceError::Unsupported { path: blobs.path().to_owned(), reason });
        }
        Ok(Self { stack: Stack::new(blobs, layers), listed, config, annotations })
    }

    /// Returns the layers, the lowest first.
    pub fn layers(&self) -> &[LayerBlob] {
        &self.stack.layers
    }

    /// Opens layer `at` as a source, in the form that overlayfs needs over the layers below. Marks
    /// for lower layers are those of overlayfs; the lowest layer has none. A directory that a tar
    /// layer only implies gets owner, permissions, times and attributes from the layers below.
    /// These are read for that, unless the previously read layer was the one below.
    ///
    /// # Errors
    /// A blob that is missing or has another digest; a layer that is neither a tar archive nor an
    /// EROFS image.
    ///
    /// # Panics
    /// If there is no such layer.
    pub fn layer(
        &self,
        at: usize,
        source: &SourceOptions,
        options: &ScanOptions<'_>,
    ) -> Result<Box<dyn Source>, SourceError> {
        Ok(Box::new(self.stack.stacked(at, source, options)?))
    }

    /// Opens layer `at` as a source on its own, with converted marks: the result does not depend on the layers below.
    ///
    /// # Errors
    /// Those of [`OciImage::layer`].
    ///
    /// # Panics
    /// If there is no such layer.
    pub fn lone_layer(
        &self,
        at: usize,
        source: &SourceOptions,
        options: &ScanOptions<'_>,
    ) -> Result<Box<dyn Source>, SourceError> {
        Ok(Box::new(self.stack.layer(at, source, options)?))
    }

    /// Returns layer `at` as it is stored, if it is an EROFS image and not compressed.
    ///
    /// # Errors
    /// A blob that is missing or has another digest.
    ///
    /// # Panics
    /// If there is no such layer.
    pub fn erofs_layer(&self, at: usize, options: &ScanOptions<'_>) -> Result<Option<StoredLayer<'_>>, SourceError> {
        let is_erofs = |layer: &&Descriptor| EROFS_TYPES.contains(&&*layer.media_type);
        let Some(descriptor) = self.layers()[at].descriptor().filter(is_erofs) else { return Ok(None) };
        Ok(Some(StoredLayer { bytes: self.stack.blobs.blob(descriptor, options)?, descriptor }))
    }

    /// Returns the digest of the tar archive in layer `at`, by which containerd knows the layer: `sha256:` and 64
    /// hexadecimal digits. Without `rootfs.diff_ids` it is that of a layer which is not compressed.
    ///
    /// # Errors
    /// Those of [`OciImage::layer_digest`]; a compressed layer of an image without `rootfs.diff_ids`.
    ///
    /// # Panics
    /// If there is no such layer.
    pub fn diff_id(&self, at: usize, options: &ScanOptions<'_>) -> Result<String, SourceError> {
        let layer = &self.layers()[at];
        let is_compressed = layer.descriptor().is_some_and(|blob| !blob.media_type.ends_with(".tar"));
        match &layer.diff_id {
            Some(diff_id) => Ok(diff_id.clone()),
            None if is_compressed => {
                let reason = format!("the image {} has no rootfs.diff_ids", self.listed.digest);
                Err(SourceError::Unsupported { path: self.stack.blobs.path().to_owned(), reason })
            }
            None => self.layer_digest(at, options),
        }
    }

    /// Returns the digest of layer `at`: `sha256:` and 64 hexadecimal digits. Computes it for
    /// layers of `docker save` without a digest.
    ///
    /// # Errors
    /// A blob that is missing or cannot be read; a digest of another algorithm.
    ///
    /// # Panics
    /// If there is no such layer.
    pub fn layer_digest(&self, at: usize, options: &ScanOptions<'_>) -> Result<String, SourceError> {
        let blobs = &self.stack.blobs;
        match &self.layers()[at].place {
            LayerPlace::Blob(descriptor) => blobs.blob_name(descriptor).map(|_| descriptor.digest.clone()),
            LayerPlace::Path(path) => blobs.digest(path, &*blobs.required(path)?, options),
        }
    }
}
