//! The digest in the value of overlayfs's attribute `trusted.overlay.metacopy`.

use crate::hash::{Algorithm, Digest};

/// Length of the head in bytes.
const HEAD_LEN: usize = 4;

/// Returns the head of a value, behind which the digest comes: version, length of the value, flags, algorithm.
pub const fn head(algorithm: Algorithm) -> [u8; HEAD_LEN] {
    [0, (HEAD_LEN + algorithm.digest_len()) as u8, 0, algorithm.fsverity_number()]
}

/// Returns the value with this digest.
pub fn value(digest: &Digest) -> Vec<u8> {
    [&head(digest.algorithm())[..], digest.as_bytes()].concat()
}

/// Returns the digest in a value, or `None` in one that is empty, and says nothing about the contents.
///
/// # Errors
/// A value that is no digest.
pub fn parse(value: &[u8]) -> Result<Option<Digest>, &'static str> {
    if value.is_empty() {
        return Ok(None);
    }
    let split = value.split_first_chunk::<HEAD_LEN>();
    let digest = split.and_then(|(start, digest)| Digest::from_bytes(digest).filter(|d| head(d.algorithm()) == *start));
    digest.map(Some).ok_or("no fs-verity digest")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_both_functions_are_parsed() {
        for algorithm in Algorithm::ALL {
            let digest = vec![7; algorithm.digest_len()];
            let value = value(&Digest::from_bytes(&digest).unwrap());
            assert_eq!(parse(&value), Ok(Digest::from_bytes(&digest)));
            let changed = |at: usize| {
                let mut value = value.clone();
                value[at] ^= 1;
                parse(&value)
            };
            for at in 0..HEAD_LEN {
                assert!(changed(at).is_err(), "{at}");
            }
            assert!(parse(&value[1..]).is_err() && parse(&value[..value.len() - 1]).is_err());
        }
        assert_eq!(parse(b""), Ok(None));
        assert!(parse(b"\0").is_err());
    }
}
