//! Verification of signatures.

use crate::algorithm::Hash;
use crate::certificate::{Certificate, name_of};
use crate::error::SignatureError;
use crate::sign::{DATA, SIGNED_DATA};
use cms::cert::x509::attr::Attributes;
use cms::content_info::ContentInfo;
use cms::signed_data::{SignedData, SignerIdentifier, SignerInfo};
use der::asn1::{ObjectIdentifier, OctetStringRef};
use der::{Any, Decode, Encode};

/// Longest signature that is read, in bytes. One with a certificate has about 1200.
pub const SIGNATURE_MAX_LEN: usize = 256 << 10;

const CONTENT_TYPE: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.3");
const MESSAGE_DIGEST: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.4");

/// Facts of a signature that is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verified {
    /// Hash that was signed.
    pub hash: Hash,
    /// True if attributes are signed, and the contents by their digest among them.
    pub has_attributes: bool,
}

/// Verifies a detached signature, in DER, of contents. Only `certificate` is trusted.
///
/// # Errors
/// A signature of another form, with another number of signers than one, by another key, or of other contents.
pub fn verify(signature: &[u8], content: &[u8], certificate: &Certificate) -> Result<Verified, SignatureError> {
    let form = SignatureError::form("signature");
    let info = ContentInfo::from_der(signature).map_err(&form)?;
    if info.content_type != SIGNED_DATA {
        return Err(SignatureError::Unsupported {
            what: "content type",
            found: info.content_type.to_string(),
            known: "signed data are",
        });
    }
    let signed: SignedData = info.content.decode_as().map_err(&form)?;
    if signed.encap_content_info.econtent.is_some() {
        return Err(SignatureError::Attached);
    }
    let signer = match signed.signer_infos.0.as_slice() {
        [signer] => signer,
        signers => return Err(SignatureError::Signers(signers.len())),
    };
    if !certificate.is_named_by(&signer.sid) {
        let given = SignerIdentifier::IssuerAndSerialNumber(certificate.issuer_and_serial());
        return Err(SignatureError::OtherSigner { found: name_of(&signer.sid), given: name_of(&given) });
    }
    let hash = Hash::of(&signer.digest_alg)?;
    hash.check_signature(&signer.signature_algorithm, certificate.key.is_rsa())?;
    let digest = signed_digest(signer, hash, content, signed.encap_content_info.econtent_type)?;
    certificate.key.verify(hash, &digest, signer.signature.as_bytes())?;
    Ok(Verified { hash, has_attributes: signer.signed_attrs.is_some() })
}

/// Returns the digest that is signed: of the contents, or of attributes with the digest of the contents.
fn signed_digest(
    signer: &SignerInfo,
    hash: Hash,
    content: &[u8],
    content_type: ObjectIdentifier,
) -> Result<Vec<u8>, SignatureError> {
    let digest = hash.digest(content);
    let Some(attributes) = &signer.signed_attrs else { return Ok(digest) };
    let form = SignatureError::form("signed attributes");
    let typed: ObjectIdentifier = only(attributes, CONTENT_TYPE, "contentType")?.decode_as().map_err(&form)?;
    if typed != content_type || typed != DATA {
        return Err(SignatureError::Attribute { name: "contentType", problem: "not data" });
    }
    let stored = only(attributes, MESSAGE_DIGEST, "messageDigest")?;
    if stored.decode_as::<&OctetStringRef>().map_err(&form)?.as_bytes() != digest {
        return Err(SignatureError::Attribute { name: "messageDigest", problem: "of other contents" });
    }
    // They are signed as a set of their own, not with the tag that they have in the signature.
    Ok(hash.digest(&attributes.to_der().map_err(&form)?))
}

/// Returns the value of an attribute that must be there once, with one value.
fn only<'a>(attributes: &'a Attributes, oid: ObjectIdentifier, name: &'static str) -> Result<&'a Any, SignatureError> {
    let mut found = attributes.iter().filter(|attribute| attribute.oid == oid);
    match (found.next(), found.next()) {
        (None, _) => Err(SignatureError::Attribute { name, problem: "missing" }),
        (Some(attribute), None) if attribute.values.len() == 1 => Ok(&attribute.values.as_slice()[0]),
        _ => Err(SignatureError::Attribute { name, problem: "several values" }),
    }
}
