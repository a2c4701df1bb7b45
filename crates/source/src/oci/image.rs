//! One image of a layout: its manifest, and its layers.

use std::path::PathBuf;
use std::sync::Arc;

use super::blobs::Blobs;
use super::choice::{ImageChoice, Listed, Platform};
use super::layer::Layer;
use super::records::{
    CONTAINERD_NAME, ConfigPlatform, DOCKER_FILE, Descriptor, DockerImage, INDEX_FILE, Index, Manifest, REF_NAME,
};
use crate::error::SourceError;
use crate::input::candidate::SourceOptions;
use crate::source::{ScanOptions, Source};

/// How deep indexes may lie in indexes.
const INDEX_DEPTH_MAX: u32 = 4;
/// Most images of a layout.
const IMAGES_MAX: usize = 10_000;
/// Media type of what tells about the layer in front of it, and is none.
const CHUNK_INDEX: &str = "application/vnd.erofs.chunk-index";
/// Annotation of manifests that are no images, but attest something about one.
const REFERENCE_TYPE: &str = "vnd.docker.reference.type";

/// An image of a layout.
pub struct OciImage {
    blobs: Arc<Blobs>,
    /// How the layout lists it.
    pub listed: Listed,
    /// The document that says how to run it, as it is.
    pub config: Vec<u8>,
    /// The lowest first.
    pub layers: Vec<LayerBlob>,
}

/// Where a layer is.
#[derive(Clone, Debug)]
pub struct LayerBlob {
    /// Its digest, hexadecimal; of `docker save` without digests, the name of its directory.
    pub name: String,
    place: LayerPlace,
}

#[derive(Clone, Debug)]
enum LayerPlace {
    Blob(Descriptor),
    /// A path of `docker save`, which has no digest.
    Path(String),
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

/// All images of a layout.
///
/// # Errors
/// No layout; documents that cannot be read.
pub(super) fn list(blobs: &Blobs, options: &ScanOptions<'_>) -> Result<Vec<Entry>, SourceError> {
    let mut entries = Vec::new();
    if blobs.file(INDEX_FILE)?.is_some() {
        let (index, _) = blobs.json::<Index>(INDEX_FILE)?;
        add_index(blobs, options, index, &mut (Vec::new(), INDEX_DEPTH_MAX, &mut entries))?;
    } else if blobs.file(DOCKER_FILE)?.is_some() {
        let (images, _) = blobs.json::<Vec<DockerImage>>(DOCKER_FILE)?;
        entries.extend(images.into_iter().take(IMAGES_MAX).map(|image| Entry {
            listed: Listed {
                names: image.repo_tags.clone().unwrap_or_default(),
                digest: image.config.clone(),
                platform: docker_platform(blobs, &image),
            },
            place: EntryPlace::Docker(image),
        }));
    } else {
        let reason = format!("neither {INDEX_FILE} nor {DOCKER_FILE} is in it: no image of a container");
        return Err(SourceError::Unknown { path: blobs.path().to_owned(), reason });
    }
    Ok(entries)
}

fn docker_platform(blobs: &Blobs, image: &DockerImage) -> Option<Platform> {
    blobs.json::<ConfigPlatform>(&image.config).ok().map(|(config, _)| config.into())
}

/// Add what an index lists: names that its entry had, how much deeper indexes may lie, and what was found so far.
fn add_index(
    blobs: &Blobs,
    options: &ScanOptions<'_>,
    index: Index,
    state: &mut (Vec<String>, u32, &mut Vec<Entry>),
) -> Result<(), SourceError> {
    for descriptor in index.manifests {
        options.check_stop()?;
        if descriptor.annotations.contains_key(REFERENCE_TYPE) || state.2.len() >= IMAGES_MAX {
            continue;
        }
        let own = [CONTAINERD_NAME, REF_NAME].iter().filter_map(|key| descriptor.annotations.get(*key).cloned());
        let names: Vec<String> = state.0.iter().cloned().chain(own).collect();
        if descriptor.media_type.contains("index") || descriptor.media_type.contains("manifest.list") {
            let depth = state.1.checked_sub(1).ok_or_else(|| {
                blobs.wrong(INDEX_FILE, format!("indexes lie in indexes more than {INDEX_DEPTH_MAX} deep"))
            })?;
            let (inner, _) = blobs.document::<Index>(&descriptor, options)?;
            add_index(blobs, options, inner, &mut (names, depth, &mut *state.2))?;
        } else {
            let platform = descriptor.platform.as_ref().map(Platform::from);
            let listed = Listed { names, digest: descriptor.digest.clone(), platform };
            state.2.push(Entry { listed, place: EntryPlace::Manifest(descriptor) });
        }
    }
    Ok(())
}

/// The only image of `entries` that is meant.
///
/// # Errors
/// None is, or several are: they are listed.
pub(super) fn choose(entries: Vec<Entry>, choice: &ImageChoice, blobs: &Arc<Blobs>) -> Result<Entry, SourceError> {
    let all: Vec<String> = entries.iter().map(|entry| entry.listed.to_string()).collect();
    let mut chosen: Vec<Entry> = entries.into_iter().filter(|entry| entry.listed.is(choice)).collect();
    // Several names of one manifest are one image.
    chosen.dedup_by(|later, first| later.listed.digest == first.listed.digest);
    let reason = match (chosen.len(), all.len()) {
        (1, _) => return Ok(chosen.remove(0)),
        (_, 0) => "no image is in it".to_owned(),
        (0, _) => format!("none of its images is meant by --image and --platform: {}", all.join("; ")),
        _ => {
            let several: Vec<String> = chosen.iter().map(|entry| entry.listed.to_string()).collect();
            format!("several images are meant, choose one by --image or --platform: {}", several.join("; "))
        }
    };
    Err(SourceError::Choice { path: blobs.path().to_owned(), reason })
}

impl OciImage {
    /// The image that an entry lists.
    pub(super) fn open(entry: Entry, blobs: Arc<Blobs>, options: &ScanOptions<'_>) -> Result<Self, SourceError> {
        let Entry { mut listed, place } = entry;
        let (config, layers) = match place {
            EntryPlace::Manifest(descriptor) => {
                let (manifest, _) = blobs.document::<Manifest>(&descriptor, options)?;
                let (platform, config) = blobs.document::<ConfigPlatform>(&manifest.config, options)?;
                if listed.platform.is_none() && !platform.os.is_empty() {
                    listed.platform = Some(platform.into());
                }
                let layers = manifest.layers.into_iter().filter(|layer| !layer.media_type.starts_with(CHUNK_INDEX));
                let layers: Result<Vec<_>, _> = layers.map(|layer| LayerBlob::of_descriptor(layer, &blobs)).collect();
                (config, layers?)
            }
            EntryPlace::Docker(image) => {
                let (_, config) = blobs.json::<ConfigPlatform>(&image.config)?;
                (config, image.layers.into_iter().map(LayerBlob::of_path).collect())
            }
        };
        Ok(Self { blobs, listed, config, layers })
    }

    /// A layer as a source. Marks for lower layers are those of overlayfs.
    ///
    /// # Errors
    /// A blob that is missing or has another digest; what is neither a tar archive nor an EROFS image.
    pub fn layer(
        &self,
        layer: &LayerBlob,
        source: &SourceOptions,
        options: &ScanOptions<'_>,
    ) -> Result<Box<dyn Source>, SourceError> {
        let blob = match &layer.place {
            LayerPlace::Blob(descriptor) => self.blobs.blob(descriptor, options)?,
            LayerPlace::Path(path) => self.blobs.required(path)?,
        };
        Ok(Box::new(Layer::open(self.layer_path(layer), blob, source)?))
    }

    /// What errors call a layer.
    fn layer_path(&self, layer: &LayerBlob) -> PathBuf {
        self.blobs.path().join(match &layer.place {
            LayerPlace::Blob(descriptor) => descriptor.digest.replace("sha256:", "blobs/sha256/"),
            LayerPlace::Path(path) => path.clone(),
        })
    }
}

impl LayerBlob {
    fn of_descriptor(descriptor: Descriptor, blobs: &Blobs) -> Result<Self, SourceError> {
        let kind = &descriptor.media_type;
        let role = descriptor.annotations.get("org.erofs.role").map(String::as_str);
        let refusal = match (kind.contains("tar") || kind.contains("erofs"), role) {
            (_, Some("device")) => "a layer that is a device of another one",
            (_, Some("overlay-data")) => "a layer that holds data of another one only",
            _ if kind.ends_with("+encrypted") => "an encrypted layer",
            (false, _) => "no layer of files",
            (true, _) => {
                let name = descriptor.digest.rsplit(':').next().unwrap_or_default().to_owned();
                return Ok(Self { name, place: LayerPlace::Blob(descriptor) });
            }
        };
        let reason = format!("layer {}: mediaType = {kind:?}: {refusal}", descriptor.digest);
        Err(SourceError::Unsupported { path: blobs.path().to_owned(), reason })
    }

    fn of_path(path: String) -> Self {
        // `HEX/layer.tar`, or `blobs/sha256/HEX`.
        let names: Vec<&str> = path.split('/').collect();
        let name = match *names {
            [.., dir, "layer.tar"] => dir,
            [.., name] => name,
            [] => "",
        };
        Self { name: name.to_owned(), place: LayerPlace::Path(path) }
    }
}
