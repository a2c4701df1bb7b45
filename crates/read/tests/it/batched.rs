//! Reads reach their sources in batches: one call for all that a read, or a batch of reads, takes
//! from a device.

use crate::common::handmade::{FILE_NID, Handmade};
use crate::common::{Rng, manifest, regular_files};
use kiln_format::inode::DataLayout;
use kiln_read::{
    BatchItem, DecodeMemory, ExtentKind, FileRange, FileRangeMut, Image, ImageOptions, ImageSources, Inode, Latency,
    MemorySource, RangeMut, ReadAt, ReadPolicy, Readahead, Retention, SourcePrefetch, Threads, conformance,
};
use std::collections::HashSet;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A source that refuses to be asked more often than it was agreed: by singly reads where a batch
/// was possible.
struct Counting {
    inner: MemorySource,
    /// Calls that are left.
    left: AtomicU64,
    ranges: AtomicU64,
}

impl Counting {
    fn new(bytes: Vec<u8>) -> Arc<Self> {
        Arc::new(Self { inner: MemorySource::new(bytes), left: AtomicU64::new(u64::MAX), ranges: AtomicU64::new(0) })
    }

    /// Allow so many calls from now on.
    fn allow(&self, calls: u64) {
        self.left.store(calls, Ordering::Relaxed);
        self.ranges.store(0, Ordering::Relaxed);
    }

    fn call(&self, ranges: usize) -> io::Result<()> {
        self.ranges.fetch_add(ranges as u64, Ordering::Relaxed);
        let left = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        left.map(drop).map_err(|_| io::Error::other("asked singly where a batch was possible"))
    }
}

impl ReadAt for Counting {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn read_exact_at(&self, buf: &mut [u8], off: u64) -> io::Result<()> {
        self.call(1)?;
        self.inner.read_exact_at(buf, off)
    }

    fn read_ranges(&self, ranges: &mut [RangeMut<'_>]) -> io::Result<()> {
        self.call(ranges.len())?;
        self.inner.read_ranges(ranges)
    }

    fn borrow(&self, _off: u64, _len: usize) -> Option<&[u8]> {
        None
    }

    fn will_need(&self, _off: u64, _len: u64) {}
}

/// The two policies that have names, and mixtures of them.
fn policies() -> Vec<ReadPolicy> {
    let (programs, page_cache) = (ReadPolicy::default, ReadPolicy::for_page_cache);
    vec![
        programs(),
        page_cache(),
        // A program that reads a source far away.
        programs().with_readahead(Readahead::Image).with_latency(Latency::new()),
        programs().with_retention(Retention::UntilConsumed).with_prefetch(SourcePrefetch::Off),
        page_cache().with_retention(Retention::ByUse).with_latency(Latency::new()),
        page_cache().with_readahead(Readahead::System).with_decode_memory(DecodeMemory::PerThread),
        page_cache().with_prefetch(SourcePrefetch::Off),
    ]
}

fn options(policy: ReadPolicy, cache_bytes: u64) -> ImageOptions {
    ImageOptions::default().with_cache_bytes(cache_bytes).with_policy(policy)
}

/// Regular files and their contents, each once.
fn files(image: &Image) -> Vec<(Inode, Vec<u8>)> {
    let mut seen = HashSet::new();
    let inodes = regular_files(image).into_iter().map(|(_, inode)| inode).filter(|inode| seen.insert(inode.nid));
    inodes.map(|inode| (inode, crate::common::read_whole(image, &inode).unwrap())).collect()
}

#[test]
fn timed_sources_conform() {
    let bytes: Vec<u8> = (0..100_000_u32).map(|at| (at % 251) as u8).collect();
    let latency = Latency::new();
    let source = kiln_read::TimedSource::new(MemorySource::new(bytes.clone()), latency.clone());
    conformance::assert_conforms(&source, &bytes);
    latency.note(1, std::time::Duration::from_secs(1));
    source.read_exact_at(&mut [0], 0).unwrap();
    assert!(!latency.is_slow() && latency.is_cold());
}

/// A read over many extents is one call for each device, whatever the policy.
#[test]
fn a_read_is_one_call() {
    let mut several = 0;
    for (nth, golden) in manifest().into_iter().enumerate() {
        let expected = files(&golden.open());
        // With the cache and without in turn.
        let caches = [0, 64 << 20, 64 << 20, 0].into_iter().cycle();
        for (policy, cache_bytes) in policies().into_iter().zip(caches).skip(nth % 2).step_by(2) {
            let primary = Counting::new(golden.bytes());
            let paths = golden.device_paths();
            let devices: Vec<_> = paths.iter().map(|path| Counting::new(std::fs::read(path).unwrap())).collect();
            let all: Vec<_> = devices.iter().chain([&primary]).cloned().collect();
            let sources = ImageSources::new(primary)
                .with_devices(devices.iter().map(|device| Arc::clone(device) as Arc<dyn ReadAt>).collect());
            let image = sources.open(&options(policy.clone(), cache_bytes)).unwrap();
            for (inode, bytes) in &expected {
                // Metadata is looked up before.
                image.extents(inode).for_each(|extent| assert!(extent.is_ok()));
                let in_packed =
                    image.extents(inode).any(|extent| matches!(extent.unwrap().kind, ExtentKind::Fragment { .. }));
                if in_packed || inode.nid.in_metabox() {
                    crate::common::read_whole(&image, inode).unwrap();
                }
                for is_view in [false, true] {
                    all.iter().for_each(|source| source.allow(1));
                    let mut buf = Vec::new();
                    let read = match is_view {
                        true => image.view(inode, 0, bytes.len(), &mut buf).map(|view| view.to_vec()),
                        false => crate::common::read_whole(&image, inode),
                    };
                    let what = format!("{} {:?} {policy:?}", golden.name, inode.nid);
                    assert!(read.unwrap_or_else(|error| panic!("{what}: {error}")) == *bytes, "{what}");
                    several += u64::from(all.iter().any(|source| source.ranges.load(Ordering::Relaxed) > 1));
                    all.iter().for_each(|source| source.allow(u64::MAX));
                }
            }
        }
    }
    assert!(several > 100, "{several} reads of several ranges");
}

/// Parts of files, in any order: equal bytes under each policy. An LZ4 front that is not enough
/// costs a second call.
#[test]
fn parts_are_the_same_under_each_policy() {
    for (nth, golden) in manifest().into_iter().enumerate() {
        let expected = files(&golden.open());
        for policy in policies() {
            let mut rng = Rng(nth as u64 + 1);
            let image = ImageSources::from_paths(&golden.path(), &golden.device_paths());
            let image = image.open(&options(policy.clone(), 1 << 20)).unwrap();
            for (inode, bytes) in expected.iter().filter(|(_, bytes)| !bytes.is_empty()) {
                for _ in 0..3 {
                    let off = rng.below(inode.meta.size);
                    let mut buf = vec![0; rng.below(inode.meta.size - off) as usize + 1];
                    assert_eq!(image.read_at(inode, &mut buf, off).unwrap(), buf.len());
                    assert!(buf == bytes[off as usize..][..buf.len()], "{} {:?} {policy:?}", golden.name, inode.nid);
                }
            }
        }
    }
}

/// Costs of `read_many` and `read_many_into` for all files of a small image, on one thread: one
/// call for each MiB and device.
#[test]
fn a_batch_is_one_call() {
    let mut several = 0;
    for golden in manifest().into_iter().filter(|golden| golden.device_paths().is_empty()) {
        for policy in policies() {
            let source = Counting::new(golden.bytes());
            let image = ImageSources::new(source.clone()).open(&options(policy.clone(), 64 << 20)).unwrap();
            let expected = files(&golden.open());
            let ranges: Vec<_> =
                expected.iter().map(|(inode, _)| FileRange { inode: *inode, range: 0..inode.meta.size }).collect();
            let (single, many) = ranges.split_at(1);
            // Metadata is looked up before.
            for FileRange { inode, .. } in single.iter().chain(many) {
                image.extents(inode).for_each(|extent| assert!(extent.is_ok()));
            }
            let plain: u64 = expected.iter().map(|(_, bytes)| bytes.len() as u64).sum();
            let batches = 1 + plain / (1 << 20);
            if expected.iter().any(|(inode, _)| inode.nid.in_metabox()) {
                continue;
            }
            let packed = expected.iter().any(|(inode, _)| {
                image.extents(inode).any(|extent| matches!(extent.unwrap().kind, ExtentKind::Fragment { .. }))
            });
            // The index of the packed inode is metadata, too.
            source.allow(batches + u64::from(packed));
            let got = Mutex::new(vec![Vec::new(); ranges.len()]);
            image.read_many(&ranges, Threads::ONE, &|BatchItem { idx, off, bytes }| {
                let bytes = bytes.unwrap_or_else(|error| panic!("{} {policy:?} {idx} {off}: {error}", golden.name));
                got.lock().unwrap()[idx].extend_from_slice(bytes);
            });
            assert!(got.into_inner().unwrap().iter().eq(expected.iter().map(|(_, bytes)| bytes)), "{}", golden.name);
            several += u64::from(source.ranges.load(Ordering::Relaxed) > batches + 1);
            // The same into memory of the caller, with a cache that knows nothing.
            source.allow(u64::MAX);
            let image = ImageSources::new(source.clone()).open(&options(policy.clone(), 64 << 20)).unwrap();
            ranges.iter().for_each(|FileRange { inode, .. }| {
                image.extents(inode).for_each(|extent| assert!(extent.is_ok()));
            });
            source.allow(batches + u64::from(packed));
            let mut buffers: Vec<_> = expected.iter().map(|(_, bytes)| vec![0xa5; bytes.len()]).collect();
            let mut reads: Vec<_> = (ranges.iter().zip(&mut buffers))
                .map(|(range, buf)| FileRangeMut { inode: range.inode, off: 0, buf })
                .collect();
            for (read, (inode, bytes)) in image.read_many_into(&mut reads, Threads::ONE).into_iter().zip(&expected) {
                let len = read.unwrap_or_else(|error| panic!("{} {policy:?} {:?}: {error}", golden.name, inode.nid));
                assert_eq!(len, bytes.len(), "{} {:?}", golden.name, inode.nid);
            }
            assert!(buffers.iter().eq(expected.iter().map(|(_, bytes)| bytes)), "{}", golden.name);
        }
    }
    assert!(several > 20, "{several}");
}

/// Threads that read the same extents, and wait for each other's, do not wait in a circle.
#[test]
fn threads_that_share_extents_finish() {
    for name in ["zstd", "lz4-dedupe", "zstd-1m-frag", "metabox-zstd"] {
        let golden = crate::common::named(name);
        let expected = files(&golden.open());
        for cache_bytes in [512 << 10, 64 << 20] {
            let image =
                Image::open_path(&golden.path(), &[], &options(ReadPolicy::for_page_cache(), cache_bytes)).unwrap();
            std::thread::scope(|scope| {
                for seed in 1..=8 {
                    let (image, expected) = (&image, &expected);
                    scope.spawn(move || {
                        let mut rng = Rng(seed);
                        for _ in 0..300 {
                            let (inode, bytes) = &expected[rng.below(expected.len() as u64) as usize];
                            let off = rng.below(inode.meta.size + 1);
                            let mut buf = vec![0; (inode.meta.size - off) as usize];
                            image.read_at(inode, &mut buf, off).unwrap();
                            assert!(buf == bytes[off as usize..], "{name} {:?} from {off}", inode.nid);
                        }
                    });
                }
            });
        }
    }
}

/// Chunks that are scattered over the device.
#[test]
fn scattered_chunks_are_one_call() {
    let mut image = Handmade::new(12);
    let chunks: Vec<u64> = (0..200).map(|idx| idx * 37 % 200).collect();
    let start = image.append(&vec![0; 400 * 4096]) / 4096;
    let mut table = Vec::new();
    for (idx, chunk) in chunks.iter().enumerate() {
        let block = start + 2 * chunk;
        image.put(block * 4096, &[idx as u8; 4096]);
        table.extend((block as u32).to_le_bytes());
    }
    let inode = image.file(DataLayout::ChunkBased, chunks.len() as u64 * 4096, 0);
    image.inode(FILE_NID, &inode, &table);
    let bytes = image.finish();
    for policy in policies() {
        let source = Counting::new(bytes.clone());
        let image = ImageSources::new(source.clone()).open(&options(policy, 64 << 20)).unwrap();
        let inode = image.inode(FILE_NID).unwrap();
        image.extents(&inode).for_each(|extent| assert!(extent.is_ok()));
        source.allow(1);
        let read = crate::common::read_whole(&image, &inode).unwrap();
        assert!(read.chunks(4096).enumerate().all(|(idx, chunk)| chunk == [idx as u8; 4096]));
        assert_eq!(source.ranges.load(Ordering::Relaxed), 200);
    }
}
