//! Reads of more stored bytes than are fetched at once.

use kiln_codec::Method;
use kiln_read::{
    BatchItem, ExtentKind, FileRange, FileRangeMut, FollowLast, Image, ImageOptions, ImageSources, Inode, MemorySource,
    RangeMut, ReadAt, ReadPolicy, Readahead, SourcePrefetch, Threads,
};
use kiln_tests::data::Texture;
use kiln_tests::image::{build, options};
use kiln_tests::mem::{MemFile, MemTree};
use kiln_tree::NodeId;
use std::io;
use std::mem;
use std::ops::Range;
use std::sync::{Arc, Mutex};

const LEN: usize = 12 << 20;
/// Maximum number of bytes of encoded pclusters per call: they are in memory until they are
/// decoded. Unencoded bytes go directly to their destination, so a call may have any number of
/// them.
const CALL_LEN: u64 = 1 << 20;
/// The same for a read of one file if the system reads ahead, as the source requests.
const LOCAL_CALL_LEN: u64 = 64 << 10;
/// Length in bytes of the longest pcluster.
const PCLUSTER_LEN: u64 = 16 << 10;

/// A source that records its calls and the hints that it gets.
struct Noting {
    inner: MemorySource,
    calls: Mutex<Vec<Vec<Range<u64>>>>,
    hints: Mutex<Vec<Range<u64>>>,
}

impl Noting {
    fn take(&self) -> (Vec<Vec<Range<u64>>>, Vec<Range<u64>>) {
        (mem::take(&mut self.calls.lock().unwrap()), mem::take(&mut self.hints.lock().unwrap()))
    }
}

impl ReadAt for Noting {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn read_exact_at(&self, buf: &mut [u8], off: u64) -> io::Result<()> {
        self.read_ranges(&mut [RangeMut { off, buf }])
    }

    fn read_ranges(&self, ranges: &mut [RangeMut<'_>]) -> io::Result<()> {
        let call = ranges.iter().map(|range| range.off..range.off + range.buf.len() as u64).collect();
        self.calls.lock().unwrap().push(call);
        self.inner.read_ranges(ranges)
    }

    fn borrow(&self, _off: u64, _len: usize) -> Option<&[u8]> {
        None
    }

    fn will_need(&self, off: u64, len: u64) {
        self.hints.lock().unwrap().push(off..off + len);
    }

    fn fetch_max_len(&self) -> usize {
        LOCAL_CALL_LEN as usize
    }
}

fn len(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

/// Returns the plain pclusters of a file.
fn plain_pclusters(image: &Image, inode: &Inode) -> Vec<Range<u64>> {
    let plain = |kind| match kind {
        ExtentKind::Plain { pa, plen, .. } => Some(pa..pa + u64::from(plen)),
        _ => None,
    };
    image.extents(inode).filter_map(|extent| plain(extent.unwrap().kind)).collect()
}

/// Returns the number of bytes of a call outside of `plain`.
fn encoded_len(call: &[Range<u64>], plain: &[Range<u64>]) -> u64 {
    let is_encoded = |range: &&Range<u64>| !plain.iter().any(|plain| plain.contains(&range.start));
    call.iter().filter(is_encoded).map(|range| range.end - range.start).sum()
}

#[test]
fn long_reads_take_long_calls_and_announce_the_next_ones() {
    let mut tree = MemTree::default();
    let expected = Texture::Mixed.bytes(5, LEN);
    tree.file(NodeId::ROOT, b"long", MemFile::whole(expected.clone()));
    let bytes = build(&tree.finish().unwrap(), &options(Some((Method::Zstd, 1)), PCLUSTER_LEN as u32, 2)).unwrap().0;
    let programs = ReadPolicy::default;
    for (policy, is_announced) in [
        (programs(), false),
        (ReadPolicy::for_page_cache(), true),
        (programs().with_readahead(Readahead::Image), true),
        (programs().with_readahead(Readahead::Image).with_prefetch(SourcePrefetch::Off), false),
    ] {
        let (calls, hints) = (Mutex::default(), Mutex::default());
        let source = Arc::new(Noting { inner: MemorySource::new(bytes.clone()), calls, hints });
        let options = ImageOptions::default().with_policy(policy.clone());
        let image = ImageSources::new(source.clone()).open(&options).unwrap();
        let inode = image.resolve(b"/long", FollowLast::Keep).unwrap();
        let plain = plain_pclusters(&image, &inode);
        assert!(!plain.is_empty());
        let encoded_len = |call: &Vec<Range<u64>>| encoded_len(call, &plain);
        source.take();
        let mut buf = vec![0; LEN];
        assert_eq!(image.read_at(&inode, &mut buf, 0).unwrap(), LEN);
        assert!(buf == expected);
        let (calls, hints) = source.take();
        let stored: u64 = calls.iter().map(|call| len(call)).sum();
        let encoded: u64 = calls.iter().map(encoded_len).sum();
        assert!(encoded > 2 * CALL_LEN, "{encoded}");
        let call_len = match policy.readahead {
            Readahead::System => LOCAL_CALL_LEN,
            Readahead::Image => CALL_LEN,
        };
        assert!(calls.iter().all(|call| encoded_len(call) <= call_len), "{calls:?}");
        // Each call except the last is as full as possible.
        assert!(calls.len() as u64 <= encoded / (call_len - PCLUSTER_LEN) + 1, "{} for {encoded}", calls.len());
        let is_hinted =
            |range: &Range<u64>| hints.iter().any(|hint| hint.start <= range.start && hint.end > range.start);
        let hinted = calls.iter().skip(1).flatten().all(is_hinted);
        match is_announced {
            true => assert!(hinted, "{hints:?} {calls:?}"),
            // Readahead of the image itself may fetch them earlier.
            false if policy.readahead == Readahead::System => assert_eq!(hints, [], "{policy:?}"),
            false => assert!(len(&hints) < stored * 2, "{policy:?}"),
        }
        // All at once, in batches, each of which one call fetches.
        let got = Mutex::new(vec![0; LEN]);
        image.read_many(
            &[FileRange { inode, range: 0..u64::MAX }],
            Threads::at_least_one(2),
            &|BatchItem { off, bytes, .. }| {
                let bytes = bytes.unwrap();
                got.lock().unwrap()[off as usize..][..bytes.len()].copy_from_slice(bytes);
            },
        );
        assert!(got.into_inner().unwrap() == expected);
        let (calls, _) = source.take();
        // Here plain bytes are in memory, too, until the callback has received them.
        assert!(calls.iter().all(|call| len(call) <= CALL_LEN), "{calls:?}");
        assert!((calls.len() as u64) < stored / CALL_LEN + 8, "{} for {stored}", calls.len());
        // The same into memory of the caller, to which plain bytes go directly.
        buf.fill(0);
        let mut reads = [FileRangeMut { inode, off: 0, buf: &mut buf }];
        let results = image.read_many_into(&mut reads, Threads::at_least_one(2));
        assert!(matches!(results[..], [Ok(LEN)]), "{results:?}");
        assert!(buf == expected);
        let (calls, _) = source.take();
        assert!(calls.iter().all(|call| encoded_len(call) <= CALL_LEN), "{calls:?}");
        assert!((calls.len() as u64) < encoded / CALL_LEN + 8, "{} for {encoded}", calls.len());
    }
}
