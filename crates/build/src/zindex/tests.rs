//! Laws of the index: what it holds is what went in, read back by the plainest reader.

use super::*;
use kiln_format::zmap::{CBLKCNT_MAX, DELTA_MAX, MAP_HEADER_LEN, ZmapHeader};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::RngSeed;

const BLOCK: u64 = 4096;

/// Extents as the builder makes them: an encoded one saves at least a block, a plain one is a block or the last.
#[derive(Clone, Copy, Debug)]
enum Made {
    Encoded { blocks: u16, more: u32 },
    Plain,
    /// A reference to a part of what another extent decodes to; of whole blocks.
    Zeros { llen: u32, partial: bool },
}

fn encoded(most: u16) -> impl Strategy<Value = Made> {
    let more = prop_oneof![4 => 1..20_000_u32, 2 => 1..300_000_u32, 1 => 8_000_000..11_000_000_u32, 1 => select(vec![1, 4095, 4096, 4097])];
    (1..=most, more).prop_map(|(blocks, more)| Made::Encoded { blocks, more })
}

/// A file's extents and its length.
fn file(big: bool, scattered: bool) -> impl Strategy<Value = (Vec<ZExtent>, u64)> {
    let most = if big { 256 } else { 1 };
    let zeros = (1..300_u32, any::<bool>()).prop_map(|(blocks, partial)| Made::Zeros { llen: blocks << 12, partial });
    let one = if scattered {
        prop_oneof![4 => encoded(most), 2 => Just(Made::Plain), 2 => zeros].boxed()
    } else {
        prop_oneof![3 => encoded(most), 1 => Just(Made::Plain)].boxed()
    };
    // Few extents with long gaps, or many.
    let list = prop_oneof![vec(one.clone(), 1..6), vec(one, 1..120)];
    (list, 1..=4096_u32, 1..u32::MAX - 200_000).prop_map(move |(made, last, start)| place(&made, last, start))
}

/// Give extents their places; the last one, if plain, has `last` bytes.
fn place(made: &[Made], last: u32, start: u32) -> (Vec<ZExtent>, u64) {
    let (mut extents, mut next, mut la) = (Vec::new(), start, 0_u64);
    for (idx, made) in made.iter().enumerate() {
        let mut push = |llen: u32, start, blocks, kind, partial| {
            extents.push(ZExtent { llen, start, blocks, kind, partial });
            la += u64::from(llen);
        };
        match *made {
            Made::Encoded { blocks, more } => {
                push((u32::from(blocks) << 12) + more, next, blocks, HeadKind::Head1, false);
                next += u32::from(blocks);
            }
            Made::Plain => {
                let llen = if idx + 1 == made_len(made, idx, la) { last } else { 4096 };
                push(llen, next, 1, HeadKind::Plain, false);
                next += 1;
            }
            Made::Zeros { llen, partial } => {
                // Holes start at block boundaries: what is before ends there.
                let rest = (BLOCK - la % BLOCK) % BLOCK;
                if rest > 0 {
                    push(rest as u32 + 4096, next, 1, HeadKind::Head1, false);
                    next += 1;
                }
                extents.push(ZExtent { llen, start: 7, blocks: 1, kind: HeadKind::Head1, partial });
                la += u64::from(llen);
            }
        }
    }
    (extents, la)
}
