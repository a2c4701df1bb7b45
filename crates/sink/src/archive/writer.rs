//! What a format does.

use super::member::Member;
use super::output::Output;
use super::window::Window;
use crate::SinkError;

/// A format that is written front to back.
pub(super) trait ArchiveWriter: Send {
    /// The next members, and parts of members.
    fn window(&mut self, window: &Window, out: &mut Output<'_>) -> Result<(), SinkError>;

    /// All members were given.
    fn finish(&mut self, out: &mut Output<'_>) -> Result<(), SinkError>;
}

/// A format that takes members one after the other.
pub(super) trait MemberWriter: Send {
    fn begin(&mut self, member: &Member, out: &mut Output<'_>) -> Result<(), SinkError>;

    /// The next bytes of the member's ranges.
    fn data(&mut self, bytes: &[u8], out: &mut Output<'_>) -> Result<(), SinkError>;

    /// All data of the member was given.
    fn end(&mut self, member: &Member, out: &mut Output<'_>) -> Result<(), SinkError>;

    /// All members were given.
    fn finish(&mut self, out: &mut Output<'_>) -> Result<(), SinkError>;
}

/// Gives members to a writer of members.
pub(super) struct OneByOne<W>(pub(super) W);

impl<W: MemberWriter> ArchiveWriter for OneByOne<W> {
    fn window(&mut self, window: &Window, out: &mut Output<'_>) -> Result<(), SinkError> {
        for part in &window.parts {
            if part.is_first {
                self.0.begin(&part.member, out)?;
            }
            self.0.data(window.bytes(part), out)?;
            if part.is_last {
                self.0.end(&part.member, out)?;
            }
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut Output<'_>) -> Result<(), SinkError> {
        self.0.finish(out)
    }
}
