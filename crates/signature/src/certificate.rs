//! Certificates, and the public keys in them.

use crate::algorithm::{EC, Hash, P256, P384, RSA};
use crate::error::SignatureError;
use cms::cert::IssuerAndSerialNumber;
use cms::cert::x509::certificate::Certificate as Record;
use cms::cert::x509::ext::pkix::SubjectKeyIdentifier;
use cms::cert::x509::spki::SubjectPublicKeyInfoRef;
use cms::signed_data::SignerIdentifier;
use der::asn1::ObjectIdentifier;
use der::{Decode, DecodePem, Encode};
use p256::ecdsa::signature::hazmat::PrehashVerifier;
use rsa::Pkcs1v15Sign;
use sha2::{Sha256, Sha384, Sha512};

/// An X.509 certificate with a public key that can verify signatures.
#[derive(Clone, Debug)]
pub struct Certificate {
    pub(crate) record: Record,
    der: Vec<u8>,
    pub(crate) key: PublicKey,
}

/// Public key of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PublicKey {
    Rsa(Box<rsa::PublicKey>),
    P256(p256::ecdsa::VerifyingKey),
    P384(p384::ecdsa::VerifyingKey),
}

/// Dates of a certificate, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// First second.
    pub not_before: u64,
    /// Last second.
    pub not_after: u64,
}

impl Certificate {
    /// Parses a certificate, in PEM or DER.
    ///
    /// # Errors
    /// Anything else; a key that is neither of RSA nor of the curves P-256 and P-384.
    pub fn parse(bytes: &[u8]) -> Result<Self, SignatureError> {
        let form = SignatureError::form("certificate");
        let is_pem = bytes.trim_ascii_start().starts_with(b"-----BEGIN");
        let record = if is_pem { Record::from_pem(bytes) } else { Record::from_der(bytes) }.map_err(&form)?;
        let der = record.to_der().map_err(&form)?;
        let spki = record.tbs_certificate().subject_public_key_info().to_der().map_err(&form)?;
        let key = PublicKey::parse(SubjectPublicKeyInfoRef::from_der(&spki).map_err(&form)?)?;
        Ok(Self { record, der, key })
    }

    /// Returns the certificate in DER.
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// Returns the SHA-256 digest of the certificate in DER.
    pub fn fingerprint(&self) -> Vec<u8> {
        Hash::Sha256.digest(&self.der)
    }

    /// Returns the name of the owner.
    pub fn subject(&self) -> String {
        self.record.tbs_certificate().subject().to_string()
    }

    /// Returns the dates between which the certificate is meant to be used.
    pub fn validity(&self) -> Validity {
        let validity = self.record.tbs_certificate().validity();
        let secs = |time: &cms::cert::x509::time::Time| time.to_unix_duration().as_secs();
        Validity { not_before: secs(&validity.not_before), not_after: secs(&validity.not_after) }
    }

    pub(crate) fn issuer_and_serial(&self) -> IssuerAndSerialNumber {
        let tbs = self.record.tbs_certificate();
        IssuerAndSerialNumber { issuer: tbs.issuer().clone(), serial_number: tbs.serial_number().clone() }
    }

    /// Returns true if a signature names this certificate as that of its signer.
    pub(crate) fn is_named_by(&self, signer: &SignerIdentifier) -> bool {
        match signer {
            SignerIdentifier::IssuerAndSerialNumber(named) => *named == self.issuer_and_serial(),
            SignerIdentifier::SubjectKeyIdentifier(named) => {
                let own = self.record.tbs_certificate().get_extension::<SubjectKeyIdentifier>();
                own.is_ok_and(|own| own.is_some_and(|(_, own)| own == *named))
            }
        }
    }
}

/// Returns the signer that a signature names, for messages.
pub(crate) fn name_of(signer: &SignerIdentifier) -> String {
    match signer {
        SignerIdentifier::IssuerAndSerialNumber(named) => {
            format!("issuer {}, serial number {}", named.issuer, named.serial_number)
        }
        SignerIdentifier::SubjectKeyIdentifier(named) => {
            format!("key identifier {}", hex(named.0.as_bytes()))
        }
    }
}

impl PublicKey {
    fn parse(spki: SubjectPublicKeyInfoRef<'_>) -> Result<Self, SignatureError> {
        let unsupported = |what, found: String| SignatureError::Unsupported {
            what,
            found,
            known: "RSA and the curves P-256 and P-384 are",
        };
        let (oid, bytes) = (spki.algorithm.oid, spki.subject_public_key.raw_bytes());
        let malformed = || SignatureError::Form {
            what: "public key of the certificate",
            source: der::ErrorKind::Value { tag: der::Tag::BitString }.into(),
        };
        match oid {
            RSA => rsa::PublicKey::try_from(spki).map(|key| PublicKey::Rsa(Box::new(key))).map_err(|_| malformed()),
            EC => match curve(&spki)? {
                P256 => p256::ecdsa::VerifyingKey::from_sec1_bytes(bytes).map(PublicKey::P256).map_err(|_| malformed()),
                P384 => p384::ecdsa::VerifyingKey::from_sec1_bytes(bytes).map(PublicKey::P384).map_err(|_| malformed()),
                other => Err(unsupported("curve", other.to_string())),
            },
            other => Err(unsupported("public key", other.to_string())),
        }
    }

    pub(crate) fn is_rsa(&self) -> bool {
        matches!(self, PublicKey::Rsa(_))
    }

    /// Verifies the signature of a digest.
    pub(crate) fn verify(&self, hash: Hash, digest: &[u8], signature: &[u8]) -> Result<(), SignatureError> {
        let is_right = match self {
            PublicKey::Rsa(key) => {
                let scheme = match hash {
                    Hash::Sha256 => Pkcs1v15Sign::new::<Sha256>(),
                    Hash::Sha384 => Pkcs1v15Sign::new::<Sha384>(),
                    Hash::Sha512 => Pkcs1v15Sign::new::<Sha512>(),
                };
                key.verify(scheme, digest, signature).is_ok()
            }
            PublicKey::P256(key) => p256::ecdsa::Signature::from_der(signature)
                .is_ok_and(|signature| key.verify_prehash(digest, &signature).is_ok()),
            PublicKey::P384(key) => p384::ecdsa::Signature::from_der(signature)
                .is_ok_and(|signature| key.verify_prehash(digest, &signature).is_ok()),
        };
        if is_right { Ok(()) } else { Err(SignatureError::Wrong) }
    }
}

fn curve(spki: &SubjectPublicKeyInfoRef<'_>) -> Result<ObjectIdentifier, SignatureError> {
    let parameters = spki.algorithm.parameters.ok_or(der::ErrorKind::Value { tag: der::Tag::ObjectIdentifier }.into());
    parameters.and_then(|any| any.decode_as()).map_err(SignatureError::form("curve of the certificate's key"))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
