//! Superblocks of hash trees, and signatures of root hashes.

use kiln_read::MemorySource;
use kilnfs::signature::partition::Partition;
use kilnfs::signature::{self, Certificate};
use kilnfs::verity::{Digest, Location, SUPERBLOCK_LEN, Shape, Superblock, VerifiedSource, stray_padding};

/// Input: the superblock of a hash tree, which zeros complete, and blocks behind it. What decodes must encode to the
/// same bytes but for padding, and have levels that adjoin; the input is also opened as the tree of itself.
pub fn superblock(data: &[u8]) {
    let mut bytes = [0; SUPERBLOCK_LEN];
    let len = data.len().min(SUPERBLOCK_LEN);
    bytes[..len].copy_from_slice(&data[..len]);
    let Ok(superblock) = Superblock::decode(&bytes, 0) else { return };
    let again = superblock.encode().expect("what was decoded can be encoded");
    assert_eq!(Superblock::decode(&again, 0).expect("what was encoded can be decoded"), superblock);
    assert_eq!(stray_padding(&bytes, &superblock).is_none(), again == bytes);

    let parameters = &superblock.parameters;
    let shape = Shape::new(parameters).expect("checked parameters");
    let mut end = 0;
    for level in (0..shape.levels()).rev() {
        assert_eq!(shape.off(level, 0), end, "levels adjoin");
        end = shape.off(level, shape.blocks(level));
        assert_eq!(shape.covers(level, shape.blocks(level) - 1).end, parameters.data_len());
    }
    assert_eq!(shape.tree_len(), end);

    let root_hash = Digest::from_bytes(&vec![0; parameters.algorithm.digest_len()]).expect("a digest's length");
    let source = || MemorySource::new(data.to_vec());
    for location in [Location::Beside { hash_off: 0 }, Location::Behind { hash_off: 0 }] {
        if let Ok(opened) = VerifiedSource::open(source(), source(), location, root_hash) {
            assert_eq!(shape.levels(), 0, "no block has this digest");
            assert_eq!(opened.superblock(), &superblock);
        }
    }
}

/// Certificates whose keys have signed what the seeds hold.
const CERTIFICATES: [&[u8]; 2] = [
    include_bytes!("../../../crates/signature/tests/it/keys/rsa.crt"),
    include_bytes!("../../../crates/signature/tests/it/keys/p256.crt"),
];

/// Input: a signature, or a partition with one. No certificate has signed the contents that it is verified for.
pub fn signature(data: &[u8]) {
    if let Ok(partition) = Partition::parse(data)
        && let Ok(again) = partition.encode()
    {
        assert_eq!(Partition::parse(&again).expect("a written partition"), partition);
    }
    for certificate in CERTIFICATES {
        let certificate = Certificate::parse(certificate).expect("a certificate");
        assert!(signature::verify(data, b"nobody has signed this", &certificate).is_err());
    }
    if let Ok(certificate) = Certificate::parse(data) {
        Certificate::parse(certificate.der()).expect("a certificate that was parsed");
    }
}
