//! The public interface of this crate, by its own paths alone: `kiln-format` is not named here.

use kiln_read::{
    Bytes, DirEntries, File, FilePosition, FileRange, FileRangeMut, FileTable, FileType, FollowLast, Image,
    ImageOptions, Inode, MappedSource, Nid, ReadAt, ReadError, ScanFilter, SeekWhat, Threads, WalkEntry, conformance,
};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Golden images of every layout, none of which has extra devices.
const NAMES: &[&str] = &[
    "48bit-zstd",
    "b1024-lz4",
    "b512",
    "chunk-4k",
    "chunk-map-64k",
    "compact",
    "deflate",
    "flat",
    "inline",
    "lz4-allfrag",
    "lz4-dedupe-frag-tail",
    "lz4-legacy",
    "lz4-tail",
    "lzma",
    "metabox-zstd",
    "zstd",
    "zstd-1m-frag",
];

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.erofs"))
}

fn open(name: &str) -> Image {
    Image::open_path(&path(name), &[], &ImageOptions::default()).unwrap()
}

/// The image in memory, whose plain data need not be copied.
fn mapped(name: &str) -> Image {
    // SAFETY: golden images do not change.
    let source = unsafe { MappedSource::open(&path(name)) }.unwrap();
    Image::open(Arc::new(source), vec![], &ImageOptions::default()).unwrap()
}

fn root(image: &Image) -> Inode {
    image.inode(image.root_nid()).unwrap()
}

fn walked(image: &Image) -> Vec<WalkEntry> {
    image.walk(&root(image), b"").map(Result::unwrap).collect()
}

/// Regular files with paths and contents.
fn contents(image: &Image) -> Vec<(Vec<u8>, Inode, Vec<u8>)> {
    let files = walked(image).into_iter().filter(|entry| entry.inode.is_file());
    let read = |WalkEntry { path, inode }| {
        let mut bytes = vec![0; inode.size() as usize];
        assert_eq!(image.read_at(&inode, &mut bytes, 0).unwrap(), bytes.len());
        (path, inode, bytes)
    };
    files.map(read).collect()
}

#[test]
fn public_types_are_at_hand() {
    let image = open("zstd");
    let sb: &kiln_read::Superblock = image.superblock();
    let _: (kiln_read::BlockBits, kiln_read::Compat, kiln_read::Incompat) = (sb.block_bits, sb.compat, sb.incompat);
    let _: (&kiln_read::ComprCfgs, &[kiln_read::DeviceSlot]) = (image.compr_cfgs(), image.device_slots());
    assert!(image.compr_cfgs().has(kiln_read::Algorithm::Zstd));
    let special = image.resolve(b"/special/blk", FollowLast::Keep).unwrap();
    assert_eq!(special.file_type(), FileType::BlockDevice);
    assert_eq!(special.rdev(), kiln_read::Rdev { major: 259, minor: 70000 });
    assert_eq!((special.mode(), special.permissions(), special.nlink()), (0o060640, 0o640, 1));
    let old = image.resolve(b"/times/old", FollowLast::Keep).unwrap();
    assert_eq!((old.mtime(), old.mtime_nsec(), old.uid(), old.gid()), (-31_536_000, 5, 0, 0));
    fn shared<T: Send + Sync + Clone + 'static>() {}
    shared::<(Image, File, Bytes, FileTable)>();
}

#[test]
fn files_read_and_seek() {
    for name in NAMES {
        for image in [open(name), mapped(name)] {
            for (path, inode, expected) in contents(&image) {
                let mut file = image.open_file(&path).unwrap();
                assert_eq!((file.size(), file.inode()), (inode.size(), &inode));
                let mut bytes = b"before ".to_vec();
                assert_eq!(file.read_to_end(&mut bytes).unwrap(), expected.len());
                assert!(bytes[7..] == expected[..] && bytes.starts_with(b"before "), "{name}");
                assert_eq!(file.read_to_end(&mut bytes).unwrap(), 0);
                let middle = expected.len() as u64 / 2;
                assert_eq!(file.seek(SeekFrom::End(-(middle as i64))).unwrap(), inode.size() - middle);
                let mut part = vec![0; 7000];
                let (mut other, len) = (file.clone(), file.read(&mut part).unwrap());
                assert_eq!(len, 7000.min(middle as usize));
                assert!(part[..len] == expected[expected.len() - middle as usize..][..len]);
                assert_eq!(other.stream_position().unwrap() + len as u64, file.stream_position().unwrap());
                let mut again = Vec::new();
                other.read_to_end(&mut again).unwrap();
                assert!(again == expected[expected.len() - middle as usize..]);
            }
        }
    }
}

#[test]
fn files_answer_wrong_questions() {
    let image = open("zstd");
    let mut file = image.open_file("big/text").unwrap();
    assert_eq!(file.seek(SeekFrom::Start(u64::MAX)).unwrap(), u64::MAX);
    assert_eq!(file.read(&mut [0; 10]).unwrap(), 0);
    assert_eq!(file.read_to_end(&mut Vec::new()).unwrap(), 0);
    for wrong in [SeekFrom::Current(1), SeekFrom::End(-(1 << 40))] {
        assert_eq!(file.seek(wrong).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
    assert!(matches!(image.open_file("/big"), Err(ReadError::IsADirectory { path }) if path == b"/big"));
    assert!(matches!(image.open_file("/special/fifo"), Err(ReadError::NoContents { .. })));
    assert!(matches!(image.open_file("/absent"), Err(ReadError::NotFound { .. })));
    assert!(matches!(image.open_dir("/big/text"), Err(ReadError::NotADirectory { path }) if path == b"/big/text"));
    let error = io::Error::from(image.open_file("/absent").unwrap_err());
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    assert_eq!(error.to_string(), "/absent: no such file or directory");
    let mixed = image.open_file("/big/mixed").unwrap();
    let (mut text, start) = (String::from("as before"), mixed.clone().stream_position().unwrap());
    let mut read = mixed.clone();
    assert_eq!(read.read_to_string(&mut text).unwrap_err().kind(), io::ErrorKind::InvalidData);
    assert_eq!((&*text, read.stream_position().unwrap()), ("as before", start));
}

#[test]
fn files_are_sources() {
    for (name, of) in
        [("zstd", "/big/mixed"), ("flat", "/big/text"), ("chunk-4k", "/big/zeros"), ("lz4-allfrag", "/times/old")]
    {
        for image in [open(name), mapped(name)] {
            let file = image.open_file(of).unwrap();
            let mut expected = Vec::new();
            file.clone().read_to_end(&mut expected).unwrap();
            conformance::assert_conforms(&file, &expected);
            // Plain data of an image in memory is in memory.
            let is_plain =
                image.extent_at(file.inode(), 0).is_ok_and(|e| matches!(e.kind, kiln_read::ExtentKind::Raw { .. }));
            let is_in_memory = image.stats().fetches > 0 && file.borrow(0, 1).is_some();
            assert!(!is_in_memory || is_plain, "{name}");
        }
    }
    let flat = mapped("flat");
    assert!(flat.open_file("/big/text").unwrap().borrow(0, 100_000).is_some());
    assert!(open("flat").open_file("/big/text").unwrap().borrow(0, 1).is_none());
}

#[test]
fn entries_are_those_of_listings() {
    for name in NAMES {
        let image = open(name);
        for WalkEntry { path, inode } in walked(&image).into_iter().filter(|entry| entry.inode.is_dir()) {
            let entries: Vec<_> = DirEntries::new(&image, &inode).map(Result::unwrap).collect();
            assert_eq!(entries, DirEntries::new(&image, &inode).collect::<Result<Vec<_>, _>>().unwrap());
            let by_path: Vec<_> = image.open_dir(&path).unwrap().map(Result::unwrap).collect();
            assert_eq!(entries, by_path);
        }
    }
    let image = open("zstd");
    let text = image.resolve(b"/big/text", FollowLast::Keep).unwrap();
    let items: Vec<_> = DirEntries::new(&image, &text).collect();
    assert!(matches!(items[..], [Err(ReadError::NotADirectory { .. })]));
}

#[test]
fn bytes_outlive_the_image() {
    let mut no_copies = BTreeSet::new();
    for name in NAMES {
        for image in [open(name), mapped(name)] {
            let mut kept = Vec::new();
            for (_, inode, expected) in contents(&image) {
                let len = expected.len() as u64;
                for (start, end) in
                    [(0, len), (len / 3, len / 2), (len - len / 5, len + 10), (0, u64::MAX), (len, len + 1)]
                {
                    let bytes = image.read_bytes(&inode, start..end).unwrap();
                    let (from, to) = (start.min(len) as usize, end.min(len) as usize);
                    assert!(bytes == expected[from..to], "{name}: {start}..{end}");
                    let file = image.file(&inode).unwrap();
                    let is_shared =
                        file.borrow(start, bytes.len()).is_some_and(|b| !b.is_empty() && b.as_ptr() == bytes.as_ptr());
                    no_copies.extend(is_shared.then_some(*name));
                    kept.push((bytes, expected[from..to].to_vec()));
                }
            }
            drop(image);
            assert!(kept.iter().all(|(bytes, expected)| bytes == expected), "{name}");
        }
    }
    assert!(no_copies.contains("flat") && no_copies.contains("chunk-4k"), "{no_copies:?}");
}

#[test]
fn cached_extents_are_shared() {
    let image = open("zstd-1m-frag");
    let file = image.open_file("/big/text").unwrap();
    let two = || [10_000..20_000, 30_000..40_000].map(|range| image.read_bytes(file.inode(), range).unwrap());
    two();
    let (first, again) = (two(), two());
    assert_eq!(first, again);
    assert_eq!(first.each_ref().map(|bytes| bytes.as_ptr()), again.each_ref().map(|bytes| bytes.as_ptr()));
}

#[test]
fn positions_sort_by_stored_order() {
    let mut shared = BTreeMap::<FilePosition, usize>::new();
    for name in NAMES {
        let image = open(name);
        for (_, inode, bytes) in contents(&image) {
            let position = image.position(&inode).unwrap();
            let has_data = image.seek(&inode, 0, SeekWhat::Data).unwrap().is_some();
            assert_eq!(position.stored_len > 0, has_data, "{name}");
            assert!(bytes.is_empty() || position.address + position.stored_len <= 2 * image.source_len());
            let is_fragment = |extent: kiln_read::Extent| matches!(extent.kind, kiln_read::ExtentKind::Fragment { .. });
            let fragments = image.extents(&inode).map(Result::unwrap).any(is_fragment);
            assert_eq!(position.shared_cluster.is_some(), fragments && has_data, "{name}");
            if let Some(cluster) = position.shared_cluster.filter(|cluster| cluster.address == position.address) {
                assert_eq!(cluster.device, position.device);
                *shared.entry(position).or_default() += 1;
            }
            // The first byte is read from the position.
            let extent = image.extent_at(&inode, 0).unwrap();
            if let kiln_read::ExtentKind::Raw { device, pa } = extent.kind {
                assert_eq!((position.device, position.address, position.offset), (device, pa, 0));
            }
        }
    }
    let clusters: BTreeSet<_> = shared.keys().map(|position| position.address).collect();
    assert!(clusters.len() < shared.len(), "files in one cluster have different offsets");
}

#[test]
fn batches_fill_the_callers_buffers() {
    for name in NAMES {
        let image = open(name);
        let files = contents(&image);
        for (threads, from, cut) in [(1, 0, 0), (3, 0, 10), (2, 5, 0)] {
            let off = |expected: &[u8]| from.min(expected.len());
            let mut buffers: Vec<Vec<u8>> = files
                .iter()
                .map(|(_, _, bytes)| vec![0xA5; (bytes.len() - off(bytes)).saturating_sub(cut) + from])
                .collect();
            let items = files.iter().zip(&mut buffers);
            let items =
                items.map(|((_, inode, bytes), buf)| FileRangeMut { inode: *inode, off: off(bytes) as u64, buf });
            let results = image.read_many_into(&mut items.collect::<Vec<_>>(), Threads::at_least_one(threads));
            for (((_, _, bytes), buf), len) in files.iter().zip(&buffers).zip(results) {
                let (len, expected) = (len.unwrap(), &bytes[off(bytes)..]);
                assert_eq!(len, expected.len().min(buf.len()), "{name}");
                assert!(buf[..len] == expected[..len] && buf[len..].iter().all(|&byte| byte == 0xA5), "{name}");
            }
        }
        // The same as read_many gives.
        let ranges = files.iter().map(|(_, inode, bytes)| FileRange { inode: *inode, range: 0..bytes.len() as u64 });
        let ranges: Vec<_> = ranges.collect();
        let sum = Mutex::new(0);
        image.read_many(&ranges, Threads::ONE, &|item| *sum.lock().unwrap() += item.bytes.unwrap().len());
        assert_eq!(sum.into_inner().unwrap(), files.iter().map(|(_, _, bytes)| bytes.len()).sum::<usize>());
    }
}

#[test]
fn whole_extents_of_a_batch_are_decoded_in_place() {
    let image = open("zstd");
    let file = image.open_file("/big/text").unwrap();
    let mut buf = vec![0; file.size() as usize];
    let before = image.stats();
    let read = FileRangeMut { inode: *file.inode(), off: 0, buf: &mut buf };
    assert_eq!(image.read_many_into(&mut [read], Threads::ONE)[0].as_ref().unwrap(), &(file.size() as usize));
    let after = image.stats();
    assert!(after.decoded_direct > before.decoded_direct);
    assert_eq!((after.decoded_kept, after.decoded_scratch), (before.decoded_kept, before.decoded_scratch));
}

#[test]
fn errors_of_a_batch_stay_with_their_items() {
    let image = open("zstd");
    let inode = |path: &str| image.resolve(path.as_bytes(), FollowLast::Keep).unwrap();
    let (mut a, mut b, mut c, mut d) = ([0; 10], [0; 10], [0; 10], [0; 10]);
    let mut reads = [
        FileRangeMut { inode: inode("/big"), off: 0, buf: &mut a },
        FileRangeMut { inode: inode("/big/text"), off: 0, buf: &mut b },
        FileRangeMut { inode: inode("/special/fifo"), off: 0, buf: &mut c },
        FileRangeMut { inode: inode("/big/text"), off: u64::MAX, buf: &mut d },
    ];
    let results = image.read_many_into(&mut reads, Threads::at_least_one(2));
    assert!(matches!(
        &results[..],
        [Err(ReadError::IsADirectory { .. }), Ok(10), Err(ReadError::NoContents { .. }), Ok(0)]
    ));
    assert!(image.read_many_into(&mut [], Threads::PROCESSORS).is_empty());
}

/// Returns the rows of a table from a walk, in the table's order: by directory.
fn rows(image: &Image, keep: impl Fn(&WalkEntry) -> bool) -> BTreeMap<Vec<u8>, Inode> {
    let kept = walked(image).into_iter().filter(|entry| !entry.path.is_empty() && keep(entry));
    kept.map(|entry| (entry.path, entry.inode)).collect()
}

#[test]
fn scans_find_what_walks_find() {
    for name in NAMES {
        let image = open(name);
        let table = |filter: &ScanFilter| {
            let one = image.scan(&root(&image), filter, Threads::ONE).table().unwrap();
            assert_eq!(one, image.scan(&root(&image), filter, Threads::at_least_one(3)).table().unwrap());
            one
        };
        let check = |table: &FileTable, expected: BTreeMap<Vec<u8>, Inode>| {
            assert_eq!(table.len(), expected.len(), "{name}");
            for row in 0..table.len() {
                let inode = &expected[&table.path(row)];
                assert_eq!((table.nids[row], table.sizes[row]), (inode.nid.0, inode.size()));
                assert_eq!(
                    (table.modes[row], table.uids[row], table.gids[row]),
                    (inode.mode(), inode.uid(), inode.gid())
                );
                assert_eq!((table.mtimes[row], table.mtime_nsecs[row]), (inode.mtime(), inode.mtime_nsec()));
            }
        };
        let all = table(&ScanFilter::all());
        check(&all, rows(&image, |_| true));
        let dirs = rows(&image, |entry| entry.inode.is_dir());
        assert_eq!(all.directories.len(), dirs.len() + 1);
        for row in 1..all.directories.len() {
            assert_eq!(all.directories.nids[row], dirs[&all.directories.path(row)].nid.0);
            assert!((all.directories.parents[row] as usize) < row);
        }
        let files = table(&ScanFilter::regular_files());
        check(&files, rows(&image, |entry| entry.inode.is_file()));
        let ends =
            |entry: &WalkEntry| entry.inode.is_file() && (entry.path.ends_with(b"t") || entry.path.ends_with(b"zeros"));
        let some = table(&ScanFilter::regular_files().ending_in(["T", "zeros"]));
        check(&some, rows(&image, ends));
        assert!(!some.is_empty() && some.len() < files.len());
        let positions = all.positions(&image, Threads::at_least_one(2)).unwrap();
        for (row, position) in positions.iter().enumerate() {
            let inode = image.inode(Nid(all.nids[row])).unwrap();
            assert_eq!(*position, image.position(&inode).unwrap_or_default());
        }
    }
}
