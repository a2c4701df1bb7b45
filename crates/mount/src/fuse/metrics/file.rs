//! The counters of a server in a file, for who collects such files.

use super::Meters;
use super::labels::Labels;
use crate::MountError;
use kiln_read::Image;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// From one writing to the next.
const PERIOD: Duration = Duration::from_secs(10);

/// The kernel follows so many symbolic links, too.
const LINKS_MAX_COUNT: u32 = 40;

/// A file that is written anew every ten seconds, and when the server ends.
pub struct Export {
    path: PathBuf,
    labels: Labels,
    image: Image,
    meters: Arc<Meters>,
    due: Instant,
}

impl Export {
    /// Write the file for the first time.
    pub fn start(path: PathBuf, labels: Labels, image: Image, meters: Arc<Meters>) -> Result<Self, MountError> {
        let path = target(&path).map_err(|source| MountError::Metrics { path: path.clone(), source })?;
        let export = Self { path, labels, image, meters, due: Instant::now() + PERIOD };
        export.write()?;
        Ok(export)
    }

    /// When it is to be written next.
    pub fn due(&self) -> Instant {
        self.due
    }

    /// Write it, for it is time. A disk that is full now may not be later.
    pub fn tick(&mut self) {
        self.due = Instant::now() + PERIOD;
        if let Err(error) = self.write() {
            log::warn!("{error}");
        }
    }

    /// By renaming, so that nobody reads half of it.
    fn write(&self) -> Result<(), MountError> {
        let mut name = OsString::from(&self.path);
        name.push(".new");
        let written = fs::write(&name, self.labels.added_to(&self.meters.text(&self.image.stats())));
        let done = written.and_then(|()| fs::rename(&name, &self.path));
        done.map_err(|source| MountError::Metrics { path: self.path.clone(), source })
    }
}

/// What `path` leads to. Renaming would put a file in the place of a symbolic link, or of a device such as /dev/null.
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

impl Drop for Export {
    fn drop(&mut self) {
        if let Err(error) = self.write() {
            log::warn!("{error}");
        }
    }
}
