//! Digests of contents that images store beside inodes. A value tells its own function.

use crate::fsverity::FsVerity;
use crate::hash::{Algorithm, Digest};
use sha2::{Digest as _, Sha256};
use std::fmt;
use std::str::FromStr;

/// Function of digests of contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ContentHash {
    /// SHA-256 of all bytes, as mkfs.erofs stores it.
    #[default]
    Sha256,
    /// fs-verity digest: the one that the kernel measures, and that names objects of composefs.
    FsVerity(Algorithm),
}

impl ContentHash {
    /// All functions.
    pub const ALL: [ContentHash; 3] =
        [ContentHash::Sha256, ContentHash::FsVerity(Algorithm::Sha256), ContentHash::FsVerity(Algorithm::Sha512)];

    /// Returns the name in options and messages.
    pub const fn name(self) -> &'static str {
        match self {
            ContentHash::Sha256 => "sha256",
            ContentHash::FsVerity(Algorithm::Sha256) => "fsverity-sha256",
            ContentHash::FsVerity(Algorithm::Sha512) => "fsverity-sha512",
        }
    }

    /// Returns the name in stored values, behind which a colon and the digest come.
    const fn stored_name(self) -> &'static str {
        match self {
            ContentHash::Sha256 => "sha256",
            ContentHash::FsVerity(algorithm) => algorithm.fsverity_name(),
        }
    }

    /// Returns the length of a digest in bytes.
    pub const fn digest_len(self) -> usize {
        match self {
            ContentHash::Sha256 => Algorithm::Sha256.digest_len(),
            ContentHash::FsVerity(algorithm) => algorithm.digest_len(),
        }
    }

    /// Returns the length of a stored value in bytes.
    pub const fn value_len(self) -> usize {
        self.stored_name().len() + 1 + self.digest_len()
    }

    /// Returns the digest of contents that are in memory.
    pub fn digest(self, contents: &[u8]) -> ContentDigest {
        let mut hasher = ContentHasher::new(self);
        hasher.update(contents);
        hasher.finish()
    }
}

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ContentHash {
    type Err = &'static str;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let named = ContentHash::ALL.into_iter().find(|hash| hash.name() == name);
        named.ok_or("none of sha256, fsverity-sha256 and fsverity-sha512")
    }
}

/// Digest of contents. Displayed as hexadecimal digits; see [`ContentDigest::labelled`].
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ContentDigest {
    hash: ContentHash,
    digest: Digest,
}

impl ContentDigest {
    /// Returns the digest with these bytes; `None` if those of the function have another length.
    pub fn new(hash: ContentHash, digest: &[u8]) -> Option<Self> {
        let digest = Digest::from_bytes(digest).filter(|_| digest.len() == hash.digest_len())?;
        Some(Self { hash, digest })
    }

    /// Returns the digest in a stored value; `None` if the function is unknown, or the length another one.
    pub fn parse(value: &[u8]) -> Option<Self> {
        ContentHash::ALL.into_iter().find_map(|hash| {
            let digest = value.strip_prefix(hash.stored_name().as_bytes())?.strip_prefix(b":")?;
            Self::new(hash, digest)
        })
    }

    /// Returns the value that is stored: the function's name, a colon, and the bytes of the digest.
    pub fn value(&self) -> Vec<u8> {
        [self.hash.stored_name().as_bytes(), b":", self.as_bytes()].concat()
    }

    /// Returns its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.digest.as_bytes()
    }

    /// Returns the digest as text with its function: `fsverity-sha256:` and hexadecimal digits.
    pub fn labelled(&self) -> String {
        format!("{}:{}", self.hash, self.digest)
    }

    /// Returns its function.
    pub fn hash(&self) -> ContentHash {
        self.hash
    }
}

impl fmt::Display for ContentDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.digest.fmt(f)
    }
}

impl fmt::Debug for ContentDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.labelled())
    }
}

/// Name of a digest's function for sentences.
pub struct Described(pub ContentHash);

impl fmt::Display for Described {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            ContentHash::Sha256 => "SHA-256",
            ContentHash::FsVerity(Algorithm::Sha256) => "fs-verity digest (SHA-256)",
            ContentHash::FsVerity(Algorithm::Sha512) => "fs-verity digest (SHA-512)",
        })
    }
}

/// Computes the digest of contents that are given from front to back, in pieces of any length.
#[derive(Clone)]
pub struct ContentHasher(State);

#[derive(Clone)]
enum State {
    Sha256(Sha256),
    FsVerity(Algorithm, Box<FsVerity>),
}

impl ContentHasher {
    /// Starts with empty contents.
    pub fn new(hash: ContentHash) -> Self {
        Self(match hash {
            ContentHash::Sha256 => State::Sha256(Sha256::new()),
            ContentHash::FsVerity(algorithm) => State::FsVerity(algorithm, Box::new(FsVerity::new(algorithm))),
        })
    }

    /// Adds the bytes that follow.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            State::Sha256(state) => state.update(bytes),
            State::FsVerity(_, state) => state.update(bytes),
        }
    }

    /// Adds `len` zeros that follow: a hole.
    pub fn update_zeros(&mut self, mut len: u64) {
        static ZEROS: [u8; 4 << 10] = [0; 4 << 10];
        while len > 0 {
            let step = len.min(ZEROS.len() as u64);
            self.update(&ZEROS[..step as usize]);
            len -= step;
        }
    }

    /// Returns the digest of all bytes.
    pub fn finish(self) -> ContentDigest {
        match self.0 {
            State::Sha256(state) => {
                let digest = Digest::from_bytes(&state.finalize()).expect("32 bytes");
                ContentDigest { hash: ContentHash::Sha256, digest }
            }
            State::FsVerity(algorithm, state) => {
                ContentDigest { hash: ContentHash::FsVerity(algorithm), digest: state.finish() }
            }
        }
    }
}

impl fmt::Debug for ContentHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContentHasher").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fsverity;

    #[test]
    fn values_come_back_and_others_are_none() {
        for hash in ContentHash::ALL {
            let digest = hash.digest(b"contents");
            let value = digest.value();
            assert_eq!((value.len(), digest.hash()), (hash.value_len(), hash));
            assert_eq!(ContentDigest::parse(&value), Some(digest));
            assert_eq!(hash.name().parse(), Ok(hash));
            for other in [&value[1..], &value[..value.len() - 1], &[&value[..], b"x"].concat(), b"", b"md5:"] {
                assert_eq!(ContentDigest::parse(other), None, "{}", other.escape_ascii());
            }
            assert_eq!(ContentDigest::new(hash, &[0; 20]), None);
        }
        assert!("sha1".parse::<ContentHash>().is_err());
    }

    #[test]
    fn digests_are_those_of_their_functions() {
        let contents = [vec![3; 70_001], vec![0; 200_000], vec![4; 5]].concat();
        let expected = [
            Sha256::digest(&contents).to_vec(),
            fsverity::digest(Algorithm::Sha256, &contents).as_bytes().to_vec(),
            fsverity::digest(Algorithm::Sha512, &contents).as_bytes().to_vec(),
        ];
        for (hash, expected) in ContentHash::ALL.into_iter().zip(expected) {
            let mut hasher = ContentHasher::new(hash);
            hasher.update(&contents[..70_001]);
            hasher.update_zeros(200_000);
            hasher.update(&[4; 5]);
            assert_eq!(hasher.finish().as_bytes(), expected, "{hash}");
        }
    }
}
