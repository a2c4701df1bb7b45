//! Private keys.

use crate::algorithm::{EC, Hash, P256, P384, RSA};
use crate::certificate::PublicKey;
use crate::error::SignatureError;
use p256::ecdsa::signature::hazmat::PrehashSigner;
use p256::pkcs8::{PrivateKeyInfoRef, SecretDocument};
use rsa::Pkcs1v15Sign;
use sha2::Sha256;

/// A private key of RSA or of the curves P-256 and P-384. Its memory is cleared when it is dropped.
pub struct PrivateKey(Kind);

enum Kind {
    Rsa(Box<rsa::PrivateKey>),
    P256(Box<p256::ecdsa::SigningKey>),
    P384(Box<p384::ecdsa::SigningKey>),
}

impl PrivateKey {
    /// Parses a key in the form PKCS#8, in PEM (`-----BEGIN PRIVATE KEY-----`), without a password.
    ///
    /// # Errors
    /// Anything else.
    pub fn parse_pem(pem: &str) -> Result<Self, SignatureError> {
        let malformed = SignatureError::Key("not in PEM");
        let (label, document) = SecretDocument::from_pem(pem).map_err(|_| malformed)?;
        match label {
            "PRIVATE KEY" => {}
            "ENCRYPTED PRIVATE KEY" => {
                return Err(SignatureError::Key("has a password; `openssl pkcs8 -topk8 -nocrypt` removes it"));
            }
            "RSA PRIVATE KEY" | "EC PRIVATE KEY" => {
                return Err(SignatureError::Key("not in the form PKCS#8; `openssl pkcs8 -topk8 -nocrypt` converts it"));
            }
            _ => return Err(SignatureError::Key("there is something else in the file")),
        }
        let malformed = |_| SignatureError::Key("damaged");
        let info: PrivateKeyInfoRef<'_> = document.decode_msg().map_err(malformed)?;
        let unsupported = |what, found: String| SignatureError::Unsupported {
            what,
            found,
            known: "RSA and the curves P-256 and P-384 are",
        };
        let algorithm = info.algorithm;
        let malformed = || SignatureError::Key("damaged");
        let kind = match algorithm.oid {
            RSA => Kind::Rsa(Box::new(info.try_into().map_err(|_| malformed())?)),
            EC => match algorithm.parameters_oid().map_err(|_| malformed())? {
                P256 => Kind::P256(Box::new(info.try_into().map_err(|_| malformed())?)),
                P384 => Kind::P384(Box::new(info.try_into().map_err(|_| malformed())?)),
                other => return Err(unsupported("curve", other.to_string())),
            },
            other => return Err(unsupported("private key", other.to_string())),
        };
        Ok(Self(kind))
    }

    /// Returns the hash that is signed: SHA-256, but SHA-384 for P-384.
    pub fn hash(&self) -> Hash {
        match self.0 {
            Kind::Rsa(_) | Kind::P256(_) => Hash::Sha256,
            Kind::P384(_) => Hash::Sha384,
        }
    }

    pub(crate) fn public(&self) -> PublicKey {
        match &self.0 {
            Kind::Rsa(key) => PublicKey::Rsa(Box::new(key.to_public_key())),
            Kind::P256(key) => PublicKey::P256(*key.verifying_key()),
            Kind::P384(key) => PublicKey::P384(*key.verifying_key()),
        }
    }

    /// Signs a digest of [`PrivateKey::hash`]. The same digest has the same signature each time.
    pub(crate) fn sign(&self, digest: &[u8]) -> Result<Vec<u8>, SignatureError> {
        let failed = |error: &dyn std::fmt::Display| SignatureError::Sign(error.to_string());
        match &self.0 {
            Kind::Rsa(key) => key.sign(Pkcs1v15Sign::new::<Sha256>(), digest).map_err(|error| failed(&error)),
            Kind::P256(key) => {
                let signature: Result<p256::ecdsa::Signature, _> = key.sign_prehash(digest);
                signature.map(|signature| signature.to_der().as_bytes().to_vec()).map_err(|error| failed(&error))
            }
            Kind::P384(key) => {
                let signature: Result<p384::ecdsa::Signature, _> = key.sign_prehash(digest);
                signature.map(|signature| signature.to_der().as_bytes().to_vec()).map_err(|error| failed(&error))
            }
        }
    }
}
