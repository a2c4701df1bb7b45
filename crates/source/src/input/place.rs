//! Mapping of tape offsets to file offsets, including compressed parts of the file.

use super::stream_format::StreamFormat;

/// Map from offsets of a tape to offsets of the file.
#[derive(Clone, Debug)]
pub(crate) struct TapeMap {
    /// The file itself, then the compressed stream in it, then the compressed stream in that.
    levels: Vec<Level>,
}

#[derive(Clone, Debug)]
struct Level {
    /// Offset of the tape at which the level was entered.
    entered: u64,
    /// Offset of the tape at which reading the level began, or continued after leaving an inner
    /// level.
    tape_off: u64,
    /// Offset within the level that corresponds to `tape_off`.
    own_off: u64,
    /// Compression of the level within the previous one; `None` for the file itself.
    format: Option<StreamFormat>,
}

impl Default for TapeMap {
    /// Returns the map at the start of a file.
    fn default() -> Self {
        Self { levels: vec![Level { entered: 0, tape_off: 0, own_off: 0, format: None }] }
    }
}

impl TapeMap {
    /// Enters a compressed stream that starts at `offset` of the tape.
    pub(crate) fn enter(&mut self, format: StreamFormat, offset: u64) {
        self.levels.push(Level { entered: offset, tape_off: offset, own_off: 0, format: Some(format) });
    }

    /// Leaves a compressed stream at `offset` of the tape, and continues at `own_off` of the
    /// enclosing level.
    pub(crate) fn leave(&mut self, offset: u64, own_off: u64) {
        self.levels.pop();
        if let Some(level) = self.levels.last_mut() {
            (level.tape_off, level.own_off) = (offset, own_off);
        }
    }

    /// Returns true if a compressed stream can be entered: in the file, and in a file that is
    /// compressed as a whole.
    pub(crate) fn can_enter(&self) -> bool {
        match &*self.levels {
            [_] => true,
            [file, whole] => file.own_off == 0 && whole.entered == file.tape_off,
            _ => false,
        }
    }

    /// Returns the file offset for `offset` of the tape, and a message prefix with the positions
    /// within compressed streams.
    pub(crate) fn of(&self, offset: u64) -> (u64, String) {
        let ends = self.levels.iter().skip(1).map(|inner| inner.entered).chain([offset]);
        let mut bytes = self
            .levels
            .iter()
            .zip(ends)
            .map(|(level, end)| (level.format, level.own_off.saturating_add(end.saturating_sub(level.tape_off))));
        let (_, byte) = bytes.next().unwrap_or((None, offset));
        let words = bytes.map(|(format, byte)| {
            format!("in the {} segment there, at byte {byte}: ", format.map_or("", StreamFormat::name))
        });
        (byte, words.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_given_from_the_file_inwards() {
        let mut place = TapeMap::default();
        assert_eq!((place.of(7), place.can_enter()), ((7, String::new()), true));
        place.enter(StreamFormat::Zstd, 100);
        assert_eq!(place.of(107), (100, "in the zstd segment there, at byte 7: ".into()));
        assert!(!place.can_enter());
        // 50 compressed bytes were 5000 plain bytes.
        place.leave(5100, 150);
        assert_eq!(place.of(5110), (160, String::new()));
        let mut place = TapeMap::default();
        place.enter(StreamFormat::Gzip, 0);
        assert!(place.can_enter());
        place.enter(StreamFormat::Xz, 30);
        let words = "in the gzip segment there, at byte 30: in the xz segment there, at byte 2: ";
        assert_eq!((place.of(32), place.can_enter()), ((0, words.into()), false));
        place.leave(80, 40);
        assert_eq!((place.of(85), place.can_enter()), ((0, "in the gzip segment there, at byte 45: ".into()), true));
    }
}
