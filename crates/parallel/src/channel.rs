//! Channels with a queue of limited length, from any number of threads to any number of others.
//!
//! The channels of the standard library have one receiver, and three implementations, all of which
//! are compiled for each type of messages: 660 KB of `kiln`, whose messages are of some ten types.

use crate::locks::{lock, wait};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Returns the ends of a channel in which up to `capacity` messages wait.
///
/// # Panics
/// If `capacity` is 0.
pub fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    assert!(capacity > 0, "a message waits until it is taken");
    let state = State { messages: VecDeque::new(), senders: 1, receivers: 1 };
    let (added, taken) = (Condvar::new(), Condvar::new());
    let shared = Arc::new(Shared { state: Mutex::new(state), capacity, added, taken });
    (Sender(Arc::clone(&shared)), Receiver(shared))
}

/// Returns the ends of a channel in which any number of messages waits, for senders that are bounded
/// otherwise.
pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    bounded(usize::MAX)
}

struct Shared<T> {
    state: Mutex<State<T>>,
    capacity: usize,
    /// There is a message, or no sender.
    added: Condvar,
    /// There is room for a message, or no receiver.
    taken: Condvar,
}

struct State<T> {
    messages: VecDeque<T>,
    senders: usize,
    receivers: usize,
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        lock(&self.state)
    }

    fn add(&self, mut state: MutexGuard<'_, State<T>>, message: T) {
        state.messages.push_back(message);
        drop(state);
        self.added.notify_one();
    }

    /// Takes the message that waits for the longest time.
    fn take(&self, state: &mut State<T>) -> Option<T> {
        let message = state.messages.pop_front()?;
        self.taken.notify_one();
        Some(message)
    }
}

/// The other end of a channel is gone, and the message with it.
#[derive(Debug, PartialEq, Eq)]
pub struct Disconnected;

/// Reason why no message was received in time.
#[derive(Debug, PartialEq, Eq)]
pub enum TimeoutError {
    /// The time is over.
    Timeout,
    /// All senders are gone.
    Disconnected,
}

/// Sending end of a channel.
pub struct Sender<T>(Arc<Shared<T>>);

impl<T> Sender<T> {
    /// Sends a message, and waits for room.
    ///
    /// # Errors
    /// All receivers are gone.
    pub fn send(&self, message: T) -> Result<(), Disconnected> {
        let mut state = self.0.lock();
        while state.receivers > 0 {
            if state.messages.len() < self.0.capacity {
                self.0.add(state, message);
                return Ok(());
            }
            state = wait(&self.0.taken, state);
        }
        Err(Disconnected)
    }

    /// Sends a message if there is room for it.
    ///
    /// # Errors
    /// The message, if there is no room, or no receiver.
    pub fn try_send(&self, message: T) -> Result<(), T> {
        let state = self.0.lock();
        if state.receivers == 0 || state.messages.len() >= self.0.capacity {
            return Err(message);
        }
        self.0.add(state, message);
        Ok(())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.lock().senders += 1;
        Self(Arc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.senders -= 1;
        if state.senders == 0 {
            self.0.added.notify_all();
        }
    }
}

/// Receiving end of a channel. As an iterator, it waits for messages, and ends with the last sender.
pub struct Receiver<T>(Arc<Shared<T>>);

impl<T> Receiver<T> {
    /// Returns the next message, and waits for it. Returns `None` if no message and no sender is
    /// left.
    pub fn recv(&self) -> Option<T> {
        self.recv_until(None).ok()
    }

    /// Returns the next message if there is one.
    pub fn try_recv(&self) -> Option<T> {
        self.0.take(&mut self.0.lock())
    }

    /// Returns the next message, and waits for it no longer than `timeout`.
    ///
    /// # Errors
    /// The time is over, or no message and no sender is left.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, TimeoutError> {
        self.recv_until(Some(Instant::now() + timeout))
    }

    fn recv_until(&self, end: Option<Instant>) -> Result<T, TimeoutError> {
        let mut state = self.0.lock();
        loop {
            if let Some(message) = self.0.take(&mut state) {
                return Ok(message);
            }
            if state.senders == 0 {
                return Err(TimeoutError::Disconnected);
            }
            state = match end.map(|end| end.saturating_duration_since(Instant::now())) {
                None => wait(&self.0.added, state),
                Some(Duration::ZERO) => return Err(TimeoutError::Timeout),
                Some(left) => self.0.added.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        self.0.lock().receivers += 1;
        Self(Arc::clone(&self.0))
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.receivers -= 1;
        if state.receivers > 0 {
            return;
        }
        // Nobody takes them any more. Their destructors may do anything, so the lock is released.
        let messages = std::mem::take(&mut state.messages);
        drop(state);
        self.0.taken.notify_all();
        drop(messages);
    }
}

impl<T> Iterator for Receiver<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.recv()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::thread;

    #[test]
    fn each_message_arrives_once_whatever_the_number_of_threads() {
        for (senders, receivers, capacity) in [(1, 1, 1), (3, 2, 1), (2, 3, 5), (1, 4, 100)] {
            let (send, receive) = bounded(capacity);
            let mut found: Vec<usize> = thread::scope(|scope| {
                for idx in 0..senders {
                    let send = send.clone();
                    scope.spawn(move || (idx..1000).step_by(senders).for_each(|n| send.send(n).unwrap()));
                }
                drop(send);
                let takers: Vec<_> = (0..receivers).map(|_| receive.clone()).collect();
                drop(receive);
                let takers: Vec<_> = takers.into_iter().map(|one| scope.spawn(|| one.collect::<Vec<_>>())).collect();
                takers.into_iter().flat_map(|taker| taker.join().unwrap()).collect()
            });
            found.sort_unstable();
            assert_eq!(found, (0..1000).collect::<Vec<_>>());
        }
    }

    #[test]
    fn messages_of_one_sender_keep_their_order_and_wait_for_room() {
        let (send, receive) = bounded(3);
        let most = AtomicUsize::new(0);
        thread::scope(|scope| {
            let most = &most;
            scope.spawn(move || {
                for n in 0..500 {
                    send.send(n).unwrap();
                    most.fetch_max(send.0.lock().messages.len(), SeqCst);
                }
            });
            assert!(receive.eq(0..500));
        });
        assert!((1..=3).contains(&most.load(SeqCst)));
    }

    #[test]
    fn senders_learn_that_nobody_receives() {
        let (send, receive) = bounded(1);
        send.send(1).unwrap();
        assert_eq!(send.try_send(2), Err(2), "there is no room");
        thread::scope(|scope| {
            let waiting = scope.spawn(|| send.send(3));
            drop(receive);
            assert_eq!(waiting.join().unwrap(), Err(Disconnected));
        });
        assert_eq!((send.send(4), send.try_send(5)), (Err(Disconnected), Err(5)));
    }

    #[test]
    fn receivers_take_what_is_left_and_learn_that_nobody_sends() {
        let (send, receive) = unbounded();
        assert_eq!(receive.recv_timeout(Duration::from_millis(1)), Err(TimeoutError::Timeout));
        send.clone().send("left").unwrap();
        drop(send);
        assert_eq!(receive.recv_timeout(Duration::ZERO), Ok("left"));
        assert_eq!(receive.try_recv(), None);
        assert_eq!(receive.recv_timeout(Duration::from_secs(60)), Err(TimeoutError::Disconnected));
        assert_eq!(receive.recv(), None);
    }

    #[test]
    fn messages_that_nobody_takes_are_dropped() {
        let (send, receive) = bounded(2);
        let message = Arc::new(());
        send.send(Arc::clone(&message)).unwrap();
        drop(receive);
        assert_eq!(Arc::strong_count(&message), 1);
    }
}
