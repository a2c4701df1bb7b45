//! Making of signatures.

use crate::algorithm::RSA;
use crate::certificate::Certificate;
use crate::error::SignatureError;
use crate::key::PrivateKey;
use cms::cert::CertificateChoices;
use cms::cert::x509::spki::AlgorithmIdentifierOwned;
use cms::content_info::{CmsVersion, ContentInfo};
use cms::signed_data::{
    CertificateSet, EncapsulatedContentInfo, SignedData, SignerIdentifier, SignerInfo, SignerInfos,
};
use der::asn1::{ObjectIdentifier, OctetString, SetOfVec};
use der::{Any, Encode};

pub(crate) const DATA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.7.1");
pub(crate) const SIGNED_DATA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.7.2");

/// Signs contents, and returns the signature in DER: detached, without attributes, with the certificate. The same
/// contents, key and certificate give the same bytes.
///
/// # Errors
/// A certificate that is not of the key.
pub fn sign(content: &[u8], key: &PrivateKey, certificate: &Certificate) -> Result<Vec<u8>, SignatureError> {
    if key.public() != certificate.key {
        return Err(SignatureError::OtherKey);
    }
    let form = SignatureError::form("signature");
    let hash = key.hash();
    let with_null = |oid| AlgorithmIdentifierOwned { oid, parameters: Some(Any::null()) };
    let signature_algorithm = match certificate.key.is_rsa() {
        true => with_null(RSA),
        false => AlgorithmIdentifierOwned { oid: hash.with_ecdsa(), parameters: None },
    };
    let signer = SignerInfo {
        version: CmsVersion::V1,
        sid: SignerIdentifier::IssuerAndSerialNumber(certificate.issuer_and_serial()),
        digest_alg: with_null(hash.oid()),
        signed_attrs: None,
        signature_algorithm,
        signature: OctetString::new(key.sign(&hash.digest(content))?).map_err(&form)?,
        unsigned_attrs: None,
    };
    let certificates = vec![CertificateChoices::Certificate(certificate.record.clone())];
    let signed = SignedData {
        version: CmsVersion::V1,
        digest_algorithms: SetOfVec::try_from(vec![with_null(hash.oid())]).map_err(&form)?,
        encap_content_info: EncapsulatedContentInfo { econtent_type: DATA, econtent: None },
        certificates: Some(CertificateSet::try_from(certificates).map_err(&form)?),
        crls: None,
        signer_infos: SignerInfos::try_from(vec![signer]).map_err(&form)?,
    };
    let content = Any::encode_from(&signed).map_err(&form)?;
    ContentInfo { content_type: SIGNED_DATA, content }.to_der().map_err(form)
}
