//! Data and trees for tests.

use kiln_read::MemorySource;
use kiln_verity::{Algorithm, Control, Location, Parameters, Tree, VerifiedSource, VerityError};
use std::process::Command;

/// Returns bytes without a repeated block.
pub fn pattern(len: usize) -> Vec<u8> {
    let word = |n: u64| (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left((n % 61) as u32).to_le_bytes();
    let mut bytes: Vec<u8> = (0..len.div_ceil(8) as u64).flat_map(word).collect();
    bytes.truncate(len);
    bytes
}

/// Returns parameters with equal sizes of blocks.
pub fn parameters(algorithm: Algorithm, block_size: u32, data_blocks: u64, salt: &[u8]) -> Parameters {
    Parameters { algorithm, data_block_size: block_size, hash_block_size: block_size, data_blocks, salt: salt.to_vec() }
}

/// Data with their tree, which begins at byte `hash_off` of `stored`.
pub struct Sealed {
    pub data: Vec<u8>,
    pub tree: Tree,
    /// The tree alone, or data and tree.
    pub stored: Vec<u8>,
    pub location: Location,
    pub hash_off: u64,
}

impl Sealed {
    /// Returns data with a tree beside them.
    pub fn beside(parameters: &Parameters) -> Self {
        let data = pattern(parameters.data_len() as usize);
        let tree = Tree::of_data(&MemorySource::new(data.clone()), parameters, &Control::unwatched()).unwrap();
        let mut stored = Vec::new();
        tree.write(&tree.superblock(None), 0, &mut stored).unwrap();
        Self { data, tree, stored, location: Location::Beside { hash_off: 0 }, hash_off: 0 }
    }

    /// Returns data with a tree behind them.
    pub fn behind(parameters: &Parameters) -> Self {
        let Self { data, tree, .. } = Self::beside(parameters);
        let (mut stored, hash_off) = (data.clone(), data.len() as u64);
        tree.write(&tree.superblock(None), hash_off, &mut stored).unwrap();
        Self { data, tree, stored, location: Location::Behind { hash_off }, hash_off }
    }

    /// Returns the bytes with the data, and those with the tree.
    fn sources(&self) -> (MemorySource, MemorySource) {
        let data = if matches!(self.location, Location::Behind { .. }) { &self.stored } else { &self.data };
        (MemorySource::new(data.clone()), MemorySource::new(self.stored.clone()))
    }

    pub fn open(&self) -> Result<VerifiedSource<MemorySource, MemorySource>, VerityError> {
        let (data, tree) = self.sources();
        VerifiedSource::open(data, tree, self.location, *self.tree.root_hash())
    }

    pub fn verify(&self) -> Result<kiln_verity::verify::Report, VerityError> {
        let (data, tree) = self.sources();
        let root_hash = self.tree.root_hash();
        kiln_verity::verify::verify(&data, &tree, self.location, root_hash, &Control::unwatched())
    }
}

/// Returns true if a program is installed. Otherwise, it reports a skip.
pub fn has(program: &str) -> bool {
    let is_there = Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if !is_there {
        kiln_tests::without(program);
    }
    is_there
}
