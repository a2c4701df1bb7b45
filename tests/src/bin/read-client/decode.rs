//! Decoding alone, which limits every reader of the image, and the library at the same work.

use kiln_codec::{DecodeLimits, Decoder, Want};
use kiln_format::Algorithm;
use kiln_read::{BatchItem, ExtentKind, FileRange, FileSource, Image, ImageOptions, Inode, ReadAt, Threads};
use std::collections::HashMap;
use std::error::Error;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use xxhash_rust::xxh3::xxh3_64;

/// All streams of an image.
pub struct Streams {
    pub list: Vec<Stream>,
    longest: usize,
}

pub struct Stream {
    /// File that contains the stream, and its position.
    range: FileRange,
    algorithm: Algorithm,
    bytes: Vec<u8>,
    plain_len: usize,
    want: Want,
}

/// Returns the streams of all regular files and of the packed inode, each once and up to the last
/// byte that is used.
pub fn streams(path: &Path) -> Result<Streams, Box<dyn Error>> {
    let image = Image::open_path(path, &[], &ImageOptions::default())?;
    let source = FileSource::open(path)?;
    let mut inodes = Vec::new();
    if let Some(nid) = image.superblock().packed_nid {
        inodes.push(image.inode(nid)?);
    }
    for entry in image.walk(&image.inode(image.root_nid())?, b"/") {
        inodes.push(entry?.inode);
    }
    let mut streams = HashMap::<u64, Stream>::new();
    for inode in inodes.iter().filter(|inode| inode.has_contents() && !inode.is_dir()) {
        collect(&image, &source, inode, &mut streams)?;
    }
    let list: Vec<_> = streams.into_values().collect();
    let longest = list.iter().map(|stream| stream.plain_len).max().unwrap_or_default();
    Ok(Streams { list, longest })
}

fn collect(
    image: &Image,
    source: &FileSource,
    inode: &Inode,
    streams: &mut HashMap<u64, Stream>,
) -> Result<(), Box<dyn Error>> {
    let mut off = 0;
    while off < inode.meta.size {
        let extent = image.extent_at(inode, off)?;
        off = extent.end();
        let ExtentKind::Encoded { algorithm, pa, plen, partial, inline: None, .. } = extent.kind else { continue };
        let plain_len = extent.llen as usize;
        if streams.get(&pa).is_some_and(|known| known.plain_len >= plain_len) {
            continue;
        }
        let mut bytes = vec![0; plen as usize];
        source.read_exact_at(&mut bytes, pa)?;
        let padding = bytes.iter().take_while(|&&byte| byte == 0).count();
        bytes.drain(..padding);
        let range = FileRange { inode: *inode, range: extent.la..extent.end() };
        let want = if partial { Want::Prefix } else { Want::Whole };
        streams.insert(pa, Stream { range, algorithm, bytes, plain_len, want });
    }
    Ok(())
}

impl Streams {
    pub fn plain_len(&self) -> u64 {
        self.list.iter().map(|stream| stream.plain_len as u64).sum()
    }

    /// Decodes all streams, and returns the sum of their digests.
    pub fn decode(&self) -> Result<u64, Box<dyn Error>> {
        let mut decoder = Decoder::new(DecodeLimits::default());
        let mut plain = vec![0; self.longest];
        let mut digests = 0;
        for stream in &self.list {
            let plain = &mut plain[..stream.plain_len];
            decoder.decode(stream.algorithm, &stream.bytes, plain, stream.want)?;
            digests ^= xxh3_64(plain);
        }
        Ok(digests)
    }

    /// Does the same with the library.
    pub fn read(&self, image: &Image, threads: usize) -> Result<u64, Box<dyn Error>> {
        let ranges: Vec<_> = self.list.iter().map(|stream| stream.range.clone()).collect();
        let (digests, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        image.read_many(&ranges, Threads::at_least_one(threads), &|BatchItem { bytes: part, .. }| {
            if let Ok(part) = part {
                digests.fetch_xor(xxh3_64(part), Ordering::Relaxed);
                bytes.fetch_add(part.len() as u64, Ordering::Relaxed);
            }
        });
        match bytes.into_inner() == self.plain_len() {
            true => Ok(digests.into_inner()),
            false => Err("the library did not read everything".into()),
        }
    }
}
