//! The superblock of a hash tree: what is needed to find and check the tree, under no hash itself.

use kiln_digest::{Algorithm, Digest};
use kiln_read::FormatError;
use sha1::{Digest as _, Sha1};
use uuid::Uuid;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First bytes of a superblock.
pub const MAGIC: [u8; 8] = *b"verity\0\0";

/// Length of a superblock in bytes. The rest of its hash block is zero.
pub const SUPERBLOCK_LEN: usize = 512;

/// Largest block.
pub const BLOCK_SIZE_MAX: u32 = 64 << 10;

/// Smallest block.
pub const BLOCK_SIZE_MIN: u32 = 512;

/// Longest salt.
pub const SALT_MAX_LEN: usize = 256;

/// Most bytes that a tree may cover: offsets of files have 63 bits.
const DATA_MAX_LEN: u64 = i64::MAX as u64;

const RECORD: &str = "verity_superblock";

/// The bytes of a superblock.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawSuperblock {
    signature: [u8; 8],
    version: U32,
    hash_type: U32,
    uuid: [u8; 16],
    algorithm: [u8; 32],
    data_block_size: U32,
    hash_block_size: U32,
    data_blocks: U64,
    salt_size: U16,
    padding1: [u8; 6],
    salt: [u8; SALT_MAX_LEN],
    padding2: [u8; 168],
}

const _: () = {
    use std::mem::{offset_of, size_of};
    assert!(size_of::<RawSuperblock>() == SUPERBLOCK_LEN);
    assert!(offset_of!(RawSuperblock, uuid) == 16);
    assert!(offset_of!(RawSuperblock, algorithm) == 32);
    assert!(offset_of!(RawSuperblock, data_block_size) == 64);
    assert!(offset_of!(RawSuperblock, data_blocks) == 72);
    assert!(offset_of!(RawSuperblock, salt_size) == 80);
    assert!(offset_of!(RawSuperblock, padding1) == PADDING1.start);
    assert!(offset_of!(RawSuperblock, salt) == SALT_OFF);
    assert!(offset_of!(RawSuperblock, padding2) == PADDING2_OFF);
};

const PADDING1: std::ops::Range<usize> = 82..88;
const SALT_OFF: usize = 88;
const PADDING2_OFF: usize = 344;

/// Everything that decides the bytes of a tree, besides the data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Hash function.
    pub algorithm: Algorithm,
    /// Bytes of a block of data: a power of two from 512 to 65536.
    pub data_block_size: u32,
    /// Bytes of a block of the tree: a power of two from 512 to 65536.
    pub hash_block_size: u32,
    /// Blocks of data: at least one.
    pub data_blocks: u64,
    /// Bytes in front of each block that is hashed: at most 256.
    pub salt: Vec<u8>,
}

impl Parameters {
    /// Returns the parameters that containerd uses, for this number of blocks: SHA-256, blocks of 4096 bytes, 32
    /// zeros as the salt.
    pub fn new(data_blocks: u64) -> Self {
        let (algorithm, salt) = (Algorithm::Sha256, vec![0; 32]);
        Self { algorithm, data_block_size: 4096, hash_block_size: 4096, data_blocks, salt }
    }

    /// Returns the number of bytes that the tree covers.
    pub fn data_len(&self) -> u64 {
        self.data_blocks.saturating_mul(self.data_block_size.into())
    }

    /// Checks every value; `off` is the byte offset of the superblock, for errors.
    ///
    /// # Errors
    /// A value that the format does not allow.
    pub fn check(&self, off: u64) -> Result<(), FormatError> {
        let corrupt = |field, value, reason| Err(FormatError::corrupt(RECORD, off, field, value, reason));
        for (field, size) in [("data_block_size", self.data_block_size), ("hash_block_size", self.hash_block_size)] {
            if !size.is_power_of_two() || !(BLOCK_SIZE_MIN..=BLOCK_SIZE_MAX).contains(&size) {
                return corrupt(field, size.into(), "not a power of two from 512 to 65536");
            }
        }
        if self.data_blocks == 0 {
            return corrupt("data_blocks", 0, "a tree covers one block at least");
        }
        if self.data_blocks > DATA_MAX_LEN / u64::from(self.data_block_size) {
            return corrupt("data_blocks", self.data_blocks, "more than 2^63 bytes of data");
        }
        if self.salt.len() > SALT_MAX_LEN {
            return corrupt("salt_size", self.salt.len() as u64, "more than 256 bytes");
        }
        Ok(())
    }
}

/// A checked superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Name of the tree. Never zero.
    pub uuid: Uuid,
    /// Parameters of the tree.
    pub parameters: Parameters,
}

impl Superblock {
    /// Decodes the superblock at byte `off` of its source.
    ///
    /// # Errors
    /// A field that is not one of a tree of version 1, or whose value is unknown. Padding is not looked at, see
    /// [`stray_padding`].
    pub fn decode(bytes: &[u8; SUPERBLOCK_LEN], off: u64) -> Result<Self, FormatError> {
        let raw: RawSuperblock = zerocopy::transmute!(*bytes);
        let corrupt = |field, value, reason| Err(FormatError::corrupt(RECORD, off, field, value, reason));
        let unsupported = |field, value, reason| Err(FormatError::unsupported(RECORD, off, field, value, reason));
        if raw.signature != MAGIC {
            return corrupt("signature", u64::from_le_bytes(raw.signature), "there is no hash tree");
        }
        if raw.version.get() != 1 {
            return unsupported("version", raw.version.get().into(), "only version 1 is known");
        }
        if raw.hash_type.get() != 1 {
            return unsupported(
                "hash_type",
                raw.hash_type.get().into(),
                "only type 1, with the salt in front, is known",
            );
        }
        let uuid = Uuid::from_bytes(raw.uuid);
        if uuid.is_nil() {
            return corrupt("uuid", 0, "zero, which other programs refuse");
        }
        let Some(algorithm) = Algorithm::ALL.into_iter().find(|known| raw.algorithm == name_field(*known)) else {
            let start = u64::from_le_bytes(raw.algorithm[..8].try_into().unwrap_or_default());
            return unsupported("algorithm", start, "neither sha256 nor sha512");
        };
        let salt_len = usize::from(raw.salt_size.get());
        let Some(salt) = raw.salt.get(..salt_len) else {
            return corrupt("salt_size", salt_len as u64, "more than 256 bytes");
        };
        let parameters = Parameters {
            algorithm,
            data_block_size: raw.data_block_size.get(),
            hash_block_size: raw.hash_block_size.get(),
            data_blocks: raw.data_blocks.get(),
            salt: salt.to_vec(),
        };
        parameters.check(off)?;
        Ok(Self { uuid, parameters })
    }

    /// Encodes the superblock.
    ///
    /// # Errors
    /// Values that [`Superblock::decode`] refuses.
    pub fn encode(&self) -> Result<[u8; SUPERBLOCK_LEN], FormatError> {
        let Parameters { algorithm, data_block_size, hash_block_size, data_blocks, salt: salt_bytes } =
            &self.parameters;
        self.parameters.check(0)?;
        if self.uuid.is_nil() {
            return Err(FormatError::corrupt(RECORD, 0, "uuid", 0, "zero, which other programs refuse"));
        }
        let mut salt = [0; SALT_MAX_LEN];
        salt[..salt_bytes.len()].copy_from_slice(salt_bytes);
        Ok(zerocopy::transmute!(RawSuperblock {
            signature: MAGIC,
            version: 1.into(),
            hash_type: 1.into(),
            uuid: self.uuid.into_bytes(),
            algorithm: name_field(*algorithm),
            data_block_size: (*data_block_size).into(),
            hash_block_size: (*hash_block_size).into(),
            data_blocks: (*data_blocks).into(),
            salt_size: (salt_bytes.len() as u16).into(), // at most 256: checked
            padding1: [0; 6],
            salt,
            padding2: [0; 168],
        }))
    }
}

fn name_field(algorithm: Algorithm) -> [u8; 32] {
    let mut field = [0; 32];
    field[..algorithm.name().len()].copy_from_slice(algorithm.name().as_bytes());
    field
}

/// Returns the place of the first byte of padding that is not zero, in the hash block of a superblock.
pub fn stray_padding(block: &[u8], superblock: &Superblock) -> Option<usize> {
    let salt_end = SALT_OFF + superblock.parameters.salt.len();
    let is_padding = |at: &usize| PADDING1.contains(at) || *at >= salt_end;
    (0..block.len()).filter(is_padding).find(|&at| block[at] != 0)
}

/// Returns the UUID that kiln gives a tree: version 5 (RFC 9562) of the bytes of the root hash, in the namespace OID.
/// The same tree has the same UUID, and damage of it is seen.
pub fn uuid_of(root_hash: &Digest) -> Uuid {
    let sha1 = Sha1::new().chain_update(Uuid::NAMESPACE_OID.as_bytes()).chain_update(root_hash.as_bytes()).finalize();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&sha1[..16]);
    uuid::Builder::from_sha1_bytes(bytes).into_uuid()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn superblock() -> Superblock {
        let uuid = Uuid::from_u128(0x1234_5678_9abc_5def_8012_3456_789a_bcde);
        Superblock { uuid, parameters: Parameters { salt: vec![7; 20], ..Parameters::new(300) } }
    }

    #[test]
    fn what_is_encoded_decodes_to_the_same() {
        let bytes = superblock().encode().unwrap();
        assert_eq!(Superblock::decode(&bytes, 0).unwrap(), superblock());
        assert_eq!(&bytes[..20], b"verity\0\0\x01\0\0\0\x01\0\0\0\x12\x34\x56\x78");
        assert_eq!(stray_padding(&bytes, &superblock()), None);
    }

    #[test]
    fn every_field_is_checked() {
        let good = superblock().encode().unwrap();
        let lies: &[(usize, &[u8], &str)] = &[
            (0, b"Verity", "signature"),
            (8, &[0], "version"),
            (8, &[2], "version"),
            (12, &[0], "hash_type"),
            (16, &[0; 16], "uuid"),
            (32, b"sha1\0\0", "algorithm"),
            (32, b"sha256x", "algorithm"),
            (63, b"x", "algorithm"),
            (64, &[0, 0], "data_block_size"),
            (64, &[0, 1], "data_block_size"),
            (64, &[0, 0, 2], "data_block_size"),
            (64, &[1, 16], "data_block_size"),
            (68, &[0, 0, 0, 0x80], "hash_block_size"),
            (72, &[0; 8], "data_blocks"),
            (72, &[0xff; 8], "data_blocks"),
            (72, &[0, 0, 0, 0, 0, 0, 8, 0], "data_blocks"),
            (80, &[1, 1], "salt_size"),
        ];
        for &(at, lie, field) in lies {
            let mut bytes = good;
            bytes[at..at + lie.len()].copy_from_slice(lie);
            let error = Superblock::decode(&bytes, 8192).unwrap_err();
            assert_eq!((error.field, error.offset), (field, 8192), "{error}");
        }
    }

    #[test]
    fn stray_bytes_in_padding_are_found() {
        let good = superblock().encode().unwrap();
        let mut block = vec![0; 4096];
        block[..SUPERBLOCK_LEN].copy_from_slice(&good);
        for at in [82, 87, 108, 343, 344, 511, 512, 4095] {
            let mut block = block.clone();
            block[at] = 1;
            assert_eq!(stray_padding(&block, &superblock()), Some(at));
        }
    }

    #[test]
    fn wrong_values_are_not_encoded() {
        let of = |change: &dyn Fn(&mut Superblock)| {
            let mut wrong = superblock();
            change(&mut wrong);
            wrong.encode().unwrap_err().field
        };
        assert_eq!(of(&|wrong| wrong.uuid = Uuid::nil()), "uuid");
        assert_eq!(of(&|wrong| wrong.parameters.salt = vec![0; 257]), "salt_size");
        assert_eq!(of(&|wrong| wrong.parameters.data_blocks = 0), "data_blocks");
    }
}
