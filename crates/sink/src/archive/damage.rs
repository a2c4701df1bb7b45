//! What of an image cannot be read, and what an export makes of it.
//!
//! A member's header tells its length before its data come, and other names refer to it. So where data cannot be read, zeros take their
//! place, extent by extent. What cannot be read before the header is written leaves the member out.

use super::options::ExportOptions;
use crate::SinkError;
use crate::salvage::{self, salvage};
use kiln_read::{Image, Inode, ReadError};

/// Memory that lists of what is damaged may take, in bytes: a hostile image could have a long path for each of its bytes.
const LISTED_MAX_LEN: usize = 64 << 20;

/// What of an image cannot be read, in the order of the archive.
#[derive(Default)]
pub(super) struct Damage {
    keep_going: bool,
    /// Bytes that all lists so far have taken, about.
    listed_len: usize,
    /// Members that are left out.
    pub(super) left_out: Vec<(Vec<u8>, SinkError)>,
    /// Members that have zeros instead of some of their data. One may be named several times.
    pub(super) zeroed: Vec<(Vec<u8>, SinkError)>,
    /// Members that have other data than their stored digests tell.
    pub(super) rotten: Vec<(Vec<u8>, SinkError)>,
}

impl Damage {
    pub(super) fn new(options: &ExportOptions) -> Self {
        Self { keep_going: options.keep_going, ..Self::default() }
    }

    /// Whether all was read.
    pub(super) fn is_none(&self) -> bool {
        self.left_out.is_empty() && self.zeroed.is_empty() && self.rotten.is_empty()
    }

    /// What was met so far; the next is noted anew.
    pub(super) fn take(&mut self) -> Self {
        let Self { keep_going, listed_len, .. } = *self;
        std::mem::replace(self, Self { keep_going, listed_len, ..Self::default() })
    }

    /// What was read; `None`: the member is left out.
    ///
    /// # Errors
    /// What is no damage, and all if the export does not go on.
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

    /// Note that the contents of a member do not have the digest that is stored for them, which `error` tells.
    ///
    /// # Errors
    /// `error`, if the export does not go on.
    pub(super) fn rotten(&mut self, path: &[u8], error: ReadError) -> Result<(), SinkError> {
        let error = SinkError::Read(error.at_path(path));
        if !self.goes_on(&error) {
            return Err(error);
        }
        self.listed_len += size_of::<(Vec<u8>, SinkError)>() + 2 * path.len();
        self.rotten.push((path.to_vec(), error));
        Ok(())
    }

    /// Whether the export goes on after an error: it is about a part of the image, and others can be read nevertheless.
    fn goes_on(&self, error: &SinkError) -> bool {
        self.keep_going && self.listed_len < LISTED_MAX_LEN && is_damage(error)
    }

    /// The bytes of `inode` from `off` on, of which reading all at once has failed: those that can be read, and zeros for the others.
    ///
    /// # Errors
    /// `error`, if it is no damage, or if the export does not go on.
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

/// Whether an error is one of the image, and not of the output or of what is asked for.
fn is_damage(error: &SinkError) -> bool {
    match error {
        SinkError::BadName { .. } => true,
        SinkError::Read(error) => salvage::is_damage(error),
        _ => false,
    }
}
