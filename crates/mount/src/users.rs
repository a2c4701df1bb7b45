//! Processes that use a mount.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Suffix of the target of a link to a file that has been removed.
const REMOVED: &str = " (deleted)";

/// A process that keeps a mount busy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountUser {
    /// Number of the process.
    pub pid: u32,
    /// Name of its program, as ps(1) shows it.
    pub name: String,
    /// A file or a directory of the mount that it uses.
    pub path: PathBuf,
}

impl fmt::Display for MountUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}: {})", self.pid, self.name, self.path.display())
    }
}

/// Returns the processes that have open files, mapped files, their program, their root or their working directory
/// below `dir`: those that this user may look at. The mount itself is not asked.
///
/// # Errors
/// An unreadable `/proc`; a directory without an absolute path.
pub fn users(dir: &Path) -> io::Result<Vec<MountUser>> {
    let dir = std::path::absolute(dir)?;
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // A process may end at any moment.
        if let Some(path) = used_by(&entry.path(), &dir) {
            let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default().trim_end().to_owned();
            found.push(MountUser { pid, name, path });
        }
    }
    found.sort_unstable_by_key(|user| user.pid);
    Ok(found)
}

/// Returns the first path below `dir` that a process uses.
fn used_by(process: &Path, dir: &Path) -> Option<PathBuf> {
    let links = ["cwd", "root", "exe"].into_iter().map(|name| process.join(name));
    let open = fs::read_dir(process.join("fd")).into_iter().flatten().flatten().map(|entry| entry.path());
    let used = links.chain(open).filter_map(|link| fs::read_link(link).ok()).find(|path| path.starts_with(dir));
    used.or_else(|| {
        let maps = fs::read_to_string(process.join("maps")).unwrap_or_default();
        let mut paths = maps.lines().filter_map(|line| line.find('/').map(|at| &line[at..]));
        paths
            .by_ref()
            .map(|path| Path::new(path.trim_end_matches(REMOVED)))
            .find(|path| path.starts_with(dir))
            .map(PathBuf::from)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::process;

    #[test]
    fn open_files_and_mapped_programs_are_found() {
        let dir = kiln_tests::temp::TempDir::new("users").unwrap();
        let of_this = |dir: &Path| users(dir).unwrap().into_iter().find(|user| user.pid == process::id());
        assert_eq!(of_this(dir.path()), None);
        let path = dir.path().canonicalize().unwrap().join("file");
        let _open = File::create(&path).unwrap();
        assert_eq!(of_this(path.parent().unwrap()).unwrap().path, path);
        let program = std::env::current_exe().unwrap();
        assert!(of_this(program.parent().unwrap()).is_some());
    }
}
