//! Plans: ranges to read in order, and the expected digests.

use kiln_tests::rng::Rng;
use std::error::Error;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::Xxh3;

/// Length in bytes of a page, and of each part of a strided plan.
const PAGE: u64 = 4096;
/// Distance in bytes between parts of a strided plan.
const STRIDE: u64 = 128 << 10;
/// Number of bytes that one call reads.
pub const CALL_LEN: usize = 128 << 10;
/// Seed of random plans, which are always the same.
const SEED: u64 = 6;

/// One range of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// Path relative to the root of the tree.
    pub path: PathBuf,
    pub off: u64,
    pub len: u64,
    /// XXH3-64 of the bytes.
    pub digest: u64,
}

impl Read {
    /// Writes a line: numbers, then the path.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        write!(out, "{} {} {} ", self.off, self.len, self.digest)?;
        out.write_all(self.path.as_os_str().as_bytes())?;
        out.write_all(b"\n")
    }

    fn parse(line: &[u8]) -> Option<Self> {
        let mut words = line.splitn(4, |&byte| byte == b' ');
        let mut number = || std::str::from_utf8(words.next()?).ok()?.parse::<u64>().ok();
        let (off, len, digest) = (number()?, number()?, number()?);
        let path = PathBuf::from(std::ffi::OsString::from_vec(words.next()?.to_vec()));
        Some(Self { path, off, len, digest })
    }
}

/// Returns the plan of a kind for a tree.
pub fn make(kind: &str, tree: &Path) -> Result<Vec<Read>, Box<dyn Error>> {
    let mut files = Vec::new();
    walk(tree, Path::new(""), &mut files)?;
    let (kind, count) = kind.split_once('=').unwrap_or((kind, "0"));
    let largest = || files.iter().max_by_key(|(_, size)| *size).ok_or("no files");
    let whole = |files: Vec<(PathBuf, u64)>| files.into_iter().map(|(path, size)| (path, 0, size)).collect::<Vec<_>>();
    let ranges = match kind {
        "files" => whole(files),
        "shuffled" => {
            Rng::new(SEED).shuffle(&mut files);
            whole(files)
        }
        "pages" => {
            let (path, size) = largest()?;
            let mut rng = Rng::new(SEED);
            let mut page = || (path.clone(), rng.below((size / PAGE).max(1)) * PAGE);
            (0..count.parse::<u64>()?).map(|_| page()).map(|(path, off)| (path, off, PAGE.min(size - off))).collect()
        }
        "strided" => {
            let (path, size) = largest()?;
            (0..size / STRIDE).map(|idx| (path.clone(), idx * STRIDE, PAGE)).collect()
        }
        "sequential" => whole(vec![largest()?.clone()]),
        _ => return Err(format!("unknown kind of plan: {kind}").into()),
    };
    ranges.into_iter().map(|(path, off, len)| digested(tree, path, off, len)).collect()
}

/// Returns the plan stored at `path`.
pub fn load(path: &Path) -> Result<Vec<Read>, Box<dyn Error>> {
    let text = fs::read(path)?;
    let lines = text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| Read::parse(line).ok_or_else(|| format!("{}: no plan", path.display()).into())).collect()
}

/// Lists regular files below `tree` with their sizes, directory by directory, by name.
fn walk(tree: &Path, below: &Path, files: &mut Vec<(PathBuf, u64)>) -> io::Result<()> {
    let mut entries = fs::read_dir(tree.join(below))?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(|entry| entry.file_name());
    for entry in entries {
        let path = below.join(entry.file_name());
        let meta = entry.metadata()?;
        if meta.is_dir() {
            walk(tree, &path, files)?;
        } else if meta.is_file() && !path.as_os_str().as_bytes().contains(&b'\n') {
            files.push((path, meta.len()));
        }
    }
    Ok(())
}

fn digested(tree: &Path, path: PathBuf, off: u64, len: u64) -> Result<Read, Box<dyn Error>> {
    let file = File::open(tree.join(&path))?;
    let mut digest = Xxh3::new();
    let mut buf = vec![0; CALL_LEN];
    let mut done = 0;
    while done < len {
        let part = &mut buf[..(len - done).min(CALL_LEN as u64) as usize];
        file.read_exact_at(part, off + done)?;
        digest.update(part);
        done += part.len() as u64;
    }
    Ok(Read { path, off, len, digest: digest.digest() })
}
