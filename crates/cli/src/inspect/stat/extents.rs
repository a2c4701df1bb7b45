//! Extents as text and as JSON.

use crate::console::report::Out;
use crate::exit::Failure;
use kiln_read::{Extent, ExtentKind, Image, Inode, MetadataSpace, ReadError, StoredAs};
use serde::Serialize;
use std::io::Write;

/// The place of an extent's bytes.
#[derive(Serialize)]
pub struct PlaceJson {
    stored_as: &'static str,
    /// Number of the device, `metadata` or `metabox`; `packed inode` for fragments.
    #[serde(skip_serializing_if = "Option::is_none")]
    space: Option<String>,
    /// Byte in that space.
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<u64>,
    /// Length there in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    stored_bytes: Option<u64>,
}

impl PlaceJson {
    pub fn new(extent: &Extent) -> Self {
        let in_space = |inline: Option<MetadataSpace>, device: u16| match inline {
            None => device.to_string(),
            Some(MetadataSpace::Primary) => "metadata".into(),
            Some(MetadataSpace::Metabox) => "metabox".into(),
        };
        let (space, address, stored_bytes) = match extent.kind {
            ExtentKind::Raw { device, pa } => (Some(in_space(None, device)), Some(pa), Some(extent.llen)),
            ExtentKind::Meta { pa, in_metabox } => {
                let space = if in_metabox { MetadataSpace::Metabox } else { MetadataSpace::Primary };
                (Some(in_space(Some(space), 0)), Some(pa), Some(extent.llen))
            }
            ExtentKind::Plain { device, pa, plen, inline, .. }
            | ExtentKind::Encoded { device, pa, plen, inline, .. } => {
                (Some(in_space(inline, device)), Some(pa), Some(plen.into()))
            }
            ExtentKind::Fragment { off } => (Some("packed inode".into()), Some(off), None),
            // A hole, or an object, which is a file of its own.
            _ => (None, None, None),
        };
        let stored_as = match extent.kind {
            ExtentKind::Object => "object",
            kind => StoredAs::from(&kind).name(),
        };
        Self { stored_as, space, address, stored_bytes }
    }

    /// The heading of the columns that [`PlaceJson::columns`] returns.
    pub const HEAD: &str = "stored as  in                address     stored";

    pub fn columns(&self) -> String {
        let number = |value: Option<u64>| value.map_or("-".into(), |value| value.to_string());
        let space = match self.space.as_deref() {
            Some(device) if device.starts_with(|c: char| c.is_ascii_digit()) => format!("device {device}"),
            Some(space) => space.into(),
            None => "-".into(),
        };
        let (address, stored) = (number(self.address), number(self.stored_bytes));
        format!("{:<9}  {space:<12} {address:>12} {stored:>10}", self.stored_as)
    }
}

/// Prints one extent per line.
pub fn print(
    out: &mut Out,
    image: &Image,
    inode: &Inode,
    failure: impl Fn(ReadError) -> Failure,
) -> Result<(), Failure> {
    writeln!(out, "Extents:\n{:>14} {:>12}  {}", "offset", "bytes", PlaceJson::HEAD)?;
    for extent in image.extents(inode) {
        let extent = extent.map_err(&failure)?;
        writeln!(out, "{:>14} {:>12}  {}", extent.la, extent.llen, PlaceJson::new(&extent).columns())?;
    }
    Ok(())
}

/// An extent as JSON.
#[derive(Serialize)]
pub struct ExtentJson {
    offset: u64,
    bytes: u64,
    #[serde(flatten)]
    place: PlaceJson,
}

impl ExtentJson {
    pub fn new(extent: &Extent) -> Self {
        Self { offset: extent.la, bytes: extent.llen, place: PlaceJson::new(extent) }
    }
}
