//! Serves one file through FUSE as a slow disk would, and counts its reads.
//!
//! ```text
//! slow_file [--cached] [--latency-us N] [--bandwidth BYTES] [--depth N] [--seek-us N] FILE DIR [MICROSECONDS]
//! ```
//!
//! shows FILE in the directory DIR, under its own name, until DIR is unmounted. A request takes N µs
//! (`--latency-us`, or MICROSECONDS), more (`--seek-us`) if it does not begin where the last one ended; all
//! together carry at most so many bytes a second (`--bandwidth`), and so many are served at once (`--depth`, else
//! 16). The module `disk` has the arithmetic. Reading FILE is part of these times; the way through FUSE, some 30 to
//! 70 µs, comes on top.
//!
//! Beside FILE, the file `counts` has the number of reads and of bytes so far, and `seeks` the number of reads
//! that do not begin where the last one ended, and the bytes between. Needs root. Each read of a program is one
//! read of the disk, even of bytes that were read before; with `--cached` the system caches reads and reads ahead,
//! as for a disk.

mod disk;

use disk::{Class, Disk};
use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEntry, ReplyOpen, Request, Session,
    SessionACL,
};
use rustix::fd::AsRawFd;
use rustix::mount::{MountFlags, mount};
use std::env;
use std::error::Error;
use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

const FILE: INodeNo = INodeNo(2);
const COUNTS: INodeNo = INodeNo(3);
const SEEKS: INodeNo = INodeNo(4);
const COUNTS_NAME: &str = "counts";
const SEEKS_NAME: &str = "seeks";
/// Length of `counts` and `seeks` in bytes: more than the text of two numbers.
const COUNTS_LEN: u64 = 64;
/// Length of the longest request in bytes.
const REQUEST_MAX: u32 = 1 << 20;
const TTL: Duration = Duration::from_secs(3600);
/// Depth of a disk of which nothing is said.
const DEPTH: usize = 16;
/// Most requests that are served at once.
const DEPTH_MAX: usize = 256;
const USAGE: &str = "slow_file [--cached] [--latency-us N] [--bandwidth BYTES] [--depth N] [--seek-us N] \
                     FILE DIR [MICROSECONDS]";

struct SlowFile {
    name: OsString,
    file: File,
    len: u64,
    is_cached: bool,
    reads: AtomicU64,
    bytes: AtomicU64,
    start: Instant,
    disk: Mutex<Disk>,
}

impl SlowFile {
    fn attr(&self, ino: INodeNo) -> Option<FileAttr> {
        let (kind, perm, size) = match ino {
            INodeNo::ROOT => (FileType::Directory, 0o555, 0),
            FILE => (FileType::RegularFile, 0o444, self.len),
            COUNTS | SEEKS => (FileType::RegularFile, 0o444, COUNTS_LEN),
            _ => return None,
        };
        let (time, nlink, blocks, blksize) = (UNIX_EPOCH, 1, size.div_ceil(512), 4096);
        let (atime, mtime, ctime, crtime) = (time, time, time, time);
        let (uid, gid, rdev, flags) = (0, 0, 0, 0);
        Some(FileAttr {
            ino,
            size,
            blocks,
            atime,
            mtime,
            ctime,
            crtime,
            kind,
            perm,
            nlink,
            uid,
            gid,
            rdev,
            blksize,
            flags,
        })
    }

    fn named(&self, name: &OsStr) -> Option<INodeNo> {
        match name {
            name if name == self.name => Some(FILE),
            name if name == COUNTS_NAME => Some(COUNTS),
            name if name == SEEKS_NAME => Some(SEEKS),
            _ => None,
        }
    }

    fn counts(&self) -> Vec<u8> {
        let (reads, bytes) = (self.reads.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed));
        format!("{reads} {bytes}\n").into_bytes()
    }

    /// Returns the moment at which a read that comes now is complete.
    fn end(&self, offset: u64, len: u64) -> Instant {
        let mut disk = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        self.start + disk.serve(self.start.elapsed(), offset, len)
    }

    fn seeks(&self) -> Vec<u8> {
        let disk = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        format!("{} {}\n", disk.seeks, disk.distance).into_bytes()
    }
}

impl Filesystem for SlowFile {
    /// Accepts requests of up to 1 MiB, like disks, and several at a time, also of a reader past the page cache.
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = InitFlags::FUSE_MAX_PAGES | InitFlags::FUSE_ASYNC_READ | InitFlags::FUSE_ASYNC_DIO;
        let _ = config.add_capabilities(wanted & config.capabilities());
        let _ = config.set_max_write(REQUEST_MAX);
        let _ = config.set_max_background(2 * DEPTH_MAX as u16);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.named(name).filter(|_| parent == INodeNo::ROOT);
        match found.and_then(|ino| self.attr(ino)) {
            Some(attr) => reply.entry(&TTL, &attr, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attr(ino) {
            Some(attr) => reply.attr(&TTL, &attr),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let is_cached = ino == FILE && self.is_cached;
        reply.opened(FileHandle(0), if is_cached { FopenFlags::FOPEN_KEEP_CACHE } else { FopenFlags::FOPEN_DIRECT_IO });
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if ino != FILE {
            let text = if ino == COUNTS { self.counts() } else { self.seeks() };
            let start = text.len().min(offset as usize);
            return reply.data(&text[start..]);
        }
        let end = self.end(offset, size.into());
        let mut bytes = vec![0; self.len.saturating_sub(offset).min(size.into()) as usize];
        match self.file.read_exact_at(&mut bytes, offset) {
            Ok(()) => {
                thread::sleep(end.saturating_duration_since(Instant::now()));
                self.reads.fetch_add(1, Ordering::Relaxed);
                self.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                reply.data(&bytes);
            }
            Err(error) => reply.error(error.into()),
        }
    }

    fn readdir(&self, _: &Request, _: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let names = [(FILE, self.name.as_os_str()), (COUNTS, OsStr::new(COUNTS_NAME)), (SEEKS, OsStr::new(SEEKS_NAME))];
        for (next, (ino, name)) in (1..).zip(names).skip(offset as usize) {
            if reply.add(ino, next, FileType::RegularFile, name) {
                break;
            }
        }
        reply.ok();
    }
}

/// Arguments of the command line.
struct Arguments {
    class: Class,
    is_cached: bool,
    file: PathBuf,
    dir: PathBuf,
}

fn arguments(mut words: impl Iterator<Item = OsString>) -> Result<Arguments, Box<dyn Error>> {
    let mut class = Class { latency: Duration::ZERO, bandwidth: 0, depth: DEPTH, seek: Duration::ZERO };
    let (mut is_cached, mut places) = (false, Vec::new());
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("--cached") => is_cached = true,
            Some("--latency-us") => class.latency = Duration::from_micros(number(&word, words.next())?),
            Some("--bandwidth") => class.bandwidth = number(&word, words.next())?,
            Some("--depth") => class.depth = usize::try_from(number(&word, words.next())?)?,
            Some("--seek-us") => class.seek = Duration::from_micros(number(&word, words.next())?),
            Some(option) if option.starts_with("--") => return Err(format!("{option}: no such option: {USAGE}").into()),
            _ => places.push(word),
        }
    }
    if !(1..=DEPTH_MAX).contains(&class.depth) {
        return Err(format!("--depth {}: not from 1 to {DEPTH_MAX}", class.depth).into());
    }
    if places.len() == 3 {
        class.latency = Duration::from_micros(number(OsStr::new("MICROSECONDS"), places.pop())?);
    }
    let [file, dir] = <[OsString; 2]>::try_from(places).map_err(|_| USAGE)?;
    Ok(Arguments { class, is_cached, file: file.into(), dir: dir.into() })
}

fn number(name: &OsStr, word: Option<OsString>) -> Result<u64, String> {
    let word = word.unwrap_or_default();
    let parsed = word.to_str().and_then(|word| word.parse().ok());
    parsed.ok_or_else(|| format!("{} {:?}: not a number", name.to_string_lossy(), word))
}

fn main() -> Result<(), Box<dyn Error>> {
    let Arguments { class, is_cached, file: path, dir } = arguments(env::args_os().skip(1))?;
    let file = File::open(&path)?;
    let len = file.metadata()?.len();
    let name = path.file_name().ok_or("FILE has no name")?.to_os_string();
    // Threads inherit this: a sleep would take 50 µs longer than asked for.
    fs::write("/proc/self/timerslack_ns", "1")?;
    let (reads, bytes, disk) = (AtomicU64::new(0), AtomicU64::new(0), Mutex::new(Disk::new(class)));
    let served = SlowFile { name, file, len, is_cached, reads, bytes, start: Instant::now(), disk };
    let device = File::options().read(true).write(true).open("/dev/fuse")?;
    let data = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", device.as_raw_fd());
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
    mount("slow_file", dir, "fuse.slow_file", flags, &*CString::new(data)?)?;
    let mut config = Config::default();
    // More than are served at once: a request arrives when it is sent, even if all places are taken.
    config.n_threads = Some(DEPTH.max(2 * class.depth));
    Ok(Session::from_fd(served, device.into(), SessionACL::All, config)?.run()?)
}
