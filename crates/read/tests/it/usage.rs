//! Usage of images, compared with a naive recount: one flag for each byte.

use crate::common::{Golden, Rng, manifest, named};
use kiln_format::inode::FileType;
use kiln_read::{
    DirEntries, DirUsage, DiskUsage, Extent, ExtentKind, Image, ImageOptions, Inode, MemorySource, MetadataSpace, Nid,
    StoredAs, Threads, TreeUsage, Usage, WalkEntry,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

/// One flag for each byte of each device.
struct Flags(Vec<Vec<bool>>);

impl Flags {
    fn new(golden: &Golden) -> Self {
        let devices = golden.device_paths().iter().map(|path| std::fs::metadata(path).unwrap().len()).collect();
        let all = [vec![golden.bytes().len() as u64], devices].concat();
        // Room for the block that the end of the device cuts.
        Self(all.into_iter().map(|len| vec![false; len as usize + 4096]).collect())
    }

    /// Set flags. Returns how many were not.
    fn set(&mut self, device: u16, bytes: Range<u64>) -> u64 {
        let flags = &mut self.0[usize::from(device)][bytes.start as usize..bytes.end as usize];
        flags.iter_mut().map(|flag| u64::from(!std::mem::replace(flag, true))).sum()
    }

    fn set_blocks(&mut self, image: &Image, device: u16, bytes: Range<u64>) -> u64 {
        let block_len = image.superblock().block_bits.len();
        self.set(device, bytes.start / block_len * block_len..bytes.end.next_multiple_of(block_len))
    }

    fn count(&self) -> u64 {
        self.0.iter().flatten().filter(|&&flag| flag).count() as u64
    }
}

pub fn extents_from(image: &Image, inode: &Inode, range: Range<u64>) -> Vec<Extent> {
    let (mut extents, mut off) = (Vec::new(), range.start);
    while off < range.end {
        let extent = image.extent_at(inode, off).unwrap();
        off = extent.end();
        extents.push(extent);
    }
    extents
}

pub fn extents(image: &Image, inode: &Inode) -> Vec<Extent> {
    extents_from(image, inode, 0..if inode.has_contents() { inode.meta.size } else { 0 })
}

fn walk(image: &Image) -> Vec<WalkEntry> {
    let root = image.inode(image.root_nid()).unwrap();
    image.walk(&root, b"/").map(Result::unwrap).collect()
}

/// Inodes of the tree, each once, and those that are in no directory.
pub fn inodes(image: &Image) -> (BTreeMap<Nid, Inode>, Vec<Inode>) {
    let tree = walk(image).into_iter().map(|entry| (entry.inode.nid, entry.inode)).collect();
    let sb = image.superblock();
    let special = [sb.packed_nid, sb.metabox_nid].into_iter().flatten().map(|nid| image.inode(nid).unwrap());
    (tree, special.collect())
}

#[test]
fn usage_is_that_of_a_recount() {
    let (mut shared, mut padded, mut linked) = (0, 0, 0);
    for golden in manifest() {
        let image = golden.open();
        let found = image.usage(Threads::ONE).unwrap();
        assert_eq!(
            found,
            image.usage(Threads::at_least_one(4)).unwrap(),
            "{}: the count of threads shows",
            golden.name
        );
        let (tree, special) = inodes(&image);
        check_files(&image, &found, &tree);
        check_extents(&golden, &image, &found, tree.values().chain(&special));
        shared += u32::from(found.data.saved() > 0);
        padded += u32::from(found.padding > 0);
        linked += u32::from(found.hard_links > 0);
    }
    assert!(shared >= 2 && padded > 20 && linked > 20, "{shared} {padded} {linked}");
}

fn check_files(image: &Image, found: &Usage, tree: &BTreeMap<Nid, Inode>) {
    assert_eq!(found.inodes(), tree.len() as u64);
    assert_eq!(found.hard_links, (walk(image).len() - tree.len()) as u64);
    for (file_type, count) in &found.types {
        let sizes: Vec<_> =
            tree.values().filter(|i| i.meta.file_type == *file_type).map(|inode| inode.meta.size).collect();
        assert_eq!((count.count, count.bytes), (sizes.len() as u64, sizes.iter().sum()));
        if *file_type == FileType::Regular {
            let bucket = |from: u64| sizes.iter().filter(|&&s| s >= from && s < (2 * from).max(1)).count() as u64;
            assert!(found.sizes.buckets().all(|(from, count)| count.count == bucket(from)));
            assert_eq!(found.sizes.total(), *count);
        }
    }
    let xattrs = tree.values().map(|inode| inode.meta.xattr_len()).sum::<u64>();
    assert_eq!(found.metadata.xattrs, xattrs);
    assert_eq!(found.metadata.directories, found.of_type(FileType::Directory).bytes);
}

fn check_extents<'a>(golden: &Golden, image: &Image, found: &Usage, inodes: impl Iterator<Item = &'a Inode>) {
    let (mut data, mut blocks, mut fragments) = (Flags::new(golden), Flags::new(golden), BTreeSet::new());
    let (mut named, mut fragments_named, mut inline) = (0, 0, 0);
    let mut kinds = BTreeMap::<&str, (u64, u64, u64)>::new();
    let (mut layouts, mut records) = (BTreeMap::<&str, u64>::new(), 0);
    for inode in inodes {
        records += inode.meta.form.len() as u64;
        *layouts.entry(inode.meta.layout().name()).or_default() += u64::from(inode.has_contents());
        for extent in extents(image, inode).into_iter().filter(|_| !inode.is_dir()) {
            let stored = match extent.kind {
                ExtentKind::Hole => 0,
                ExtentKind::Fragment { off } => {
                    fragments_named += extent.llen;
                    fragments.extend(off..off + extent.llen);
                    0
                }
                ExtentKind::Raw { device, pa } => {
                    named += extent.llen;
                    data.set(device, pa..pa + extent.llen);
                    blocks.set_blocks(image, device, pa..pa + extent.llen);
                    extent.llen
                }
                ExtentKind::Meta { .. } => {
                    inline += extent.llen;
                    extent.llen
                }
                ExtentKind::Plain { plen, inline: Some(_), .. } | ExtentKind::Encoded { plen, inline: Some(_), .. } => {
                    inline += u64::from(plen);
                    plen.into()
                }
                ExtentKind::Plain { device, pa, plen, interlaced, .. } => {
                    // All golden plain pclusters are of one block.
                    let skip = if interlaced { extent.la % u64::from(plen) } else { 0 };
                    let len = u64::from(plen);
                    for byte in 0..extent.llen {
                        let at = pa + (skip + byte) % len;
                        data.set(device, at..at + 1);
                    }
                    named += extent.llen;
                    blocks.set_blocks(image, device, pa..pa + len);
                    len
                }
                ExtentKind::Encoded { device, pa, plen, .. } => {
                    named += u64::from(plen);
                    data.set(device, pa..pa + u64::from(plen));
                    blocks.set_blocks(image, device, pa..pa + u64::from(plen));
                    plen.into()
                }
                kind => panic!("{kind:?}"),
            };
            let kind = kinds.entry(StoredAs::from(&extent.kind).name()).or_default();
            *kind = (kind.0 + 1, kind.1 + extent.llen, kind.2 + stored);
        }
    }
    for (kind, count) in &found.extents {
        let expected = kinds.get(kind.name()).copied().unwrap_or_default();
        assert_eq!((count.count, count.logical, count.stored), expected, "{}: {kind:?}", golden.name);
    }
    for (layout, count) in &found.layouts {
        assert_eq!(count.count, layouts.get(layout.name()).copied().unwrap_or_default());
    }
    assert_eq!((found.data.named, found.data.stored), (named, data.count()), "{}", golden.name);
    assert_eq!((found.fragments.named, found.fragments.stored), (fragments_named, fragments.len() as u64));
    assert_eq!(found.padding, blocks.count() - data.count(), "{}", golden.name);
    assert_eq!((found.metadata.inline, found.metadata.inodes), (inline, records), "{}", golden.name);
    let compressed = found.compressed();
    assert_eq!((compressed.count, compressed.logical), {
        let total = found.extent_lens.total();
        (total.count, total.bytes)
    });
    assert_eq!(compressed.stored, found.pcluster_lens.total().bytes);
}

/// Everything that is counted is in the image, and most of the image is counted.
#[test]
fn sums_fill_the_image() {
    for golden in manifest() {
        let image = golden.open();
        let found = image.usage(Threads::at_least_one(2)).unwrap();
        let len = golden.bytes().len() as u64 + golden.devices().iter().map(|d| d.len().unwrap()).sum::<u64>();
        let metadata = found.metadata;
        let data = found.data.stored + found.padding;
        let indexes =
            metadata.superblock + metadata.inodes + metadata.xattrs + metadata.shared_xattrs + metadata.indexes;
        let sum = data + indexes + metadata.inline;
        // The metabox holds its metadata compressed.
        if image.superblock().metabox_nid.is_none() {
            assert!(sum <= len, "{}: {sum} of {len}", golden.name);
        }
        let all = sum + metadata.directories.next_multiple_of(4096) + 8192;
        assert!(all * 10 > len * 8, "{}: {all} of {len}", golden.name);
    }
}

#[test]
fn shared_xattrs_are_counted_once() {
    let found = |name: &str| {
        let golden = named(name);
        golden.open().usage(Threads::ONE).unwrap().metadata
    };
    let (shared, inline, none) = (found("xattrs-shared"), found("xattrs-inline"), found("xattr-none"));
    assert!(shared.shared_xattrs > 0 && inline.shared_xattrs == 0);
    assert!(shared.xattrs + shared.shared_xattrs < inline.xattrs);
    assert_eq!((none.xattrs, none.shared_xattrs), (0, 0));
}

/// Directories in the order they are told, and the sum of all.
fn measured(disk: &mut DiskUsage<'_>, start: &Inode, path: &[u8]) -> (Vec<(Vec<u8>, usize, TreeUsage)>, TreeUsage) {
    let mut told = Vec::new();
    let sums = disk.measure(start, path, &mut |DirUsage { path, depth, sums }| {
        told.push((path.to_vec(), depth, sums));
        ControlFlow::Continue(())
    });
    (told, sums.unwrap())
}

/// Usage of a tree as `du` reports it, with a flag for each byte.
struct NaiveDisk<'a> {
    image: &'a Image,
    flags: Flags,
    seen: BTreeSet<Nid>,
}

impl NaiveDisk<'_> {
    fn tree(&mut self, inode: &Inode, path: &[u8], told: &mut Vec<(Vec<u8>, TreeUsage)>) -> TreeUsage {
        let mut sums = TreeUsage::default();
        if self.seen.insert(inode.nid) {
            sums = TreeUsage { files: 1, apparent: inode.meta.size, on_disk: self.on_disk(inode) };
        }
        if inode.is_dir() {
            for entry in DirEntries::new(self.image, inode).collect::<Result<Vec<_>, _>>().unwrap() {
                let child = [path, if path.ends_with(b"/") { b"" } else { b"/" }, &entry.name].concat();
                let below = self.tree(&self.image.inode(entry.nid).unwrap(), &child, told);
                sums.files += below.files;
                sums.apparent += below.apparent;
                sums.on_disk += below.on_disk;
            }
            told.push((path.to_vec(), sums));
        }
        sums
    }

    /// Without index and padding of it: those are compared as a bound.
    fn on_disk(&mut self, inode: &Inode) -> u64 {
        let cost = self.image.superblock();
        let pos = (cost.meta_blkaddr.0 << cost.block_bits.bits()) + inode.nid.0 * 32;
        let mut new = self.flags.set(0, pos..pos + inode.meta.body_off());
        let extents = extents(self.image, inode);
        new += extents.iter().map(|extent| self.extent(extent, extent.la..extent.end())).sum::<u64>();
        new
    }

    fn extent(&mut self, extent: &Extent, part: Range<u64>) -> u64 {
        let len = part.end - part.start;
        match extent.kind {
            ExtentKind::Hole => 0,
            ExtentKind::Raw { device, pa } | ExtentKind::Plain { device, pa, interlaced: false, inline: None, .. } => {
                let from = pa + part.start - extent.la;
                self.flags.set_blocks(self.image, device, from..from + len)
            }
            ExtentKind::Meta { pa, .. } => self.flags.set(0, pa..pa + len),
            ExtentKind::Plain { pa, plen, inline: Some(MetadataSpace::Primary), .. }
            | ExtentKind::Encoded { pa, plen, inline: Some(MetadataSpace::Primary), .. } => {
                self.flags.set(0, pa..pa + u64::from(plen))
            }
            // One block, in the golden images.
            ExtentKind::Plain { device, pa, plen, .. } | ExtentKind::Encoded { device, pa, plen, .. } => {
                self.flags.set_blocks(self.image, device, pa..pa + u64::from(plen))
            }
            ExtentKind::Fragment { off } => {
                let packed = self.image.inode(self.image.superblock().packed_nid.unwrap()).unwrap();
                let mut new = 0;
                for extent in extents_from(self.image, &packed, off..off + len) {
                    let from = extent.la.max(off);
                    new += self.extent(&extent, from..extent.end().min(off + len));
                }
                new
            }
            kind => panic!("{kind:?}"),
        }
    }
}

#[test]
fn disk_usage_is_that_of_a_recount() {
    for golden in manifest() {
        let image = golden.open();
        // The recount does not look into a metabox.
        if image.superblock().metabox_nid.is_some() {
            continue;
        }
        let root = image.inode(image.root_nid()).unwrap();
        let (told, sums) = measured(&mut DiskUsage::new(&image), &root, b"/");
        let mut naive = NaiveDisk { image: &image, flags: Flags::new(&golden), seen: BTreeSet::new() };
        let mut expected = Vec::new();
        let expected_sums = naive.tree(&root, b"/", &mut expected);
        assert_eq!((sums.files, sums.apparent), (expected_sums.files, expected_sums.apparent));
        assert_eq!(told.len(), expected.len());
        for ((path, depth, found), (naive_path, naive)) in told.iter().zip(&expected) {
            assert_eq!(path, naive_path, "directories come after what is in them, in order");
            let slashes = path.iter().filter(|&&b| b == b'/').count();
            assert_eq!(*depth, if path == b"/" { 0 } else { slashes });
            assert_eq!((found.files, found.apparent), (naive.files, naive.apparent));
            let at = || format!("{}: {}: {found:?} {naive:?}", golden.name, path.escape_ascii());
            assert!(found.on_disk >= naive.on_disk, "{}", at());
            let has_index = found.files > 0 && golden.name != "flat";
            match has_index {
                false => assert_eq!(found.on_disk, naive.on_disk, "{}", at()),
                true => {
                    let indexes = image.usage(Threads::ONE).unwrap().metadata.indexes;
                    assert!(found.on_disk <= naive.on_disk + indexes, "{}", at());
                }
            }
        }
        let len: usize =
            golden.bytes().len() + golden.devices().iter().map(|d| d.len().unwrap() as usize).sum::<usize>();
        assert!(sums.on_disk <= len as u64 && sums.on_disk * 10 > len as u64 * 6, "{}: {sums:?} of {len}", golden.name);
    }
}

#[test]
fn a_metabox_is_measured_by_its_own_blocks() {
    for name in ["metabox", "metabox-zstd", "xattr-metabox"] {
        let golden = named(name);
        let image = golden.open();
        let root = image.inode(image.root_nid()).unwrap();
        let (_, sums) = measured(&mut DiskUsage::new(&image), &root, b"/");
        let len = golden.bytes().len() as u64;
        assert!(sums.on_disk <= len && sums.on_disk * 10 > len * 6, "{name}: {sums:?} of {len}");
    }
}

#[test]
fn trees_share_what_the_first_one_took() {
    let golden = named("lz4-dedupe");
    let image = golden.open();
    let root = image.inode(image.root_nid()).unwrap();
    let mut disk = DiskUsage::new(&image);
    let (_, first) = measured(&mut disk, &root, b"/");
    let (told, again) = measured(&mut disk, &root, b"/");
    assert!(first.on_disk > 0 && again == TreeUsage::default() && told.len() > 3);
    // Subtrees one after the other make the whole.
    let mut disk = DiskUsage::new(&image);
    let mut sums = TreeUsage::default();
    for entry in DirEntries::new(&image, &root).collect::<Result<Vec<_>, _>>().unwrap() {
        let (_, part) = measured(&mut disk, &image.inode(entry.nid).unwrap(), &entry.name);
        sums.files += part.files;
        sums.on_disk += part.on_disk;
    }
    assert_eq!(sums.files + 1, first.files);
    assert!(sums.on_disk < first.on_disk, "the root itself takes something");
}

#[test]
fn who_asks_may_stop() {
    let image = manifest()[1].open();
    let root = image.inode(image.root_nid()).unwrap();
    let mut told = 0;
    let sums = DiskUsage::new(&image).measure(&root, b"/", &mut |_| {
        told += 1;
        ControlFlow::Break(())
    });
    assert_eq!((told, sums.is_ok()), (1, true));
}

/// Damaged images give errors or numbers: never a panic or a hang.
#[test]
fn damaged_images_are_survived() {
    let options = ImageOptions::default().with_any_checksum();
    let mut rng = Rng(21);
    let (mut errors, mut sums) = (0, 0);
    for name in ["lz4-dedupe-frag-tail", "lz4-legacy", "48bit-zstd", "metabox", "chunk-index-16k", "xattr-metabox"] {
        let golden = named(name);
        let original = golden.bytes();
        for _ in 0..60 {
            let mut bytes = original.clone();
            for _ in 0..1 + rng.below(4) {
                let rest = bytes.len() as u64 - 1024;
                let area = [160, rest.min(40_000), rest][rng.below(3) as usize];
                let at = 1024 + rng.below(area);
                bytes[at as usize] = [0xFF, 0, rng.next() as u8][rng.below(3) as usize];
            }
            let source = Arc::new(MemorySource::new(bytes));
            let Ok(image) = Image::open(source, golden.devices(), &options) else { continue };
            let counted = image.usage(Threads::at_least_one(2));
            match &counted {
                Ok(_) => sums += 1,
                Err(error) => errors += u32::from(!error.to_string().is_empty()),
            }
            let Ok(root) = image.inode(image.root_nid()) else { continue };
            let _ = DiskUsage::new(&image).measure(&root, b"/", &mut |_| ControlFlow::Continue(()));
            for entry in image.walk(&root, b"").take(300).flatten() {
                if let Ok(explanation) = image.explain(&entry.inode, rng.below(9000)..u64::MAX) {
                    let _ = explanation.take(300).filter(Result::is_ok).count();
                }
            }
        }
    }
    assert!(errors > 30 && sums > 30, "{errors} {sums}");
}

/// An error has the path of what is damaged, and one thread's error stops the others.
#[test]
fn errors_name_the_file() {
    let golden = named("flat");
    let bytes = golden.bytes();
    let options = ImageOptions::default().with_any_checksum();
    let cut = bytes.len() - 4096;
    let image = Image::open(Arc::new(MemorySource::new(bytes[..cut].to_vec())), vec![], &options).unwrap();
    for threads in [1, 3].map(Threads::at_least_one) {
        let error = image.usage(threads).unwrap_err();
        assert!(error.is_corrupt() && error.to_string().contains(": /"), "{error}");
    }
}
