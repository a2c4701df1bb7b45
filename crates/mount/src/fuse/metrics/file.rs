//! The metrics file: the counters of a server, for a collector of such files (the textfile
//! collector of node_exporter).

use super::Metrics;
use super::labels::MetricLabels;
use crate::MountError;
use kiln_read::Image;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time between two writes.
const PERIOD: Duration = Duration::from_secs(10);

/// Most symbolic links in a row: as many as the kernel follows.
const LINKS_MAX_COUNT: u32 = 40;

/// File that is rewritten every ten seconds, and when the server ends.
pub(in crate::fuse) struct MetricsFile {
    path: PathBuf,
    labels: MetricLabels,
    image: Image,
    metrics: Arc<Metrics>,
    due: Instant,
}

impl MetricsFile {
    /// Writes the file for the first time.
    pub(in crate::fuse) fn start(
        path: PathBuf,
        labels: MetricLabels,
        image: Image,
        metrics: Arc<Metrics>,
    ) -> Result<Self, MountError> {
        let path = target(&path).map_err(|source| MountError::Metrics { path: path.clone(), source })?;
        let metrics_file = Self { path, labels, image, metrics, due: Instant::now() + PERIOD };
        metrics_file.write()?;
        Ok(metrics_file)
    }

    /// Returns the time of the next write.
    pub(in crate::fuse) fn due(&self) -> Instant {
        self.due
    }

    /// Writes the file when it is due. An error is only logged: a disk that is full now may not be
    /// later.
    pub(in crate::fuse) fn tick(&mut self) {
        self.due = Instant::now() + PERIOD;
        if let Err(error) = self.write() {
            log::warn!("{error}");
        }
    }

    /// Writes a new file and renames it, so that no process reads half of it.
    fn write(&self) -> Result<(), MountError> {
        let mut name = OsString::from(&self.path);
        name.push(".new");
        let written = fs::write(&name, self.labels.added_to(&self.metrics.text(&self.image.stats())));
        let done = written.and_then(|()| fs::rename(&name, &self.path));
        done.map_err(|source| MountError::Metrics { path: self.path.clone(), source })
    }
}

/// Returns the file to which `path` leads: renaming to `path` itself would replace a symbolic link,
/// or a device such as /dev/null.
fn target(path: &Path) -> io::Result<PathBuf> {
    let mut at = path.to_owned();
    for _ in 0..LINKS_MAX_COUNT {
        let Ok(next) = fs::read_link(&at) else { break };
        at = at.parent().unwrap_or(Path::new("")).join(next);
    }
    match fs::metadata(&at) {
        Ok(found) if !found.is_file() => Err(io::Error::other("not a regular file")),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(at),
    }
}

impl Drop for MetricsFile {
    fn drop(&mut self) {
        if let Err(error) = self.write() {
            log::warn!("{error}");
        }
    }
}
