//! Sleeping in poll(2) until a thread ends, a descriptor is ready, or a time is reached: a server
//! that waits for its end wakes for nothing else.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use std::io::{self, PipeReader};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Thread whose end can be waited for together with descriptors. It holds the other end of a pipe,
/// which is closed when it returns or panics.
pub(in crate::fuse) struct Watched<T> {
    thread: JoinHandle<T>,
    end: PipeReader,
}

impl<T: Send + 'static> Watched<T> {
    /// Starts a thread with this name.
    pub(in crate::fuse) fn spawn(name: &str, work: impl FnOnce() -> T + Send + 'static) -> io::Result<Self> {
        let (end, held) = io::pipe()?;
        let run = move || {
            let _held = held;
            work()
        };
        Ok(Self { thread: thread::Builder::new().name(name.into()).spawn(run)?, end })
    }

    /// Returns a descriptor that is hung up once the work of the thread is over.
    pub(in crate::fuse) fn end(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }

    /// Returns true if the work of the thread is over.
    pub(in crate::fuse) fn has_ended(&self) -> bool {
        matches!(wait(&[self.end()], Some(Instant::now())), Ok(Some(_)))
    }

    /// Waits for the work and returns its result.
    pub(in crate::fuse) fn join(self) -> thread::Result<T> {
        self.thread.join()
    }
}

/// Sleeps until one of `fds` can be read or is hung up, or until `due`. Returns the index of the
/// first such descriptor, or `None` at `due`.
pub(in crate::fuse) fn wait(fds: &[BorrowedFd<'_>], due: Option<Instant>) -> io::Result<Option<usize>> {
    let mut polled: Vec<_> = fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    loop {
        let timeout = due.map(|due| timespec(due.saturating_duration_since(Instant::now())));
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) => return Ok(polled.iter().position(|fd| !fd.revents().is_empty())),
            // A signal: its handler makes one of the descriptors ready if it matters.
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec { tv_sec: duration.as_secs().cast_signed(), tv_nsec: duration.subsec_nanos().into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn the_end_of_a_thread_is_seen_however_it_ends() {
        let ended = Watched::spawn("returns", || 7).unwrap();
        assert_eq!(wait(&[ended.end()], None).unwrap(), Some(0));
        assert_eq!(ended.join().unwrap(), 7);
        let panicked = Watched::spawn("panics", || panic!("on purpose")).unwrap();
        assert_eq!(wait(&[panicked.end()], None).unwrap(), Some(0));
        assert!(panicked.join().is_err());
    }

    #[test]
    fn a_byte_a_closed_pipe_and_the_time_end_a_wait() {
        let (first, mut writer) = io::pipe().unwrap();
        let (second, held) = io::pipe().unwrap();
        let fds = [first.as_fd(), second.as_fd()];
        assert_eq!(wait(&fds, Some(Instant::now())).unwrap(), None);
        drop(held);
        assert_eq!(wait(&fds, None).unwrap(), Some(1));
        writer.write_all(b"x").unwrap();
        assert_eq!(wait(&fds, None).unwrap(), Some(0));
    }
}
