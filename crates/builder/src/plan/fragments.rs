//! The packed stream: small files one behind the other, compressed together.
//!
//! Files alone waste half a block each and start each with nothing to refer to. In the packed stream similar files
//! are neighbours: within a window of a few MiB of files in plan order they stand by (first 16 bytes, path), which
//! puts ELF with ELF and PNG with PNG without knowing either. The window keeps a directory's files near each other,
//! so that reading a tree in order decodes each pcluster about once (see [`packed_window`](super::packed_window)).

use std::ops::Range;

/// Bytes of a file that indicate its kind.
pub(crate) const HEAD_LEN: usize = 16;

/// First bytes of a file, zeros behind its end.
pub(crate) type Head = [u8; HEAD_LEN];

/// A file in the packed stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    /// Index in the plan.
    pub file: u32,
    /// Byte offset in the packed stream.
    pub off: u64,
}

/// Member that stands for zeros between files.
const PADDING: u32 = u32::MAX;

/// The packed stream.
#[derive(Debug, Default)]
pub(crate) struct FragmentStream {
    members: Vec<Member>,
    /// Byte behind the last member.
    len: u64,
}

impl FragmentStream {
    /// Makes a stream that continues another one at byte `off`.
    pub(crate) fn behind(off: u64) -> Self {
        Self { len: off, ..Self::default() }
    }

    /// Appends a file of `len` bytes. Returns its offset.
    pub(crate) fn push(&mut self, file: u32, len: u64) -> u64 {
        let off = self.len;
        self.members.push(Member { file, off });
        self.len += len;
        off
    }

    /// Shortens the last member.
    pub(crate) fn end_at(&mut self, len: u64) {
        debug_assert!(self.members.last().is_none_or(|last| last.off <= len) && len <= self.len);
        self.len = len;
    }

    /// Adds zeros behind the last member up to `len`, so that what follows can lie elsewhere.
    pub(crate) fn pad(&mut self, len: u64) {
        debug_assert!(len >= self.len);
        if len > self.len {
            self.push(PADDING, len - self.len);
        }
    }

    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Returns all files, by offset.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| member.file != PADDING)
    }

    /// Fills `buf` from byte `off` of the stream: `read_piece` gets each file with an offset in it and the bytes to
    /// fill.
    ///
    /// # Errors
    /// Those of `read_piece`.
    pub(crate) fn read<E>(
        &self,
        off: u64,
        mut buf: &mut [u8],
        mut read_piece: impl FnMut(u32, u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        for (file, range) in self.pieces(off..off + buf.len() as u64) {
            let (piece, rest) = buf.split_at_mut((range.end - range.start) as usize);
            match file {
                Some(file) => read_piece(file, range.start, piece)?,
                None => piece.fill(0),
            }
            buf = rest;
        }
        buf.fill(0);
        Ok(())
    }

    /// Returns the pieces of members that make up `range` of the stream: file and range of it, or a range of zeros.
    pub(crate) fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = (Option<u32>, Range<u64>)> {
        let first = self.members.partition_point(|member| member.off <= range.start).saturating_sub(1);
        self.members[first..].iter().enumerate().map_while(move |(idx, member)| {
            let end = self.members.get(first + idx + 1).map_or(self.len, |next| next.off);
            let piece = range.start.max(member.off)..range.end.min(end);
            let in_file = |off: u64| off - member.off;
            let file = (member.file != PADDING).then_some(member.file);
            (piece.start < piece.end).then(|| (file, in_file(piece.start)..in_file(piece.end)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_stand_between_files() {
        let mut stream = FragmentStream::behind(100);
        assert_eq!([stream.push(7, 10), stream.push(3, 5), stream.len()], [100, 110, 115]);
        stream.pad(128);
        stream.pad(128);
        assert_eq!([stream.push(4, 6), stream.len()], [128, 134]);
        let pieces = |range| stream.pieces(range).collect::<Vec<_>>();
        assert_eq!(pieces(100..115), [(Some(7), 0..10), (Some(3), 0..5)]);
        assert_eq!(pieces(109..130), [(Some(7), 9..10), (Some(3), 0..5), (None, 0..13), (Some(4), 0..2)]);
        assert_eq!(stream.members().map(|member| member.file).collect::<Vec<_>>(), [7, 3, 4]);
        let mut buf = [1; 24];
        let fill = |file, _, piece: &mut [u8]| {
            piece.fill(file as u8);
            Ok::<_, ()>(())
        };
        stream.read(112, &mut buf, fill).unwrap();
        assert_eq!(buf[..3], [3; 3]);
        assert_eq!((&buf[3..16], &buf[16..22], &buf[22..]), (&[0; 13][..], &[4; 6][..], &[0; 2][..]));
    }

    #[test]
    fn pieces_cover_every_range() {
        let mut stream = FragmentStream::default();
        let lens: Vec<u64> = (0..40).map(|file| 1 + file * 7 % 13).collect();
        let offs: Vec<u64> = (0..40).map(|file| stream.push(file, lens[file as usize])).collect();
        assert_eq!(stream.len(), lens.iter().sum());
        for start in 0..stream.len() {
            for end in start + 1..=stream.len() {
                let mut at = start;
                for (file, bytes) in stream.pieces(start..end) {
                    let file = file.unwrap() as usize;
                    assert_eq!(offs[file] + bytes.start, at);
                    assert!(bytes.start < bytes.end && bytes.end <= lens[file]);
                    at += bytes.end - bytes.start;
                }
                assert_eq!(at, end);
            }
        }
    }
}
