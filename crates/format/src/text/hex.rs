//! Bytes in hexadecimal.

use std::fmt;

/// Displays bytes as lower-case hexadecimal digits, two per byte, without separators.
///
/// ```
/// use kiln_format::Hex;
///
/// assert_eq!(Hex(&[0, 0xe0, 0xf5]).to_string(), "00e0f5");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hex<'a>(pub &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
