//! Reads through a verified source.

use crate::common::{Sealed, parameters, pattern};
use kiln_read::{MemorySource, RangeMut, ReadAt, conformance};
use kiln_verity::{
    Algorithm, BlockHasher, Control, LeafHasher, Location, Parameters, Tree, VerifiedSource, VerityError,
};
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[test]
fn a_verified_source_conforms() {
    for algorithm in Algorithm::ALL {
        for (block_size, blocks) in [(4096, 1), (4096, 129), (512, 1000), (512, 3), (65536, 3)] {
            for sealed in
                [Sealed::beside, Sealed::behind].map(|make| make(&parameters(algorithm, block_size, blocks, b"s")))
            {
                conformance::assert_conforms(&sealed.open().unwrap(), &sealed.data);
            }
        }
    }
    let mixed = Parameters { data_block_size: 512, hash_block_size: 4096, ..Parameters::new(5000) };
    let sealed = Sealed::beside(&mixed);
    conformance::assert_conforms(&sealed.open().unwrap(), &sealed.data);
    assert!(sealed.verify().unwrap().is_good());
}

/// A source that counts what is read, and whose next reads are wrong.
struct Counted {
    bytes: MemorySource,
    read: AtomicU64,
    wrong: AtomicU64,
}

impl Counted {
    fn new(bytes: Vec<u8>) -> Arc<Self> {
        Arc::new(Self { bytes: MemorySource::new(bytes), read: AtomicU64::new(0), wrong: AtomicU64::new(0) })
    }

    fn take(&self) -> u64 {
        self.read.swap(0, Ordering::Relaxed)
    }
}

impl ReadAt for Counted {
    fn len(&self) -> io::Result<u64> {
        self.bytes.len()
    }

    fn read_exact_at(&self, buf: &mut [u8], off: u64) -> io::Result<()> {
        self.read.fetch_add(buf.len() as u64, Ordering::Relaxed);
        self.bytes.read_exact_at(buf, off)?;
        let left = self.wrong.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if left.is_ok() {
            buf[0] ^= 1;
        }
        Ok(())
    }

    fn read_ranges(&self, ranges: &mut [RangeMut<'_>]) -> io::Result<()> {
        ranges.iter_mut().try_for_each(|range| self.read_exact_at(range.buf, range.off))
    }

    fn borrow(&self, _off: u64, _len: usize) -> Option<&[u8]> {
        None
    }

    fn will_need(&self, _off: u64, _len: u64) {}
}

#[test]
fn only_what_is_touched_is_read_and_hash_blocks_once() {
    let sealed = Sealed::beside(&Parameters::new(16385));
    let (data, tree) = (Counted::new(sealed.data.clone()), Counted::new(sealed.stored.clone()));
    let root_hash = *sealed.tree.root_hash();
    let source = VerifiedSource::open(data.clone(), tree.clone(), Location::Beside { hash_off: 0 }, root_hash).unwrap();
    assert_eq!((data.take(), tree.take()), (0, 512 + 4096), "superblock and top");
    let mut byte = [0; 1];
    source.read_exact_at(&mut byte, 5000).unwrap();
    assert_eq!((data.take(), tree.take()), (4096, 2 * 4096), "a block, and one of level 0 and 1");
    source.read_exact_at(&mut byte, 128 * 4096 - 1).unwrap();
    assert_eq!((data.take(), tree.take()), (4096, 0), "the same hash blocks");
    let mut bufs = [[0; 100], [0; 100], [0; 100]];
    let offs = [4096 * 2, 4096 * 2 + 100, 4096 * 2 + 1000];
    let mut ranges: Vec<_> = offs.into_iter().zip(&mut bufs).map(|(off, buf)| RangeMut { off, buf }).collect();
    source.read_ranges(&mut ranges).unwrap();
    assert_eq!((data.take(), tree.take()), (4096, 0), "one block for three ranges");
    let mut all = vec![0; sealed.data.len()];
    source.read_exact_at(&mut all, 0).unwrap();
    assert!(all == sealed.data);
    assert_eq!((data.take(), tree.take()), (sealed.data.len() as u64, (128 + 1) * 4096), "the other hash blocks");
}

#[test]
fn a_wrong_read_is_tried_once_more() {
    let sealed = Sealed::beside(&Parameters::new(300));
    let (data, tree) = (Counted::new(sealed.data.clone()), Counted::new(sealed.stored.clone()));
    let root_hash = *sealed.tree.root_hash();
    let source = VerifiedSource::open(data.clone(), tree.clone(), Location::Beside { hash_off: 0 }, root_hash).unwrap();
    let mut buf = [0; 10];
    for (data_faults, tree_faults, is_read) in [(2, 0, false), (1, 0, true), (0, 0, true)] {
        data.wrong.store(data_faults, Ordering::Relaxed);
        tree.wrong.store(tree_faults, Ordering::Relaxed);
        let error = source.read_exact_at(&mut buf, 4096).err().map(|error| error.kind());
        assert_eq!(error, (!is_read).then_some(ErrorKind::InvalidData));
    }
    tree.wrong.store(2, Ordering::Relaxed);
    let error = source.read_exact_at(&mut buf, 200 * 4096).unwrap_err();
    assert!(
        error.to_string().contains("hash block of level 0 at byte 12288, over the data bytes 524288 to"),
        "{error}"
    );
    tree.wrong.store(1, Ordering::Relaxed);
    source.read_exact_at(&mut buf, 200 * 4096).unwrap();
    assert_eq!(buf, sealed.data[200 * 4096..][..10]);
}

#[test]
fn nothing_behind_the_data_is_read() {
    let mut sealed = Sealed::beside(&Parameters::new(3));
    sealed.data.extend_from_slice(&[1; 5000]);
    let source = sealed.open().unwrap();
    assert_eq!(source.len().unwrap(), 3 * 4096);
    let error = source.read_exact_at(&mut [0; 2], 3 * 4096 - 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    assert!(error.to_string().contains("not covered"), "{error}");
    assert_eq!(sealed.verify().unwrap().uncovered, 5000);
}

#[test]
fn blocks_may_come_in_any_order() {
    let sealed = Sealed::beside(&Parameters::new(300));
    let parameters = sealed.tree.parameters();
    let new = || LeafHasher::new(BlockHasher::new(parameters.algorithm, &parameters.salt), 4096);
    let mut leaves = new();
    for first in [200u64, 100, 50, 1] {
        let end = [(200, 300), (100, 200), (50, 100), (1, 50)].iter().find(|(start, _)| *start == first).unwrap().1;
        leaves.put(first, &sealed.data[first as usize * 4096..end * 4096]);
    }
    leaves.put(0, &[1; 4096]);
    leaves.put(0, &sealed.data[..4096]);
    let tree = Tree::of_leaves(leaves, parameters, kiln_parallel::Threads::ONE).unwrap();
    assert_eq!(tree.root_hash(), sealed.tree.root_hash());
    assert_eq!(tree.blocks(), sealed.tree.blocks());

    let mut leaves = new();
    leaves.put(0, &sealed.data[..64 * 4096]);
    leaves.put(66, &sealed.data[66 * 4096..]);
    let mut holes = new();
    holes.put(0, &sealed.data[..64 * 4096]);
    holes.put(66, &sealed.data[66 * 4096..]);
    let error = Tree::of_leaves(leaves, parameters, kiln_parallel::Threads::ONE).unwrap_err();
    assert!(matches!(error, VerityError::MissingBlock { block: 64 }), "{error}");
    holes.fill_holes(300);
    let tree = Tree::of_leaves(holes, parameters, kiln_parallel::Threads::ONE).unwrap();
    let mut data = pattern(300 * 4096);
    data[64 * 4096..66 * 4096].fill(0);
    let read = Tree::of_data(&MemorySource::new(data), parameters, &Control::unwatched()).unwrap();
    assert_eq!(tree.root_hash(), read.root_hash());

    let mut empty = new();
    empty.fill_holes(300);
    let tree = Tree::of_leaves(empty, parameters, kiln_parallel::Threads::ONE).unwrap();
    let zeros = MemorySource::new(vec![0; 300 * 4096]);
    let read = Tree::of_data(&zeros, parameters, &Control::unwatched()).unwrap();
    assert_eq!(tree.root_hash(), read.root_hash());
}
