//! Memory for decoding: decoders with their dictionaries, and scratch memory for bytes that are
//! decoded before the wanted ones.
//!
//! An LZMA dictionary and the extent decoded with it take up to 20 MiB, so all decodes at the same
//! time share a budget. A thread that finds the budget spent waits for its turn, first come, first
//! served. No thread waits for anything while it holds a workspace: it has fetched the encoded
//! bytes before.

use kiln_codec::{DecodeLimits, Decoder};
use kiln_parallel::locks::{lock, wait};
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread;

/// Most workspaces, and most buffers, that are kept for the next decodes.
const KEPT_MAX: usize = 64;

/// Memory for one decode.
pub(crate) struct Workspace {
    pub decoder: Decoder,
    /// Decoded bytes of which only a part is wanted.
    pub scratch: Vec<u8>,
    /// Bytes of memory that the decoder keeps.
    decoder_len: u64,
}

impl Workspace {
    /// Returns the bytes of memory that the workspace keeps.
    fn len(&self) -> u64 {
        self.decoder_len + self.scratch.capacity() as u64
    }
}

/// Workspaces within a budget.
pub(crate) struct Workspaces {
    limits: DecodeLimits,
    budget: u64,
    pool: Mutex<Pool>,
    changed: Condvar,
}

#[derive(Default)]
struct Pool {
    /// In the order of their last use, the latest at the end.
    free: VecDeque<Workspace>,
    /// Bytes that the workspaces in use may take, and how many there are.
    taken_len: u64,
    taken: usize,
    /// Tickets that waiting threads have drawn, and the one that is served next.
    turns: u64,
    turn: u64,
}

/// A workspace in use.
struct Taken<'a> {
    of: &'a Workspaces,
    workspace: Option<Workspace>,
    len: u64,
}

impl Workspaces {
    /// Returns workspaces that take at most `budget` bytes, unless a single decode needs more.
    pub(super) fn new(limits: DecodeLimits, budget: u64) -> Self {
        Self { limits, budget, pool: Mutex::default(), changed: Condvar::new() }
    }

    /// Runs `work`, which decodes and does nothing else, with a workspace whose decoder may keep
    /// `decoder_len` bytes. `plain_len` is how many bytes of memory the work takes for decoded
    /// data.
    pub(crate) fn with<T>(&self, decoder_len: u64, plain_len: u64, work: impl FnOnce(&mut Workspace) -> T) -> T {
        let mut taken = self.take(decoder_len, plain_len);
        let workspace = taken.workspace.get_or_insert_with(|| Workspace {
            decoder: Decoder::new(self.limits),
            scratch: Vec::new(),
            decoder_len: 0,
        });
        workspace.decoder_len = workspace.decoder_len.max(decoder_len);
        work(workspace)
    }

    fn take(&self, decoder_len: u64, plain_len: u64) -> Taken<'_> {
        let needed = decoder_len + plain_len;
        let mut pool = self.pool();
        let turn = pool.turns;
        pool.turns += 1;
        while pool.turn != turn || !pool.has_room(needed, self.budget) {
            pool = wait(&self.changed, pool);
        }
        pool.turn += 1;
        let workspace = pool.free.pop_back();
        let len = needed.max(workspace.as_ref().map_or(0, Workspace::len));
        pool.taken += 1;
        pool.taken_len += len;
        let dropped = pool.shrink(self.budget);
        self.leave(pool);
        drop(dropped);
        Taken { of: self, workspace, len }
    }

    /// Unlocks the pool, and wakes the threads that wait for their turn or for memory.
    fn leave(&self, pool: MutexGuard<'_, Pool>) {
        let has_waiting = pool.turn != pool.turns;
        drop(pool);
        if has_waiting {
            self.changed.notify_all();
        }
    }

    /// Locks the pool. No thread panics while it holds this lock.
    fn pool(&self) -> MutexGuard<'_, Pool> {
        lock(&self.pool)
    }
}

impl Pool {
    /// Returns true if a workspace that needs `needed` bytes may be taken now.
    fn has_room(&self, needed: u64, budget: u64) -> bool {
        self.taken == 0 || self.taken_len + needed <= budget
    }

    /// Keeps no more free workspaces than the budget allows. Returns the others, to be freed
    /// without the lock.
    fn shrink(&mut self, budget: u64) -> Vec<Workspace> {
        let mut kept_len: u64 = self.free.iter().map(Workspace::len).sum();
        let mut dropped = Vec::new();
        while self.free.len() > KEPT_MAX || self.taken_len + kept_len > budget {
            let Some(oldest) = self.free.pop_front() else { break };
            kept_len -= oldest.len();
            dropped.push(oldest);
        }
        dropped
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        // A panic leaves a decoder in an unknown state.
        let workspace = self.workspace.take().filter(|_| !thread::panicking());
        let mut pool = self.of.pool();
        pool.taken -= 1;
        pool.taken_len -= self.len;
        pool.free.extend(workspace);
        let dropped = pool.shrink(self.of.budget);
        self.of.leave(pool);
        drop(dropped);
    }
}

/// Buffers that threads take and put back.
pub(crate) struct Buffers {
    free: Mutex<Vec<Vec<u8>>>,
    /// Number of buffers that are kept, of those that were in use at once.
    kept_max: usize,
}

impl Buffers {
    /// Keeps as many buffers as were in use at once, up to [`KEPT_MAX`].
    pub(super) fn new() -> Self {
        Self::keeping(KEPT_MAX)
    }

    /// Keeps at most `kept_max` buffers.
    pub(super) fn keeping(kept_max: usize) -> Self {
        Self { free: Mutex::default(), kept_max }
    }

    /// Runs `work` with a buffer, which a panic frees.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let free = || lock(&self.free);
        let kept = free().pop();
        let mut buf = kept.unwrap_or_default();
        let result = work(&mut buf);
        let mut free = free();
        if free.len() < self.kept_max {
            free.push(buf);
        }
        result
    }
}

/// Returns the first `len` bytes of a buffer that only grows. Their content is unspecified.
pub(crate) fn grow_to(buf: &mut Vec<u8>, len: usize) -> &mut [u8] {
    if buf.len() < len {
        buf.resize(len, 0);
    }
    &mut buf[..len]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    const BUDGET: u64 = 10 << 20;

    fn workspaces() -> Workspaces {
        Workspaces::new(DecodeLimits::default(), BUDGET)
    }

    fn kept(workspaces: &Workspaces) -> u64 {
        workspaces.pool().free.iter().map(Workspace::len).sum()
    }

    #[test]
    fn decodes_at_the_same_time_share_the_budget() {
        let (workspaces, in_use, most) = (workspaces(), AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            for idx in 0..16 {
                let (workspaces, in_use, most) = (&workspaces, &in_use, &most);
                let len = (1 + idx % 4) << 20;
                scope.spawn(move || {
                    for _ in 0..50 {
                        workspaces.with(len, len, |workspace| {
                            most.fetch_max(in_use.fetch_add(2 * len, Ordering::SeqCst) + 2 * len, Ordering::SeqCst);
                            workspace.scratch.resize(len as usize, 0);
                            thread::yield_now();
                            in_use.fetch_sub(2 * len, Ordering::SeqCst);
                        });
                    }
                });
            }
        });
        assert!((2 << 20..=BUDGET).contains(&most.into_inner()));
        assert!((1..=BUDGET).contains(&kept(&workspaces)));
        assert_eq!(workspaces.pool().taken_len, 0);
    }

    #[test]
    fn a_decode_that_needs_more_than_the_budget_runs_alone_and_keeps_nothing() {
        let workspaces = workspaces();
        workspaces.with(2 * BUDGET, 0, |_| ());
        assert_eq!(kept(&workspaces), 0);
        workspaces.with(1 << 10, 0, |_| ());
        assert_eq!(kept(&workspaces), 1 << 10);
    }

    #[test]
    fn a_panic_gives_back_what_was_taken() {
        let workspaces = workspaces();
        let panicked =
            thread::scope(|scope| scope.spawn(|| workspaces.with(BUDGET, 0, |_| panic!("on purpose"))).join());
        assert!(panicked.is_err());
        workspaces.with(BUDGET, BUDGET, |_| ());
        assert_eq!(workspaces.pool().taken, 0);
    }
}
