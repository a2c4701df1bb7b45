//! Labels of images.

use std::str::FromStr;

/// A label: at most 15 bytes, so that kernels find a zero.
#[derive(Clone, Copy, Debug, Default)]
pub struct Label([u8; 16]);

impl Label {
    /// As the superblock has it.
    pub fn padded(self) -> [u8; 16] {
        self.0
    }
}

impl FromStr for Label {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut label = [0; 16];
        match text.len() {
            0..=15 => label[..text.len()].copy_from_slice(text.as_bytes()),
            len => return Err(format!("{len} bytes, at most 15 fit")),
        }
        Ok(Self(label))
    }
}
