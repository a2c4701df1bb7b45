//! How an image stores what it has, as choices for what is added to it.

use kiln_builder::{Choices, Compression, Dedupe, Fragments, Preset, SMALL_FILE_LEN};
use kiln_codec::Method;
use kiln_format::{Algorithm, Incompat};
use kiln_read::{ExtentKind, FileType, Image, Inode, ReadError};
use kiln_source::image::erofs::BaseImage;
use kiln_tree::ReusedExtents;
use std::collections::HashMap;

/// Files, directories and others that are looked at.
const ENTRIES_MAX: usize = 4096;
/// Compressed files that are looked at.
const FILES_MAX: usize = 64;
/// Extents of each that are looked at.
const EXTENTS_MAX: usize = 256;

/// What was seen of compressed files.
#[derive(Default)]
struct Seen {
    /// Extents of each algorithm.
    algorithms: HashMap<Algorithm, u64>,
    files: usize,
    /// The longest pcluster, and the longest plain text of one, in bytes: of those that others follow in their file.
    plen: u32,
    llen: u64,
    /// Pclusters are no whole blocks.
    encoded: bool,
    /// Files end in the packed inode.
    ends_packed: bool,
}

/// Choices that store new files as `image` stores what it has: what is not seen there is as in the preset of its algorithm.
///
/// # Errors
/// An image that cannot be read.
pub(super) fn choices(image: &Image, base: &BaseImage) -> Result<Choices, ReadError> {
    let superblock = image.superblock();
    let block_len = superblock.block_bits.len();
    let mut seen = Seen::default();
    let root = image.inode(image.root_nid())?;
    for entry in image.walk(&root, b"").take(ENTRIES_MAX) {
        let inode = entry?.inode;
        if inode.meta.file_type == FileType::Regular {
            seen.look_at(image, &inode, block_len)?;
        }
        if seen.files >= FILES_MAX {
            break;
        }
    }
    let ReusedExtents { algorithm: packed_algorithm, list: packed, .. } = base.packed();
    // The last ones of all are as short as what was left.
    let full = &packed[..packed.len().saturating_sub(1)];
    let packed_plen = full.iter().filter(|extent| !extent.plain).map(|extent| u64::from(extent.plen)).max();
    let packed_llen = full.iter().map(|extent| u64::from(extent.llen)).max();
    seen.encoded |= packed.iter().any(|extent| !extent.plain && !u64::from(extent.plen).is_multiple_of(block_len));
    let most = seen.algorithms.iter().max_by_key(|(algorithm, count)| (**count, **algorithm as u8));
    let cfgs = image.compr_cfgs();
    let known = || Algorithm::ALL.into_iter().rev().find(|one| cfgs.has(*one));
    // Nothing takes small files over that are packed by another algorithm.
    let algorithm = packed_algorithm.or(most.map(|(algorithm, _)| *algorithm)).or_else(known);
    let has_packed = superblock.packed_nid.is_some();
    let has_cfgs = superblock.incompat.contains(Incompat::COMPR_CFGS);
    let is_tail_packed = superblock.incompat.contains(Incompat::ZTAILPACKING);
    let preset = match algorithm {
        None => Preset::Plain,
        Some(Algorithm::Lz4) => Preset::Fast,
        Some(Algorithm::Lzma) => Preset::Archive,
        Some(Algorithm::Zstd) if is_tail_packed && !has_packed => Preset::Dataset,
        Some(Algorithm::Zstd | Algorithm::Deflate) => Preset::Balanced,
    };
    let choices =
        Choices { preset, kernel: Some(superblock.oldest_kernel()), block_len: Some(block_len), ..Choices::default() };
    let Some(algorithm) = algorithm else { return Ok(choices) };
    let (files, packed) = match seen.encoded {
        true => (Some(seen.llen), packed_llen),
        false => (Some(seen.plen.into()), packed_plen),
    };
    let whole = |len: u64| len.next_multiple_of(block_len).min(pcluster_max_len(image, algorithm));
    let len = |len: Option<u64>| len.filter(|len| *len > 0).map(whole);
    let files_len = if has_cfgs { len(files).or(len(packed)) } else { Some(block_len) };
    Ok(Choices {
        compression: (algorithm == Algorithm::Deflate).then(|| Compression::By(Method::Deflate.into())),
        pcluster_len: files_len,
        packed_pcluster_len: len(packed).filter(|_| has_packed && has_cfgs),
        fragments: match has_packed {
            false => Some(Fragments::Off),
            true if seen.ends_packed => Some(Fragments::Tails(SMALL_FILE_LEN)),
            // Files of any length are packed only where none is found that is not.
            true if seen.files > 0 => Some(Fragments::UpTo(SMALL_FILE_LEN)),
            true => None,
        },
        // Parts need pclusters of several blocks, and so records of which the image has none.
        dedupe: if has_cfgs { None } else { Some(Dedupe::Files) },
        encoded_extents: Some(seen.encoded),
        tail_packing: is_tail_packed && !seen.encoded,
        ..choices
    })
}

/// The longest pcluster that readers of the image are told of, in bytes.
fn pcluster_max_len(image: &Image, algorithm: Algorithm) -> u64 {
    let blocks = match (algorithm, image.compr_cfgs().lz4) {
        (Algorithm::Lz4, Some(lz4)) => lz4.max_pclusterblks.into(),
        _ => u64::MAX,
    };
    blocks.saturating_mul(image.superblock().block_bits.len()).min(1 << 20)
}

impl Seen {
    fn look_at(&mut self, image: &Image, inode: &Inode, block_len: u64) -> Result<(), ReadError> {
        let mut is_compressed = false;
        for extent in image.extents(inode).take(EXTENTS_MAX) {
            let extent = extent?;
            let is_full = extent.end() < inode.meta.size;
            match extent.kind {
                ExtentKind::Encoded { algorithm, plen, inline, .. } => {
                    is_compressed = true;
                    *self.algorithms.entry(algorithm).or_default() += 1;
                    self.plen = self.plen.max(if is_full { plen } else { 0 });
                    self.llen = self.llen.max(if is_full { extent.llen } else { 0 });
                    self.encoded |= inline.is_none() && !u64::from(plen).is_multiple_of(block_len);
                }
                ExtentKind::Fragment { .. } => self.ends_packed |= extent.la > 0,
                _ => {}
            }
        }
        self.files += usize::from(is_compressed);
        Ok(())
    }
}
