//! Laws of the extent map and of reads: a lookup anywhere agrees with a scan from the start, a read
//! of any range with the whole file.

use crate::common::{Rng, manifest, named, read_whole, regular_files};
use kiln_read::{Extent, ExtentKind, Image, ImageOptions, Inode, SeekWhat};

/// All extents, each found from the end of the one before.
fn scan(image: &Image, inode: &Inode) -> Vec<Extent> {
    let (mut extents, mut off) = (Vec::<Extent>::new(), 0);
    while off < inode.meta.size {
        let extent = image.extent_at(inode, off).unwrap();
        assert_eq!(extent.la, off, "extents leave no gaps");
        assert!(extent.llen > 0);
        off = extent.end();
        extents.push(extent);
    }
    assert_eq!(off, inode.meta.size);
    extents
}

#[test]
fn lookups_agree_with_a_scan() {
    let mut rng = Rng(1);
    for golden in manifest() {
        let image = golden.open();
        for (_, inode) in regular_files(&image) {
            let extents = scan(&image, &inode);
            for _ in 0..if extents.len() > 1 { 60 } else { 3 } {
                let Some(off) = (inode.meta.size > 0).then(|| rng.below(inode.meta.size)) else { break };
                let expected = extents[extents.partition_point(|e| e.la <= off) - 1];
                assert_eq!(image.extent_at(&inode, off).unwrap(), expected, "{} at {off}", golden.name);
            }
            let behind = image.extent_at(&inode, inode.meta.size + rng.below(10)).unwrap();
            assert_eq!((behind.la, behind.llen), (inode.meta.size, 0));
        }
    }
}

#[test]
fn seeks_agree_with_a_scan() {
    for golden in manifest() {
        let image = golden.open();
        for (_, inode) in regular_files(&image) {
            let size = inode.meta.size;
            let extents = scan(&image, &inode);
            for extent in &extents {
                let hole_from = |off| extents.iter().find(|e| e.end() > off && e.kind == ExtentKind::Hole);
                let data_from = |off| extents.iter().find(|e| e.end() > off && e.kind != ExtentKind::Hole);
                for off in [extent.la, extent.la + extent.llen / 2] {
                    let hole = hole_from(off).map_or(size, |e| e.la.max(off));
                    assert_eq!(image.seek(&inode, off, SeekWhat::Hole).unwrap(), Some(hole));
                    let data = data_from(off).map(|e| e.la.max(off));
                    assert_eq!(image.seek(&inode, off, SeekWhat::Data).unwrap(), data);
                }
            }
            for what in [SeekWhat::Data, SeekWhat::Hole] {
                assert_eq!(image.seek(&inode, size, what).unwrap(), None);
                assert_eq!(image.seek(&inode, u64::MAX, what).unwrap(), None);
            }
        }
    }
}

/// With every way of decoding: a cache for all, one for almost nothing, and none.
#[test]
fn any_range_reads_as_in_the_whole() {
    for cache_bytes in [64 << 20, 300 << 10, 0] {
        let mut rng = Rng(2 + cache_bytes);
        for golden in manifest() {
            let options = ImageOptions::default().with_cache_bytes(cache_bytes);
            let image = Image::open_path(&golden.path(), &golden.device_paths(), &options).unwrap();
            for (path, inode) in regular_files(&image) {
                let whole = read_whole(&golden.open(), &inode).unwrap();
                for _ in 0..4 {
                    let off = rng.below(inode.meta.size + 2);
                    let mut buf = vec![0xA5; rng.below(40_000) as usize];
                    let len = image.read_at(&inode, &mut buf, off).unwrap();
                    let expected = whole.get(off as usize..).unwrap_or_default();
                    assert_eq!(len, expected.len().min(buf.len()));
                    assert!(buf[..len] == expected[..len], "{}: {} at {off}", golden.name, path.escape_ascii());
                }
            }
        }
    }
}

#[test]
fn many_threads_read_the_same_bytes() {
    for name in ["lz4hc-64k", "zstd-1m-frag", "metabox-zstd", "lzma"] {
        let golden = named(name);
        let image = golden.open();
        let files: Vec<_> =
            regular_files(&image).into_iter().map(|(_, inode)| (inode, read_whole(&image, &inode).unwrap())).collect();
        let image = golden.open();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (image, files) = (&image, &files);
                scope.spawn(move || {
                    let mut rng = Rng(100 + thread / 2);
                    for _ in 0..200 {
                        let (inode, whole) = &files[rng.below(files.len() as u64) as usize];
                        let off = rng.below(inode.meta.size + 1);
                        let mut buf = vec![0; 5000];
                        let len = image.read_at(inode, &mut buf, off).unwrap();
                        assert!(buf[..len] == whole[off as usize..off as usize + len]);
                    }
                });
            }
        });
    }
}
