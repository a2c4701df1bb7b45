//! Signatures of root hashes, as arguments.

use crate::console::report::note;
use crate::exit::Failure;
use kiln_signature::partition::Partition;
use kiln_signature::{Certificate, SIGNATURE_MAX_LEN, SignatureError, root_hash_content};
use kiln_verity::Digest;
use serde::Serialize;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Longest certificate or key that is read, in bytes.
const PEM_MAX_LEN: usize = 1 << 20;

/// A signature to verify.
#[derive(clap::Args)]
pub struct SignedArgs {
    /// Signature of the root hash: PKCS#7 in DER, or systemd's partition
    #[arg(long, value_name = "FILE", requires = "certificate")]
    signature: Option<PathBuf>,

    /// Certificate of the signer: X.509, in PEM or DER
    #[arg(long, value_name = "FILE", requires = "signature")]
    certificate: Option<PathBuf>,
}

/// A signature that is right.
#[derive(Serialize)]
pub struct SignatureJson {
    hash: &'static str,
    subject: String,
    not_before: u64,
    not_after: u64,
}

impl SignedArgs {
    /// Verifies the signature of a root hash, if there is one.
    pub fn verify(&self, root_hash: &Digest, quiet: bool) -> Result<Option<SignatureJson>, Failure> {
        let (Some(path), Some(certificate)) = (&self.signature, &self.certificate) else { return Ok(None) };
        let certificate = read_certificate(certificate)?;
        let bytes = read(path, SIGNATURE_MAX_LEN, "read a signature")?;
        let fail = |error| failure(path, error);
        let signature = match bytes.first() {
            Some(b'{') => {
                let partition = Partition::parse(&bytes).map_err(fail)?;
                if partition.root_hash != root_hash.as_bytes() {
                    return Err(fail(SignatureError::Partition("it is for another root hash".to_owned())));
                }
                partition.signature
            }
            _ => bytes,
        };
        let content = root_hash_content(root_hash.as_bytes());
        let verified = kiln_signature::verify(&signature, &content, &certificate).map_err(fail)?;
        let (subject, validity) = (certificate.subject(), certificate.validity());
        if !quiet {
            note(format_args!("{}: signed by {subject}", path.display()));
            let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
            if !(validity.not_before..=validity.not_after).contains(&now) {
                note(format_args!(
                    "the certificate is not meant for today: its dates are not enforced, as in the kernel"
                ));
            }
        }
        let (not_before, not_after) = (validity.not_before, validity.not_after);
        Ok(Some(SignatureJson { hash: verified.hash.name(), subject, not_before, not_after }))
    }
}

/// Returns an error about a file with a key, a certificate or a signature.
pub(super) fn failure(path: &Path, source: SignatureError) -> Failure {
    Failure::Signature { path: path.to_owned(), source: Box::new(source) }
}

pub(super) fn read_certificate(path: &Path) -> Result<Certificate, Failure> {
    let bytes = read(path, PEM_MAX_LEN, "read a certificate")?;
    Certificate::parse(&bytes).map_err(|error| failure(path, error))
}

/// Reads a private key as text.
pub(super) fn read_key(path: &Path) -> Result<String, Failure> {
    let bytes = read(path, PEM_MAX_LEN, "read a key")?;
    String::from_utf8(bytes).map_err(|_| failure(path, SignatureError::Key("not in PEM")))
}

/// Reads a file, but not more than `max` bytes.
fn read(path: &Path, max: usize, action: &'static str) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(max as u64 + 1).read_to_end(&mut bytes));
    let read = read.and_then(|len| if len > max { Err(std::io::ErrorKind::FileTooLarge.into()) } else { Ok(()) });
    read.map_err(|source| Failure::File { path: path.to_owned(), action, source })?;
    Ok(bytes)
}
