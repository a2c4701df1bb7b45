//! Bytes as text: hexadecimal digits, and names for a terminal.

mod escape;
mod hex;

pub use escape::Escaped;
pub use hex::Hex;
