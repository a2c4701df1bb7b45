//! Trees of data that change in part.

use crate::common::{Sealed, parameters, pattern};
use kiln_parallel::Threads;
use kiln_read::MemorySource;
use kiln_verity::{Algorithm, Control, Parameters, Tree, VerityError};

fn stored(sealed: &Sealed) -> Result<Option<Tree>, VerityError> {
    let source = MemorySource::new(sealed.stored.clone());
    Tree::stored(&source, sealed.hash_off, Threads::PROCESSORS).map(|(_, tree)| tree)
}

#[test]
fn an_updated_tree_is_that_of_the_new_data() {
    for algorithm in Algorithm::ALL {
        for (old_blocks, new_blocks) in [(1, 1), (1, 300), (2, 2), (128, 129), (129, 128), (300, 17_000), (300, 1)] {
            let old = Sealed::behind(&parameters(algorithm, 512, old_blocks, &[7]));
            let mut data = pattern(new_blocks as usize * 512);
            let common = data.len().min(old.data.len());
            assert_eq!(data[..common], old.data[..common]);
            // Some bytes of the first block, and some that cross blocks.
            let changed =
                [(5, 6), (common / 2, common / 2 + 700), (0, 0)].map(|(start, end)| start..end.min(data.len()));
            changed.iter().for_each(|range| data[range.clone()].fill(0xAB));
            let ranges = changed.map(|range| range.start as u64..range.end as u64);
            let source = MemorySource::new(data);
            let new = parameters(algorithm, 512, new_blocks, &[7]);
            let expected = Tree::of_data(&source, &new, &Control::unwatched()).unwrap();
            let updated = old.tree.updated(&source, &ranges, &Control::unwatched()).unwrap();
            assert_eq!(updated.root_hash(), expected.root_hash(), "{algorithm} {old_blocks} {new_blocks}");
            assert!(updated.blocks() == expected.blocks() && updated.parameters() == &new);
            if let Some(read) = stored(&old).unwrap() {
                let updated = read.updated(&source, &ranges, &Control::unwatched()).unwrap();
                assert_eq!(updated.root_hash(), expected.root_hash(), "as it was read");
            }
        }
    }
}

#[test]
fn data_that_have_rotten_keep_their_digests() {
    let old = Sealed::behind(&Parameters::new(300));
    let mut data = old.data.clone();
    data[200 * 4096] ^= 1;
    let updated = old.tree.updated(&MemorySource::new(data), &[], &Control::unwatched()).unwrap();
    assert_eq!(updated.root_hash(), old.tree.root_hash());
    assert_eq!(updated.leaf(200), old.tree.leaf(200));
}

#[test]
fn a_stored_tree_is_checked() {
    for parameters in [Parameters::new(300), parameters(Algorithm::Sha512, 512, 17_000, &[])] {
        let sealed = Sealed::behind(&parameters);
        let tree = stored(&sealed).unwrap().unwrap();
        assert_eq!((tree.root_hash(), tree.blocks()), (sealed.tree.root_hash(), sealed.tree.blocks()));
        let start = sealed.stored.len() - sealed.tree.blocks().len();
        // The top, a digest, and what must be zero behind the last digests.
        for at in [start, sealed.stored.len() - 1, sealed.stored.len() - parameters.hash_block_size as usize] {
            let mut damaged = Sealed::behind(&parameters);
            damaged.stored[at] ^= 1;
            assert!(matches!(stored(&damaged), Err(VerityError::Inconsistent)), "byte {at}");
        }
        let mut cut = Sealed::behind(&parameters);
        cut.stored.truncate(sealed.stored.len() - 1);
        assert!(matches!(stored(&cut), Err(VerityError::TooShort { .. })));
    }
    assert!(stored(&Sealed::behind(&Parameters::new(1))).unwrap().is_none(), "the digest of one block is not stored");
}
