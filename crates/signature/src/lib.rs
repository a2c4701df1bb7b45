//! PKCS#7 signatures, as the kernel and systemd take them for root hashes of dm-verity.
//!
//! A signature is detached, in DER, and has the signer's certificate. [`sign`] makes the bytes that `systemd-repart`
//! and `openssl smime -sign -noattr -binary` make with the same RSA key. [`verify`] takes these, and those with signed
//! attributes. It trusts one certificate, which comes from the caller: never one that comes with the signature.
//!
//! [`root_hash_content`] gives the bytes that stand for a root hash. [`partition`] has the form in which systemd stores
//! a signature in a partition.
//!
//! Nothing here opens a file. Dates and key usage of a certificate are not enforced, as the kernel does not do so;
//! [`Certificate::validity`] tells the dates.
//!
//! # Inside
//!
//! ```text
//! sign, verify ──► algorithm ──► certificate, key      algorithm: the pairs of key and hash that are known
//! partition ──► certificate
//! ```
#![warn(unreachable_pub)]
#![forbid(unsafe_code)]

mod algorithm;
mod certificate;
mod error;
mod key;
pub mod partition;
mod sign;
mod verify;

pub use algorithm::Hash;
pub use certificate::{Certificate, Validity};
pub use error::SignatureError;
pub use key::PrivateKey;
pub use sign::sign;
pub use verify::{SIGNATURE_MAX_LEN, Verified, verify};

/// Returns the bytes that are signed for a root hash of dm-verity: its hexadecimal digits, without a newline. The
/// kernel compares the digits in the table of the device.
pub fn root_hash_content(root_hash: &[u8]) -> Vec<u8> {
    certificate::hex(root_hash).into_bytes()
}
