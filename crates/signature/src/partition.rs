//! Partitions in which systemd stores a signature: a line of JSON, and zeros.

use crate::certificate::{Certificate, hex};
use crate::error::SignatureError;
use base64ct::{Base64, Encoding};

/// Length of a partition in bytes.
pub const PARTITION_LEN: usize = 16384;

/// Contents of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// The root hash.
    pub root_hash: Vec<u8>,
    /// SHA-256 digest of the signer's certificate, if it is there.
    pub fingerprint: Option<Vec<u8>>,
    /// The signature, in DER.
    pub signature: Vec<u8>,
}

impl Partition {
    /// Creates the contents for a root hash that was signed.
    pub fn new(root_hash: &[u8], signature: &[u8], certificate: &Certificate) -> Self {
        let fingerprint = Some(certificate.fingerprint());
        Self { root_hash: root_hash.to_vec(), fingerprint, signature: signature.to_vec() }
    }

    /// Returns the bytes, as `systemd-repart` writes them.
    ///
    /// # Errors
    /// A signature that does not fit.
    pub fn encode(&self) -> Result<Vec<u8>, SignatureError> {
        let fingerprint =
            self.fingerprint.as_ref().map(|digest| format!(",\"certificateFingerprint\":\"{}\"", hex(digest)));
        let mut bytes = format!(
            "{{\"rootHash\":\"{}\"{},\"signature\":\"{}\"}}",
            hex(&self.root_hash),
            fingerprint.unwrap_or_default(),
            Base64::encode_string(&self.signature),
        )
        .into_bytes();
        if bytes.len() > PARTITION_LEN {
            return Err(SignatureError::Partition(format!("{} bytes do not fit in {PARTITION_LEN}", bytes.len())));
        }
        bytes.resize(PARTITION_LEN, 0);
        Ok(bytes)
    }

    /// Parses a partition, or as much of one as has the JSON. Other fields are ignored.
    ///
    /// # Errors
    /// Anything else.
    pub fn parse(bytes: &[u8]) -> Result<Self, SignatureError> {
        let fail = |problem: &str| SignatureError::Partition(problem.to_owned());
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        if let Some(at) = bytes[end..].iter().position(|&byte| byte != 0) {
            return Err(fail(&format!("byte {} is padding, and not zero", end + at)));
        }
        let json: serde_json::Value =
            serde_json::from_slice(&bytes[..end]).map_err(|error| fail(&format!("no JSON: {error}")))?;
        let text = |field: &str| match &json[field] {
            serde_json::Value::Null => Ok(None),
            serde_json::Value::String(text) => Ok(Some(text.as_str())),
            _ => Err(fail(&format!("{field} is no string"))),
        };
        let digits = |field: &str| {
            let bytes = text(field)?.map(|digits| unhex(digits).ok_or(fail(&format!("{field} is not hexadecimal"))));
            bytes.transpose()
        };
        let root_hash = digits("rootHash")?.ok_or_else(|| fail("no rootHash"))?;
        let signature = text("signature")?.ok_or_else(|| fail("no signature"))?;
        let signature = Base64::decode_vec(signature).map_err(|_| fail("signature is not base64"))?;
        Ok(Self { root_hash, fingerprint: digits("certificateFingerprint")?, signature })
    }
}

fn unhex(digits: &str) -> Option<Vec<u8>> {
    let nibble = |digit: u8| (digit as char).to_digit(16).map(|value| value as u8);
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| if let [high, low] = *pair { Some(nibble(high)? << 4 | nibble(low)?) } else { None }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_comes_back() {
        let partition = Partition { root_hash: vec![1; 32], fingerprint: Some(vec![2; 32]), signature: vec![3; 403] };
        let bytes = partition.encode().unwrap();
        assert_eq!(bytes.len(), PARTITION_LEN);
        assert!(bytes.starts_with(b"{\"rootHash\":\"0101"), "{:?}", &bytes[..40]);
        assert_eq!(Partition::parse(&bytes).unwrap(), partition);
        let without = Partition { fingerprint: None, ..partition };
        assert_eq!(Partition::parse(&without.encode().unwrap()).unwrap(), without);
    }

    #[test]
    fn what_is_no_partition_is_refused() {
        let problem = |bytes: &[u8]| Partition::parse(bytes).unwrap_err().to_string();
        assert!(problem(b"").contains("no JSON"));
        assert!(problem(b"{}\0\0x").contains("byte 4 is padding"));
        assert!(problem(b"{}").contains("no rootHash"));
        assert!(problem(b"{\"rootHash\":\"0g\"}").contains("not hexadecimal"));
        assert!(problem(b"{\"rootHash\":\"00\"}").contains("no signature"));
        assert!(problem(b"{\"rootHash\":\"00\",\"signature\":\"!\"}").contains("not base64"));
        assert!(problem(b"{\"rootHash\":7,\"signature\":\"!\"}").contains("no string"));
        let long = Partition { root_hash: vec![0; 32], fingerprint: None, signature: vec![0; 16384] };
        assert!(long.encode().unwrap_err().to_string().contains("do not fit"));
    }
}
