//! OCI layouts as outputs: directories to which images of containers are added, whose layers are EROFS images.
//!
//! Blobs come first and the index last, each in one step: whatever ends the work early, the layout is as before, with blobs at most
//! that nothing refers to.

use kiln_digest::fsverity;
use kiln_format::Hex;
use kiln_output::{AtomicFile, Existing, OutputError};
use kiln_source::oci::records::{
    Annotations, CONTAINERD_NAME, Descriptor, INDEX_FILE, LAYOUT_FILE, Manifest, PlatformRecord, REF_NAME,
};
use kiln_source::oci::{Platform, looks_like_layout};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::error::Error;

/// Feature that an image with EROFS layers requires of a system.
pub const EROFS_FEATURE: &str = "erofs";

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
/// Annotations of an entry that name an image, that by which entries of one name are known first.
const NAMES: [&str; 2] = [REF_NAME, CONTAINERD_NAME];
/// Annotation of an attestation, with the digest of the image that it is about.
const REFERENCE_DIGEST: &str = "vnd.docker.reference.digest";
/// The longest index, in bytes. Larger ones are not read as sources, either.
const DOCUMENT_MAX_LEN: u64 = 8 << 20;
/// Bytes of a blob that are hashed at once.
const PIECE_LEN: usize = 1 << 20;

/// Media type of layers that are EROFS images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LayerType {
    /// `application/vnd.erofs`
    #[default]
    Erofs,
    /// `application/vnd.erofs.layer.v1`, as containerd has it.
    Containerd,
}

impl LayerType {
    /// The media type.
    pub fn media_type(self) -> &'static str {
        match self {
            LayerType::Erofs => "application/vnd.erofs",
            LayerType::Containerd => "application/vnd.erofs.layer.v1",
        }
    }
}

/// A layout to which images are added.
#[derive(Debug)]
pub struct LayoutDir {
    path: PathBuf,
}

/// An image to add.
#[derive(Clone, Debug)]
pub struct NewImage {
    /// Configuration document, see [`new_config`] and [`with_layers`].
    pub config: Value,
    /// The lowest first.
    pub layers: Vec<Descriptor>,
    /// Annotations of the manifest.
    pub annotations: Annotations,
    /// Platform that it runs on.
    pub platform: Platform,
    /// Digest of the composefs image (version 1) of all layers. With it, annotations seal the image: the manifest gets
    /// this digest, and the descriptor of the configuration the fs-verity digest of that.
    pub composefs: Option<kiln_digest::Digest>,
}

impl LayoutDir {
    /// Opens the layout at `path`. It is created if nothing is there, or an empty directory.
    ///
    /// # Errors
    /// Something else is there; errors of the system.
    pub fn open_or_create(path: &Path) -> Result<Self, Error> {
        let fail = |action| move |source| OutputError::File { path: path.to_owned(), action, source };
        fs::create_dir_all(path).map_err(fail("create"))?;
        if !looks_like_layout(path) {
            let names = fs::read_dir(path).map_err(fail("list"))?.map(|entry| entry.map(|entry| entry.file_name()));
            let names = names.collect::<io::Result<Vec<_>>>().map_err(fail("list"))?;
            // What a layout in the making has: another process, or one that was ended.
            if names.iter().any(|name| name != "blobs" && name != LAYOUT_FILE) {
                return Err(Error::NotALayout { path: path.to_owned(), reason: format!("files, but no {INDEX_FILE}") });
            }
        }
        let blobs = path.join("blobs/sha256");
        fs::create_dir_all(&blobs).map_err(|source| OutputError::File { path: blobs, action: "create", source })?;
        let layout = Self { path: path.to_owned() };
        if !path.join(LAYOUT_FILE).exists() {
            write(&path.join(LAYOUT_FILE), br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        }
        Ok(layout)
    }

    /// Creates the file of a new blob, which has no name until [`LayoutDir::add_blob`] gives it one.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn new_blob(&self) -> Result<AtomicFile, OutputError> {
        AtomicFile::create(&self.path.join("blobs/sha256/new"), Existing::Replace)
    }

    /// Names a blob by its digest. A blob that exists already is replaced by the same bytes.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn add_blob(&self, blob: AtomicFile, media_type: &str) -> Result<Descriptor, Error> {
        let fail = |source| OutputError::File { path: self.path.clone(), action: "read a new blob of", source };
        let (digest, size) = digest(blob.file()).map_err(fail)?;
        blob.with_name(digest.as_ref()).commit()?;
        let digest = format!("sha256:{digest}");
        Ok(Descriptor { media_type: media_type.into(), digest, size, ..Descriptor::default() })
    }

    /// Adds a document as a blob.
    fn add_document(&self, media_type: &str, document: &impl serde::Serialize) -> Result<Descriptor, Error> {
        self.add_bytes(media_type, &self.encode(document)?)
    }

    fn add_bytes(&self, media_type: &str, bytes: &[u8]) -> Result<Descriptor, Error> {
        let blob = self.new_blob()?;
        blob.file().write_all_at(bytes, 0).map_err(|source| self.no_blob(source))?;
        self.add_blob(blob, media_type)
    }

    fn encode(&self, document: &impl serde::Serialize) -> Result<Vec<u8>, Error> {
        Ok(serde_json::to_vec(document).map_err(|error| self.no_blob(error.into()))?)
    }

    fn no_blob(&self, source: io::Error) -> OutputError {
        OutputError::File { path: self.path.clone(), action: "write a new blob of", source }
    }

    /// Adds an image whose layers are there, and returns the digest of its manifest. Several images are one image for
    /// several platforms: an index holds them together, and its digest is returned.
    ///
    /// `namings` are its names in the layout, as the annotations of an entry for each, see [`naming`]. A name has one
    /// image for each platform: one of the same name and platform loses its place, and so does one that does not tell
    /// its platform.
    ///
    /// # Errors
    /// An index that is none; errors of the system.
    pub fn add_image(&self, platforms: Vec<NewImage>, namings: &[Annotations]) -> Result<String, Error> {
        let entries = platforms.into_iter().map(|image| self.add_manifest(image)).collect::<Result<Vec<_>, _>>()?;
        let Some((first, others)) = namings.split_first() else { return self.list(entries, &Annotations::new()) };
        let digest = self.list(entries.clone(), first)?;
        others.iter().try_for_each(|naming| self.list(entries.clone(), naming).map(drop))?;
        Ok(digest)
    }

    /// Adds a manifest and its configuration as blobs, and returns its entry in an index.
    fn add_manifest(&self, image: NewImage) -> Result<Value, Error> {
        let NewImage { config, layers, mut annotations, platform, composefs } = image;
        let bytes = self.encode(&config)?;
        let mut config = self.add_bytes(CONFIG, &bytes)?;
        if let Some(id) = composefs {
            let algorithm = id.algorithm();
            let name = algorithm.fsverity_name();
            annotations.insert(format!("composefs.merged.erofs.v1.{name}"), id.to_string());
            let digest = fsverity::digest(algorithm, &bytes).to_string();
            config.annotations.insert(format!("composefs.config.{name}"), digest);
        }
        let manifest = Manifest { schema_version: 2, media_type: MANIFEST.into(), config, layers, annotations };
        let mut entry = self.add_document(MANIFEST, &manifest)?;
        let Platform { os, architecture, variant } = platform;
        let os_features = vec![EROFS_FEATURE.to_owned()];
        entry.platform = Some(PlatformRecord { os, architecture, variant, os_features });
        self.value(&entry)
    }

    /// Adds an image to the index of the layout, and returns the digest that is listed. The rest of the index stays.
    fn list(&self, new: Vec<Value>, naming: &Annotations) -> Result<String, Error> {
        let path = self.path.join(INDEX_FILE);
        let fail = |action| {
            let path = path.clone();
            move |source| Error::Output(OutputError::File { path, action, source })
        };
        // Another process that added an entry between reading and writing would lose it. The lock goes with the file.
        let dir = File::open(&self.path).map_err(fail("open the directory of"))?;
        dir.lock().map_err(fail("lock the directory of"))?;
        let mut index: Value = match read_document(&path) {
            Ok(bytes) => {
                serde_json::from_slice(&bytes).map_err(|error| self.no_index(INDEX_FILE, &error.to_string()))?
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => new_index(),
            Err(error) => return Err(fail("read")(error)),
        };
        let entries = self.manifests(&mut index, INDEX_FILE)?;
        let (same, mut others): (Vec<Value>, Vec<Value>) = std::mem::take(entries).into_iter().partition(|entry| {
            NAMES
                .iter()
                .find_map(|key| naming.get_key_value(*key))
                .is_some_and(|(key, name)| entry["annotations"][key] == **name)
        });
        let mut entry = self.together(same, new)?;
        let digest = entry["digest"].as_str().unwrap_or_default().to_owned();
        naming.iter().for_each(|(key, name)| entry["annotations"][key] = name.as_str().into());
        if naming.is_empty() {
            let is_named = |other: &Value| NAMES.iter().any(|key| other["annotations"][key].is_string());
            others.retain(|other| is_named(other) || other["digest"] != *digest);
        }
        others.push(entry);
        *entries = others;
        let bytes = serde_json::to_vec(&index).map_err(|error| fail("write")(error.into()))?;
        write(&path, &bytes)?;
        Ok(digest)
    }

    /// One entry for the manifests `new` and those of the entries `known` that are for other platforms.
    fn together(&self, known: Vec<Value>, new: Vec<Value>) -> Result<Value, Error> {
        let (mut index, mut manifests) = (new_index(), Vec::new());
        for mut entry in known {
            if entry["mediaType"] == INDEX {
                index = self.read_index(&entry)?;
                manifests.append(self.manifests(&mut index, "an index in it")?);
            } else {
                // The name belongs to the entry for all platforms.
                if let Some(annotations) = entry["annotations"].as_object_mut() {
                    NAMES.iter().for_each(|key| drop(annotations.remove(*key)));
                }
                manifests.push(entry);
            }
        }
        let is_kept = |entry: &Value| {
            platform(entry).is_some_and(|own| new.iter().all(|new| platform(new).as_ref() != Some(&own)))
        };
        let (mut kept, gone): (Vec<Value>, Vec<Value>) = manifests.into_iter().partition(is_kept);
        // What only attests something about an image goes with it.
        kept.retain(|entry| gone.iter().all(|gone| entry["annotations"][REFERENCE_DIGEST] != gone["digest"]));
        kept.extend(new);
        if let [_] = &*kept
            && let Some(only) = kept.pop()
        {
            return Ok(only);
        }
        index["manifests"] = kept.into();
        let entry = self.add_document(INDEX, &index)?;
        self.value(&entry)
    }

    /// The document of an index that an entry lists.
    fn read_index(&self, entry: &Value) -> Result<Value, Error> {
        let digest = entry["digest"].as_str().unwrap_or_default();
        let hex = digest.strip_prefix("sha256:").filter(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()));
        let hex = hex.ok_or_else(|| self.no_index(INDEX_FILE, &format!("digest = {digest:?} of an index")))?;
        let path = self.path.join("blobs/sha256").join(hex);
        let bytes = read_document(&path).map_err(|source| OutputError::File { path, action: "read", source })?;
        serde_json::from_slice(&bytes).map_err(|error| self.no_index(digest, &error.to_string()))
    }

    /// The list of the index that errors call `name`.
    fn manifests<'a>(&self, index: &'a mut Value, name: &str) -> Result<&'a mut Vec<Value>, Error> {
        let list = index.get_mut("manifests").and_then(Value::as_array_mut);
        list.ok_or_else(|| self.no_index(name, "manifests is no list"))
    }

    fn value(&self, entry: &Descriptor) -> Result<Value, Error> {
        let fail = |error: serde_json::Error| OutputError::File {
            path: self.path.join(INDEX_FILE),
            action: "write",
            source: error.into(),
        };
        Ok(serde_json::to_value(entry).map_err(fail)?)
    }

    fn no_index(&self, name: &str, reason: &str) -> Error {
        Error::NotALayout { path: self.path.clone(), reason: format!("{name}: {reason}") }
    }
}

/// Returns the name `tag` as the annotations of an entry.
pub fn naming(tag: &str) -> Annotations {
    Annotations::from([(REF_NAME.to_owned(), tag.to_owned())])
}

/// An index that lists nothing.
fn new_index() -> Value {
    json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [] })
}

/// Returns the platform of an entry, if it has one.
fn platform(entry: &Value) -> Option<Platform> {
    let record = PlatformRecord::deserialize(&entry["platform"]).ok()?;
    Some(Platform::from(&record))
}

/// Returns a configuration that has only the platform. It has no times: the same layers are the same image.
pub fn new_config(platform: &Platform) -> Value {
    let mut config = json!({ "architecture": platform.architecture, "os": platform.os });
    if let Some(variant) = &platform.variant {
        config["variant"] = variant.as_str().into();
    }
    config
}

/// Returns `config` for an image of these EROFS layers, otherwise unchanged.
///
/// # Errors
/// [`Error::NoConfig`]
pub fn with_layers(mut config: Value, layers: &[Descriptor]) -> Result<Value, Error> {
    let object = config.as_object_mut().ok_or(Error::NoConfig)?;
    let mut features = object.get("os.features").and_then(Value::as_array).cloned().unwrap_or_default();
    if !features.iter().any(|feature| feature == EROFS_FEATURE) {
        features.push(EROFS_FEATURE.into());
    }
    object.insert("os.features".into(), features.into());
    // An EROFS layer is not compressed as a whole: its digest is that of what is in it, too.
    let diff_ids: Vec<&str> = layers.iter().map(|layer| layer.digest.as_str()).collect();
    object.insert("rootfs".into(), json!({ "type": "layers", "diff_ids": diff_ids }));
    Ok(config)
}

/// Returns the platform of this machine.
pub fn host_platform() -> Platform {
    let (architecture, variant) = match std::env::consts::ARCH {
        "x86_64" => ("amd64", None),
        "x86" => ("386", None),
        "aarch64" => ("arm64", None),
        "arm" => ("arm", Some("v7")),
        "powerpc64" if cfg!(target_endian = "little") => ("ppc64le", None),
        "loongarch64" => ("loong64", None),
        other => (other, None),
    };
    Platform { os: "linux".into(), architecture: architecture.into(), variant: variant.map(str::to_owned) }
}

/// Reads a document.
fn read_document(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(DOCUMENT_MAX_LEN + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > DOCUMENT_MAX_LEN {
        true => Err(io::Error::other(format!("a document of more than {DOCUMENT_MAX_LEN} bytes"))),
        false => Ok(bytes),
    }
}

/// Writes a file in one step.
fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let file = AtomicFile::create(path, Existing::Replace)?;
    let fail = |source| OutputError::File { path: path.to_owned(), action: "write", source };
    file.file().write_all_at(bytes, 0).map_err(fail)?;
    Ok(file.commit()?)
}

/// Returns the hexadecimal digest of a file, and its length.
fn digest(file: &File) -> io::Result<(String, u64)> {
    let (mut hasher, mut off, mut piece) = (Sha256::new(), 0, vec![0; PIECE_LEN]);
    loop {
        match file.read_at(&mut piece, off) {
            Ok(0) => break,
            Ok(len) => {
                hasher.update(&piece[..len]);
                off += len as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok((Hex(&hasher.finalize()).to_string(), off))
}
