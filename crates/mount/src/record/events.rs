//! Files that are read on a mount by the kernel's driver, as reported by fanotify(7), which reports
//! no ranges.

use super::Reads;
use crate::fuse::recorder::answer::ReadRecord;
use nix::errno::Errno;
use nix::sys::fanotify::{EventFFlags, Fanotify, FanotifyEvent, InitFlags, MarkFlags, MaskFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat};
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Instant;

/// Longest time of one wait.
const PERIOD: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// Largest number of answers at a time, of some hundred events each.
const ANSWERS_MAX: usize = 1 << 12;

/// Events of a filesystem.
pub(super) struct FileEvents {
    group: Fanotify,
    begun: Instant,
    /// Inodes of files that are already recorded.
    seen: HashSet<u64>,
}

impl FileEvents {
    /// Starts to report opens and reads on the filesystem of `root`, through any of its mounts.
    pub(super) fn start(root: &File) -> io::Result<Self> {
        let needs_root = |error: Errno| match error {
            Errno::EPERM => {
                io::Error::new(io::ErrorKind::PermissionDenied, "a mount by the kernel's driver needs root")
            }
            error => error.into(),
        };
        let flags = InitFlags::FAN_CLASS_NOTIF | InitFlags::FAN_CLOEXEC | InitFlags::FAN_NONBLOCK;
        // Flags with which the files of events are opened: a FIFO must not wait.
        let opened =
            EventFFlags::O_RDONLY | EventFFlags::O_LARGEFILE | EventFFlags::O_CLOEXEC | EventFFlags::O_NONBLOCK;
        let group = Fanotify::init(flags, opened).map_err(needs_root)?;
        let events = MaskFlags::FAN_OPEN | MaskFlags::FAN_ACCESS;
        let whole = MarkFlags::FAN_MARK_ADD | MarkFlags::FAN_MARK_FILESYSTEM;
        group.mark(whole, events, root, None::<&Path>).map_err(needs_root)?;
        Ok(Self { group, begun: Instant::now(), seen: HashSet::new() })
    }

    pub(super) fn fetch(&mut self, reads: &mut Reads) -> io::Result<()> {
        for _ in 0..ANSWERS_MAX {
            match self.group.read_events() {
                Ok(events) => events.iter().for_each(|event| self.note(event, reads)),
                Err(Errno::EAGAIN) => break,
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    pub(super) fn wait(&self) -> io::Result<()> {
        match poll(&mut [PollFd::new(&self.group, PollFlags::IN)], Some(&PERIOD)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn note(&mut self, event: &FanotifyEvent, reads: &mut Reads) {
        // An event without a file means that there were too many events.
        let Some(file) = event.fd() else {
            reads.lost += 1;
            return;
        };
        let Ok(found) = fstat(file) else { return };
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile || !self.seen.insert(found.st_ino) {
            return;
        }
        // Ignore further events of this file: a program that reads it in small parts would fill the
        // queue. If that is refused, events continue.
        let ignore =
            MarkFlags::FAN_MARK_ADD | MarkFlags::FAN_MARK_IGNORED_MASK | MarkFlags::FAN_MARK_IGNORED_SURV_MODIFY;
        let _ = self.group.mark(ignore, MaskFlags::FAN_OPEN | MaskFlags::FAN_ACCESS, file, None::<&Path>);
        let micros = self.begun.elapsed().as_micros() as u64;
        reads.push(ReadRecord { ino: found.st_ino, offset: 0, len: found.st_size.unsigned_abs(), micros });
    }
}
