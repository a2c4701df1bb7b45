//! Which threads wait for requests.
//!
//! If all did, the kernel would wake them in turn, so that each request of a single client met a sleeping processor, and caches that
//! have cooled. So one waits, and answers itself. It has another one woken before it answers if the next request is there already, up
//! to as many as there are processors; or if the last answer took so long that the source must be slow, for then nobody shall wait
//! behind an answer. Who has answered and finds no request, but somebody else waiting for one, rests.
//!
//! One client's next request comes soon after the answer: the one who waits looks out for it ([`Watch`]) before it sleeps.
//!
//! Who does more than answer, and may have to wait for a page that somebody else's request holds ([`Team::covered`]), has another one
//! woken to receive that request.
//!
//! The threads and their loops are fuser's, so they rest in the handler of a request that has been answered. All begin with waiting,
//! and join the team with the first request they answer.

use super::spin::Watch;
use crate::fuse::metrics::Meters;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use std::cell::RefCell;
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// An answer that takes longer has waited for its source: decoding the longest extent takes less, mostly.
const SLOW: Duration = Duration::from_millis(1);
const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

thread_local! {
    /// Tells the team when this thread ends.
    static MEMBERSHIP: RefCell<Option<Membership>> = const { RefCell::new(None) };
}

/// The threads that answer the requests of one connection.
pub struct Team {
    connection: OwnedFd,
    threads: usize,
    /// How many of them are of use at once while the source is fast.
    processors: usize,
    rest: Arc<Rest>,
    meters: Arc<Meters>,
    watch: Watch,
}

/// Where threads rest.
#[derive(Default)]
struct Rest {
    count: Mutex<Count>,
    changed: Condvar,
    /// Whether the last answer was.
    is_slow: AtomicBool,
}

/// Of threads that have joined.
#[derive(Default)]
struct Count {
    /// They wait for a request, or are about to.
    waiting: usize,
    /// They answer one.
    busy: usize,
    resting: usize,
    /// Of those that answer, how many may have to wait for others.
    covered: usize,
    /// Of those that rest, how many shall not.
    woken: usize,
    has_ended: bool,
}

struct Membership(Arc<Rest>);

/// One of [`Count::covered`].
struct Covered<'a>(&'a Rest);

impl Team {
    /// `threads` threads that wait for requests of `connection`.
    pub fn new(connection: OwnedFd, threads: usize, meters: Arc<Meters>) -> Self {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        Team { connection, threads, processors, rest: Arc::default(), meters, watch: Watch::default() }
    }

    /// Run `answer` to the request that this thread has received. It does not panic, and says how long it took.
    pub fn answer(&self, answer: impl FnOnce() -> Duration) {
        if self.threads == 1 {
            answer();
            return;
        }
        self.leave();
        let took = answer();
        self.rest.is_slow.store(took > SLOW, Ordering::Relaxed);
        self.come_back();
    }

    /// This thread waits no longer; another one shall, if that is worth waking it.
    fn leave(&self) {
        let is_slow = self.rest.is_slow.load(Ordering::Relaxed);
        let is_wanted = is_slow || self.has_request();
        let has_joined = self.join();
        let mut count = self.rest.count();
        count.waiting -= usize::from(has_joined);
        count.busy += 1;
        if is_wanted && count.has_room(if is_slow { usize::MAX } else { self.processors }) {
            self.wake(count);
        }
    }

    /// Have one of those that rest wait for requests.
    fn wake(&self, mut count: MutexGuard<'_, Count>) {
        count.resting -= 1;
        count.waiting += 1;
        count.woken += 1;
        drop(count);
        self.meters.woken();
        self.rest.changed.notify_one();
    }

    /// Run `work` of a thread that answers: it may wait until other requests are answered, for there is another thread that does
    /// nothing else. It is left out if there is none.
    pub fn covered(&self, work: impl FnOnce()) {
        let mut count = self.rest.count();
        // Who has not joined yet waits, too.
        let others = self.threads.saturating_sub(count.resting + count.covered + 1);
        if others == 0 && count.resting == 0 {
            return;
        }
        count.covered += 1;
        match others {
            0 => self.wake(count),
            _ => drop(count),
        }
        let _covered = Covered(&self.rest);
        work();
    }

    /// Make this thread one of the team; whether it was already.
    fn join(&self) -> bool {
        MEMBERSHIP.with_borrow_mut(|member| {
            let has_joined = member.is_some();
            member.get_or_insert_with(|| Membership(Arc::clone(&self.rest)));
            has_joined
        })
    }

    /// Wait again, or rest: only if one of the team waits, for it will tell the end.
    fn come_back(&self) {
        let has_request = self.has_request();
        let mut count = self.rest.count();
        count.busy -= 1;
        if has_request || count.waiting == 0 {
            count.waiting += 1;
            drop(count);
            if !has_request {
                self.watch.watch(|| self.has_request());
            }
            return;
        }
        count.resting += 1;
        while count.woken == 0 && !count.has_ended {
            count = self.rest.changed.wait(count).unwrap_or_else(PoisonError::into_inner);
        }
        count.woken = count.woken.saturating_sub(1);
    }

    /// Whether the kernel has a request ready. If that cannot be told, a thread woken in vain does no harm.
    fn has_request(&self) -> bool {
        let mut fds = [PollFd::new(&self.connection, PollFlags::IN)];
        !matches!(poll(&mut fds, Some(&AT_ONCE)), Ok(0))
    }
}

impl Rest {
    /// Nothing panics while it is locked.
    fn count(&self) -> MutexGuard<'_, Count> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Count {
    /// Whether one of those that rest is missing among those that wait, where `processors` can be busy at once.
    fn has_room(&self, processors: usize) -> bool {
        self.waiting == 0 && self.resting > 0 && self.busy < processors
    }
}

impl Drop for Covered<'_> {
    fn drop(&mut self) {
        self.0.count().covered -= 1;
    }
}

impl Drop for Membership {
    /// The first thread to end has been told that the connection has: those that rest would never learn.
    fn drop(&mut self) {
        self.0.count().has_ended = true;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc;

    const QUICK: Duration = Duration::ZERO;

    /// A team whose requests are bytes in a socket.
    struct Scene {
        team: Arc<Team>,
        requests: UnixStream,
    }

    impl Scene {
        fn new(threads: usize) -> Self {
            let (connection, requests) = UnixStream::pair().unwrap();
            let mut team = Team::new(connection.into(), threads, Arc::default());
            team.processors = 2;
            Scene { team: Arc::new(team), requests }
        }

        /// A thread that has answered one request, and says when it waits again.
        fn thread(&self) -> (thread::JoinHandle<()>, mpsc::Receiver<()>) {
            let (sender, back) = mpsc::channel();
            let team = Arc::clone(&self.team);
            let thread = thread::spawn(move || {
                team.answer(|| QUICK);
                sender.send(()).unwrap();
                // Its loop would read now; the end comes when somebody drops the receiver.
                while sender.send(()).is_ok() {
                    thread::sleep(Duration::from_millis(1));
                }
            });
            (thread, back)
        }

        /// This thread waits, and another one rests.
        fn with_one_at_rest() -> (Self, mpsc::Receiver<()>) {
            let scene = Scene::new(2);
            scene.team.answer(|| QUICK);
            let (_, back) = scene.thread();
            scene.wait_until_resting(1);
            (scene, back)
        }

        fn resting(&self) -> usize {
            self.team.rest.count().resting
        }

        fn wait_until_resting(&self, count: usize) {
            while self.resting() != count {
                thread::yield_now();
            }
        }
    }

    #[test]
    fn one_waits_and_the_others_rest_until_the_end() {
        let scene = Scene::new(4);
        let (first, back) = scene.thread();
        back.recv().unwrap();
        let others = [scene.thread(), scene.thread()];
        scene.wait_until_resting(2);
        // The connection ends: the one that waits learns it.
        drop(back);
        first.join().unwrap();
        for (thread, back) in others {
            back.recv().unwrap();
            drop(back);
            thread.join().unwrap();
        }
    }

    #[test]
    fn a_request_behind_another_wakes_a_thread() {
        let (scene, back) = Scene::with_one_at_rest();
        scene.team.answer(|| {
            assert_eq!(scene.resting(), 1, "nobody waits behind this one");
            QUICK
        });
        (&scene.requests).write_all(&[1]).unwrap();
        scene.team.answer(|| {
            assert_eq!(scene.resting(), 0);
            QUICK
        });
        back.recv().unwrap();
    }

    #[test]
    fn behind_a_slow_answer_somebody_waits() {
        let (scene, back) = Scene::with_one_at_rest();
        scene.team.answer(|| SLOW * 2);
        scene.team.answer(|| {
            assert_eq!(scene.resting(), 0);
            // For this thread to come back, not to rest.
            (&scene.requests).write_all(&[1]).unwrap();
            QUICK
        });
        back.recv().unwrap();
    }

    /// Whether covered work is run.
    fn covered(scene: &Scene) -> bool {
        let mut has_run = false;
        scene.team.covered(|| has_run = true);
        has_run
    }

    #[test]
    fn who_may_have_to_wait_is_covered() {
        let (scene, back) = Scene::with_one_at_rest();
        scene.team.answer(|| {
            scene.team.covered(|| {
                assert_eq!(scene.resting(), 0);
                assert!(!covered(&scene), "nobody is left for this one");
            });
            assert!(covered(&scene), "somebody waits already");
            // For this thread to come back, not to rest.
            (&scene.requests).write_all(&[1]).unwrap();
            QUICK
        });
        back.recv().unwrap();
    }

    #[test]
    fn who_has_not_joined_covers_and_who_is_alone_is_not_covered() {
        let scene = Scene::new(2);
        assert!(covered(&scene));
        let scene = Scene::new(1);
        assert!(!covered(&scene));
    }

    #[test]
    fn no_more_than_the_processors_are_woken() {
        let count = Count { waiting: 0, busy: 1, resting: 2, ..Count::default() };
        assert!(count.has_room(2));
        assert!(!Count { busy: 2, ..count }.has_room(2));
        assert!(!Count { waiting: 1, busy: 1, resting: 2, ..Count::default() }.has_room(2));
        assert!(!Count { busy: 1, ..Count::default() }.has_room(2), "nobody rests");
    }
}
