//! Places in a file that is read front to back, perhaps within what is compressed in it.

use super::stream_format::StreamFormat;

/// Bytes of a tape, as bytes of the file.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// The file itself, then what is compressed in it, then what is compressed in that.
    levels: Vec<Level>,
}

#[derive(Clone, Debug)]
struct Level {
    /// It was entered at this byte of the tape.
    entered: u64,
    /// Byte of the tape at which reading it began or, behind something in it that was left, went on.
    tape_off: u64,
    /// The same byte, counted in the level itself.
    own_off: u64,
    /// Format in which it is compressed in the level before; `None`: it is the file itself.
    format: Option<StreamFormat>,
}

impl Default for Place {
    /// In the file itself, from its front.
    fn default() -> Self {
        Self { levels: vec![Level { entered: 0, tape_off: 0, own_off: 0, format: None }] }
    }
}

impl Place {
    /// From byte `offset` of the tape on, what is compressed there is read.
    pub(crate) fn enter(&mut self, format: StreamFormat, offset: u64) {
        self.levels.push(Level { entered: offset, tape_off: offset, own_off: 0, format: Some(format) });
    }

    /// From byte `offset` of the tape on, what lies behind it is read, from byte `own_off` of that on.
    pub(crate) fn leave(&mut self, offset: u64, own_off: u64) {
        self.levels.pop();
        if let Some(level) = self.levels.last_mut() {
            (level.tape_off, level.own_off) = (offset, own_off);
        }
    }

    /// Tells if what is compressed can be entered: in the file, and in a file that is compressed as a whole.
    pub(crate) fn can_enter(&self) -> bool {
        match &*self.levels {
            [_] => true,
            [file, whole] => file.own_off == 0 && whole.entered == file.tape_off,
            _ => false,
        }
    }

    /// The byte of the file for byte `offset` of the tape, and words for where in what is compressed there it is.
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
    fn bytes_are_told_from_the_file_inwards() {
        let mut place = Place::default();
        assert_eq!((place.of(7), place.can_enter()), ((7, String::new()), true));
        place.enter(StreamFormat::Zstd, 100);
        assert_eq!(place.of(107), (100, "in the zstd segment there, at byte 7: ".into()));
        assert!(!place.can_enter());
        // 50 bytes were 5000.
        place.leave(5100, 150);
        assert_eq!(place.of(5110), (160, String::new()));
        let mut place = Place::default();
        place.enter(StreamFormat::Gzip, 0);
        assert!(place.can_enter());
        place.enter(StreamFormat::Xz, 30);
        let words = "in the gzip segment there, at byte 30: in the xz segment there, at byte 2: ";
        assert_eq!((place.of(32), place.can_enter()), ((0, words.into()), false));
        place.leave(80, 40);
        assert_eq!((place.of(85), place.can_enter()), ((0, "in the gzip segment there, at byte 45: ".into()), true));
    }
}
