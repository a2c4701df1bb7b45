//! Omitted parts as JSON.

use super::Bytes;
use serde::Serialize;
use std::fmt::Display;

/// A path.
#[derive(Serialize)]
pub struct PathJson {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_b64: Option<String>,
}

impl PathJson {
    pub fn new(path: &[u8]) -> Self {
        Self { path: Bytes(path).lossy(), path_b64: Bytes(path).b64_if_lossy() }
    }
}

/// A part that was left out or is wrong, and the reason.
#[derive(Serialize)]
pub struct SkippedJson {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_b64: Option<String>,
    error: String,
}

impl SkippedJson {
    pub fn new(path: &[u8], error: &dyn Display) -> Self {
        Self { path: Bytes(path).lossy(), path_b64: Bytes(path).b64_if_lossy(), error: error.to_string() }
    }
}
