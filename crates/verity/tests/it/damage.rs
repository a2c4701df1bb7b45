//! Damaged and lying images. `KILN_VERITY_FLIPS=3000` flips more bits.

use crate::common::{Sealed, parameters};
use kiln_read::ReadAt;
use kiln_tests::rng::Rng;
use kiln_tests::rounds;
use kiln_verity::verify::Finding;
use kiln_verity::{Algorithm, Digest, Location, Mismatch, Parameters, Superblock, VerityError, uuid_of};
use std::io::ErrorKind;

/// Returns all data that can be read, block by block; `None` for blocks that cannot be, or if nothing can be opened.
fn readable(sealed: &Sealed) -> Vec<Option<Vec<u8>>> {
    let block_len = sealed.tree.parameters().data_block_size as usize;
    let Ok(source) = sealed.open() else { return Vec::new() };
    let blocks = sealed.data.len() / block_len;
    let read = |idx: usize| {
        let mut buf = vec![0; block_len];
        source.read_exact_at(&mut buf, (idx * block_len) as u64).map(|()| buf).ok()
    };
    (0..blocks).map(read).collect()
}

#[test]
fn every_flipped_bit_is_found_and_no_wrong_byte_is_read() {
    let mut rng = Rng::new(7);
    let cases = [
        Sealed::behind(&Parameters::new(300)),
        Sealed::behind(&parameters(Algorithm::Sha512, 512, 700, b"some salt")),
        Sealed::behind(&Parameters::new(1)),
    ];
    for mut sealed in cases {
        let tree_len = sealed.stored.len() as u64 - sealed.hash_off;
        let block_len = u64::from(sealed.tree.parameters().data_block_size);
        for _ in 0..rounds("KILN_VERITY_FLIPS", 300, 3000) {
            // A third each in the superblock's block, in all of the tree, and in the data.
            let at = match rng.below(3) {
                0 => sealed.hash_off + rng.below(512.min(tree_len)),
                1 => sealed.hash_off + rng.below(tree_len),
                _ => rng.below(sealed.hash_off),
            };
            let bit = 1 << rng.below(8);
            sealed.stored[at as usize] ^= bit;
            let report = sealed.verify();
            assert!(report.is_err() || !report.unwrap().is_good(), "byte {at}, bit {bit}");
            let damaged = (at < sealed.hash_off).then_some((at / block_len) as usize);
            for (idx, block) in readable(&sealed).into_iter().enumerate() {
                let off = idx * block_len as usize;
                let expected = &sealed.data[off..off + block_len as usize];
                assert!(block.as_ref().is_none_or(|block| block == expected), "byte {at}, bit {bit}: block {idx}");
                assert!(damaged != Some(idx) || block.is_none(), "byte {at}");
                assert!(damaged.is_none_or(|damaged| damaged == idx) || block.is_some(), "byte {at}: block {idx}");
            }
            sealed.stored[at as usize] ^= bit;
        }
        assert!(sealed.verify().unwrap().is_good());
    }
}

#[test]
fn every_bit_of_a_superblock_is_watched() {
    let mut sealed = Sealed::behind(&Parameters { salt: vec![9; 32], ..Parameters::new(130) });
    for at in 0..4096 {
        for bit in [1, 128] {
            let at = sealed.hash_off as usize + at;
            sealed.stored[at] ^= bit;
            let report = sealed.verify();
            assert!(report.is_err() || !report.unwrap().is_good(), "byte {at}, bit {bit}");
            sealed.stored[at] ^= bit;
        }
    }
}

#[test]
fn findings_name_place_level_and_digests() {
    let mut sealed = Sealed::behind(&Parameters::new(300));
    let hash_off = sealed.hash_off as usize;
    let data = std::mem::take(&mut sealed.data);
    sealed.stored[5 * 4096 + 1] ^= 1;
    let report = sealed.verify().unwrap();
    let [Finding::Mismatch(mismatch)] = &report.findings[..] else { panic!("{:?}", report.findings) };
    let Mismatch { level, off, covers, expected, found } = &**mismatch;
    assert_eq!((*level, *off, covers.clone()), (None, 5 * 4096, 5 * 4096..6 * 4096));
    let hasher = kiln_verity::BlockHasher::new(Algorithm::Sha256, &[0; 32]);
    assert_eq!(*expected, hasher.digest(&data[5 * 4096..6 * 4096]));
    assert_eq!(*found, hasher.digest(&sealed.stored[5 * 4096..6 * 4096]));
    sealed.stored[5 * 4096 + 1] ^= 1;

    // Superblock, top, level 0.
    sealed.stored[hash_off + 2 * 4096 + 4096 + 7] ^= 1;
    let report = sealed.verify().unwrap();
    assert_eq!((report.finding_count, report.unverifiable), (1, 128 * 4096));
    let text = report.findings[0].to_string();
    let place = format!("hash block of level 0 at byte {}, over the data bytes 524288 to 1048575", hash_off + 3 * 4096);
    assert!(text.starts_with(&place), "{text}");
    sealed.stored[hash_off + 4096] ^= 1;
    let report = sealed.verify().unwrap();
    assert_eq!((report.finding_count, report.unverifiable), (1, 300 * 4096), "nothing below a wrong top is verified");
}

#[test]
fn lists_of_findings_are_bounded() {
    let mut sealed = Sealed::behind(&Parameters::new(300));
    sealed.stored.iter_mut().step_by(4096).take(300).for_each(|byte| *byte ^= 1);
    let report = sealed.verify().unwrap();
    assert_eq!((report.finding_count, report.findings.len()), (300, kiln_verity::verify::FINDINGS_MAX));
    assert_eq!(report.findings[7].place(), (kiln_verity::Part::Data, Some(7 * 4096)));
}

/// Replaces the superblock.
fn lie(sealed: &mut Sealed, change: &dyn Fn(&mut Superblock)) {
    let mut superblock = sealed.tree.superblock(None);
    change(&mut superblock);
    let at = sealed.hash_off as usize;
    sealed.stored[at..at + 512].copy_from_slice(&superblock.encode().unwrap());
}

#[test]
fn a_lying_superblock_shows_no_wrong_byte() {
    let lies: [&dyn Fn(&mut Superblock); 8] = [
        &|lie| lie.parameters.data_blocks = 299,
        &|lie| lie.parameters.data_blocks = 301,
        &|lie| lie.parameters.data_blocks = 1,
        &|lie| lie.parameters.data_blocks = u64::MAX >> 13,
        &|lie| lie.parameters.salt.clear(),
        &|lie| lie.parameters.data_block_size = 512,
        &|lie| lie.parameters.hash_block_size = 512,
        &|lie| lie.parameters.algorithm = Algorithm::Sha512,
    ];
    for (number, change) in lies.into_iter().enumerate() {
        for mut sealed in [Sealed::beside(&Parameters::new(300)), Sealed::behind(&Parameters::new(300))] {
            lie(&mut sealed, change);
            let report = sealed.verify();
            assert!(report.is_err() || !report.unwrap().is_good(), "lie {number}");
            for (idx, block) in readable(&sealed).into_iter().enumerate() {
                let expected = &sealed.data[idx * 4096..(idx + 1) * 4096];
                assert!(block.is_none_or(|block| block == expected), "lie {number}: block {idx}");
            }
        }
    }
    // The number of blocks is bound where the end of the data is read.
    let mut sealed = Sealed::beside(&Parameters::new(300));
    lie(&mut sealed, &|lie| lie.parameters.data_blocks = 299);
    let error = sealed.open().unwrap().read_exact_at(&mut [0; 1], 298 * 4096).unwrap_err();
    assert!(error.to_string().contains("not zero behind its last digest"), "{error}");
}

#[test]
fn trees_that_do_not_suit_are_refused() {
    let good = Sealed::behind(&Parameters::new(300));
    let mut cut = Sealed::behind(&Parameters::new(300));
    cut.stored.truncate(cut.stored.len() - 1);
    assert!(matches!(cut.open(), Err(VerityError::TooShort { .. })));
    assert!(matches!(cut.verify(), Err(VerityError::TooShort { .. })));
    cut.stored.truncate(cut.hash_off as usize + 100);
    assert!(matches!(cut.open(), Err(VerityError::TooShort { .. })));
    let mut beside = Sealed::beside(&Parameters::new(300));
    beside.data.truncate(299 * 4096);
    let error = beside.verify().unwrap_err();
    assert!(error.to_string().contains("the data ends at byte 1224704, but 1228800 bytes are needed"), "{error}");
    let other = Digest::from_bytes(&[1; 32]).unwrap();
    let source = || kiln_read::MemorySource::new(good.stored.clone());
    let open = |root_hash| {
        kiln_verity::VerifiedSource::open(source(), source(), Location::Behind { hash_off: good.hash_off }, root_hash)
            .err()
    };
    assert!(matches!(open(other), Some(VerityError::Mismatch(_))));
    let longer = Digest::from_bytes(&[1; 64]).unwrap();
    assert!(matches!(open(longer), Some(VerityError::RootHashLength { expected: 32, given: 64, .. })));
    let mut inside = Sealed::behind(&Parameters::new(300));
    lie(&mut inside, &|lie| lie.parameters.data_blocks = 301);
    assert!(matches!(inside.open(), Err(VerityError::Overlap { .. })));
}

#[test]
fn an_error_of_a_read_is_a_mismatch_with_its_kind() {
    let mut sealed = Sealed::behind(&Parameters::new(300));
    sealed.stored[9 * 4096] ^= 4;
    let error = sealed.open().unwrap().read_exact_at(&mut [0; 4096 * 3], 8 * 4096).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    let mismatch = error.get_ref().unwrap().downcast_ref::<Mismatch>().unwrap();
    assert_eq!((mismatch.level, mismatch.off), (None, 9 * 4096));
}

#[test]
fn uuids_of_other_programs_are_no_damage() {
    let mut sealed = Sealed::behind(&Parameters::new(3));
    lie(&mut sealed, &|lie| lie.uuid = uuid::Uuid::from_u128(0x6a64_ad01_5d21_4f2b_9a4b_2d0c_1e0f_7788));
    let report = sealed.verify().unwrap();
    assert!(report.is_good() && !report.has_own_uuid);
    let own = uuid_of(sealed.tree.root_hash());
    assert_eq!(own.get_version_num(), 5);
    lie(&mut sealed, &|lie| lie.uuid = uuid::Uuid::from_u128(own.as_u128() ^ 1));
    assert!(matches!(sealed.verify().unwrap().findings[..], [Finding::Uuid { .. }]));
}
