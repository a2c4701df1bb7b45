//! Client that fetches a server's counters.

use crate::MountError;
use crate::fuse::ask::{Question, is_unknown};
use std::fs::File;
use std::path::Path;

/// Returns the counters of the server of the mount whose root is `dir`, in the text format of
/// Prometheus. [`MetricLabels`](crate::fuse::MetricLabels) distinguish them from those
/// of other mounts.
///
/// # Errors
/// `dir` cannot be opened, or is not the root of a mount of [`serve`](crate::fuse::serve).
pub fn query_stats(dir: &Path) -> Result<String, MountError> {
    let failed = |source| MountError::Stats { path: dir.to_path_buf(), source };
    let root = File::open(dir).map_err(failed)?;
    let text = match Question::Metrics.ask(&root) {
        Ok(text) => text,
        Err(error) if is_unknown(error) => return Err(MountError::NoStats { path: dir.to_path_buf() }),
        Err(error) => return Err(failed(error.into())),
    };
    let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
    match String::from_utf8(text[..end].to_vec()) {
        Ok(text) if text.starts_with("# HELP kiln_") => Ok(text),
        _ => Err(MountError::NoStats { path: dir.to_path_buf() }),
    }
}
