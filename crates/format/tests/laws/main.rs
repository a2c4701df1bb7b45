//! Laws of the records, over the whole range of their integers:
//!
//! * what `encode` accepts, `decode` returns; so `encode` never masks bits but returns an error;
//! * what fits is accepted;
//! * `encode(decode(golden)) == golden`;
//! * `decode` returns for any bytes.

mod compact;
mod compr_cfg;
mod golden;
mod inode;
mod superblock;
mod tables;
mod zmap;

use kiln_format::addr::{SLOT_LEN, align_up};
use kiln_format::{Blkaddr, BlockBits, KernelVersion, Nid};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// Returns the configuration of all tests: the same cases in every run.
fn config() -> ProptestConfig {
    ProptestConfig { cases: 2048, rng_seed: RngSeed::Fixed(0xE0F5), failure_persistence: None, ..Default::default() }
}

fn any_u16() -> impl Strategy<Value = u16> {
    any_u64().prop_map(|x| x as u16)
}

fn any_u32() -> impl Strategy<Value = u32> {
    any_u64().prop_map(|x| x as u32)
}

/// Generates numbers that are uniform in their number of bits, and neighbours of powers of two.
fn any_u64() -> impl Strategy<Value = u64> {
    prop_oneof![
        (any::<u64>(), 0..64u32).prop_map(|(x, shift)| x >> shift),
        (0..64u32, -1..=1i64).prop_map(|(bit, off)| (1u64 << bit).wrapping_add_signed(off)),
    ]
}

fn block_bits() -> impl Strategy<Value = BlockBits> {
    (9..=16u8).prop_map(|bits| BlockBits::new(bits).unwrap())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn addresses_come_apart_and_together(block_bits in block_bits(), off in any_u64(), nid in any_u64()) {
        prop_assert_eq!(block_bits.floor(off) + block_bits.within(off), off);
        prop_assert!(block_bits.within(off) < block_bits.len());
        prop_assert_eq!(u128::from(block_bits.blocks_for(off)), u128::from(off).div_ceil(block_bits.len().into()));
        let byte_off = u128::from(off) * u128::from(block_bits.len());
        prop_assert_eq!(block_bits.byte_off(Blkaddr(off)), u64::try_from(byte_off).ok());
        let aligned = u128::from(off).next_multiple_of(block_bits.len().into());
        prop_assert_eq!(align_up(off, block_bits.len()), u64::try_from(aligned).ok());
        let low48 = Blkaddr(off & 0xFFFF_FFFF_FFFF);
        prop_assert_eq!(u64::from(low48.lo()) | u64::from(low48.hi()) << 32, low48.0);
        let slot = u128::from(nid & (u64::MAX >> 1)) * u128::from(SLOT_LEN);
        prop_assert_eq!(Nid(nid).byte_off(), u64::try_from(slot).ok());
    }

    #[test]
    fn kernel_versions(major in any_u16(), minor in any_u16(), text in "[0-9.\\-é]{0,9}|\\PC*") {
        let version = KernelVersion::new(major, minor);
        prop_assert_eq!(version.to_string().parse(), Ok(version));
        let _ = text.parse::<KernelVersion>();
    }
}
