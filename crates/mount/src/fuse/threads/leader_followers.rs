//! The Leader/Followers pattern (Pattern-Oriented Software Architecture, volume 2) for the threads
//! that answer requests.
//!
//! If all threads blocked in read(/dev/fuse), the kernel would wake them in turn: each request of a
//! single client would meet a sleeping processor and cold caches. So one thread, the *leader*,
//! waits for requests, and answers them itself. Before it does, it promotes a follower to leader in
//! two cases: if another request is already queued, and fewer threads are busy than there are
//! processors; or if the last answer took more than [`SLOW`], as the source must then be slow, and
//! no request may wait behind an answer. A thread that has answered and finds no request, but
//! another leader, becomes a follower: it sleeps on a condition variable.
//!
//! ```text
//!            request           answered, a request is queued or no other leader
//!  leading ───────────▶ busy ──────────────────────────────────────────────────▶ leading
//!     ▲                  │
//!     │ promoted         │ answered, else
//!     └──── following ◀──┘
//! ```
//!
//! The next request of a client comes soon after an answer: a leader spins for a moment before it
//! blocks ([`Spin`]).
//!
//! A thread that does more than answer, and may have to wait for a page that another request holds,
//! first has a follower promoted to receive that request ([`LeaderFollowers::with_follower`]).
//!
//! The threads and their loops are fuser's, so followers sleep in the handler of a request that has
//! been answered. All threads begin by waiting for requests, and join with the first one that they
//! answer.

use super::spin::Spin;
use crate::fuse::metrics::Metrics;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use std::cell::RefCell;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Time after which an answer must have waited for its source: decoding the longest extent usually
/// takes less.
const SLOW: Duration = Duration::from_millis(1);
const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

thread_local! {
    /// Membership of this thread. Tells the other threads when this one ends.
    static MEMBERSHIP: RefCell<Option<Membership>> = const { RefCell::new(None) };
}

/// The threads that answer the requests of one connection.
pub(in crate::fuse) struct LeaderFollowers {
    connection: OwnedFd,
    threads: usize,
    /// Number of processors: more threads at once are useless while the source is fast.
    processors: usize,
    shared: Arc<Shared>,
    metrics: Arc<Metrics>,
    spin: Spin,
}

/// State shared by the threads, and the condition variable on which followers sleep.
#[derive(Default)]
struct Shared {
    counts: Mutex<Counts>,
    changed: Condvar,
    /// True if the last answer took more than [`SLOW`].
    is_slow: AtomicBool,
}

/// Numbers of threads that have joined.
#[derive(Default)]
struct Counts {
    /// Threads that wait for a request, or are about to.
    leading: usize,
    /// Threads that answer a request.
    busy: usize,
    /// Threads that sleep.
    following: usize,
    /// Busy threads that may have to wait for answers of other threads.
    with_follower: usize,
    /// Promotions that a sleeping thread has not noticed yet.
    promoted: usize,
    has_ended: bool,
}

struct Membership(Arc<Shared>);

/// One thread of [`Counts::with_follower`].
struct FollowerGuard<'a>(&'a Shared);

impl LeaderFollowers {
    /// Creates the state of `threads` threads that wait for requests of `connection`.
    pub(in crate::fuse) fn new(connection: OwnedFd, threads: usize, metrics: Arc<Metrics>) -> Self {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        Self { connection, threads, processors, shared: Arc::default(), metrics, spin: Spin::default() }
    }

    /// Runs `answer` for the request that this thread has received. `answer` must not panic, and
    /// returns its duration.
    pub(in crate::fuse) fn answer(&self, answer: impl FnOnce() -> Duration) {
        if self.threads == 1 {
            answer();
            return;
        }
        self.stop_leading();
        let took = answer();
        self.shared.is_slow.store(took > SLOW, Ordering::Relaxed);
        self.lead_or_follow();
    }

    /// Marks this thread as busy. Promotes a follower if that is worth the wakeup.
    fn stop_leading(&self) {
        let is_slow = self.shared.is_slow.load(Ordering::Relaxed);
        let is_wanted = is_slow || self.has_request();
        let has_joined = self.join();
        let mut counts = self.shared.counts.lock();
        counts.leading -= usize::from(has_joined);
        counts.busy += 1;
        if is_wanted && counts.lacks_leader(if is_slow { usize::MAX } else { self.processors }) {
            self.promote_follower(counts);
        }
    }

    /// Wakes a follower to lead. There must be one.
    fn promote_follower(&self, mut counts: MutexGuard<'_, Counts>) {
        counts.following -= 1;
        counts.leading += 1;
        counts.promoted += 1;
        drop(counts);
        self.metrics.note_thread_woken();
        self.shared.changed.notify_one();
    }

    /// Runs `work` of a busy thread that may have to wait until other requests are answered.
    /// Another thread, which does no such work, receives them; if necessary, a follower is
    /// promoted. Without such a thread, `work` is skipped.
    pub(in crate::fuse) fn with_follower(&self, work: impl FnOnce()) {
        let mut counts = self.shared.counts.lock();
        // Threads that have not joined yet wait for requests, too.
        let others = self.threads.saturating_sub(counts.following + counts.with_follower + 1);
        if others == 0 && counts.following == 0 {
            return;
        }
        counts.with_follower += 1;
        match others {
            0 => self.promote_follower(counts),
            _ => drop(counts),
        }
        let _guard = FollowerGuard(&self.shared);
        work();
    }

    /// Counts this thread. Returns true if it was already counted.
    fn join(&self) -> bool {
        MEMBERSHIP.with_borrow_mut(|member| {
            let has_joined = member.is_some();
            member.get_or_insert_with(|| Membership(Arc::clone(&self.shared)));
            has_joined
        })
    }

    /// Leads again or follows. A thread only follows if another one leads, which will learn of the
    /// end of the connection.
    fn lead_or_follow(&self) {
        let has_request = self.has_request();
        let mut counts = self.shared.counts.lock();
        counts.busy -= 1;
        if has_request || counts.leading == 0 {
            counts.leading += 1;
            drop(counts);
            if !has_request {
                self.spin.until(|| self.has_request());
            }
            return;
        }
        counts.following += 1;
        while counts.promoted == 0 && !counts.has_ended {
            self.shared.changed.wait(&mut counts);
        }
        counts.promoted = counts.promoted.saturating_sub(1);
    }

    /// Returns true if the kernel has a request queued. Also returns true if that is unknown, as a
    /// needless wakeup does no harm.
    fn has_request(&self) -> bool {
        let mut fds = [PollFd::new(&self.connection, PollFlags::IN)];
        !matches!(poll(&mut fds, Some(&AT_ONCE)), Ok(0))
    }
}

impl Counts {
    /// Returns true if no thread leads although a follower could, and fewer than `processors`
    /// threads are busy.
    fn lacks_leader(&self, processors: usize) -> bool {
        self.leading == 0 && self.following > 0 && self.busy < processors
    }
}

impl Drop for FollowerGuard<'_> {
    fn drop(&mut self) {
        self.0.counts.lock().with_follower -= 1;
    }
}

impl Drop for Membership {
    /// Wakes all followers, which would never learn of the end of the connection. The first thread
    /// that ends has learned of it.
    fn drop(&mut self) {
        self.0.counts.lock().has_ended = true;
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

    /// Server whose requests are bytes in a socket.
    struct Scene {
        threads: Arc<LeaderFollowers>,
        requests: UnixStream,
    }

    impl Scene {
        fn new(threads: usize) -> Self {
            let (connection, requests) = UnixStream::pair().unwrap();
            let mut threads = LeaderFollowers::new(connection.into(), threads, Arc::default());
            threads.processors = 2;
            Scene { threads: Arc::new(threads), requests }
        }

        /// Starts a thread that has answered one request, and sends a message when it leads or
        /// follows again.
        fn thread(&self) -> (thread::JoinHandle<()>, mpsc::Receiver<()>) {
            let (sender, back) = mpsc::channel();
            let threads = Arc::clone(&self.threads);
            let thread = thread::spawn(move || {
                threads.answer(|| QUICK);
                sender.send(()).unwrap();
                // Its loop would read now; the end comes when the test drops the receiver.
                while sender.send(()).is_ok() {
                    thread::sleep(Duration::from_millis(1));
                }
            });
            (thread, back)
        }

        /// Returns a scene in which this thread leads and another one follows.
        fn with_one_follower() -> (Self, mpsc::Receiver<()>) {
            let scene = Scene::new(2);
            scene.threads.answer(|| QUICK);
            let (_, back) = scene.thread();
            scene.wait_until_following(1);
            (scene, back)
        }

        fn following(&self) -> usize {
            self.threads.shared.counts.lock().following
        }

        fn wait_until_following(&self, count: usize) {
            while self.following() != count {
                thread::yield_now();
            }
        }
    }

    #[test]
    fn one_leads_and_the_others_follow_until_the_end() {
        let scene = Scene::new(4);
        let (first, back) = scene.thread();
        back.recv().unwrap();
        let others = [scene.thread(), scene.thread()];
        scene.wait_until_following(2);
        // The connection ends, and the leader learns of it.
        drop(back);
        first.join().unwrap();
        for (thread, back) in others {
            back.recv().unwrap();
            drop(back);
            thread.join().unwrap();
        }
    }

    #[test]
    fn a_queued_request_promotes_a_follower() {
        let (scene, back) = Scene::with_one_follower();
        scene.threads.answer(|| {
            assert_eq!(scene.following(), 1, "no request waits behind this one");
            QUICK
        });
        (&scene.requests).write_all(&[1]).unwrap();
        scene.threads.answer(|| {
            assert_eq!(scene.following(), 0);
            QUICK
        });
        back.recv().unwrap();
    }

    #[test]
    fn behind_a_slow_answer_a_follower_leads() {
        let (scene, back) = Scene::with_one_follower();
        scene.threads.answer(|| SLOW * 2);
        scene.threads.answer(|| {
            assert_eq!(scene.following(), 0);
            // Makes this thread lead again instead of following.
            (&scene.requests).write_all(&[1]).unwrap();
            QUICK
        });
        back.recv().unwrap();
    }

    /// Returns true if such work runs.
    fn with_follower(scene: &Scene) -> bool {
        let mut has_run = false;
        scene.threads.with_follower(|| has_run = true);
        has_run
    }

    #[test]
    fn work_that_may_have_to_wait_has_a_follower() {
        let (scene, back) = Scene::with_one_follower();
        scene.threads.answer(|| {
            scene.threads.with_follower(|| {
                assert_eq!(scene.following(), 0);
                assert!(!with_follower(&scene), "no follower is left for this one");
            });
            assert!(with_follower(&scene), "a thread leads already");
            // Makes this thread lead again instead of following.
            (&scene.requests).write_all(&[1]).unwrap();
            QUICK
        });
        back.recv().unwrap();
    }

    #[test]
    fn a_thread_that_has_not_joined_counts_and_a_single_one_has_no_follower() {
        let scene = Scene::new(2);
        assert!(with_follower(&scene));
        let scene = Scene::new(1);
        assert!(!with_follower(&scene));
    }

    #[test]
    fn no_more_threads_than_processors_are_woken() {
        let count = Counts { leading: 0, busy: 1, following: 2, ..Counts::default() };
        assert!(count.lacks_leader(2));
        assert!(!Counts { busy: 2, ..count }.lacks_leader(2));
        assert!(!Counts { leading: 1, busy: 1, following: 2, ..Counts::default() }.lacks_leader(2));
        assert!(!Counts { busy: 1, ..Counts::default() }.lacks_leader(2), "there is no follower");
    }
}
