//! Errors of signatures, keys and certificates.

/// The reason why something cannot be signed, or a signature is not accepted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SignatureError {
    /// Bytes that are not in the form that they must have.
    #[error("{what}: {source}")]
    Form {
        /// The record: a signature, a certificate, a key.
        what: &'static str,
        /// Error of the decoder, with the byte offset where it is known.
        source: der::Error,
    },
    /// A key in a form that is not read, with the remedy.
    #[error("private key: {0}")]
    Key(&'static str),
    /// A key, a hash or a record that is not supported.
    #[error("{what} {found}: not supported ({known})")]
    Unsupported {
        /// The kind of the value.
        what: &'static str,
        /// The value that was found: an object identifier or a number.
        found: String,
        /// Values that are supported.
        known: &'static str,
    },
    /// A certificate whose public key is not that of the private key.
    #[error("the certificate is not of this private key")]
    OtherKey,
    /// A signature with no signer, or with several.
    #[error("{0} signers, where one is expected")]
    Signers(usize),
    /// A signature of another key than that of the certificate.
    #[error("signed by another certificate: {found}, but given is {given}")]
    OtherSigner {
        /// The signer that the signature names.
        found: String,
        /// The certificate's issuer and serial number.
        given: String,
    },
    /// A signature with contents of its own, where those come from the caller.
    #[error("the signature has contents of its own; only detached signatures are verified")]
    Attached,
    /// Signed attributes that are missing, double, or not about these contents.
    #[error("signed attribute {name}: {problem}")]
    Attribute {
        /// Name of the attribute.
        name: &'static str,
        /// Problem of it.
        problem: &'static str,
    },
    /// A signature of other contents, or a damaged one.
    #[error("the signature is not one of these contents by this certificate")]
    Wrong,
    /// A partition that is not one of a signature.
    #[error("signature partition: {0}")]
    Partition(String),
    /// The system has no random numbers, which hide the key from whoever measures times.
    #[error("cannot sign: {0}")]
    Sign(String),
}

impl SignatureError {
    /// Returns a function that makes an error about a record.
    pub(crate) fn form(what: &'static str) -> impl Fn(der::Error) -> Self {
        move |source| SignatureError::Form { what, source }
    }
}
