//! Files of equal contents, found as they are read: by length and BLAKE3.
//!
//! Files of one piece are compared at once. The first piece of a longer file nominates an earlier file; as long as
//! further pieces are equal, nothing of it is stored.

use std::collections::HashMap;

use crate::plan::file::ReadCompat;

/// Digest of a piece.
pub(crate) type PieceDigest = [u8; 32];

/// Key of equal files, or of long files with equal first pieces.
#[derive(Clone, Copy)]
pub(crate) struct FileKey {
    /// Digest of the first piece.
    pub digest: PieceDigest,
    /// Length in bytes.
    pub len: u64,
    /// First byte of the first piece: files with other holes are not equal.
    pub start: u64,
}

impl FileKey {
    /// Returns the BLAKE3 of the key and a compression: there is one for each file, and it is half as long.
    fn digest_with(&self, compat: ReadCompat) -> [u8; 32] {
        let (algorithm, pcluster_len) = compat.map_or((u8::MAX, 0), |(algorithm, len)| (algorithm as u8, len));
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.digest).update(&self.len.to_le_bytes()).update(&self.start.to_le_bytes());
        hasher.update(&[algorithm]).update(&pcluster_len.to_le_bytes());
        hasher.finalize().into()
    }
}

/// Contents that were met.
#[derive(Default)]
pub(crate) struct Duplicates {
    /// The first file of each key and compression, by their digest.
    first: HashMap<[u8; 32], u32>,
    /// Places and digests of the pieces of long files.
    pieces: HashMap<u32, Vec<(u64, PieceDigest)>>,
}

impl Duplicates {
    /// Returns the first file that begins like this one.
    pub(crate) fn find(&self, key: FileKey, compat: ReadCompat) -> Option<u32> {
        self.first.get(&key.digest_with(compat)).copied()
    }

    /// Remembers a file as the first of its key.
    pub(crate) fn insert(&mut self, key: FileKey, compat: ReadCompat, file: u32) {
        self.first.entry(key.digest_with(compat)).or_insert(file);
    }

    /// Remembers a piece of a long file.
    pub(crate) fn add_piece(&mut self, file: u32, start: u64, digest: PieceDigest) {
        self.pieces.entry(file).or_default().push((start, digest));
    }

    /// Returns true if piece `number` of a long file is this one.
    pub(crate) fn has_piece(&self, file: u32, number: usize, start: u64, digest: PieceDigest) -> bool {
        self.pieces.get(&file).and_then(|pieces| pieces.get(number)) == Some(&(start, digest))
    }

    /// Returns the number of pieces of a long file.
    pub(crate) fn piece_count(&self, file: u32) -> usize {
        self.pieces.get(&file).map_or(0, Vec::len)
    }

    /// Forgets the pieces of a file that equals no other, or cannot be read.
    pub(crate) fn forget(&mut self, file: u32) {
        self.pieces.remove(&file);
    }
}
