//! Hash functions, and digests of salted blocks.

use sha2::{Digest as _, Sha256, Sha512};
use std::fmt;
use std::str::FromStr;

/// Hash function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// SHA-256.
    #[default]
    Sha256,
    /// SHA-512.
    Sha512,
}

impl Algorithm {
    /// All functions.
    pub const ALL: [Algorithm; 2] = [Algorithm::Sha256, Algorithm::Sha512];

    /// Returns the name in superblocks and on command lines.
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::Sha256 => "sha256",
            Algorithm::Sha512 => "sha512",
        }
    }

    /// Returns the name as composefs has it: the function of fs-verity, with log2 of the length of its blocks.
    pub const fn fsverity_name(self) -> &'static str {
        match self {
            Algorithm::Sha256 => "fsverity-sha256-12",
            Algorithm::Sha512 => "fsverity-sha512-12",
        }
    }

    /// Returns the number that fs-verity and composefs use.
    pub const fn fsverity_number(self) -> u8 {
        match self {
            Algorithm::Sha256 => 1,
            Algorithm::Sha512 => 2,
        }
    }

    /// Returns the length of a digest in bytes: a power of two.
    pub const fn digest_len(self) -> usize {
        match self {
            Algorithm::Sha256 => 32,
            Algorithm::Sha512 => 64,
        }
    }

    /// Returns the algorithm whose digests have this length in bytes.
    pub fn of_len(len: usize) -> Option<Self> {
        Algorithm::ALL.into_iter().find(|algorithm| algorithm.digest_len() == len)
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Algorithm {
    type Err = &'static str;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let named = Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == name);
        named.ok_or("neither sha256 nor sha512")
    }
}

/// Digest of 32 or 64 bytes. Displayed as hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest {
    algorithm: Algorithm,
    /// The digest, and zeros up to the longest one.
    bytes: [u8; 64],
}

impl Digest {
    /// Returns the digest with these bytes; `None` if no algorithm has digests of this length.
    pub fn from_bytes(digest: &[u8]) -> Option<Self> {
        let algorithm = Algorithm::of_len(digest.len())?;
        let mut bytes = [0; 64];
        bytes[..digest.len()].copy_from_slice(digest);
        Some(Self { algorithm, bytes })
    }

    /// Returns the digest with these hexadecimal digits, in upper or lower case; `None` if they are none.
    pub fn from_hex(digits: &[u8]) -> Option<Self> {
        Self::from_bytes(&parse_hex(digits)?)
    }

    /// Returns its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.algorithm.digest_len()]
    }

    /// Returns its algorithm.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{self}", self.algorithm)
    }
}

impl FromStr for Digest {
    type Err = &'static str;

    /// Parses hexadecimal digits.
    fn from_str(digits: &str) -> Result<Self, Self::Err> {
        let bytes = parse_hex(digits.as_bytes()).ok_or("not hexadecimal")?;
        Digest::from_bytes(&bytes).ok_or("neither 64 nor 128 hexadecimal digits")
    }
}

/// Parses pairs of hexadecimal digits.
fn parse_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    let nibble = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
    pairs.iter().map(|&[high, low]| Some(nibble(high)? << 4 | nibble(low)?)).collect()
}

/// Digests of blocks with a salt in front. Cheap to clone.
#[derive(Clone)]
pub struct BlockHasher(Salted);

/// State of a hash function behind the salt.
#[derive(Clone)]
enum Salted {
    Sha256(Sha256),
    Sha512(Sha512),
}

impl BlockHasher {
    /// Creates a hasher.
    pub fn new(algorithm: Algorithm, salt: &[u8]) -> Self {
        Self(match algorithm {
            Algorithm::Sha256 => Salted::Sha256(Sha256::new_with_prefix(salt)),
            Algorithm::Sha512 => Salted::Sha512(Sha512::new_with_prefix(salt)),
        })
    }

    /// Returns the hash function.
    pub fn algorithm(&self) -> Algorithm {
        match self.0 {
            Salted::Sha256(_) => Algorithm::Sha256,
            Salted::Sha512(_) => Algorithm::Sha512,
        }
    }

    /// Returns the digest of a block.
    pub fn digest(&self, block: &[u8]) -> Digest {
        let mut bytes = [0; 64];
        self.digest_into(block, &mut bytes[..self.algorithm().digest_len()]);
        Digest { algorithm: self.algorithm(), bytes }
    }

    /// Writes the digests of adjacent blocks of `block_len` bytes to `out`, which has room for exactly these.
    ///
    /// # Panics
    /// If `out` has another length.
    pub fn digests_into(&self, blocks: &[u8], block_len: usize, out: &mut [u8]) {
        let digest_len = self.algorithm().digest_len();
        assert_eq!(out.len(), blocks.len().div_ceil(block_len) * digest_len, "room for digests");
        for (block, out) in blocks.chunks(block_len).zip(out.chunks_exact_mut(digest_len)) {
            self.digest_into(block, out);
        }
    }

    /// Writes the digest of a block to `out`, which has its length.
    pub(crate) fn digest_into(&self, block: &[u8], out: &mut [u8]) {
        match &self.0 {
            Salted::Sha256(salted) => out.copy_from_slice(&salted.clone().chain_update(block).finalize()),
            Salted::Sha512(salted) => out.copy_from_slice(&salted.clone().chain_update(block).finalize()),
        }
    }
}
