//! Verification of members against stored digests as their contents pass through windows.

use super::damage::Damage;
use super::member::{Body, Member};
use super::window::Part;
use crate::SinkError;
use kiln_read::{DigestVerifier, Image};
use std::ops::Range;

/// Digest verification of the members, one after the other.
pub(super) struct Digests<'a> {
    image: &'a Image,
    /// State of a member that continues in the next window. `None` if the member has no digest, or
    /// if some of it could not be read.
    current: Option<Running>,
    /// Bytes of members that match their stored digests.
    bytes: u64,
}

struct Running {
    verifier: DigestVerifier,
    /// First byte of the file that the verifier has not seen.
    next: u64,
}

/// A range of a window's contents and its position in the file.
pub(super) struct WindowPiece {
    pub(super) off: u64,
    pub(super) place: Range<usize>,
    /// True if all of it could be read.
    pub(super) is_whole: bool,
}

impl<'a> Digests<'a> {
    /// Creates the verification for members of `image`.
    pub(super) fn new(image: &'a Image) -> Self {
        Self { image, current: None, bytes: 0 }
    }

    /// Updates the digest with a part of a member, which consists of `pieces` of `contents`.
    ///
    /// # Errors
    /// Extended attributes that cannot be read; a mismatch, unless `damage` says to keep going.
    pub(super) fn see(
        &mut self,
        part: &Part,
        pieces: impl Iterator<Item = WindowPiece>,
        contents: &[u8],
        damage: &mut Damage,
    ) -> Result<(), SinkError> {
        let member = &*part.member;
        if part.is_first {
            self.current = begin(self.image, member)?;
        }
        for WindowPiece { off, place, is_whole } in pieces {
            self.current = self.current.take().filter(|_| is_whole);
            if let Some(Running { verifier, next }) = &mut self.current {
                verifier.update_zeros(off - *next);
                *next = off + place.len() as u64;
                verifier.update(&contents[place]);
            }
        }
        if part.is_last
            && let Some(Running { mut verifier, next }) = self.current.take()
        {
            let size = member.inode.size();
            verifier.update_zeros(size - next);
            match verifier.finish() {
                Ok(()) => self.bytes = self.bytes.saturating_add(size),
                Err(error) => damage.rotten(&member.path, error)?,
            }
        }
        Ok(())
    }

    /// Returns the number of verified bytes since the last call.
    pub(super) fn take_bytes(&mut self) -> u64 {
        std::mem::take(&mut self.bytes)
    }
}

fn begin(image: &Image, member: &Member) -> Result<Option<Running>, SinkError> {
    if !matches!(member.body, Body::Data(_)) {
        return Ok(None);
    }
    let verifier = image.digest_verifier(&member.inode).map_err(|error| error.at_path(&member.path))?;
    Ok(verifier.map(|verifier| Running { verifier, next: 0 }))
}
