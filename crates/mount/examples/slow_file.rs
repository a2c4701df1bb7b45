//! Serves one file through FUSE like a slow disk: each read takes a chosen time longer, and is
//! counted.
//!
//! `slow_file [--cached] FILE DIR MICROSECONDS` shows FILE in the directory DIR, under its own
//! name, until DIR is unmounted. Beside it, the file `counts` has the number of reads and of bytes
//! so far, and `seeks` the number of reads that do not begin where the last one ended, and the bytes
//! between. Needs root. Each read of a program is one read of the disk, even of bytes that were read
//! before; with `--cached` the system caches reads and reads ahead, as for a disk.

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
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

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
/// Number of reads that are served at the same time.
const THREADS: usize = 16;

struct SlowFile {
    name: OsString,
    file: File,
    len: u64,
    delay: Duration,
    is_cached: bool,
    reads: AtomicU64,
    bytes: AtomicU64,
    head: Mutex<Head>,
}

/// Place of the last read, as of the head of a disk that turns.
#[derive(Default)]
struct Head {
    end: u64,
    seeks: u64,
    distance: u64,
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

    /// Moves the head to a read.
    fn seek(&self, offset: u64, len: u64) {
        let mut head = self.head.lock().unwrap_or_else(PoisonError::into_inner);
        if offset != head.end {
            head.seeks += 1;
            head.distance += offset.abs_diff(head.end);
        }
        head.end = offset + len;
    }

    fn seeks(&self) -> Vec<u8> {
        let head = self.head.lock().unwrap_or_else(PoisonError::into_inner);
        format!("{} {}\n", head.seeks, head.distance).into_bytes()
    }
}

impl Filesystem for SlowFile {
    /// Accepts requests of up to 1 MiB, like disks.
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let _ = config.add_capabilities(InitFlags::FUSE_MAX_PAGES & config.capabilities());
        let _ = config.set_max_write(REQUEST_MAX);
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
        self.seek(offset, size.into());
        thread::sleep(self.delay);
        let mut bytes = vec![0; self.len.saturating_sub(offset).min(size.into()) as usize];
        match self.file.read_exact_at(&mut bytes, offset) {
            Ok(()) => {
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

fn main() -> Result<(), Box<dyn Error>> {
    let mut words: Vec<OsString> = env::args_os().skip(1).collect();
    let is_cached = words.first().is_some_and(|word| word == "--cached");
    words.drain(..usize::from(is_cached));
    let [path, dir, delay] =
        <[OsString; 3]>::try_from(words).map_err(|_| "slow_file [--cached] FILE DIR MICROSECONDS")?;
    let (path, file) = (PathBuf::from(&path), File::open(&path)?);
    let len = file.metadata()?.len();
    let name = path.file_name().ok_or("FILE has no name")?.to_os_string();
    let delay = Duration::from_micros(delay.to_str().ok_or("MICROSECONDS is not a number")?.parse()?);
    let (reads, bytes, head) = Default::default();
    let served = SlowFile { name, file, len, delay, is_cached, reads, bytes, head };
    let device = File::options().read(true).write(true).open("/dev/fuse")?;
    let data = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", device.as_raw_fd());
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
    mount("slow_file", PathBuf::from(dir), "fuse.slow_file", flags, &*CString::new(data)?)?;
    let mut config = Config::default();
    config.n_threads = Some(THREADS);
    Ok(Session::from_fd(served, device.into(), SessionACL::All, config)?.run()?)
}
