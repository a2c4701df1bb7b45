//! Buffers for contents of files, which threads take for a request and put back. Few threads answer at a time, so there is not one for each.

use parking_lot::Mutex;

/// Bytes of buffers that are kept for the next requests: two of the longest. More are allocated as they are needed.
const KEPT_LEN: usize = 2 << 20;

/// The buffers that are not in use.
#[derive(Default)]
pub(in crate::fuse) struct Buffers(Mutex<Vec<Vec<u8>>>);

impl Buffers {
    /// Run `work` with a buffer. A buffer that is lost in a panic is replaced when it is needed.
    pub(in crate::fuse) fn with<T>(&self, work: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let kept = self.0.lock().pop();
        let mut buf = kept.unwrap_or_default();
        let result = work(&mut buf);
        let mut kept = self.0.lock();
        if kept.iter().map(Vec::capacity).sum::<usize>() + buf.capacity() <= KEPT_LEN {
            kept.push(buf);
        }
        result
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
        assert_eq!(buffers.0.lock().len(), 2);
        nest(&buffers, 20, &grow);
        assert_eq!(buffers.0.lock().iter().map(Vec::capacity).sum::<usize>(), KEPT_LEN);
    }
}
