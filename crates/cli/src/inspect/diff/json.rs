//! Differences as JSON.

use super::words::xattr_change;
use crate::console::report::Bytes;
use crate::console::text;
use kiln_diff::{Change, ChangeKind, DiffSummary, Difference, Side};
use serde::Serialize;
use serde_json::{Value, json};

/// The document.
#[derive(Serialize)]
pub struct DiffJson {
    changes: Vec<ChangeJson>,
    added: u64,
    removed: u64,
    changed: u64,
    unreadable: u64,
    same: u64,
    compared_bytes: u64,
}

impl DiffJson {
    pub fn new(changes: Vec<ChangeJson>, summary: &DiffSummary) -> Self {
        let DiffSummary { added, removed, changed, unreadable, same, bytes } = *summary;
        Self { changes, added, removed, changed, unreadable, same, compared_bytes: bytes }
    }
}

/// A change of a path.
#[derive(Serialize)]
pub struct ChangeJson {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_b64: Option<String>,
    change: &'static str,
    /// Type of a file that was added or removed.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    file_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    differences: Vec<DifferenceJson>,
    /// Side of the error.
    #[serde(skip_serializing_if = "Option::is_none")]
    side: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl ChangeJson {
    pub fn new(change: &Change) -> Self {
        let path = Bytes(&change.path);
        let new = |change| Self {
            path: path.lossy(),
            path_b64: path.b64_if_lossy(),
            change,
            file_type: None,
            differences: Vec::new(),
            side: None,
            error: None,
        };
        match &change.kind {
            ChangeKind::Added(file_type) => Self { file_type: Some(text::file_type(*file_type)), ..new("added") },
            ChangeKind::Removed(file_type) => Self { file_type: Some(text::file_type(*file_type)), ..new("removed") },
            ChangeKind::Changed(list) => {
                Self { differences: list.iter().map(DifferenceJson::new).collect(), ..new("changed") }
            }
            ChangeKind::Unreadable { side, error } => {
                let side = if *side == Side::A { "a" } else { "b" };
                Self { side: Some(side), error: Some(error.to_string()), ..new("unreadable") }
            }
        }
    }
}

/// A difference: `what`, and its values on both sides.
#[derive(Default, Serialize)]
struct DifferenceJson {
    what: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    a: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    a_b64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    b: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    b_b64: Option<String>,
    /// The first different byte.
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    /// Name of an extended attribute.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name_b64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    change: Option<&'static str>,
}

impl DifferenceJson {
    fn new(difference: &Difference) -> Self {
        let values = |what, a: Value, b: Value| Self { what, a: Some(a), b: Some(b), ..Self::default() };
        match difference {
            Difference::Type { a, b } => values("type", text::file_type(*a).into(), text::file_type(*b).into()),
            Difference::Size { a, b } => values("size", (*a).into(), (*b).into()),
            Difference::Contents { off } => Self { what: "contents", offset: Some(*off), ..Self::default() },
            Difference::Target { a, b } => {
                let (a, b) = (Bytes(a), Bytes(b));
                let (a_b64, b_b64) = (a.b64_if_lossy(), b.b64_if_lossy());
                Self { a_b64, b_b64, ..values("target", a.lossy().into(), b.lossy().into()) }
            }
            Difference::Rdev { a, b } => values("rdev", json!([a.major, a.minor]), json!([b.major, b.minor])),
            Difference::Permissions { a, b } => values("mode", format!("{a:04o}").into(), format!("{b:04o}").into()),
            Difference::Owner { a, b } => values("uid", (*a).into(), (*b).into()),
            Difference::Group { a, b } => values("gid", (*a).into(), (*b).into()),
            Difference::Mtime { a, b } => values("mtime", json!([a.0, a.1]), json!([b.0, b.1])),
            Difference::Xattr { name, change } => Self {
                what: "xattr",
                name: Some(Bytes(name).lossy()),
                name_b64: Bytes(name).b64_if_lossy(),
                change: Some(xattr_change(*change)),
                ..Self::default()
            },
            Difference::Links { a, b } => values("links", (*a).into(), (*b).into()),
        }
    }
}
