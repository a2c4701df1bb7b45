//! Digests in documents: an algorithm, a colon, and hexadecimal digits.

use kiln_format::Hex;
use sha2::{Digest, Sha256, Sha512};

/// Hasher that computes a digest.
pub(super) enum Hasher {
    Sha256(Box<Sha256>),
    Sha512(Box<Sha512>),
}

impl Hasher {
    /// Creates a hasher for SHA-256, which names blobs.
    pub(super) fn sha256() -> Self {
        Hasher::Sha256(Box::default())
    }

    /// Creates a hasher of the algorithm of `digest`, or returns `None` if that is invalid or of an
    /// unsupported algorithm.
    pub(super) fn like(digest: &str) -> Option<Self> {
        let (algorithm, digits) = digest.split_once(':')?;
        let (hasher, digits_len) = match algorithm {
            "sha256" => (Hasher::sha256(), 64),
            "sha512" => (Hasher::Sha512(Box::default()), 128),
            _ => return None,
        };
        let are_digits = digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        (digits.len() == digits_len && are_digits).then_some(hasher)
    }

    /// Adds bytes.
    pub(super) fn update(&mut self, bytes: &[u8]) {
        match self {
            Hasher::Sha256(hasher) => hasher.update(bytes),
            Hasher::Sha512(hasher) => hasher.update(bytes),
        }
    }

    /// Returns the digest of all bytes.
    pub(super) fn finish(self) -> String {
        match self {
            Hasher::Sha256(hasher) => text("sha256", &hasher.finalize()),
            Hasher::Sha512(hasher) => text("sha512", &hasher.finalize()),
        }
    }
}

fn text(algorithm: &str, digest: &[u8]) -> String {
    format!("{algorithm}:{}", Hex(digest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_made_like_others() {
        let [short, long] =
            ["sha256", "sha512"].map(|name| format!("{name}:{}", "0".repeat(if name == "sha256" { 64 } else { 128 })));
        let of_abc = |like: &str| {
            let mut hasher = Hasher::like(like).unwrap();
            hasher.update(b"ab");
            hasher.update(b"c");
            hasher.finish()
        };
        // The examples of FIPS 180-2.
        assert!(of_abc(&short).starts_with("sha256:ba7816bf8f01cfea"), "{}", of_abc(&short));
        assert!(of_abc(&long).starts_with("sha512:ddaf35a193617aba"), "{}", of_abc(&long));
        for wrong in ["", "sha256:", "sha384:00", &short[1..], &short[..70], &short.replace('0', "A"), &long[..71]] {
            assert!(Hasher::like(wrong).is_none(), "{wrong}");
        }
    }
}
