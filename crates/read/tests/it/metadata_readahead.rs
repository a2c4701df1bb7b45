//! Bytes of metadata that are fetched for inodes that are wanted: what a slow disk gives in vain
//! costs as much as what is used.

use crate::common::Rng;
use crate::common::handmade::{Handmade, META_OFF};
use crate::common::noting::Noting;
use kiln_format::Nid;
use kiln_format::inode::DataLayout;
use kiln_read::{Image, ImageOptions, ReadPolicy};

const PAGE_LEN: u64 = 4096;
/// Most bytes that are fetched for each byte of pages that hold a wanted inode: 1.3, as a fraction.
const BAR: (u64, u64) = (13, 10);

/// Nid of the inode at the front of a page, counted from the first page that has one.
fn nid(page: u64) -> Nid {
    Nid((page + 1) * PAGE_LEN / 32)
}

/// An image with an inode in each of these pages, and noise between them.
fn image(pages: &[u64]) -> Vec<u8> {
    let mut image = Handmade::new(12);
    let (mut rng, end) = (Rng(9), META_OFF + (pages[pages.len() - 1] + 2) * PAGE_LEN);
    let noise: Vec<u8> = (0..end / 8).flat_map(|_| rng.next().to_le_bytes()).collect();
    image.put(META_OFF, &noise);
    let file = image.file(DataLayout::FlatPlain, 0, u32::MAX);
    for &page in pages {
        image.inode(nid(page), &file, &[]);
    }
    image.next = end + META_OFF;
    image.finish()
}

/// Reads and bytes that it takes to open the inodes of these pages, in this order.
fn cost(image: Vec<u8>, pages: &[u64]) -> (u64, u64) {
    let source = Noting::new(image);
    let options = ImageOptions::default().with_policy(ReadPolicy::for_page_cache());
    let image = Image::open(source.clone(), vec![], &options).unwrap();
    source.take();
    for &page in pages {
        assert_eq!(image.inode(nid(page)).unwrap().meta.size, 0);
    }
    let reads = source.take();
    (reads.len() as u64, reads.iter().map(|read| read.end - read.start).sum())
}

/// Runs of pages with inodes between runs of data, as images have them whose files lie behind their
/// inodes.
fn runs(seed: u64, count: u64) -> Vec<u64> {
    let mut rng = Rng(seed);
    let (mut pages, mut at) = (Vec::new(), 0);
    for _ in 0..count {
        let len = 30 + rng.below(90);
        pages.extend(at..at + len);
        at += len + 40 + rng.below(200);
    }
    pages
}

#[test]
fn little_is_fetched_in_vain_where_data_lies_between_inodes() {
    for seed in 1..=3 {
        let pages = runs(seed, 40);
        let (reads, bytes) = cost(image(&pages), &pages);
        let wanted = pages.len() as u64 * PAGE_LEN;
        assert!(bytes * BAR.1 <= wanted * BAR.0, "{bytes} bytes for {wanted}");
        assert!(reads * 3 < pages.len() as u64, "{reads} reads for {} pages", pages.len());
    }
}
