//! Buffers for contents of files, which threads take for a request and return. Few threads answer
//! at a time, so there is not one buffer for each.

use parking_lot::Mutex;

/// Bytes of unused buffers that stay allocated: two of the longest. More are allocated when needed.
const UNUSED_LEN: usize = 2 << 20;

/// Buffers that are not in use.
#[derive(Default)]
pub(in crate::fuse) struct Buffers(Mutex<Vec<Vec<u8>>>);

impl Buffers {
    /// Runs `work` with a buffer. A buffer that is lost in a panic is replaced when needed.
    pub(in crate::fuse) fn with<T>(&self, work: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let unused = self.0.lock().pop();
        let mut buf = unused.unwrap_or_default();
        let result = work(&mut buf);
        let mut unused = self.0.lock();
        if unused.iter().map(Vec::capacity).sum::<usize>() + buf.capacity() <= UNUSED_LEN {
            unused.push(buf);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_buffers_are_bounded() {
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
        assert_eq!(buffers.0.lock().iter().map(Vec::capacity).sum::<usize>(), UNUSED_LEN);
    }
}
