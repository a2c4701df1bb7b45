//! The file `IMAGE.dmverity`, by which containerd finds root hash and tree of an image.

use crate::error::VerityError;
use kiln_digest::Digest;
use kiln_output::{AtomicFile, Existing, write_all_at};
use std::ffi::OsString;
use std::fs::{File, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Longest file that is read: containerd's have about 120 bytes.
const MAX_LEN: u64 = 64 << 10;

/// Contents of such a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sidecar {
    /// The root hash.
    pub root_hash: Digest,
    /// Byte offset of the superblock in the image.
    pub hash_off: u64,
}

impl Sidecar {
    /// Returns the name of the file beside `image`.
    pub fn path_of(image: &Path) -> PathBuf {
        with_suffix(image, ".dmverity")
    }

    /// Returns the text, as containerd writes it: without a newline at its end.
    pub fn text(&self) -> String {
        let Self { root_hash, hash_off } = self;
        format!("{{\n  \"roothash\": \"{root_hash}\",\n  \"hashoffset\": {hash_off}\n}}")
    }

    /// Parses the text. Other fields are ignored.
    ///
    /// # Errors
    /// The reason why it is none.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let json: serde_json::Value = serde_json::from_slice(text).map_err(|error| format!("no JSON: {error}"))?;
        let digits = json["roothash"].as_str().filter(|digits| !digits.is_empty()).ok_or("no root hash")?;
        let root_hash = digits.parse().map_err(|reason| format!("roothash: {reason}"))?;
        let hash_off = json["hashoffset"].as_u64().ok_or("no hashoffset")?;
        Ok(Self { root_hash, hash_off })
    }

    /// Reads the file at `path`; `None` if there is none.
    ///
    /// # Errors
    /// A file that cannot be read, or is none of these.
    pub fn read(path: &Path) -> Result<Option<Self>, VerityError> {
        let failed = |reason: String| VerityError::Sidecar { path: path.to_owned(), reason };
        let mut text = Vec::new();
        match File::open(path).and_then(|file| file.take(MAX_LEN + 1).read_to_end(&mut text)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error.to_string())),
            Ok(len) if len as u64 > MAX_LEN => return Err(failed("too long".to_owned())),
            Ok(_) => {}
        }
        Self::parse(&text).map(Some).map_err(failed)
    }

    /// Writes the file at `path`, readable by all, in one step.
    ///
    /// # Errors
    /// Those of [`AtomicFile`].
    pub fn write(&self, path: &Path, existing: Existing) -> Result<(), VerityError> {
        let output = AtomicFile::create(path, existing)?;
        let written = self.write_to(&output);
        written.map_err(|error| VerityError::Sidecar { path: path.to_owned(), reason: error.to_string() })?;
        Ok(output.commit()?)
    }

    /// Writes the text to a file, which will be readable by all: containerd's snapshotter may be another user.
    ///
    /// # Errors
    /// Those of the system.
    pub fn write_to(&self, file: &AtomicFile) -> io::Result<()> {
        write_all_at(file, self.text().as_bytes(), 0)?;
        file.file().set_permissions(Permissions::from_mode(0o644))
    }
}

/// Returns the path with something behind its name.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}
