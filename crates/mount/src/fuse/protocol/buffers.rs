//! Memory for bytes of files, which threads take for a request and put back: not each thread needs its own, as few answer at a time.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes that are kept for the next requests: two of the longest. More are made as they are needed.
const KEPT_LEN: usize = 2 << 20;

#[derive(Default)]
pub struct Buffers(Mutex<Vec<Vec<u8>>>);

impl Buffers {
    /// Run `work` with a buffer. One that is lost in a panic is not missed.
    pub fn with<T>(&self, work: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let kept = self.kept().pop();
        let mut buf = kept.unwrap_or_default();
        let result = work(&mut buf);
        let mut kept = self.kept();
        if kept.iter().map(Vec::capacity).sum::<usize>() + buf.capacity() <= KEPT_LEN {
            kept.push(buf);
        }
        result
    }

    /// Nothing panics while it is locked.
    fn kept(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_bounded() {
        let buffers = Buffers::default();
        let grow = |buf: &mut Vec<u8>| buf.resize(1 << 20, 0);
        fn nest(buffers: &Buffers, depth: u32, grow: &dyn Fn(&mut Vec<u8>)) {
            buffers.with(|buf| {
                grow(buf);
                if depth > 1 {
                    nest(buffers, depth - 1, grow);
                }
            });
        }
        nest(&buffers, 2, &grow);
        assert_eq!(buffers.kept().len(), 2);
        nest(&buffers, 20, &grow);
        assert_eq!(buffers.kept().iter().map(Vec::capacity).sum::<usize>(), KEPT_LEN);
    }
}
