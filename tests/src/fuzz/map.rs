//! Maps of files: an inode with arbitrary data beside it.

use super::crafted::{Crafted, INODE_MAX_LEN};
use super::input::Input;
use crate::exercise::{Limits, exercise};
use kiln_format::{BlockBits, Incompat};

/// Input: a byte for the block size, one for features, two for the length of the inode and the data
/// beside it; these; the data area.
pub fn map(data: &[u8]) {
    let mut input = Input(data);
    let mut crafted = Crafted::new(BlockBits::new(9 + input.u8() % 8).expect("9 to 16"));
    let features = input.u8();
    for (bit, incompat) in [(1, Incompat::LZ4_0PADDING), (2, Incompat::FRAGMENTS), (4, Incompat::ADDR_48BIT)] {
        if features & bit != 0 {
            crafted.sb.incompat.remove(incompat);
        }
    }
    if !crafted.sb.incompat.contains(Incompat::FRAGMENTS) {
        crafted.sb.packed_nid = None;
    }
    let inode_len = usize::from(input.u16()) % (INODE_MAX_LEN + 1);
    crafted.inode = input.take(inode_len).to_vec();
    crafted.data = input.0.to_vec();
    let blob = (features & 8 != 0).then(|| vec![features; 1 << 17]);
    if let Ok(image) = crafted.open(blob) {
        exercise(&image, &Limits { entries: 10, file_bytes: 64 << 10, extents: 200 });
    }
}
