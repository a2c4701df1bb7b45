//! Pclusters that reads of single blocks need, and extents that decode in place: counts of `Usage`, compared with a look
//! at each block and each extent.

use crate::common::manifest;
use crate::usage::{extents, extents_from, inodes};
use kiln_format::inode::FileType;
use kiln_read::{Algorithm, Extent, ExtentKind, Image, Inode, MetadataSpace, Nid, Threads, Usage};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

#[test]
fn reads_need_what_a_look_at_each_block_finds() {
    let (mut two, mut more, mut fit) = (0, 0, 0);
    for golden in manifest() {
        let image = golden.open();
        let found = image.usage(Threads::at_least_one(2)).unwrap();
        let (tree, special) = inodes(&image);
        check_reads(&image, &found, &tree, &special);
        two += u32::from(found.block_reads.contains_key(&2));
        more += u32::from(found.block_reads.keys().any(|&count| count > 2));
        fit += u32::from((1..found.in_place.extents).contains(&found.in_place.fit));
    }
    assert!(two > 5 && more > 0 && fit > 2, "{two} {more} {fit}");
}

fn check_reads(image: &Image, found: &Usage, tree: &BTreeMap<Nid, Inode>, special: &[Inode]) {
    let block_len = image.superblock().block_bits.len();
    let mut reads = BTreeMap::new();
    for inode in tree.values().filter(|inode| inode.meta.file_type == FileType::Regular) {
        for start in (0..inode.meta.size).step_by(block_len as usize) {
            let end = inode.meta.size.min(start + block_len);
            match pclusters(image, inode, start..end).len() as u64 {
                0 => {}
                count => *reads.entry(count).or_default() += 1,
            }
        }
    }
    assert_eq!(found.block_reads, reads);
    let (mut lz4, mut fit) = (0, 0);
    for inode in tree.values().chain(special).filter(|inode| !inode.is_dir()) {
        for Extent { la, llen, kind } in extents(image, inode) {
            let ExtentKind::Encoded { algorithm: Algorithm::Lz4, plen, partial, inline: None, .. } = kind else {
                continue;
            };
            // The stream ends where the last block ends. What follows the text is room for what is written too early.
            let buffer_end = (la + llen).next_multiple_of(block_len);
            let is_in_front = buffer_end - la >= plen.into();
            lz4 += 1;
            fit += u64::from(is_in_front && !partial && la + llen + u64::from(plen >> 8) + 32 <= buffer_end);
        }
    }
    assert_eq!((found.in_place.extents, found.in_place.fit), (lz4, fit));
}

/// Returns the pclusters that a read of a part of a file needs, those of its fragments included.
fn pclusters(image: &Image, inode: &Inode, range: Range<u64>) -> BTreeSet<(Option<bool>, u16, u64)> {
    let mut found = BTreeSet::new();
    for Extent { la, llen, kind } in extents_from(image, inode, range.clone()) {
        match kind {
            ExtentKind::Fragment { off } => {
                let packed = image.inode(image.superblock().packed_nid.unwrap()).unwrap();
                let (start, end) = (range.start.max(la), range.end.min(la + llen));
                found.append(&mut pclusters(image, &packed, off + (start - la)..off + (end - la)));
            }
            ExtentKind::Plain { device, pa, inline, .. } | ExtentKind::Encoded { device, pa, inline, .. } => {
                found.insert((inline.map(|space| space == MetadataSpace::Metabox), device, pa));
            }
            _ => {}
        }
    }
    found
}
