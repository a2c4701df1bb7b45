//! Images that somebody made to do harm, one trick a test. What must hold for each: an error, or an
//! answer, at a cost that the image's length bounds.
//!
//! | trick | test |
//! |---|---|
//! | a directory inside itself, a second name of a directory | here; `check.rs`: `directory_cycles_end` |
//! | symbolic links in a circle, out of the image, of impossible length | here |
//! | a file of petabytes: claimed, as a hole, as a bomb | here |
//! | an inode, a chunk table, an index behind the end | here |
//! | names and attributes outside their block, overlapping, too many | here; `format`: `dirent.rs`, `laws/tables.rs` |
//! | an index whose entries contradict each other, or lead nowhere | here |
//! | a stream that shows what was in the buffer before | here; `codec`: `tests/it/hostile.rs` |
//! | data inside metadata, or inside other data | `check.rs`: `overlaps_are_found` |
//! | a device that does not exist, devices that overlap | `spaces.rs` |
//! | a metabox inside itself, one far larger than the image | `spaces.rs` |
//! | fragments inside the packed inode | `check.rs`: `the_packed_inode_has_no_fragments` |
//! | names and links that lead out of a target directory | `sink`: `tests/it/extract.rs` |
//! | any damage at all | `tests/`: `mutations.rs`, `it/hostile_mount.rs`, `it/corpus.rs` |

use crate::common::handmade::{FILE_NID, Handmade, META_OFF, encode};
use crate::common::read_whole;
use kiln_format::compr_cfg::Algorithm;
use kiln_format::dirent::{Dirent, encode_block};
use kiln_format::inode::{DataLayout, FileType, Inode as Meta, InodeData};
use kiln_format::xattr::{encode_entry, icount};
use kiln_format::zmap::{Advise, FULL_INDEX_OFF, HeadKind, Lcluster, MapHeader};
use kiln_format::{Blkaddr, BlockBits, Nid};
use kiln_read::{
    DirEntries, FilePosition, FollowLast, Image, ImageOptions, Inode, MemorySource, ReadError, ScanFilter, SeekWhat,
    Threads,
};
use std::io::Read;
use std::sync::Arc;

fn open(bytes: Vec<u8>) -> Image {
    let options = ImageOptions::default().with_any_checksum();
    Image::open(Arc::new(MemorySource::new(bytes)), vec![], &options).unwrap()
}

/// The only file of an image.
fn with_file(make: impl FnOnce(&mut Handmade) -> (Meta, Vec<u8>)) -> (Image, Inode) {
    let mut image = Handmade::new(12);
    let (inode, body) = make(&mut image);
    image.inode(FILE_NID, &inode, &body);
    let image = open(image.finish());
    let inode = image.inode(FILE_NID).unwrap();
    (image, inode)
}

/// The image whose root has `entries` beside its dots, in their order.
fn with_root(mut image: Handmade, entries: &[(&str, Nid, FileType)]) -> Image {
    let mut contents = image.file(DataLayout::FlatPlain, 4, 0);
    contents.data = InodeData::FlatPlain(Some(Blkaddr(image.append(b"data") >> 12)));
    image.inode(FILE_NID, &contents, &[]);
    let mut bytes = image.finish();
    let dots = [(".", Nid(0), FileType::Directory), ("..", Nid(0), FileType::Directory)];
    put_dir(&mut bytes, &[&dots[..], entries].concat());
    open(bytes)
}

/// Write the root's contents, which lie behind its inode.
fn put_dir(bytes: &mut [u8], entries: &[(&str, Nid, FileType)]) {
    let list: Vec<_> = entries
        .iter()
        .map(|(name, nid, file_type)| Dirent { nid: *nid, file_type: file_type.dirent_number(), name: name.as_bytes() })
        .collect();
    let len = list.iter().map(|entry| 12 + entry.name.len()).sum::<usize>();
    let root = META_OFF as usize;
    encode_block(&list, &mut bytes[root + 64..root + 64 + len]).unwrap();
    bytes[root + 8..root + 16].copy_from_slice(&(len as u64).to_le_bytes());
}

#[test]
fn a_directory_with_two_names_is_visited_once() {
    let mut image = Handmade::new(12);
    let sub = Meta { file_type: FileType::Directory, ..image.file(DataLayout::FlatPlain, 0, 0) };
    image.inode(Nid(40), &sub, &[]);
    let dir = FileType::Directory;
    let image = with_root(image, &[("a", Nid(40), dir), ("b", Nid(40), dir)]);
    let root = image.inode(Nid(0)).unwrap();
    let entries: Vec<_> = image.walk(&root, b"").collect();
    assert_eq!(entries.len(), 3);
    assert!(entries[2].as_ref().unwrap_err().to_string().contains("a directory with several names"));
    let report = image.check(Threads::ONE).unwrap();
    assert!(report.problems.iter().any(|problem| problem.to_string().contains("a directory with another name")));
    let error = image.scan(&root, &ScanFilter::all(), Threads::ONE).table().unwrap_err().to_string();
    assert!(error.contains("a directory with several names"), "{error}");
}

/// A table of all names is no longer than the image bears: a directory whose one block is named a
/// million times by its chunk table has a length, and a cycle of directories an end.
#[test]
fn scans_are_bounded_by_the_image() {
    let dir = FileType::Directory;
    let mut image = Handmade::new(12);
    let mut block = vec![0; 4096];
    let names: Vec<String> = (0..120).map(|nth| format!("{nth:03}")).collect();
    let list: Vec<_> = names.iter().map(|name| Dirent { nid: FILE_NID, file_type: 1, name: name.as_bytes() }).collect();
    encode_block(&list, &mut block[..120 * 15]).unwrap();
    let start = (image.append(&block) >> 12) as u32;
    // Chunks of one block, with entries of four bytes.
    let count = 2000;
    let sub = Meta { file_type: dir, ..image.file(DataLayout::ChunkBased, count * 4096, 0) };
    image.inode(Nid(64), &sub, &start.to_le_bytes().repeat(count as usize));
    let image = with_root(image, &[("sub", Nid(64), dir)]);
    let root = image.inode(Nid(0)).unwrap();
    assert_eq!(
        DirEntries::new(&image, &image.inode(Nid(64)).unwrap()).filter_map(Result::ok).count(),
        120 * count as usize
    );
    let error = image.scan(&root, &ScanFilter::all(), Threads::ONE).table().unwrap_err();
    assert!(error.is_corrupt() && error.to_string().contains("directories are longer than the image"), "{error}");
    let image = with_root(Handmade::new(12), &[("again", Nid(0), dir)]);
    let error = image.scan(&root, &ScanFilter::regular_files(), Threads::ONE).table().unwrap_err();
    assert!(error.to_string().contains("a directory with several names"), "{error}");
}

/// The type in an entry decides nothing alone.
#[test]
fn scans_do_not_trust_the_types_of_entries() {
    let image = with_root(Handmade::new(12), &[("a", FILE_NID, FileType::Fifo), ("b", FILE_NID, FileType::Regular)]);
    let root = image.inode(Nid(0)).unwrap();
    let table = image.scan(&root, &ScanFilter::regular_files(), Threads::ONE).table().unwrap();
    assert_eq!((table.name(0), table.name(1), &table.sizes[..]), (&b"a"[..], &b"b"[..], &[4, 4][..]));
    let mut image = Handmade::new(12);
    symlink(&mut image, 40, "target");
    let image = with_root(image, &[("link", Nid(40), FileType::Regular)]);
    let error = image.scan(&root, &ScanFilter::regular_files(), Threads::ONE).table().unwrap_err().to_string();
    assert!(error.contains("link (nid 40)") && error.contains("the inode is no regular file"), "{error}");
}

/// Put a symbolic link in slot `nid`, its target beside it.
fn symlink(image: &mut Handmade, nid: u64, target: &str) {
    let inode = image.file(DataLayout::FlatInline, target.len() as u64, 0);
    image.inode(Nid(nid), &Meta { file_type: FileType::Symlink, ..inode }, target.as_bytes());
}

#[test]
fn symlinks_stay_in_the_image_and_end() {
    let mut image = Handmade::new(12);
    let targets = ["/f", "../../../f", "loop", "b-loop", "a-loop", "/etc/passwd", "f/x", "."];
    let names = ["absolute", "above", "loop", "a-loop", "b-loop", "outside", "through", "here"];
    let mut entries = vec![("f", FILE_NID, FileType::Regular)];
    for (idx, (name, target)) in names.into_iter().zip(targets).enumerate() {
        let nid = 100 + 8 * idx as u64;
        symlink(&mut image, nid, target);
        entries.push((name, Nid(nid), FileType::Symlink));
    }
    entries.sort_unstable_by_key(|entry| entry.0);
    let image = with_root(image, &entries);
    let resolve = |path: &str| image.resolve(path.as_bytes(), FollowLast::Follow).map(|inode| inode.nid);
    for path in ["absolute", "above", "here/absolute", "here/here/../f", "/../../f"] {
        assert_eq!(resolve(path).unwrap(), FILE_NID, "{path}");
    }
    for path in ["loop", "a-loop", "b-loop", "loop/x"] {
        assert!(matches!(resolve(path), Err(ReadError::TooManySymlinks { .. })), "{path}");
    }
    assert!(matches!(resolve("outside"), Err(ReadError::NotFound { .. })));
    assert!(matches!(resolve("through"), Err(ReadError::NotADirectory { .. })));
    assert!(matches!(resolve("absolute/"), Err(ReadError::NotADirectory { .. })));
    assert_eq!(image.resolve(b"loop", FollowLast::Keep).unwrap().meta.file_type, FileType::Symlink);
}

/// Each of 40 links adds a thousand to what is still to go: the limit is on links followed, not on
/// components.
#[test]
fn symlinks_that_multiply_end() {
    let mut image = Handmade::new(12);
    symlink(&mut image, 128, &"x/".repeat(1000));
    let image = with_root(image, &[("x", Nid(128), FileType::Symlink)]);
    assert!(matches!(image.resolve(b"x/x/x", FollowLast::Follow), Err(ReadError::TooManySymlinks { .. })));
}

#[test]
fn symlinks_of_any_claimed_length_cost_nothing() {
    for size in [4096, 1 << 40, u64::MAX >> 1] {
        let (image, inode) = with_file(|image| {
            let hole = image.file(DataLayout::FlatPlain, size, u32::MAX);
            (Meta { file_type: FileType::Symlink, ..hole }, vec![])
        });
        assert!(image.read_link(&inode).unwrap_err().is_corrupt());
    }
}

const HUGE: u64 = u64::MAX >> 1;

/// Reads of a small piece anywhere.
fn sample(image: &Image, inode: &Inode) -> Vec<Result<usize, ReadError>> {
    let size = inode.meta.size;
    [0, 4095, size / 2, size - 5].map(|off| image.read_at(inode, &mut [1; 100], off)).into_iter().collect()
}

#[test]
fn a_size_that_is_only_claimed_is_an_error() {
    for layout in [DataLayout::FlatPlain, DataLayout::FlatInline, DataLayout::CompressedFull] {
        let (image, inode) = with_file(|image| (image.file(layout, HUGE, 1), vec![0; 64]));
        let mut bytes = Vec::new();
        let error = image.file(&inode).unwrap().read_to_end(&mut bytes).unwrap_err();
        assert!(bytes.capacity() < 100 << 20, "{error}");
        assert!(sample(&image, &inode)[2..].iter().all(|read| read.as_ref().is_err_and(ReadError::is_corrupt)));
        assert!(image.check(Threads::ONE).unwrap().problem_count > 0);
    }
}

/// The index that such a file would need is not taken for bytes that have an owner: noting them
/// down would take more memory than there is. (Found by fuzzing.)
#[test]
fn an_index_that_is_only_claimed_costs_nothing() {
    for layout in [DataLayout::CompressedFull, DataLayout::CompressedCompact, DataLayout::ChunkBased] {
        let (image, _) = with_file(|image| (image.file(layout, HUGE, 0), vec![0; 64]));
        let report = image.check(Threads::ONE).unwrap();
        assert_eq!(report.problem_count, 1);
        assert!(report.problems[0].to_string().contains("not wholly in the metadata"), "{}", report.problems[0]);
    }
}

/// A hole of petabytes is legal: it costs what is read of it.
#[test]
fn a_huge_hole_costs_nothing() {
    let (image, inode) = with_file(|image| (image.file(DataLayout::FlatPlain, HUGE, u32::MAX), vec![]));
    assert_eq!(sample(&image, &inode).into_iter().map(Result::unwrap).collect::<Vec<_>>(), [100, 100, 100, 5]);
    for range in [0..HUGE, 7..u64::MAX] {
        let error = image.read_bytes(&inode, range).unwrap_err();
        assert!(matches!(error, ReadError::Unsupported { .. }), "{error}");
    }
    let mut bytes = b"kept".to_vec();
    let error = image.file(&inode).unwrap().read_to_end(&mut bytes).unwrap_err();
    assert_eq!((error.kind(), &bytes[..]), (std::io::ErrorKind::Unsupported, &b"kept"[..]));
    assert_eq!(image.read_bytes(&inode, 7..100_007).unwrap(), vec![0; 100_000]);
    assert_eq!(image.position(&inode).unwrap(), FilePosition::default());
    assert_eq!(image.seek(&inode, 7, SeekWhat::Data).unwrap(), None);
    assert_eq!(image.seek(&inode, 7, SeekWhat::Hole).unwrap(), Some(7));
    assert_eq!(image.check(Threads::ONE).unwrap().problem_count, 0);
}

/// A pcluster of a few hundred bytes is 12 MiB of each of a thousand extents. That is legal too: a
/// read costs an extent, and memory is bounded by the cache.
#[test]
fn a_bomb_costs_an_extent_at_a_time() {
    const EXTENT_LEN: u64 = 12 << 20;
    let (image, inode) = with_file(|image| {
        let stream = encode(Algorithm::Zstd, &vec![b'!'; EXTENT_LEN as usize]);
        assert!(stream.len() < 2000);
        let pa = image.append(&stream);
        let count = 1000u32;
        let mut body = [&count.to_le_bytes()[..], &[0x07, 0, 0, 0], &[0; 24]].concat();
        let word = stream.len() as u32 | (Algorithm::Zstd as u32 + 1) << 28;
        for idx in 0..u64::from(count) {
            let la = idx * EXTENT_LEN;
            body.extend([&word.to_le_bytes()[..], &pa.to_le_bytes(), &la.to_le_bytes(), &[0; 12]].concat());
        }
        (image.file(DataLayout::CompressedFull, 1000 * EXTENT_LEN, 0), body)
    });
    let mut buf = [0; 300];
    for off in [0, 5, EXTENT_LEN - 100, 500 * EXTENT_LEN + 77, 1000 * EXTENT_LEN - 300] {
        assert_eq!(image.read_at(&inode, &mut buf, off).unwrap(), 300);
        assert_eq!(buf, [b'!'; 300]);
    }
    // The image is far shorter than that: memory grows in steps, and every step is whole extents.
    let whole = image.read_bytes(&inode, 5..5 + 20 * EXTENT_LEN).unwrap();
    assert!(whole.len() as u64 == 20 * EXTENT_LEN && whole.iter().all(|&byte| byte == b'!'));
    assert!(image.stats().decoded_bytes < 50 * EXTENT_LEN, "{}", image.stats().decoded_bytes);
    // One byte more in an extent is more than kernels decode.
    let (image, inode) = with_file(|image| {
        let stream = encode(Algorithm::Zstd, &vec![b'!'; EXTENT_LEN as usize]);
        let pa = image.append(&stream);
        let word = stream.len() as u32 | (Algorithm::Zstd as u32 + 1) << 28;
        let body = [&[1, 0, 0, 0, 5, 0, 0, 0][..], &[0; 8], &word.to_le_bytes(), &pa.to_le_bytes(), &[0; 4]].concat();
        (image.file(DataLayout::CompressedFull, EXTENT_LEN + 1, 0), body)
    });
    assert!(matches!(image.read_at(&inode, &mut buf, 0), Err(ReadError::Unsupported { .. })));
}

#[test]
fn an_inode_behind_the_end_is_corrupt() {
    for nid in [1 << 20, 1 << 40, (1 << 58) - 1, 1 << 58, HUGE, 1 << 63, u64::MAX] {
        let image = with_root(Handmade::new(12), &[("f", Nid(nid), FileType::Regular)]);
        let error = image.resolve(b"f", FollowLast::Keep).unwrap_err();
        assert!(error.is_corrupt(), "{nid}: {error}");
        assert_eq!(image.check(Threads::ONE).unwrap().problem_count, 1);
    }
}

#[test]
fn a_chunk_table_behind_the_end_is_corrupt() {
    for (format, size) in [(0x20, 1 << 40), (0x00, 1 << 40), (0x60, HUGE), (0x1F, HUGE), (0x3F, HUGE)] {
        let (image, inode) = with_file(|image| (image.file(DataLayout::ChunkBased, size, format), vec![0xFF; 16]));
        let last = image.read_at(&inode, &mut [0; 10], size - 10);
        let chunk_bits = 12 + (format & 0x1F);
        // Chunks of 8 TiB: a million of them fit the image, and are what happens to be there.
        assert!(chunk_bits > 40 || last.unwrap_err().is_corrupt(), "{format:#x}");
        assert!(image.check(Threads::ONE).unwrap().problem_count > 0);
    }
}

/// Unknown bits of an inode's chunk format matter only to reads of its contents.
#[test]
fn an_unknown_chunk_format_hides_the_contents_only() {
    let (image, inode) = with_file(|image| (image.file(DataLayout::ChunkBased, 4096, 0x80), vec![0; 16]));
    assert_eq!((inode.meta.size, inode.meta.layout()), (4096, DataLayout::ChunkBased));
    assert_eq!(image.list_xattrs(&inode).unwrap(), []);
    assert_eq!(DirEntries::new(&image, &image.inode(Nid(0)).unwrap()).filter_map(Result::ok).count(), 1);
    let error = image.read_at(&inode, &mut [0; 10], 0).unwrap_err();
    assert!(matches!(error, ReadError::Unsupported { .. }), "{error}");
    assert!(error.to_string().contains("format = 128 (0x80): unknown bits"), "{error}");
    assert_eq!(image.check(kiln_read::Threads::ONE).unwrap().problem_count, 1);
    // An empty file has no chunks.
    let (image, inode) = with_file(|image| (image.file(DataLayout::ChunkBased, 0, 0x80), vec![]));
    assert_eq!(image.read_at(&inode, &mut [0; 10], 0).unwrap(), 0);
    assert_eq!(image.check(kiln_read::Threads::ONE).unwrap().problem_count, 0);
}

#[test]
fn names_outside_their_block_are_corrupt() {
    // The second of three records: in the array of records, behind the directory, before the first
    // name, in the middle of the next one.
    for nameoff in [0u16, 12, 35, 36, 41, 4095, 65535] {
        let mut image = Handmade::new(12);
        let inode = image.file(DataLayout::FlatPlain, 0, 0);
        image.inode(FILE_NID, &inode, &[]);
        let mut bytes = image.finish();
        let record = META_OFF as usize + 64 + 12;
        bytes[record + 8..record + 10].copy_from_slice(&nameoff.to_le_bytes());
        let image = open(bytes);
        let root = image.inode(Nid(0)).unwrap();
        assert!(DirEntries::new(&image, &root).collect::<Result<Vec<_>, _>>().unwrap_err().is_corrupt(), "{nameoff}");
        assert!(image.lookup(&root, b"..").is_err() || nameoff == 36, "{nameoff}");
        assert!(image.check(Threads::ONE).unwrap().problem_count > 0);
    }
}

/// One shared entry of 64 KiB, 255 times: the list has 16 MiB, which the format bounds.
#[test]
fn attributes_multiply_up_to_a_bound() {
    let (image, inode) = with_file(|image| {
        let mut entry = Vec::new();
        encode_entry(1, b"big", &[b'v'; 65535], &mut entry).unwrap();
        image.align();
        image.sb.xattr_blkaddr = Blkaddr(image.append(&entry) >> 12);
        let body = [&[0, 0, 0, 0, 255][..], &[0; 7], &[0; 4 * 255]].concat();
        let xattr_icount = icount(body.len()).unwrap();
        (Meta { xattr_icount, ..image.file(DataLayout::FlatPlain, 0, 0) }, body)
    });
    let list = image.list_xattrs(&inode).unwrap();
    assert_eq!(list.iter().map(|xattr| xattr.value.len()).sum::<usize>(), 255 * 65535);
    assert_eq!(image.get_xattr(&inode, b"user.big").unwrap().map(|value| value.len()), Some(65535));
    let report = image.check(Threads::ONE).unwrap();
    assert!(report.problems.iter().any(|problem| problem.to_string().contains("stored twice")));
}

#[test]
fn attributes_outside_their_space_are_corrupt() {
    let header = |count: u8| [&[0, 0, 0, 0, count][..], &[0; 7]].concat();
    // An id behind the end; more ids than the body holds; an entry that is longer than the body.
    let bodies = [
        [header(1), vec![0xFF; 4]].concat(),
        [header(200), vec![0; 4]].concat(),
        [header(0), vec![9, 1, 0xFF, 0xFF]].concat(),
    ];
    for body in bodies {
        let (image, inode) = with_file(|image| {
            let xattr_icount = icount(body.len()).unwrap();
            (Meta { xattr_icount, ..image.file(DataLayout::FlatPlain, 0, 0) }, body)
        });
        assert!(image.list_xattrs(&inode).unwrap_err().is_corrupt());
        assert!(image.get_xattr(&inode, b"user.x").unwrap_err().is_corrupt());
        assert!(image.check(Threads::ONE).unwrap().problem_count > 0);
    }
    // A size that the format reserves.
    let (image, inode) =
        with_file(|image| (Meta { xattr_icount: 1, ..image.file(DataLayout::FlatPlain, 0, 0) }, vec![]));
    assert!(matches!(image.list_xattrs(&inode), Err(ReadError::Unsupported { .. })));
}

/// A full index of `entries`, all of whose encoded extents are `stream`, for a file of as many
/// blocks.
fn indexed(algorithm: Algorithm, stream: &[u8], entries: &dyn Fn(Blkaddr) -> Vec<Lcluster>) -> (Image, Inode) {
    with_file(|image| {
        let padding = vec![0; 4096 - stream.len()];
        let blkaddr = Blkaddr(image.append(&[&padding, stream].concat()) >> 12);
        let header = MapHeader {
            advise: Advise::empty(),
            algorithms: [algorithm as u8; 2],
            lcluster_bits: 12,
            fragment_off: 0,
            idata_len: 0,
            extent_count: 0,
        };
        let mut body = header.encode(BlockBits::DEFAULT).unwrap().to_vec();
        body.resize(FULL_INDEX_OFF as usize, 0);
        let entries = entries(blkaddr);
        body.extend(entries.iter().flat_map(|entry| entry.encode_full().unwrap()));
        (image.file(DataLayout::CompressedFull, 4096 * entries.len() as u64, 0), body)
    })
}

fn head(blkaddr: Blkaddr, clusterofs: u32) -> Lcluster {
    Lcluster::Head { kind: HeadKind::Head1, clusterofs, blkaddr, partial: false }
}

fn nonhead(back: u32, forward: u32) -> Lcluster {
    Lcluster::Nonhead { back, forward, cblkcnt: None }
}

/// The last entry leads back over a head: no extent holds its bytes. (Found by damaging images: it
/// was a panic.)
#[test]
fn an_index_that_skips_a_head_is_corrupt() {
    let stream = encode(Algorithm::Zstd, &[b'z'; 8192]);
    let entries = |at| vec![head(at, 0), nonhead(1, 1), head(at, 0), nonhead(3, 1)];
    let (image, inode) = indexed(Algorithm::Zstd, &stream, &entries);
    let mut buf = vec![0; 8192];
    assert_eq!(image.read_at(&inode, &mut buf, 0).unwrap(), 8192);
    for off in [12_288, 16_383] {
        assert!(image.extent_at(&inode, off).unwrap_err().is_corrupt());
        assert!(image.read_at(&inode, &mut buf, off).unwrap_err().is_corrupt());
        assert!(image.seek(&inode, off, SeekWhat::Hole).unwrap_err().is_corrupt());
    }
}

/// Followed from the front, the first extent reaches over a head; entered behind that head, the
/// file has another one. Reading is as in Linux, but a check finds it.
#[test]
fn a_check_finds_an_index_with_two_meanings() {
    let stream = encode(Algorithm::Zstd, &[b'z'; 4 * 4096]);
    let entries = |at| vec![head(at, 0), nonhead(1, 2), head(at, 0), nonhead(1, 1)];
    let (image, inode) = indexed(Algorithm::Zstd, &stream, &entries);
    assert_eq!(image.extent_at(&inode, 0).unwrap().llen, 4 * 4096);
    assert_eq!(image.extent_at(&inode, 3 * 4096).unwrap().la, 2 * 4096);
    let report = image.check(Threads::ONE).unwrap();
    assert_eq!(report.problem_count, 1);
    assert!(report.problems[0].to_string().contains("leads forward over this head"), "{}", report.problems[0]);
}

#[test]
fn records_out_of_order_are_found() {
    let (image, _) = with_file(|image| {
        let mut body = vec![3, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        for la in [0u32, 9000, 5000] {
            body.extend([0; 12]);
            body.extend(la.to_le_bytes());
        }
        (image.file(DataLayout::CompressedFull, 20_000, 0), body)
    });
    let report = image.check(Threads::ONE).unwrap();
    assert_eq!(report.problem_count, 1);
    assert!(report.problems[0].to_string().contains("not in order"), "{}", report.problems[0]);
}

#[test]
fn an_index_that_leads_nowhere_is_corrupt() {
    let stream = encode(Algorithm::Zstd, &[b'z'; 8192]);
    for entries in [
        vec![nonhead(1, 1), nonhead(1, 1)],
        vec![head(Blkaddr(0), 5), nonhead(1, 1)],
        vec![head(Blkaddr(0), 0), nonhead(0, 0)],
        vec![head(Blkaddr(0), 0), nonhead(2, 0)],
    ] {
        let (image, inode) = indexed(Algorithm::Zstd, &stream, &|_| entries.clone());
        let reads = [0, 5000].map(|off| image.read_at(&inode, &mut [0; 4], off));
        assert!(reads.iter().any(|read| read.as_ref().is_err_and(ReadError::is_corrupt)), "{entries:?}: {reads:?}");
        assert!(image.check(Threads::ONE).unwrap().problem_count > 0);
    }
}

/// liblz4 decodes a match at distance 0 without writing anything. Reading is as in Linux, but a
/// check finds it.
#[test]
fn a_check_finds_lz4_matches_at_distance_0() {
    // Four literals, a match, and 120 literals.
    let tail = 120u8;
    let stream = [&[0x40][..], b"four", &[0, 0], &[0xF0, tail - 15], &vec![b't'; tail.into()]].concat();
    let len = 4 + 4 + u64::from(tail);
    let (image, inode) = with_file(|image| {
        let pa = image.append(&stream);
        let word = stream.len() as u32 | (Algorithm::Lz4 as u32 + 1) << 28;
        let body = [&[1, 0, 0, 0, 5, 0, 0, 0][..], &[0; 8], &word.to_le_bytes(), &pa.to_le_bytes(), &[0; 4]].concat();
        (image.file(DataLayout::CompressedFull, len, 0), body)
    });
    assert_eq!(read_whole(&image, &inode).unwrap().len() as u64, len);
    let report = image.check(Threads::ONE).unwrap();
    assert_eq!(report.problem_count, 1);
    assert!(report.problems[0].to_string().contains("corrupt lz4 stream"), "{}", report.problems[0]);
}
