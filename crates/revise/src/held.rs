//! Text that was read to compare files, and that is kept until it is stored, so that it is read once.

use kiln_tree::{Content, ContentError};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of text that are held for all files. What does not fit is read again.
const HELD_MAX: u64 = 32 << 20;

/// A stretch of a file: its first byte, and its text.
pub(crate) type HeldRange = (u64, Box<[u8]>);

/// Held text, by content id.
pub(crate) struct HeldText {
    by_id: HashMap<u32, Arc<Vec<HeldRange>>>,
    room: u64,
}

impl Default for HeldText {
    fn default() -> Self {
        Self { by_id: HashMap::new(), room: HELD_MAX }
    }
}

impl HeldText {
    /// Holds ranges of a file, in order behind those that it has, as far as there is room.
    pub(crate) fn hold(&mut self, id: u32, ranges: Vec<HeldRange>) {
        for (off, text) in ranges {
            let held = self.by_id.get(&id).and_then(|list| list.last());
            let end = held.map_or(0, |(off, text)| off + text.len() as u64);
            let len = text.len() as u64;
            if off >= end && len > 0 && len <= self.room {
                self.room -= len;
                Arc::make_mut(self.by_id.entry(id).or_default()).push((off, text));
            }
        }
    }

    /// Drops the text of files that are not read any more.
    pub(crate) fn forget(&mut self, is_gone: impl Fn(u32) -> bool) {
        self.by_id.retain(|id, list| {
            let stays = !is_gone(*id);
            self.room += if stays { 0 } else { list.iter().map(|(_, text)| text.len() as u64).sum() };
            stays
        });
    }

    /// Returns the held ranges of a file, if it has some.
    pub(crate) fn of(&self, id: u32) -> Option<Arc<Vec<HeldRange>>> {
        self.by_id.get(&id).cloned()
    }
}

/// Returns the contents of a file, of which held text is not read from `content`.
pub(crate) fn with_held(held: Option<Arc<Vec<HeldRange>>>, content: Box<dyn Content>) -> Box<dyn Content> {
    match held {
        Some(held) => Box::new(HeldContent { held, content }),
        None => content,
    }
}

/// Contents of a file, some of which are held.
struct HeldContent {
    held: Arc<Vec<HeldRange>>,
    content: Box<dyn Content>,
}

impl Content for HeldContent {
    fn read_exact_at(&mut self, buf: &mut [u8], off: u64) -> Result<(), ContentError> {
        let end = off + buf.len() as u64;
        let first = self.held.partition_point(|(start, text)| start + text.len() as u64 <= off);
        let mut at = off;
        for (start, text) in self.held[first..].iter().take_while(|(start, _)| *start < end) {
            let (from, to) = ((*start).max(off), (start + text.len() as u64).min(end));
            read_part(&mut *self.content, buf, off, at..from)?;
            let part = &text[(from - start) as usize..(to - start) as usize];
            buf[(from - off) as usize..(to - off) as usize].copy_from_slice(part);
            at = to;
        }
        read_part(&mut *self.content, buf, off, at..end)
    }

    fn next_data(&mut self, off: u64) -> Result<Option<Range<u64>>, ContentError> {
        self.content.next_data(off)
    }

    fn verify_unchanged(&mut self) -> Result<(), ContentError> {
        self.content.verify_unchanged()
    }
}

/// Fills the part of `buf`, which begins at byte `off` of the file, that has `range` of it.
fn read_part(content: &mut dyn Content, buf: &mut [u8], off: u64, range: Range<u64>) -> Result<(), ContentError> {
    if range.is_empty() {
        return Ok(());
    }
    content.read_exact_at(&mut buf[(range.start - off) as usize..(range.end - off) as usize], range.start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// A file whose bytes are the last digits of their places, and that records which ranges are read.
    #[derive(Clone, Default)]
    struct Read(Arc<Mutex<Vec<Range<u64>>>>);

    impl Content for Read {
        fn read_exact_at(&mut self, buf: &mut [u8], off: u64) -> Result<(), ContentError> {
            self.0.lock().unwrap().push(off..off + buf.len() as u64);
            buf.iter_mut().zip(off..).for_each(|(byte, at)| *byte = (at % 10) as u8);
            Ok(())
        }

        fn next_data(&mut self, _: u64) -> Result<Option<Range<u64>>, ContentError> {
            Ok(None)
        }

        fn verify_unchanged(&mut self) -> Result<(), ContentError> {
            Ok(())
        }
    }

    fn range(range: Range<u64>) -> HeldRange {
        (range.start, range.map(|at| (at % 10) as u8).collect())
    }

    #[test]
    #[allow(clippy::single_range_in_vec_init)] // one range is meant
    fn held_text_is_not_read() {
        let mut held = HeldText::default();
        held.hold(3, vec![range(10..20), range(30..40)]);
        // Neither behind what is held already.
        held.hold(3, vec![(0, Box::new([99])), (35, Box::new([99]))]);
        held.hold(3, vec![range(40..45)]);
        for (asked, read) in [
            (12..18, &[][..]),
            (10..20, &[]),
            (0..10, &[0..10]),
            (5..15, &[5..10]),
            (15..35, &[20..30]),
            (30..45, &[]),
            (0..50, &[0..10, 20..30, 45..50]),
            (60..70, &[60..70]),
        ] {
            let file = Read::default();
            let mut content = with_held(held.of(3), Box::new(file.clone()));
            let mut buf = vec![0; (asked.end - asked.start) as usize];
            content.read_exact_at(&mut buf, asked.start).unwrap();
            assert_eq!(buf, asked.clone().map(|at| (at % 10) as u8).collect::<Vec<_>>(), "{asked:?}");
            assert_eq!(*file.0.lock().unwrap(), read, "{asked:?}");
        }
    }

    #[test]
    fn room_is_bounded_and_comes_back() {
        let mut held = HeldText { room: 10, ..HeldText::default() };
        held.hold(1, vec![range(0..6)]);
        held.hold(2, vec![range(0..5), range(10..14)]);
        assert_eq!((held.room, held.by_id[&2].len()), (0, 1));
        held.forget(|id| id == 1);
        assert_eq!((held.room, held.by_id.len()), (6, 1));
    }
}
