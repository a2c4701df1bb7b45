//! Interfaces of the formats.

use super::member::Member;
use super::output::Output;
use super::window::Window;
use crate::SinkError;

/// A format that is written front to back.
pub(super) trait ArchiveWriter: Send {
    /// Writes the next members, or parts of members.
    fn window(&mut self, window: &Window, out: &mut Output<'_>) -> Result<(), SinkError>;

    /// Ends the archive after the last member.
    fn finish(&mut self, out: &mut Output<'_>) -> Result<(), SinkError>;
}

/// A format that is written one member at a time.
pub(super) trait MemberWriter: Send {
    fn begin(&mut self, member: &Member, out: &mut Output<'_>) -> Result<(), SinkError>;

    /// Writes the next bytes of the member's ranges.
    fn data(&mut self, bytes: &[u8], out: &mut Output<'_>) -> Result<(), SinkError>;

    /// Ends the member after all its data.
    fn end(&mut self, member: &Member, out: &mut Output<'_>) -> Result<(), SinkError>;

    /// Ends the archive after the last member.
    fn finish(&mut self, out: &mut Output<'_>) -> Result<(), SinkError>;
}

/// Adapter that passes the members of a window to a [`MemberWriter`].
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
