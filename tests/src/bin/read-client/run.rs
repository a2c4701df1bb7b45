//! Reading according to a plan.

use crate::plan::{CALL_LEN, Read};
use kiln_read::{BatchItem, FileRange, FollowLast, Image, ImageOptions, Inode, MappedSource, Threads, View};
use rustix::fs::{Dir, Mode, OFlags, open, openat};
use std::collections::BTreeMap;
use std::error::Error;
use std::fs::File;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// Number of bytes that one call of the library reads.
const LIBRARY_CALL_LEN: usize = 4 << 20;

/// Size in bytes of the library's cache of decoded data: the default of `kiln mount` on a machine
/// with 8 GiB. The kernel's page cache has no limit.
const CACHE_LEN: u64 = 512 << 20;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Source of the bytes.
pub enum Source {
    /// A directory of any mounted filesystem.
    Mount(OwnedFd),
    /// The same; each directory is listed before its first file is read, as programs do that walk
    /// trees.
    Walk(OwnedFd),
    /// An image read by the library, one read at a time.
    Image(Image),
    /// The same, with all reads at once.
    Many(Image),
}

/// The file that a thread read last, which it holds open.
enum Held {
    File(File),
    Inode(Inode),
}

/// Result of a read.
enum Bytes<'a> {
    Borrowed(&'a [u8]),
    View(View<'a>),
}

impl Deref for Bytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::View(view) => view,
        }
    }
}

impl Source {
    pub fn open(via: &str, place: &Path) -> Result<Self, Box<dyn Error>> {
        Ok(match via {
            "mount" => Self::Mount(directory(place)?),
            "walk" => Self::Walk(directory(place)?),
            "image" => Self::Image(Image::open_path(place, &[], &options())?),
            "mapped" => Self::Image(mapped(place)?),
            "many" => Self::Many(mapped(place)?),
            _ => return Err(format!("unknown source: {via}").into()),
        })
    }

    fn hold(&self, path: &Path) -> Outcome<Held> {
        Ok(match self {
            Self::Mount(root) | Self::Walk(root) => {
                Held::File(openat(root, path, OFlags::CLOEXEC, Mode::empty())?.into())
            }
            Self::Image(image) | Self::Many(image) => Held::Inode(resolved(image, path)?),
        })
    }

    /// Lists the directory of `path` unless it is that of the previous file.
    fn walk_to(&self, path: &Path, before: Option<&Path>) -> Outcome<()> {
        let Self::Walk(root) = self else { return Ok(()) };
        let dir = path.parent().unwrap_or(Path::new(""));
        if before.is_some_and(|before| before.parent() == path.parent()) {
            return Ok(());
        }
        let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        let listed = Dir::new(openat(root, dir, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)?;
        for entry in listed {
            entry?;
        }
        Ok(())
    }

    /// Reads into `buf`, or returns bytes that are elsewhere in memory.
    fn read<'a>(&'a self, held: &Held, buf: &'a mut Vec<u8>, off: u64, len: usize) -> Outcome<Bytes<'a>> {
        Ok(match (self, held) {
            (Self::Image(image), Held::Inode(inode)) => Bytes::View(image.view(inode, off, len, buf)?),
            (_, Held::File(file)) => {
                if buf.len() < len {
                    buf.resize(len, 0);
                }
                let got = file.read_at(&mut buf[..len], off)?;
                Bytes::Borrowed(&buf[..got])
            }
            _ => unreachable!("what is held comes from the same source"),
        })
    }

    /// Returns the number of bytes of one call: files of a filesystem are read in parts, as `cat`
    /// does; the library reads them whole unless they are long.
    fn call_len(&self, len: u64) -> usize {
        let most = if matches!(self, Self::Mount(_) | Self::Walk(_)) { CALL_LEN } else { LIBRARY_CALL_LEN };
        len.min(most as u64) as usize
    }
}

fn directory(place: &Path) -> rustix::io::Result<OwnedFd> {
    open(place, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

fn options() -> ImageOptions {
    ImageOptions::default().with_cache_bytes(CACHE_LEN)
}

pub fn mapped(place: &Path) -> Result<Image, Box<dyn Error>> {
    // SAFETY: the benchmark made the image, and does not change it while it is mapped.
    let source = unsafe { MappedSource::open(place) }?;
    Ok(Image::open(Arc::new(source), Vec::new(), &options())?)
}

fn resolved(image: &Image, path: &Path) -> Outcome<Inode> {
    Ok(image.resolve(path.as_os_str().as_bytes(), FollowLast::Keep)?)
}

/// Makes all reads; each thread takes the next one that is left.
pub fn all(reads: &[Read], source: &Source, threads: usize) -> Outcome<()> {
    if let Source::Many(image) = source {
        return many(reads, image, threads);
    }
    let next = AtomicUsize::new(0);
    let work = || -> Outcome<()> {
        let mut held: Option<(&PathBuf, Held)> = None;
        let mut buf = Vec::new();
        while let Some(read) = reads.get(next.fetch_add(1, Ordering::Relaxed)) {
            if held.as_ref().is_none_or(|(path, _)| *path != &read.path) {
                let before = held.as_ref().map(|(path, _)| path.as_path());
                source.walk_to(&read.path, before).map_err(|error| named(read, &*error))?;
                held = Some((&read.path, source.hold(&read.path).map_err(|error| named(read, &*error))?));
            }
            let (_, file) = held.as_ref().expect("just set");
            one(read, source, file, &mut buf).map_err(|error| named(read, &*error))?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        running.into_iter().try_for_each(|thread| thread.join().expect("a client thread"))
    })
}

/// Makes one read, and compares it with the plan.
fn one(read: &Read, source: &Source, file: &Held, buf: &mut Vec<u8>) -> Outcome<()> {
    let call_len = source.call_len(read.len);
    let mut digest = (read.len > call_len as u64).then(Xxh3::new);
    let (mut done, mut single) = (0, xxh3_64(b""));
    while done < read.len {
        let part = (read.len - done).min(call_len as u64) as usize;
        let got = source.read(file, buf, read.off + done, part)?;
        match &mut digest {
            _ if got.is_empty() => return Err(format!("ends at byte {}", read.off + done).into()),
            Some(digest) => digest.update(&got),
            None if got.len() == part => single = xxh3_64(&got),
            None => return Err("a short read".into()),
        }
        done += got.len() as u64;
    }
    same(digest.map_or(single, |digest| digest.digest()), read)
}

fn same(digest: u64, read: &Read) -> Outcome<()> {
    match digest == read.digest {
        true => Ok(()),
        false => Err("not the bytes of the tree".into()),
    }
}

/// Makes all reads at once. Parts of long ranges are kept until all of them have been read.
fn many(reads: &[Read], image: &Image, threads: usize) -> Outcome<()> {
    let range = |read: &Read| {
        let inode = resolved(image, &read.path).map_err(|error| named(read, &*error))?;
        Ok(FileRange { inode, range: read.off..read.off + read.len })
    };
    let ranges = reads.iter().map(range).collect::<Outcome<Vec<_>>>()?;
    let long = Mutex::new(BTreeMap::new());
    let problem = OnceLock::new();
    image.read_many(&ranges, Threads::at_least_one(threads), &|BatchItem { idx, off, bytes }| {
        let read = &reads[idx];
        let outcome = match bytes {
            Ok(bytes) if bytes.len() as u64 == read.len => same(xxh3_64(bytes), read),
            Ok(bytes) => {
                long.lock().expect("no panics").insert((idx, off), bytes.to_vec());
                Ok(())
            }
            Err(error) => Err(error.into()),
        };
        if let Err(error) = outcome {
            let _ = problem.set(named(read, &*error));
        }
    });
    if let Some(error) = problem.into_inner() {
        return Err(error);
    }
    let mut digests = BTreeMap::<usize, Xxh3>::new();
    for ((idx, _), bytes) in long.into_inner().expect("no panics") {
        digests.entry(idx).or_default().update(&bytes);
    }
    digests.into_iter().try_for_each(|(idx, digest)| same(digest.digest(), &reads[idx]))
}

fn named(read: &Read, error: &(dyn Error + Send + Sync)) -> Box<dyn Error + Send + Sync> {
    format!("{}: {} bytes at {}: {error}", read.path.display(), read.len, read.off).into()
}
