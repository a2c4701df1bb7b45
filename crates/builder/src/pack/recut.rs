//! A stored pcluster that is cut after all, because text within it was found to occur again.
//!
//! Its text is encoded anew, in parts that begin at the cuts. As many of the new pclusters as fit lie where the old one
//! did, the last of them filled to its end; the others go behind the data. So a cut costs a block or two.

use crate::context::progress::Control;
use crate::error::BuildError;
use crate::format::Format;
use crate::pack::fill::{Filled, PclusterWriter};
use crate::pack::jobs::Recut;
use kiln_format::zmap::HeadKind;

/// Encodes `text`, that of a stored pcluster, anew. Returns the pclusters, and the number of first ones that lie where
/// the old one did.
///
/// # Errors
/// A codec that fails; an interruption.
pub(super) fn run(
    recut: &Recut,
    writer: &mut PclusterWriter,
    text: &[u8],
    format: &Format,
    control: &Control<'_>,
) -> Result<(Filled, usize), BuildError> {
    let mut all = Filled::default();
    let (mut in_place, mut room, mut is_open) = (0, recut.room as usize, true);
    let ends = recut.cuts.iter().copied().chain([text.len()]);
    let mut at = 0;
    for end in ends {
        while at < end {
            control.check()?;
            let ends_stream = recut.ends_stream && end == text.len();
            let part = &text[at..end];
            let mut filled = match is_open && room > 0 {
                true => writer.write_one(part, ends_stream, room)?,
                false => Filled::default(),
            };
            is_open &= is_fitting(&filled, room, format);
            if is_open {
                room -= filled.bytes.len();
                in_place += filled.extents.len();
            } else {
                filled = writer.write_one(part, ends_stream, usize::MAX)?;
            }
            let taken: usize = filled.extents.iter().map(|extent| extent.llen as usize).sum();
            if taken == 0 {
                return Err(BuildError::Internal(format!("no text of {} bytes was encoded", part.len())));
            }
            at += taken;
            all.bytes.append(&mut filled.bytes);
            all.extents.append(&mut filled.extents);
        }
    }
    Ok((all, in_place))
}

/// Returns true if something was filled that takes no more than `room` bytes, and is not plain for want of room.
fn is_fitting(filled: &Filled, room: usize, format: &Format) -> bool {
    let is_plain = filled.extents.iter().any(|extent| extent.kind == HeadKind::Plain);
    !filled.extents.is_empty() && filled.bytes.len() <= room && (!is_plain || format.compression.encoded_extents)
}
