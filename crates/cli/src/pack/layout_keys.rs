//! `--layout KEY[=VALUE],...`: options about the place of bytes that few trees need.

use super::preset::Extents;
use crate::console::size;
use kiln_builder::METADATA_LEN;
use std::fmt;
use std::num::IntErrorKind;
use std::str::FromStr;

/// Values of `--layout`, each an item of a list.
#[derive(clap::Args)]
pub struct LayoutKeyArgs {
    /// Set rare options, such as align=16k (see `kiln help layout`)
    #[arg(long, value_name = "KEY[=VALUE],...", value_delimiter = ',')]
    layout: Vec<LayoutItem>,
}

impl LayoutKeyArgs {
    /// Returns the choices. Of a key that was given several times, the last value counts.
    pub fn keys(&self) -> LayoutKeys {
        let mut keys = LayoutKeys::default();
        for LayoutItem { key, value } in &self.layout {
            // The item has been parsed, so its value is valid.
            let _ = (key.set)(&mut keys, value.as_deref());
        }
        keys
    }
}

/// Choices of `--layout`.
#[derive(Debug, PartialEq, Eq)]
pub struct LayoutKeys {
    /// Multiple at which the data of each file starts, in bytes.
    pub align: Option<u64>,
    /// Multiple of which the image's length is one, in bytes.
    pub align_image: Option<u64>,
    /// Length of chunks in bytes.
    pub chunk_size: Option<u64>,
    pub chunk_indexes: bool,
    pub inline_data: bool,
    pub extended_inodes: bool,
    /// Directories have an entry for themselves.
    pub dot: bool,
    /// Count of owners from which on an attribute is stored once.
    pub xattr_share: u64,
    pub xattr_prefixes: Vec<Vec<u8>>,
    /// Bytes that are reserved for attributes of the root.
    pub root_xattrs: u64,
    /// Longest plain text of an extent, in bytes.
    pub max_extent: Option<u64>,
    pub checksum: bool,
    /// Largest pcluster of packed files, in bytes.
    pub packed_cluster: Option<u64>,
    pub extents: Option<Extents>,
    pub tail_packing: bool,
    pub compress_dirs: bool,
    pub metadata: Option<MetadataKey>,
}

impl Default for LayoutKeys {
    fn default() -> Self {
        Self {
            align: None,
            align_image: None,
            chunk_size: None,
            chunk_indexes: false,
            inline_data: true,
            extended_inodes: false,
            dot: true,
            xattr_share: 2,
            xattr_prefixes: Vec::new(),
            root_xattrs: 0,
            max_extent: None,
            checksum: true,
            packed_cluster: None,
            extents: None,
            tail_packing: false,
            compress_dirs: false,
            metadata: None,
        }
    }
}

/// Value of `metadata`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetadataKey {
    /// Metadata is not compressed.
    Off,
    /// Metadata is compressed.
    By {
        /// Length of a piece in bytes.
        len: u64,
        /// The method, as `--compress` takes it; none is that of the files.
        method: Option<String>,
    },
}

/// One item of `--layout`: a key with a valid value.
#[derive(Clone, Debug)]
pub struct LayoutItem {
    key: &'static Key,
    value: Option<String>,
}

/// A key of `--layout`.
struct Key {
    name: &'static str,
    /// Form of the value, with the sign in front of it.
    form: &'static str,
    set: fn(&mut LayoutKeys, Option<&str>) -> Result<(), String>,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

const KEYS: [Key; 17] = [
    Key { name: "align", form: "=SIZE", set: |keys, value| set_some(&mut keys.align, len(value)) },
    Key { name: "align-image", form: "=SIZE", set: |keys, value| set_some(&mut keys.align_image, len(value)) },
    Key { name: "checksum", form: "=off", set: |keys, value| set(&mut keys.checksum, switch(value)) },
    Key { name: "chunk-indexes", form: "", set: |keys, value| set(&mut keys.chunk_indexes, flag(value)) },
    Key { name: "chunk-size", form: "=SIZE", set: |keys, value| set_some(&mut keys.chunk_size, len(value)) },
    Key { name: "compress-dirs", form: "", set: |keys, value| set(&mut keys.compress_dirs, flag(value)) },
    Key { name: "dot", form: "=off", set: |keys, value| set(&mut keys.dot, switch(value)) },
    Key { name: "extents", form: "=index|encoded", set: |keys, value| set_some(&mut keys.extents, extents(value)) },
    Key { name: "inline-data", form: "=off", set: |keys, value| set(&mut keys.inline_data, switch(value)) },
    Key {
        name: "inodes",
        form: "=extended",
        set: |keys, value| set(&mut keys.extended_inodes, one_of(value, ["compact", "extended"])),
    },
    Key { name: "max-extent", form: "=SIZE", set: |keys, value| set_some(&mut keys.max_extent, len(value)) },
    Key {
        name: "metadata",
        form: "[=off|SIZE[:ALGORITHM[:LEVEL]]]",
        set: |keys, value| set_some(&mut keys.metadata, metadata(value)),
    },
    Key { name: "packed-cluster", form: "=SIZE", set: |keys, value| set_some(&mut keys.packed_cluster, len(value)) },
    Key { name: "root-xattrs", form: "=SIZE", set: |keys, value| set(&mut keys.root_xattrs, len(value)) },
    Key { name: "tail-packing", form: "", set: |keys, value| set(&mut keys.tail_packing, flag(value)) },
    Key {
        name: "xattr-prefix",
        form: "=PREFIX",
        set: |keys, value| {
            let prefix = given(value)?.as_bytes().to_vec();
            keys.xattr_prefixes.push(prefix);
            Ok(())
        },
    },
    Key { name: "xattr-share", form: "=N", set: |keys, value| set(&mut keys.xattr_share, count(value)) },
];

impl FromStr for LayoutItem {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        let Some(key) = KEYS.iter().find(|key| key.name == name) else {
            let known: Vec<_> = KEYS.iter().map(|key| format!("{}{}", key.name, key.form)).collect();
            return Err(format!("`{name}` is no key; keys: {}", known.join(", ")));
        };
        let refuse = |reason| format!("{text}: {reason}; use {name}{}", key.form);
        (key.set)(&mut LayoutKeys::default(), value).map_err(refuse)?;
        Ok(Self { key, value: value.map(str::to_owned) })
    }
}

fn set<T>(field: &mut T, value: Result<T, String>) -> Result<(), String> {
    value.map(|value| *field = value)
}

fn set_some<T>(field: &mut Option<T>, value: Result<T, String>) -> Result<(), String> {
    value.map(|value| *field = Some(value))
}

/// Returns a value that must be given.
fn given(value: Option<&str>) -> Result<&str, String> {
    value.filter(|value| !value.is_empty()).ok_or_else(|| "no value".into())
}

fn len(value: Option<&str>) -> Result<u64, String> {
    size::parse(given(value)?)
}

fn count(value: Option<&str>) -> Result<u64, String> {
    let value = given(value)?;
    match value.parse::<u64>() {
        Ok(0) => Err("not 1 or more".into()),
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => Ok(u64::MAX),
        count => count.map_err(|_| "not a number".into()),
    }
}

/// Returns the value of a key that is a flag: by itself it means `on`.
fn flag(value: Option<&str>) -> Result<bool, String> {
    value.map_or(Ok(true), |value| switch(Some(value)))
}

fn switch(value: Option<&str>) -> Result<bool, String> {
    one_of(value, ["off", "on"])
}

/// Returns if the value is the second of two names.
fn one_of(value: Option<&str>, names: [&str; 2]) -> Result<bool, String> {
    let value = given(value)?;
    let found = names.iter().position(|name| *name == value);
    found.map(|at| at == 1).ok_or_else(|| format!("not {} or {}", names[0], names[1]))
}

fn extents(value: Option<&str>) -> Result<Extents, String> {
    let is_encoded = one_of(value, ["index", "encoded"])?;
    Ok(if is_encoded { Extents::Encoded } else { Extents::Index })
}

fn metadata(value: Option<&str>) -> Result<MetadataKey, String> {
    let usual_len = u64::from(METADATA_LEN);
    let value = match value {
        Some("off") => return Ok(MetadataKey::Off),
        None | Some("on") => return Ok(MetadataKey::By { len: usual_len, method: None }),
        Some(value) => value,
    };
    // Commas separate keys, so that colons separate the parts of a method here.
    let (len, method) = value.split_once(':').map_or((value, None), |(len, method)| (len, Some(method)));
    let method = method.map(|method| method.replace(':', ","));
    Ok(MetadataKey::By { len: size::parse(len)?, method })
}

#[cfg(test)]
mod tests;
