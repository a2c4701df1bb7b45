//! Unreadable parts of an image, and their effect on an export.
//!
//! A member's header states its length before its data follow, and later names refer to it. So
//! zeros replace unreadable data, extent by extent. A member is left out if something that its
//! header needs cannot be read.

use super::options::ExportOptions;
use crate::SinkError;
use crate::salvage::{self, salvage};
use kiln_read::{Image, Inode, ReadError};

/// Maximum memory in bytes for the lists of damage: a hostile image could have a long path for each
/// of its bytes.
const LISTED_MAX_LEN: usize = 64 << 20;

/// Unreadable parts of an image, in the order of the archive.
#[derive(Default)]
pub(super) struct Damage {
    keep_going: bool,
    /// Approximate memory in bytes of all lists so far.
    listed_len: usize,
    /// Members that are left out.
    pub(super) left_out: Vec<(Vec<u8>, SinkError)>,
    /// Members with zeros in place of some of their data. A member may occur several times.
    pub(super) zeroed: Vec<(Vec<u8>, SinkError)>,
    /// Members whose data do not match their stored digests.
    pub(super) rotten: Vec<(Vec<u8>, SinkError)>,
}

impl Damage {
    pub(super) fn new(options: &ExportOptions) -> Self {
        Self { keep_going: options.keep_going, ..Self::default() }
    }

    /// Returns true if nothing is damaged.
    pub(super) fn is_none(&self) -> bool {
        self.left_out.is_empty() && self.zeroed.is_empty() && self.rotten.is_empty()
    }

    /// Takes the damage found since the last call.
    pub(super) fn take(&mut self) -> Self {
        let Self { keep_going, listed_len, .. } = *self;
        std::mem::replace(self, Self { keep_going, listed_len, ..Self::default() })
    }

    /// Returns the value that was read, or `None` if the member must be left out.
    ///
    /// # Errors
    /// An error that is not damage, and every error if the export does not keep going.
    pub(super) fn survive<T>(&mut self, read: Result<T, SinkError>) -> Result<Option<T>, SinkError> {
        match read {
            Ok(read) => Ok(Some(read)),
            Err(error) if self.goes_on(&error) => {
                let path = match &error {
                    SinkError::BadName { path, .. } => path.clone(),
                    SinkError::Read(error) => error.path().unwrap_or_default().to_vec(),
                    _ => Vec::new(),
                };
                self.listed_len += size_of::<(Vec<u8>, SinkError)>() + 2 * path.len();
                self.left_out.push((path, error));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Notes that the contents of a member do not match their stored digest. `error` describes the
    /// mismatch.
    ///
    /// # Errors
    /// `error`, if the export does not keep going.
    pub(super) fn rotten(&mut self, path: &[u8], error: ReadError) -> Result<(), SinkError> {
        let error = SinkError::Read(error.at_path(path));
        if !self.goes_on(&error) {
            return Err(error);
        }
        self.listed_len += size_of::<(Vec<u8>, SinkError)>() + 2 * path.len();
        self.rotten.push((path.to_vec(), error));
        Ok(())
    }

    /// Returns true if the export continues after `error`, because other parts of the image may
    /// still be readable.
    fn goes_on(&self, error: &SinkError) -> bool {
        self.keep_going && self.listed_len < LISTED_MAX_LEN && is_damage(error)
    }

    /// Fills `buf` with the bytes of `inode` at `off` that can be read, and with zeros for the
    /// others, after reading all of them at once has failed with `error`.
    ///
    /// # Errors
    /// `error`, if it is not damage, or if the export does not keep going.
    pub(super) fn salvage(
        &mut self,
        image: &Image,
        path: &[u8],
        (inode, off, buf): (&Inode, u64, &mut [u8]),
        error: ReadError,
    ) -> Result<(), SinkError> {
        let error = SinkError::Read(error.at_path(path));
        if !self.goes_on(&error) {
            return Err(error);
        }
        self.listed_len += size_of::<(Vec<u8>, SinkError)>() + 2 * path.len();
        salvage(image, inode, off, buf, &mut |_, _| {});
        self.zeroed.push((path.to_vec(), error));
        Ok(())
    }
}

/// Returns true if the image caused the error, not the output or the request.
fn is_damage(error: &SinkError) -> bool {
    match error {
        SinkError::BadName { .. } => true,
        SinkError::Read(error) => salvage::is_damage(error),
        _ => false,
    }
}
