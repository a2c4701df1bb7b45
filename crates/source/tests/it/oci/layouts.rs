//! Container images, made in memory and written in every form.

use crate::tar::records::{Archive, header};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::path::Path;

/// Media type of a layer that is a tar archive.
pub const TAR: &str = "application/vnd.oci.image.layer.v1.tar";
/// Media type of an index.
pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// Media type of a manifest.
pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// Files of a layout by path.
#[derive(Clone, Default)]
pub struct Layout(pub BTreeMap<String, Vec<u8>>);

/// Returns the digest of `bytes` in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the path of the blob of a descriptor.
pub fn path_of(descriptor: &Value) -> String {
    descriptor["digest"].as_str().unwrap().replace("sha256:", "blobs/sha256/")
}

/// Returns the digest of the layer in the blob `bytes`, for the configuration.
pub fn diff_id(bytes: &[u8]) -> String {
    let mut plain = Vec::new();
    match bytes {
        [0x1F, 0x8B, ..] => drop(flate2::read::MultiGzDecoder::new(bytes).read_to_end(&mut plain).unwrap()),
        [0x28, 0xB5, ..] => plain = zstd::decode_all(bytes).unwrap(),
        _ => plain = bytes.to_vec(),
    }
    format!("sha256:{}", hex(&plain))
}

/// Returns a configuration for linux on `arch`.
pub fn config(arch: &str, diff_ids: &[String]) -> Value {
    json!({ "os": "linux", "architecture": arch, "rootfs": { "type": "layers", "diff_ids": diff_ids } })
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

impl Layout {
    /// Adds a blob and returns its descriptor.
    pub fn blob(&mut self, media_type: &str, bytes: &[u8]) -> Value {
        let hex = hex(bytes);
        self.0.insert(format!("blobs/sha256/{hex}"), bytes.to_vec());
        json!({ "mediaType": media_type, "digest": format!("sha256:{hex}"), "size": bytes.len() })
    }

    /// Adds a document as a blob.
    pub fn document(&mut self, media_type: &str, document: &Value) -> Value {
        self.blob(media_type, document.to_string().as_bytes())
    }

    /// Adds the manifest of an image with these layers, for linux on `arch`.
    pub fn image(&mut self, arch: &str, layers: &[Value]) -> Value {
        let diff_ids: Vec<String> = layers.iter().map(|layer| diff_id(&self.0[&path_of(layer)])).collect();
        self.image_of(layers, &config(arch, &diff_ids))
    }

    /// Adds the manifest of an image with these layers and this configuration.
    pub fn image_of(&mut self, layers: &[Value], config: &Value) -> Value {
        let config = self.document("application/vnd.oci.image.config.v1+json", config);
        let manifest = json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers });
        self.document(MANIFEST, &manifest)
    }

    /// Sets the index of the layout.
    pub fn index(&mut self, manifests: &[Value]) {
        let index = json!({ "schemaVersion": 2, "manifests": manifests });
        self.0.insert("index.json".into(), index.to_string().into_bytes());
        self.0.insert("oci-layout".into(), br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec());
    }

    /// Writes the layout to a directory.
    pub fn write(&self, dir: &Path) {
        for (path, bytes) in &self.0 {
            let path = dir.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
    }

    /// Returns the layout as a tar archive.
    pub fn archive(&self) -> Vec<u8> {
        let member = |archive: Archive, (path, bytes): (&String, &Vec<u8>)| {
            archive.raw(&header(path, b'0', bytes.len() as u64), bytes)
        };
        self.0.iter().fold(Archive::default(), member).end()
    }
}
