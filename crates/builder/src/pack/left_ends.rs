//! Text of the ends of files that wait for the packed inode.

use std::collections::HashMap;

use crate::error::BuildError;
use crate::pack::inline_tails::Tails;

/// The end of a file.
#[derive(Clone, Copy)]
pub(super) struct LeftEnd {
    /// Index of the file in the plan.
    pub file: u32,
    /// First byte of the file that is left.
    pub start: u64,
    /// Offset of its text.
    text: u64,
    /// Length of the text in bytes.
    pub len: u32,
}

/// Ends of files, in plan order. Their text is in memory, or in a scratch file.
pub(super) struct LeftEnds {
    ends: Vec<LeftEnd>,
    /// Index of each file's end.
    by_file: HashMap<u32, usize>,
    texts: Tails,
}

impl LeftEnds {
    pub(super) fn new(texts: Tails) -> Self {
        Self { ends: Vec::new(), by_file: HashMap::new(), texts }
    }

    /// Adds the end of a file, from byte `start` on.
    pub(super) fn push(&mut self, file: u32, start: u64, text: &[u8]) -> Result<(), BuildError> {
        self.by_file.insert(file, self.ends.len());
        let end = LeftEnd { file, start, text: self.texts.push_text(text)?, len: text.len() as u32 };
        self.ends.push(end);
        Ok(())
    }

    /// Returns the first byte of the end of a file, if that was left.
    pub(super) fn start(&self, file: u32) -> Option<u64> {
        self.by_file.get(&file).map(|&at| self.ends[at].start)
    }

    /// Appends the end of a file to `out`, if it was left.
    pub(super) fn get(&self, file: u32, out: &mut Vec<u8>) -> Result<(), BuildError> {
        let Some(&at) = self.by_file.get(&file) else { return Ok(()) };
        self.texts.get_text(self.ends[at].text, self.ends[at].len as usize, out)
    }

    /// Returns the ends that were left, in plan order. Their text stays.
    pub(super) fn take(&mut self) -> Vec<LeftEnd> {
        self.by_file.clear();
        std::mem::take(&mut self.ends)
    }

    /// Appends the text of an end to `out`.
    pub(super) fn get_text(&self, end: &LeftEnd, out: &mut Vec<u8>) -> Result<(), BuildError> {
        self.texts.get_text(end.text, end.len as usize, out)
    }
}
