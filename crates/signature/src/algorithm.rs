//! Keys and hashes that sign together.

use crate::error::SignatureError;
use cms::cert::x509::spki::AlgorithmIdentifierOwned;
use der::asn1::ObjectIdentifier;
use sha2::{Digest as _, Sha256, Sha384, Sha512};

pub(crate) const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
pub(crate) const EC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
pub(crate) const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
pub(crate) const P384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.34");

/// Hash function of a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hash {
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
}

impl Hash {
    /// All functions.
    pub const ALL: [Hash; 3] = [Hash::Sha256, Hash::Sha384, Hash::Sha512];

    /// Returns the name.
    pub const fn name(self) -> &'static str {
        match self {
            Hash::Sha256 => "sha256",
            Hash::Sha384 => "sha384",
            Hash::Sha512 => "sha512",
        }
    }

    pub(crate) fn oid(self) -> ObjectIdentifier {
        ObjectIdentifier::new_unwrap(match self {
            Hash::Sha256 => "2.16.840.1.101.3.4.2.1",
            Hash::Sha384 => "2.16.840.1.101.3.4.2.2",
            Hash::Sha512 => "2.16.840.1.101.3.4.2.3",
        })
    }

    /// Returns the identifier of this hash in a signature of RSA, where the key's own may stand as well.
    fn with_rsa(self) -> ObjectIdentifier {
        ObjectIdentifier::new_unwrap(match self {
            Hash::Sha256 => "1.2.840.113549.1.1.11",
            Hash::Sha384 => "1.2.840.113549.1.1.12",
            Hash::Sha512 => "1.2.840.113549.1.1.13",
        })
    }

    /// Returns the identifier of a signature of ECDSA.
    pub(crate) fn with_ecdsa(self) -> ObjectIdentifier {
        ObjectIdentifier::new_unwrap(match self {
            Hash::Sha256 => "1.2.840.10045.4.3.2",
            Hash::Sha384 => "1.2.840.10045.4.3.3",
            Hash::Sha512 => "1.2.840.10045.4.3.4",
        })
    }

    pub(crate) fn digest(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Hash::Sha256 => Sha256::digest(bytes).to_vec(),
            Hash::Sha384 => Sha384::digest(bytes).to_vec(),
            Hash::Sha512 => Sha512::digest(bytes).to_vec(),
        }
    }

    /// Returns the hash that a signature names.
    pub(crate) fn of(algorithm: &AlgorithmIdentifierOwned) -> Result<Self, SignatureError> {
        Self::ALL.into_iter().find(|hash| hash.oid() == algorithm.oid).ok_or_else(|| SignatureError::Unsupported {
            what: "hash",
            found: algorithm.oid.to_string(),
            known: "SHA-256, SHA-384 and SHA-512 are",
        })
    }

    /// Refuses an algorithm of a signature that is not one of this kind of key with this hash.
    pub(crate) fn check_signature(
        self,
        algorithm: &AlgorithmIdentifierOwned,
        is_rsa: bool,
    ) -> Result<(), SignatureError> {
        let known = match is_rsa {
            true => [RSA, self.with_rsa()].contains(&algorithm.oid),
            false => algorithm.oid == self.with_ecdsa(),
        };
        match known {
            true => Ok(()),
            false => Err(SignatureError::Unsupported {
                what: "signature algorithm",
                found: algorithm.oid.to_string(),
                known: "PKCS#1 v1.5 of RSA and ECDSA are, with the hash of the signature",
            }),
        }
    }
}
