//! Target of an update in place, which holds the old image and receives the new one.

use kiln_output::{Output, read_exact_at};
use kiln_read::{RangeMut, ReadAt};
use std::io;
use std::sync::Arc;

use crate::error::{DeltaError, Side};

/// Place of the old image, and of the new one.
pub struct Target<D> {
    /// Device or file; nothing else may write to it meanwhile.
    pub device: Arc<D>,
    /// Length in bytes.
    pub len: u64,
    /// Behaviour of its length.
    pub resize: Resize,
    /// Properties that distinguish it from other devices.
    pub identity: Identity,
}

/// Behaviour of the length of a target: fixed, or that of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resize {
    /// The target is a file, which gets the length of the new image.
    ToImage,
    /// The target is a device, which may be longer than an image.
    Never,
}

/// Properties of a device that persist across reboots, as names and values; for example a serial
/// number. Empty for a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    properties: Vec<(String, String)>,
}

impl Identity {
    /// Maximum total length in bytes of names and values, each with a length field of two bytes.
    const MAX_LEN: usize = 2048;

    /// Creates an identity from these properties, in order; those that do not fit into a journal's
    /// head are left out.
    pub fn new(properties: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut len = 0;
        let fits = |(name, value): &(String, String)| {
            len += 4 + name.len() + value.len();
            len <= Self::MAX_LEN
        };
        Self { properties: properties.into_iter().take_while(fits).collect() }
    }

    /// Returns the name and both values of the first property that both have with different values.
    /// Properties that only one has are ignored.
    pub(super) fn difference<'a>(&'a self, other: &'a Self) -> Option<(&'a str, &'a str, &'a str)> {
        self.properties.iter().find_map(|(name, value)| {
            let (_, theirs) =
                other.properties.iter().find(|(theirs, theirs_value)| theirs == name && theirs_value != value)?;
            Some((&**name, &**value, &**theirs))
        })
    }

    /// Returns the number of properties, followed by each name and value with its length in front.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = (self.properties.len() as u16).to_le_bytes().to_vec();
        for text in self.properties.iter().flat_map(|(name, value)| [name, value]) {
            bytes.extend((text.len() as u16).to_le_bytes());
            bytes.extend(text.bytes());
        }
        bytes
    }

    /// Decodes the result of [`Identity::encode`]; nothing may follow.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (count, mut rest) = bytes.split_first_chunk::<2>()?;
        let mut text = || {
            let (len, behind) = rest.split_first_chunk::<2>()?;
            let (text, behind) = behind.split_at_checked(u16::from_le_bytes(*len).into())?;
            rest = behind;
            String::from_utf8(text.to_vec()).ok()
        };
        let count = u16::from_le_bytes(*count);
        let properties = (0..count).map(|_| Some((text()?, text()?))).collect::<Option<_>>()?;
        rest.is_empty().then_some(Self { properties })
    }
}

impl<D: Output> Target<D> {
    /// Fills `buf` with the bytes at `off`, and with zeros after the end.
    pub(super) fn read_padded(&self, buf: &mut [u8], off: u64) -> Result<(), DeltaError> {
        let there_len = self.len.saturating_sub(off).min(buf.len() as u64) as usize;
        let (there, behind) = buf.split_at_mut(there_len);
        behind.fill(0);
        let failed = |source| DeltaError::ImageBytes { side: Side::Old, off, len: there_len as u64, source };
        read_exact_at(&*self.device, there, off).map_err(failed)
    }
}

impl<D: Output + Send + Sync + 'static> Target<D> {
    /// Returns the target as a source of images.
    pub(super) fn source(&self) -> Arc<dyn ReadAt> {
        Arc::new(TargetSource { device: self.device.clone(), len: self.len })
    }
}

struct TargetSource<D> {
    device: Arc<D>,
    len: u64,
}

impl<D: Output + Send + Sync> ReadAt for TargetSource<D> {
    fn len(&self) -> io::Result<u64> {
        Ok(self.len)
    }

    fn read_exact_at(&self, buf: &mut [u8], off: u64) -> io::Result<()> {
        read_exact_at(&*self.device, buf, off)
    }

    fn read_ranges(&self, ranges: &mut [RangeMut<'_>]) -> io::Result<()> {
        ranges.iter_mut().try_for_each(|range| self.read_exact_at(range.buf, range.off))
    }

    fn borrow(&self, _off: u64, _len: usize) -> Option<&[u8]> {
        None
    }

    fn will_need(&self, _off: u64, _len: u64) {}
}
