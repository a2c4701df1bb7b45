//! Requests of the kernel: fuser's trait `Filesystem`, whose methods an [`ImageFs`] answers.

use super::failed::RequestSubject;
use super::image_fs::{GENERATION, ImageFs};
use super::node::{self, ATTR_TTL, ENTRY_TTL};
use crate::fuse::ask::Question;
use crate::fuse::metrics::RequestKind;
use crate::fuse::prefetch::{Answered, Prefetcher};
use crate::fuse::recorder::Recorder;
use crate::fuse::threads::leader_followers::LeaderFollowers;
use crate::heap;
use fuser::{
    AccessFlags, Errno, FileHandle, FileType, Filesystem, FopenFlags, INodeNo, InitFlags, IoctlFlags, KernelConfig,
    LockOwner, OpenFlags, PollEvents, PollFlags, PollNotifier, ReplyAttr, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyPoll, ReplyStatfs, ReplyXattr,
    Request,
};
use kiln_read::SeekWhat;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// Capabilities that are requested if the kernel offers them. Not all that it offers: fuser does
/// not know all of them.
const WANTED: InitFlags = InitFlags::FUSE_ASYNC_READ
    .union(InitFlags::FUSE_ASYNC_DIO)
    .union(InitFlags::FUSE_PARALLEL_DIROPS)
    .union(InitFlags::FUSE_CACHE_SYMLINKS)
    .union(InitFlags::FUSE_MAX_PAGES)
    .union(InitFlags::FUSE_NO_OPEN_SUPPORT)
    .union(InitFlags::FUSE_NO_OPENDIR_SUPPORT)
    .union(InitFlags::FUSE_EXPORT_SUPPORT);
/// Capability to enforce ACLs. With it, the kernel enforces modes, too.
const ACLS: InitFlags = InitFlags::FUSE_POSIX_ACL;
/// Capability to list attributes with names. If the kernel chooses itself
/// (`FUSE_READDIRPLUS_AUTO`), it lists long directories without, and then looks up each name.
const READDIRPLUS: InitFlags = InitFlags::FUSE_DO_READDIRPLUS;
/// Length of the longest request in bytes. There are no writes, but fuser derives the longest read
/// from it.
const REQUEST_MAX: u32 = 1 << 20;
/// Number of readahead READs in progress (12 by default): slow sources need many.
const BACKGROUND_MAX: u16 = 128;
/// Length of the longest name in bytes, for statvfs(3).
const NAME_MAX: u32 = 255;
/// Values of `whence` in lseek(2).
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;
/// Flag of open(2).
const O_DIRECT: i32 = rustix::fs::OFlags::DIRECT.bits() as i32;

/// Image as a filesystem for fuser.
pub(in crate::fuse) struct FuseFilesystem {
    fs: ImageFs,
    threads: LeaderFollowers,
    /// `None` if prefetch is switched off.
    prefetcher: Option<Prefetcher>,
    recorder: Arc<Recorder>,
    /// True if the kernel can do without OPEN and OPENDIR: an answer of ENOSYS ends them.
    no_open: bool,
    no_opendir: bool,
}

impl FuseFilesystem {
    pub(in crate::fuse) fn new(
        fs: ImageFs,
        threads: LeaderFollowers,
        prefetcher: Option<Prefetcher>,
        recorder: Arc<Recorder>,
    ) -> Self {
        Self { fs, threads, prefetcher, recorder, no_open: false, no_opendir: false }
    }

    fn answer(&self, kind: RequestKind, handler: impl FnOnce(&ImageFs)) {
        self.threads.answer(|| self.fs.guarded(kind, handler));
    }
}

/// Answers with an xattr or a list of names. With a `size` of 0, the kernel asks for the length
/// only.
fn reply_sized(reply: ReplyXattr, value: &[u8], size: u32) {
    match u32::try_from(value.len()) {
        Ok(len) if size == 0 => reply.size(len),
        Ok(len) if len <= size => reply.data(value),
        _ => reply.error(Errno::ERANGE),
    }
}

impl Filesystem for FuseFilesystem {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let offered = config.capabilities();
        let mut wanted = WANTED;
        // In answers to READDIRPLUS, fuser sends node ids as inode numbers.
        if node::are_inode_numbers(&self.fs.image) {
            wanted |= READDIRPLUS;
        }
        if self.fs.enforces_modes {
            wanted |= ACLS;
        }
        // If fuser rejects a value, the kernel's default stays.
        let _ = config.add_capabilities(wanted & offered);
        let _ = config.set_max_write(REQUEST_MAX);
        let _ = config.set_max_background(BACKGROUND_MAX);
        self.no_open = offered.contains(InitFlags::FUSE_NO_OPEN_SUPPORT);
        self.no_opendir = offered.contains(InitFlags::FUSE_NO_OPENDIR_SUPPORT);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name.len() > NAME_MAX as usize {
            // FUSE itself allows 1024 bytes.
            return reply.error(Errno::ENAMETOOLONG);
        }
        let find = |fs: &ImageFs| {
            let dir = fs.inode(parent)?;
            let found = fs.find(&dir, name.as_bytes())?;
            if let Some(prefetcher) = &self.prefetcher
                && found.is_some_and(|inode| inode.has_contents() && !inode.is_dir())
            {
                prefetcher.note_lookup(parent, dir.meta.size);
            }
            Ok(found)
        };
        self.answer(RequestKind::Lookup, |fs| match find(fs) {
            Ok(Some(inode)) => {
                let attr = fs.attr(&inode, node::node_id(&fs.image, inode.nid));
                let attr_ttl = node::named_attr_ttl(&fs.image, inode.nid);
                reply.entry_with_ttls(&attr_ttl, &ENTRY_TTL, &attr, GENERATION);
            }
            // Node 0 is a negative dentry: the kernel remembers that the name does not exist.
            Ok(None) => {
                let nothing = node::bare_attr(INodeNo(0), FileType::RegularFile);
                reply.entry_with_ttls(&ENTRY_TTL, &ENTRY_TTL, &nothing, GENERATION);
            }
            Err(error) => reply.error(fs.errno(RequestSubject::Name(parent, name.as_bytes()), &error)),
        });
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.answer(RequestKind::Getattr, |fs| match fs.inode(node) {
            Ok(inode) => {
                let number = node::inode_number(&fs.image, inode.nid);
                reply.attr(&ATTR_TTL, &fs.attr(&inode, number));
            }
            Err(error) => reply.error(fs.errno(RequestSubject::Node(node), &error)),
        });
    }

    fn readlink(&self, _: &Request, node: INodeNo, reply: ReplyData) {
        self.answer(RequestKind::Readlink, |fs| match fs.inode(node).and_then(|inode| fs.image.read_link(&inode)) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(fs.errno(RequestSubject::Node(node), &error)),
        });
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.no_open {
            true => reply.error(Errno::ENOSYS),
            false => reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE),
        }
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.no_opendir {
            true => reply.error(Errno::ENOSYS),
            false => reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_CACHE_DIR),
        }
    }

    fn read(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        // A process that bypasses the page cache has no use for pages in it, and pages in it hide
        // reads from a recording.
        let bypasses = flags.0 & O_DIRECT != 0 || self.recorder.is_recording();
        let prefetcher = self.prefetcher.as_ref().filter(|_| !bypasses);
        let (fs, threads) = (&self.fs, &self.threads);
        self.threads.answer(|| {
            fs.buffers.with(|buf| {
                let len = size.min(REQUEST_MAX) as usize;
                let answer = || match fs.read(node, offset, len, buf) {
                    Ok((size, bytes)) => {
                        // Before the answer, so that the read is recorded when the reader
                        // continues.
                        self.recorder.note(
                            node::inode_number(&fs.image, node::nid(&fs.image, node)).0,
                            offset,
                            bytes.len(),
                        );
                        let in_flight = prefetcher.filter(|_| offset == 0).map(|prefetcher| {
                            prefetcher.before_answer(fs, threads, node, fs.image.server().is_hit(&bytes))
                        });
                        reply.data(&bytes);
                        drop(in_flight);
                        heap::answered(bytes.len());
                        prefetcher.map(|prefetcher| (prefetcher, size, bytes))
                    }
                    Err(error) => {
                        reply.error(fs.errno(RequestSubject::Byte(node, offset), &error));
                        None
                    }
                };
                fs.guarded_with(RequestKind::Read, answer, |answered| {
                    if let Some((prefetcher, size, bytes)) = answered {
                        let range = offset..offset + bytes.len() as u64;
                        prefetcher.after_answer(fs, threads, Answered { file: node, size, bytes: range }, bytes);
                    }
                })
            })
        });
    }

    fn readdir(&self, _: &Request, node: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        self.answer(RequestKind::Readdir, |fs| {
            let listed = fs.list(node, offset, &mut |entry, next| {
                let number = node::inode_number(&fs.image, entry.nid);
                reply.add(number, next, fs.kind(entry), OsStr::from_bytes(&entry.name))
            });
            match listed {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(fs.errno(RequestSubject::Node(node), &error)),
            }
        });
    }

    fn readdirplus(&self, _: &Request, node: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectoryPlus) {
        self.answer(RequestKind::Readdir, |fs| {
            let mut files = Vec::new();
            let listed = fs.list(node, offset, &mut |entry, next| {
                let (is_full, file) = fs.add_plus(node, entry, next, &mut reply);
                files.extend(file);
                is_full
            });
            match listed {
                Ok(()) => {
                    if let Some(prefetcher) = &self.prefetcher {
                        prefetcher.note_listing(node, offset == 0, &files);
                    }
                    reply.ok();
                }
                Err(error) => reply.error(fs.errno(RequestSubject::Node(node), &error)),
            }
        });
    }

    // Where no inode has attributes, ENOSYS ends such requests, of which `ls -l` makes two for each
    // file. The kernel answers EOPNOTSUPP then.

    fn getxattr(&self, _: &Request, node: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        self.answer(RequestKind::Xattr, |fs| match fs.find_xattr(node, name.as_bytes()) {
            Ok(None) if !fs.has_xattrs => reply.error(Errno::ENOSYS),
            Ok(Some(value)) => reply_sized(reply, &value, size),
            Ok(None) => reply.error(Errno::NO_XATTR),
            Err(error) => reply.error(fs.errno(RequestSubject::Node(node), &error)),
        });
    }

    fn listxattr(&self, request: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        self.answer(RequestKind::Xattr, |fs| match fs.xattr_names(node, request.uid()) {
            Ok(_) if !fs.has_xattrs => reply.error(Errno::ENOSYS),
            Ok(names) => reply_sized(reply, &names, size),
            Err(error) => reply.error(fs.errno(RequestSubject::Node(node), &error)),
        });
    }

    fn lseek(&self, _: &Request, node: INodeNo, _: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        self.answer(RequestKind::Lseek, |fs| {
            if fs.no_holes.is_unused(&fs.image) {
                return reply.error(Errno::ENOSYS);
            }
            let what = match whence {
                SEEK_DATA => SeekWhat::Data,
                SEEK_HOLE => SeekWhat::Hole,
                _ => return reply.error(Errno::EINVAL),
            };
            let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
            match fs.inode(node).and_then(|inode| fs.image.seek(&inode, offset, what)) {
                // Sizes are below 2^63.
                Ok(Some(found)) => reply.offset(found as i64),
                Ok(None) => reply.error(Errno::ENXIO),
                Err(error) => reply.error(fs.errno(RequestSubject::Byte(node, offset), &error)),
            }
        });
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let image = &self.fs.image;
        let sb = image.superblock();
        let block = sb.block_bits.len() as u32;
        let extra: u64 = image.device_slots().iter().map(|slot| slot.blocks).sum();
        reply.statfs(sb.blocks.saturating_add(extra), 0, 0, sb.inos, 0, block, NAME_MAX, block);
    }

    // For the other requests, ENOSYS means that there is nothing to do, and ends such requests. The
    // kernel enforces modes if they are enforced (default_permissions), and refuses writes (ro).

    fn access(&self, _: &Request, _: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn poll(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: PollNotifier,
        _: PollEvents,
        _: PollFlags,
        reply: ReplyPoll,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn ioctl(
        &self,
        request: &Request,
        _: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        command: u32,
        _: &[u8],
        room: u32,
        reply: ReplyIoctl,
    ) {
        let Some(question) = Question::of(command) else { return reply.error(Errno::ENOTTY) };
        if question != Question::Metrics && request.uid() != 0 && request.uid() != rustix::process::getuid().as_raw() {
            // The reads of others are not for everyone who may enter the mount.
            return reply.error(Errno::EPERM);
        }
        let recorded = match question {
            Question::Metrics => Ok(self.fs.metrics.text(&self.fs.image.stats()).into_bytes()),
            Question::StartRecording => self.recorder.start().map(|answer| answer.encode()),
            Question::DrainRecording => self.recorder.drain().map(|answer| answer.encode()),
            Question::StopRecording => self.recorder.stop().map(|answer| answer.encode()),
        };
        match recorded {
            Ok(answer) if answer.len() <= room as usize => reply.ioctl(0, &answer),
            Ok(_) => reply.error(Errno::ERANGE),
            Err(error) => reply.error(Errno::from_i32(error.raw_os_error())),
        }
    }
}
