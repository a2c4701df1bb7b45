//! Extended attributes: an inode's body, shared entries, long prefixes.

use super::crafted::{Crafted, INODE_MAX_LEN};
use super::input::Input;
use crate::exercise::{Limits, exercise};
use crate::records::plain_inode;
use kiln_format::inode::{CompactTimes, Epoch, FileType, Inode, InodeData};
use kiln_format::{BlockBits, Compat};

/// Input: `i_xattr_icount`, features, number of prefixes, length of the body; the body; the shared
/// area, which is also the table of prefixes.
pub fn xattr(data: &[u8]) {
    let mut input = Input(data);
    let mut crafted = Crafted::new(BlockBits::new(9).expect("9 to 16"));
    let (xattr_icount, features) = (input.u16(), input.u8());
    crafted.sb.compat = Compat::from_bits_retain(u32::from(features & 0x3C));
    crafted.sb.xattr_filter_reserved = features >> 6;
    if features & 1 != 0 {
        crafted.sb.packed_nid = None;
        crafted.sb.incompat.remove(kiln_format::Incompat::FRAGMENTS);
    } else {
        // In the packed inode, which has the same bytes from another start.
        crafted.sb.xattr_prefix_off = 0;
    }
    crafted.sb.xattr_prefix_count = input.u8() % 8;
    let inode = plain_inode(FileType::Regular, InodeData::FlatPlain(None), 0);
    let head = Inode { xattr_icount, ..inode }
        .encode(Epoch::default(), CompactTimes::Shared, BlockBits::DEFAULT)
        .expect("fits");
    let body_len = usize::from(input.u16()) % (INODE_MAX_LEN - head.len());
    crafted.inode = [&head, input.take(body_len)].concat();
    crafted.data = input.0.to_vec();
    if let Ok(image) = crafted.open(None) {
        exercise(&image, &Limits { entries: 10, ..Limits::default() });
    }
}
