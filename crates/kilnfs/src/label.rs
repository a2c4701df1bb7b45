//! Labels of images.

use std::str::FromStr;

/// Label of an image: at most 15 bytes, so that kernels find a zero behind it.
///
/// ```
/// use kilnfs::ImageLabel;
///
/// assert_eq!(&"rootfs".parse::<ImageLabel>()?.padded()[..7], b"rootfs\0");
/// assert!("longer than that".parse::<ImageLabel>().is_err());
/// # Ok::<(), kilnfs::LabelError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageLabel([u8; 16]);

/// A label that is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{len} bytes, at most 15 fit")]
pub struct LabelError {
    /// Its length in bytes.
    pub len: usize,
}

impl ImageLabel {
    /// Returns the label as the superblock has it, padded with zeros.
    pub fn padded(self) -> [u8; 16] {
        self.0
    }
}

impl FromStr for ImageLabel {
    type Err = LabelError;

    fn from_str(text: &str) -> Result<Self, LabelError> {
        let mut label = [0; 16];
        match text.len() {
            0..=15 => label[..text.len()].copy_from_slice(text.as_bytes()),
            len => return Err(LabelError { len }),
        }
        Ok(Self(label))
    }
}
