//! Answers to the kernel's requests.

use super::failed::About;
use super::image_fs::{GENERATION, Server};
use super::node::{self, ATTR_TTL, ENTRY_TTL};
use crate::fuse::metrics::{FETCH, Kind};
use crate::fuse::prefetch::Giver;
use crate::fuse::threads::leader_followers::Team;
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

/// What we want of the kernel, as far as it has it. Never everything that it offers: fuser does not know all of it.
const WANTED: InitFlags = InitFlags::FUSE_ASYNC_READ
    .union(InitFlags::FUSE_ASYNC_DIO)
    .union(InitFlags::FUSE_PARALLEL_DIROPS)
    .union(InitFlags::FUSE_CACHE_SYMLINKS)
    .union(InitFlags::FUSE_MAX_PAGES)
    .union(InitFlags::FUSE_NO_OPEN_SUPPORT)
    .union(InitFlags::FUSE_NO_OPENDIR_SUPPORT)
    .union(InitFlags::FUSE_EXPORT_SUPPORT);
/// ACLs as the kernel enforces them. It enforces modes, too, wherever they are agreed on.
const ACLS: InitFlags = InitFlags::FUSE_POSIX_ACL;
/// Always: left to choose (`FUSE_READDIRPLUS_AUTO`), the kernel asks for names alone in long directories, and then for each of them.
const READDIRPLUS: InitFlags = InitFlags::FUSE_DO_READDIRPLUS;
/// The longest request in bytes. Nothing is ever written, but fuser derives the longest read from it.
const REQUEST_MAX: u32 = 1 << 20;
/// Reads ahead that may be under way, against 12 by default: slow sources need them.
const BACKGROUND_MAX: u16 = 128;
/// Of stat(2).
const NAME_MAX: u32 = 255;
/// Of lseek(2).
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;
/// Of open(2).
const O_DIRECT: i32 = rustix::fs::OFlags::DIRECT.bits() as i32;

/// An image as fuser wants it.
pub struct Served {
    server: Server,
    team: Team,
    giver: Giver,
    /// Whether the kernel can do without OPEN and OPENDIR: an answer of ENOSYS ends them.
    no_open: bool,
    no_opendir: bool,
}

impl Served {
    pub fn new(server: Server, team: Team, giver: Giver) -> Self {
        Served { server, team, giver, no_open: false, no_opendir: false }
    }

    fn answer(&self, kind: Kind, handler: impl FnOnce(&Server)) {
        self.team.answer(|| self.server.guarded(kind, handler));
    }
}

/// An attribute or a list of names: first its size is asked for, then it.
fn reply_sized(reply: ReplyXattr, value: &[u8], size: u32) {
    match u32::try_from(value.len()) {
        Ok(len) if size == 0 => reply.size(len),
        Ok(len) if len <= size => reply.data(value),
        _ => reply.error(Errno::ERANGE),
    }
}

impl Filesystem for Served {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let offered = config.capabilities();
        let mut wanted = WANTED;
        // With attributes, fuser lists node ids as inode numbers.
        if node::are_inode_numbers(&self.server.image) {
            wanted |= READDIRPLUS;
        }
        if self.server.enforces_modes {
            wanted |= ACLS;
        }
        // What is refused here, the kernel's own limits replace.
        let _ = config.add_capabilities(wanted & offered);
        let _ = config.set_max_write(REQUEST_MAX);
        let _ = config.set_max_background(BACKGROUND_MAX);
        self.no_open = offered.contains(InitFlags::FUSE_NO_OPEN_SUPPORT);
        self.no_opendir = offered.contains(InitFlags::FUSE_NO_OPENDIR_SUPPORT);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name.len() > NAME_MAX as usize {
            // FUSE itself would take 1024 bytes.
            return reply.error(Errno::ENAMETOOLONG);
        }
        let find = |server: &Server| {
            let dir = server.inode(parent)?;
            let found = server.find(&dir, name.as_bytes())?;
            if found.is_some_and(|inode| inode.has_contents() && !inode.is_dir()) {
                self.giver.looked_up(parent, dir.meta.size);
            }
            Ok(found)
        };
        self.answer(Kind::Lookup, |server| match find(server) {
            Ok(Some(inode)) => {
                let attr = server.attr(&inode, node::node_id(&server.image, inode.nid));
                let attr_ttl = node::named_attr_ttl(&server.image, inode.nid);
                reply.entry_with_ttls(&attr_ttl, &ENTRY_TTL, &attr, GENERATION);
            }
            // Node 0: the kernel remembers that there is no such name.
            Ok(None) => {
                let nothing = node::bare_attr(INodeNo(0), FileType::RegularFile);
                reply.entry_with_ttls(&ENTRY_TTL, &ENTRY_TTL, &nothing, GENERATION);
            }
            Err(error) => reply.error(server.errno(About::Name(parent, name.as_bytes()), &error)),
        });
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.answer(Kind::Getattr, |server| match server.inode(node) {
            Ok(inode) => {
                let number = node::inode_number(&server.image, inode.nid);
                reply.attr(&ATTR_TTL, &server.attr(&inode, number));
            }
            Err(error) => reply.error(server.errno(About::Node(node), &error)),
        });
    }

    fn readlink(&self, _: &Request, node: INodeNo, reply: ReplyData) {
        self.answer(Kind::Readlink, |server| {
            match server.inode(node).and_then(|inode| server.image.read_link(&inode)) {
                Ok(target) => reply.data(&target),
                Err(error) => reply.error(server.errno(About::Node(node), &error)),
            }
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
        // Who goes past the cache has no use for what is put there.
        let is_cached = flags.0 & O_DIRECT == 0;
        let (server, team) = (&self.server, &self.team);
        self.team.answer(|| {
            server.buffers.with(|buf| {
                let len = size.min(REQUEST_MAX) as usize;
                let answer = || match server.read(node, offset, len, buf) {
                    Ok((size, bytes)) => {
                        let is_begun = is_cached && offset == 0;
                        let noted = is_begun.then(|| self.giver.files(server, team, node, bytes.is_hit()));
                        reply.data(&bytes);
                        drop(noted);
                        is_cached.then_some((size, bytes))
                    }
                    Err(error) => {
                        reply.error(server.errno(About::Byte(node, offset), &error));
                        None
                    }
                };
                server.guarded_with(Kind::Read, answer, |answered| {
                    if let Some((size, bytes)) = answered {
                        let range = offset..offset + bytes.len() as u64;
                        self.giver.around(server, team, node, size, range, bytes);
                    }
                })
            })
        });
    }

    fn readdir(&self, _: &Request, node: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        self.answer(Kind::Readdir, |server| {
            let listed = server.list(node, offset, &mut |entry, next| {
                let number = node::inode_number(&server.image, entry.nid);
                reply.add(number, next, server.kind(entry), OsStr::from_bytes(&entry.name))
            });
            match listed {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(server.errno(About::Node(node), &error)),
            }
        });
    }

    fn readdirplus(&self, _: &Request, node: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectoryPlus) {
        self.answer(Kind::Readdir, |server| {
            let mut files = Vec::new();
            match server
                .list(node, offset, &mut |entry, next| server.add_plus(node, entry, next, &mut reply, &mut files))
            {
                Ok(()) => {
                    self.giver.listed(node, offset == 0, &files);
                    reply.ok();
                }
                Err(error) => reply.error(server.errno(About::Node(node), &error)),
            }
        });
    }

    fn getxattr(&self, _: &Request, node: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        self.answer(Kind::Xattr, |server| match server.find_xattr(node, name.as_bytes()) {
            _ if server.no_xattrs.is_known(&server.image) => reply.error(Errno::ENOSYS),
            Ok(Some(value)) => reply_sized(reply, &value, size),
            Ok(None) => reply.error(Errno::NO_XATTR),
            Err(error) => reply.error(server.errno(About::Node(node), &error)),
        });
    }

    fn listxattr(&self, request: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        self.answer(Kind::Xattr, |server| match server.xattr_names(node, request.uid()) {
            _ if server.no_xattrs.is_known(&server.image) => reply.error(Errno::ENOSYS),
            Ok(names) => reply_sized(reply, &names, size),
            Err(error) => reply.error(server.errno(About::Node(node), &error)),
        });
    }

    fn lseek(&self, _: &Request, node: INodeNo, _: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        self.answer(Kind::Lseek, |server| {
            if server.no_holes.is_known(&server.image) {
                return reply.error(Errno::ENOSYS);
            }
            let what = match whence {
                SEEK_DATA => SeekWhat::Data,
                SEEK_HOLE => SeekWhat::Hole,
                _ => return reply.error(Errno::EINVAL),
            };
            let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
            match server.inode(node).and_then(|inode| server.image.seek(&inode, offset, what)) {
                // Sizes are below 2^63.
                Ok(Some(found)) => reply.offset(found as i64),
                Ok(None) => reply.error(Errno::ENXIO),
                Err(error) => reply.error(server.errno(About::Byte(node, offset), &error)),
            }
        });
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let image = &self.server.image;
        let sb = image.superblock();
        let block = sb.block_bits.len() as u32;
        let extra: u64 = image.device_slots().iter().map(|slot| slot.blocks).sum();
        reply.statfs(sb.blocks.saturating_add(extra), 0, 0, sb.inos, 0, block, NAME_MAX, block);
    }

    // The rest: ENOSYS says that there is nothing to do, and not to ask again. Modes are the kernel's business, where they are
    // enforced (default_permissions), and so is refusing to write (ro).

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
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        command: u32,
        _: &[u8],
        room: u32,
        reply: ReplyIoctl,
    ) {
        if command != FETCH {
            return reply.error(Errno::ENOTTY);
        }
        let text = self.server.meters.text(&self.server.image.stats());
        match text.len() < room as usize {
            true => reply.ioctl(0, text.as_bytes()),
            false => reply.error(Errno::ERANGE),
        }
    }
}
