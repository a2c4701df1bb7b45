//! All ways to read give the same bytes, and the counters say what they did.

use crate::common::noting::Noting;
use crate::common::{Golden, Rng, manifest, named};
use kiln_format::inode::FileType;
use kiln_read::{
    BatchItem, Extent, ExtentKind, FileRange, FileSource, Image, ImageOptions, ImageSources, Inode, Latency,
    MappedSource, MemorySource, ReadAt, ReadError, ReadPolicy, Readahead, Retention, Threads, View, conformance,
};
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Regular files of an image and their contents.
fn files(image: &Image) -> Vec<(Inode, Vec<u8>)> {
    let root = image.inode(image.root_nid()).unwrap();
    let inodes = image.walk(&root, b"/").map(|entry| entry.unwrap().inode);
    let mut seen = HashSet::new();
    let regular = inodes.filter(|inode| inode.meta.file_type == FileType::Regular && seen.insert(inode.nid));
    regular.map(|inode| (inode, contents(image, &inode))).collect()
}

fn contents(image: &Image, inode: &Inode) -> Vec<u8> {
    let mut bytes = vec![0; inode.meta.size as usize];
    assert_eq!(image.read_at(inode, &mut bytes, 0).unwrap(), bytes.len());
    bytes
}

fn mapped(golden: &Golden, cache_bytes: u64) -> Image {
    // SAFETY: golden images do not change.
    let source = |path: &std::path::Path| Arc::new(unsafe { MappedSource::open(path) }.unwrap()) as Arc<dyn ReadAt>;
    let devices = golden.device_paths().iter().map(|path| source(path)).collect();
    let options = ImageOptions::default().with_cache_bytes(cache_bytes);
    Image::open(source(&golden.path()), devices, &options).unwrap()
}

fn some_range(rng: &mut Rng, size: u64) -> (u64, usize) {
    let off = rng.below(size + 2);
    (off, rng.below(size + 5000) as usize)
}

#[test]
fn mapped_files_conform() {
    let golden = &manifest()[0];
    // SAFETY: golden images do not change.
    let source = unsafe { MappedSource::open(&golden.path()) }.unwrap();
    conformance::assert_conforms(&source, &golden.bytes());
    // SAFETY: nobody writes to these.
    let opened = ["/dev/null", "/nonexistent", "/"].map(|path| unsafe { MappedSource::open(path.as_ref()) });
    for error in opened {
        assert!(matches!(error, Err(ReadError::Io { path: Some(_), .. })), "{error:?}");
    }
}

#[test]
fn views_are_what_is_read() {
    let mut rng = Rng(6);
    for golden in manifest() {
        let expected = files(&golden.open());
        for image in [golden.open(), mapped(&golden, 64 << 20), mapped(&golden, 0)] {
            let mut buf = Vec::new();
            for (inode, bytes) in &expected {
                for _ in 0..8 {
                    let (off, len) = some_range(&mut rng, inode.meta.size);
                    let start = bytes.len().min(off as usize);
                    let wanted = &bytes[start..bytes.len().min(start + len)];
                    let view = image.view(inode, off, len, &mut buf).unwrap();
                    assert!(*view == *wanted, "{}: nid {} from {off}, {len} bytes", golden.name, inode.nid);
                }
            }
        }
    }
}

#[test]
fn what_others_left_is_at_hand_until_it_is_taken() {
    for name in ["lz4-allfrag", "zstd-1m-frag", "inline", "zstd", "metabox"] {
        let golden = named(name);
        let expected = files(&golden.open());
        let options = ImageOptions::default().with_policy(ReadPolicy::for_page_cache());
        let mut buf = Vec::new();
        let image = Image::open(Arc::new(MemorySource::new(golden.bytes())), golden.devices(), &options).unwrap();
        let at_hand = || -> Vec<Option<View<'_>>> {
            expected.iter().map(|(inode, _)| image.server().get_if_cached(inode.nid, u64::MAX).unwrap()).collect()
        };
        let is_encoded = |inode: &Inode| !matches!(image.extent_at(inode, 0).unwrap().kind, ExtentKind::Meta { .. });
        let encoded_at_hand = || {
            let found = at_hand().into_iter().zip(&expected);
            found.filter(|(view, (inode, _))| view.is_some() && is_encoded(inode)).count()
        };
        assert_eq!(encoded_at_hand(), 0, "{name}: nobody has wanted anything");
        // Parts that are not the front, twice.
        for (inode, _) in expected.iter().chain(&expected).filter(|(inode, _)| inode.meta.size > 1000) {
            image.view(inode, inode.meta.size / 2, 100, &mut buf).unwrap();
        }
        let taken = at_hand();
        for (view, (inode, bytes)) in taken.iter().zip(&expected) {
            assert!(view.as_ref().is_none_or(|view| **view == **bytes), "{name}: nid {}", inode.nid);
        }
        assert!(encoded_at_hand() > 3 || !name.ends_with("frag"), "{name}");
        taken.into_iter().flatten().for_each(|view| image.server().mark_consumed(view));
        // An extent goes when as much as it holds was taken, by whomever.
        for _ in 0..1000 {
            at_hand().into_iter().flatten().for_each(|view| image.server().mark_consumed(view));
        }
        assert_eq!(encoded_at_hand(), 0, "{name}");
    }
}

#[test]
fn plain_data_in_memory_is_not_copied() {
    let golden = named("flat");
    let (image, mut buf) = (mapped(&golden, 0), Vec::new());
    for (inode, bytes) in files(&image).iter().filter(|(inode, _)| inode.meta.size > 4096) {
        assert!(*image.view(inode, 0, 4096, &mut buf).unwrap() == bytes[..4096]);
    }
    assert!(buf.is_empty());
}

/// Returns the bytes that `read_many` passes for each range, joined.
fn many(image: &Image, ranges: &[FileRange], threads: usize) -> Vec<Result<Vec<u8>, ReadError>> {
    let parts = Mutex::new(vec![BTreeMap::new(); ranges.len()]);
    image.read_many(ranges, Threads::at_least_one(threads), &|BatchItem { idx, off, bytes }| {
        let again = parts.lock().unwrap()[idx].insert(off, bytes.map(<[u8]>::to_vec));
        assert!(again.is_none(), "range {idx}, byte {off}: twice");
    });
    let join = |(idx, parts): (usize, BTreeMap<u64, Result<Vec<u8>, ReadError>>)| {
        let mut bytes = Vec::new();
        assert!(!parts.is_empty(), "range {idx} is missing");
        for (off, part) in parts {
            assert_eq!(off, ranges[idx].range.start + bytes.len() as u64);
            bytes.extend(part?);
        }
        Ok(bytes)
    };
    parts.into_inner().unwrap().into_iter().enumerate().map(join).collect()
}

#[test]
fn many_at_once_are_what_is_read() {
    let mut rng = Rng(7);
    for golden in manifest() {
        let expected = files(&golden.open());
        let mut ranges = Vec::new();
        let mut wanted = Vec::new();
        for (inode, bytes) in expected.iter().rev() {
            ranges.push(FileRange { inode: *inode, range: 0..u64::MAX });
            wanted.push(bytes.clone());
            let (off, len) = some_range(&mut rng, inode.meta.size);
            ranges.push(FileRange { inode: *inode, range: off..off + len as u64 });
            let start = bytes.len().min(off as usize);
            wanted.push(bytes[start..bytes.len().min(start + len)].to_vec());
        }
        for (image, threads) in [(golden.open(), 1), (mapped(&golden, 0), 3), (golden.open(), 7)] {
            let before = image.stats();
            for (idx, (got, wanted)) in many(&image, &ranges, threads).into_iter().zip(&wanted).enumerate() {
                assert!(got.unwrap() == *wanted, "{}: range {idx}, {threads} threads", golden.name);
            }
            let after = image.stats();
            assert_eq!(after.served_bytes - before.served_bytes, wanted.iter().map(|w| w.len() as u64).sum::<u64>());
        }
    }
}

#[test]
fn many_at_once_decode_each_pcluster_once() {
    for golden in manifest() {
        let image = golden.open();
        let ranges: Vec<_> =
            files(&image).iter().map(|(inode, _)| FileRange { inode: *inode, range: 0..inode.meta.size }).collect();
        // Parts that several files share are wanted more than once by design of the image, not of
        // the reader.
        if golden.name.contains("dedupe") {
            continue;
        }
        let before = image.stats();
        let got = many(&image, &ranges, 1);
        let (after, served) = (image.stats(), got.iter().map(|r| r.as_ref().unwrap().len() as u64).sum::<u64>());
        assert!(after.decoded_bytes - before.decoded_bytes <= served + (64 << 10), "{}", golden.name);
    }
}

#[test]
fn what_is_damaged_costs_only_its_own_ranges() {
    let golden = named("zstd");
    let image = golden.open();
    let all = files(&image);
    let (victim, _) = all.iter().max_by_key(|(inode, _)| inode.meta.size).unwrap();
    let kiln_read::ExtentKind::Encoded { pa, plen, .. } = image.extent_at(victim, 0).unwrap().kind else {
        panic!("the largest file is compressed")
    };
    let mut bytes = golden.bytes();
    bytes[pa as usize..(pa + u64::from(plen)) as usize].fill(0);
    let image = Image::open(Arc::new(MemorySource::new(bytes)), Vec::new(), &ImageOptions::default()).unwrap();
    let ranges: Vec<_> = all.iter().map(|(inode, _)| FileRange { inode: *inode, range: 0..inode.meta.size }).collect();
    for threads in [1, 4] {
        let results = many(&image, &ranges, threads);
        for ((inode, bytes), result) in all.iter().zip(results) {
            match result {
                Ok(got) => assert!(got == *bytes && inode.nid != victim.nid),
                Err(error) => assert!(matches!(error, ReadError::Corrupt { nid: Some(_), .. }), "{error}"),
            }
        }
    }
    let dir = image.inode(image.root_nid()).unwrap();
    let refused = many(&image, &[FileRange { inode: dir, range: 0..1 }], 1).remove(0);
    assert!(matches!(refused, Err(ReadError::IsADirectory { .. })), "{refused:?}");
}

#[test]
fn counters_tell_what_was_read() {
    let golden = named("lz4");
    let image =
        Image::open(Arc::new(FileSource::open(&golden.path()).unwrap()), vec![], &ImageOptions::default()).unwrap();
    let all = files(&image.clone());
    let stats = image.stats();
    assert_eq!(stats.reads, all.len() as u64);
    assert_eq!(stats.served_bytes, all.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>());
    assert_eq!(stats.read_sizes.iter().sum::<u64>(), stats.reads);
    assert_eq!(stats.fetch_sizes.iter().sum::<u64>(), stats.fetches);
    assert!(stats.decodes() > 0 && stats.decoded_bytes > 0 && stats.fetched_bytes > 0);

    // A part from the middle: first decoded as far as it goes, then kept, then found.
    let (inode, bytes) = all.iter().max_by_key(|(inode, _)| inode.meta.size).unwrap();
    let extent = image.extent_at(inode, 0).unwrap();
    assert!(matches!(extent.kind, kiln_read::ExtentKind::Encoded { .. }) && extent.llen > 2000);
    let mut counts = Vec::new();
    for _ in 0..3 {
        let mut buf = [0; 100];
        image.read_at(inode, &mut buf, 1000).unwrap();
        assert_eq!(buf, bytes[1000..1100]);
        let now = image.stats();
        counts.push((now.decoded_scratch, now.decoded_kept, now.hits));
    }
    let (scratch, kept, hits) = counts[0];
    assert_eq!(counts[1..], [(scratch, kept + 1, hits), (scratch, kept + 1, hits + 1)]);
}

#[test]
fn who_jumps_back_keeps_what_he_touches() {
    let golden = named("lz4-legacy");
    let is_encoded = |extent: &Extent| matches!(extent.kind, ExtentKind::Encoded { .. }) && extent.llen > 2000;
    let places_in = |inode: &Inode| -> Vec<u64> {
        let image = golden.open();
        let extents = image.extents(inode).map(Result::unwrap);
        extents.filter(is_encoded).map(|extent| extent.la + 1000).collect()
    };
    let listed = files(&golden.open()).into_iter().map(|(inode, bytes)| (places_in(&inode), inode, bytes));
    let (mut places, inode, bytes) = listed.max_by_key(|(places, ..)| places.len()).unwrap();
    // A position at the end would start over.
    places.retain(|place| *place < inode.meta.size / 4 * 3);
    let (first, last) = (places[0], places[places.len() - 1]);
    assert!(last - first > inode.meta.size / 2, "{} places", places.len());
    // Files that do not fit into the cache are not kept.
    for (cache_bytes, kept) in [(64 << 20, 1), (inode.meta.size - 1, 0)] {
        let image = mapped(&golden, cache_bytes);
        let after = |off: u64| {
            let mut buf = [0; 100];
            image.read_at(&inode, &mut buf, off).unwrap();
            assert_eq!(buf, bytes[off as usize..][..100]);
            image.stats()
        };
        for place in &places[1..places.len() - 1] {
            after(*place);
        }
        let on = after(last);
        assert_eq!((on.decoded_scratch, on.decoded_kept), (places.len() as u64 - 1, 0));
        let back = after(first);
        assert_eq!(back.decoded_kept, kept);
        assert_eq!(back.decodes(), on.decodes() + 1);
    }
}

#[test]
fn what_is_announced_is_not_what_is_fetched_at_once() {
    let mut count = 0;
    for name in ["lz4", "zstd", "lz4-dedupe", "flat"] {
        let golden = named(name);
        for policy in [ReadPolicy::for_page_cache(), ReadPolicy::default()] {
            let source = Noting::new(golden.bytes());
            let options = ImageOptions::default().with_policy(policy.clone());
            let image = Image::open(source.clone(), vec![], &options).unwrap();
            let inodes: Vec<_> = files(&image).into_iter().map(|(inode, _)| inode).collect();
            for inode in inodes {
                // Again, now that all metadata is known.
                source.announced.lock().unwrap().clear();
                source.reads.lock().unwrap().clear();
                contents(&image, &inode);
                let (announced, read) = (source.announced.lock().unwrap(), source.reads.lock().unwrap());
                // Announced are the bytes behind files that are read in stored order, and only if
                // the image reads ahead.
                count += announced.len();
                let is_read =
                    |hint: &Range<u64>| read.iter().any(|read| hint.start < read.end && read.start < hint.end);
                let is_right = policy.readahead == Readahead::Image || announced.is_empty();
                assert!(is_right && !announced.iter().any(is_read), "{name} {:?}: {announced:?} {read:?}", inode.nid);
            }
        }
    }
    assert!(count > 5, "{count}");
}

#[test]
fn fronts_of_pclusters_are_read_and_the_rest_where_they_do_not_suffice() {
    let mut rng = Rng(17);
    let (mut fronts, mut rests) = (0, 0);
    for golden in manifest().into_iter().filter(|golden| golden.name.starts_with("lz4")) {
        let source = Noting::new(golden.bytes());
        let options = ImageOptions::default().with_cache_bytes(0);
        let image = Image::open(source.clone(), vec![], &options).unwrap();
        for (inode, bytes) in files(&image).into_iter().filter(|(_, bytes)| !bytes.is_empty()) {
            for _ in 0..20 {
                let off = rng.below(inode.meta.size);
                let extent = image.extent_at(&inode, off).unwrap();
                let ExtentKind::Encoded { pa, plen, inline: None, .. } = extent.kind else { continue };
                source.reads.lock().unwrap().clear();
                let mut byte = [0];
                image.read_at(&inode, &mut byte, off).unwrap();
                assert_eq!(byte[0], bytes[off as usize], "{} {:?} {off}", golden.name, inode.nid);
                let (start, end) = (pa, pa + u64::from(plen));
                match source.reads.lock().unwrap()[..] {
                    [ref all] if *all == (start..end) => {}
                    [ref front] => {
                        assert!(front.start == start && front.end < end);
                        fronts += 1;
                    }
                    [ref front, ref rest] => {
                        assert!(front.start == start && front.end == rest.start && rest.end == end);
                        rests += 1;
                    }
                    ref other => panic!("{other:?} for {start}..{end}"),
                }
            }
        }
    }
    assert!(fronts > 10 && rests > 0, "{fronts} {rests}");
}

#[test]
fn a_kernel_that_has_taken_all_of_an_extent_leaves_it_to_nobody() {
    let golden = named("lz4");
    for (retention, front, hits) in [
        (Retention::UntilConsumed, None, 0),
        (Retention::ByUse, None, 1),
        (Retention::UntilConsumed, Some(50), 0),
        (Retention::ByUse, Some(50), 1),
    ] {
        let policy = ReadPolicy::default().with_retention(retention);
        let options = ImageOptions::default().with_policy(policy);
        let image = Image::open(Arc::new(MemorySource::new(golden.bytes())), vec![], &options).unwrap();
        let is_encoded = |extent: &Extent| matches!(extent.kind, ExtentKind::Encoded { .. }) && extent.llen > 2000;
        let (inode, bytes, extent) = files(&image)
            .into_iter()
            .find_map(|(inode, bytes)| {
                let extent = image.extents(&inode).map(Result::unwrap).find(is_encoded)?;
                Some((inode, bytes, extent))
            })
            .unwrap();
        let read = |from: u64, len: u64| {
            let before = image.stats().hits;
            let mut buf = vec![0; len as usize];
            image.read_at(&inode, &mut buf, extent.la + from).unwrap();
            assert_eq!(buf, bytes[(extent.la + from) as usize..][..len as usize]);
            image.stats().hits - before
        };
        let half = extent.llen / 2;
        match front {
            // Half of the front brings it into the cache, where the other half finds it.
            None => assert_eq!([read(0, half), read(half, extent.llen - half)], [0, 1]),
            // A small front is decoded alone, the next half brings the extent into the cache, and
            // the rest finds it there.
            Some(front) => {
                let rest = front + half;
                assert_eq!([read(0, front), read(front, half), read(rest, extent.llen - rest)], [0, 0, 1]);
            }
        }
        assert_eq!(read(100, 100), hits, "{retention:?} {front:?}");
    }
}

#[test]
fn strides_are_read_ahead_where_fetching_is_slow() {
    let golden = named("lz4-legacy");
    for (delay, is_announced) in [(Duration::from_millis(1), true), (Duration::ZERO, false)] {
        let source = Noting::late(golden.bytes(), delay);
        let policy = ReadPolicy::default().with_readahead(Readahead::Image).with_latency(Latency::new());
        let options = ImageOptions::default().with_policy(policy);
        let image = ImageSources::new(source.clone()).open(&options).unwrap();
        let (inode, bytes) = files(&image).into_iter().max_by_key(|(inode, _)| inode.meta.size).unwrap();
        let step = inode.meta.size / 20;
        assert!(step > 4096);
        // Announcements of metadata, and of the files read just now.
        source.announced.lock().unwrap().clear();
        let mut buf = Vec::new();
        let (mut fetches, mut announced_before) = (0, 0);
        for idx in 0..20 {
            source.reads.lock().unwrap().clear();
            let seen = source.announced.lock().unwrap().clone();
            let off = idx * step;
            let view = image.view(&inode, off, 50, &mut buf).unwrap();
            assert_eq!(view[..], bytes[off as usize..][..50]);
            // Reads of data, not of the index.
            let fetched = source.reads.lock().unwrap().clone();
            let covers =
                |range: &&Range<u64>| seen.iter().any(|ahead| ahead.start <= range.start && ahead.end > range.start);
            // Three reads make a stride.
            if idx >= 3 {
                fetches += fetched.len();
                announced_before += fetched.iter().filter(covers).count();
            }
        }
        assert!(fetches > 2, "{fetches}");
        assert_eq!(announced_before, if is_announced { fetches } else { 0 });
    }
}
