//! Contents of files that are in memory.

use kiln_tree::{Content, ContentError};
use std::io;
use std::ops::Range;

/// Contents in memory.
pub(crate) struct InMemory(pub(crate) Vec<u8>);

impl Content for InMemory {
    fn read_exact_at(&mut self, buf: &mut [u8], off: u64) -> Result<(), ContentError> {
        let rest = usize::try_from(off).ok().and_then(|off| self.0.get(off..)).and_then(|rest| rest.get(..buf.len()));
        buf.copy_from_slice(rest.ok_or(io::ErrorKind::UnexpectedEof).map_err(io::Error::from)?);
        Ok(())
    }

    fn next_data(&mut self, off: u64) -> Result<Option<Range<u64>>, ContentError> {
        let len = self.0.len() as u64;
        Ok((off < len).then_some(off..len))
    }

    fn verify_unchanged(&mut self) -> Result<(), ContentError> {
        Ok(())
    }
}
