//! Maps of compressed files: lcluster indexes and encoded extents.
//!
//! A lookup reads the few entries that it needs: it goes back from the wanted lcluster to the head of its extent and
//! forward to the next head, both in strides of up to 2047 lclusters, or finds its record directly or by bisection.

use super::encoded_extents::Records;
use super::inode_map::{Extent, ExtentKind};
use super::inode_map::{aligned, too_far};
use super::lcluster_index::Lclusters;
use crate::error::ReadError;
use crate::image::Image;
use crate::metadata::inode::Inode;
use crate::metadata::reader::MetaReader;
use crate::metadata::reader::Space;
use crate::source::devices::Place;
use kiln_format::compr_cfg::Algorithm;
use kiln_format::inode::DataLayout;
use kiln_format::zmap::{Advise, HeadKind, MAP_HEADER_LEN, MapHeader, ZmapHeader};
use kiln_format::{BlockBits, Incompat};

pub(super) const HEADER: &str = "z_erofs_map_header";
pub(super) const INDEX: &str = "z_erofs_lcluster_index";

/// The map of one compressed inode.
pub(crate) struct Zmap<'a> {
    file: File<'a>,
    index: Index,
}

/// What all kinds of maps need to know of their inode.
pub(super) struct File<'a> {
    pub image: &'a Image,
    pub inode: Inode,
    /// Byte offset of the map header in the metadata space.
    pub header_off: u64,
    pub meta: MetaReader<'a>,
}

#[allow(clippy::large_enum_variant)] // on the stack, see `Kind`
enum Index {
    /// The whole file is a fragment.
    Fragment(u64),
    Lclusters(MapHeader, Lclusters),
    Records(MapHeader, Records),
}

/// An extent as an lcluster index gives it, before its kind is resolved.
pub(super) struct Found {
    pub la: u64,
    pub end: u64,
    /// Where the index says that it ends: for the last extent that may be behind the end of the file.
    pub end_mark: u64,
    pub kind: HeadKind,
    /// Block address; the high half of the offset for a fragment.
    pub blkaddr: u64,
    pub blocks: u32,
    pub partial: bool,
}

impl<'a> Zmap<'a> {
    /// The map of `inode`, which is compressed and not empty.
    pub fn open(image: &'a Image, inode: &Inode) -> Result<Self, ReadError> {
        let mut meta = MetaReader::new(image, inode.space());
        let header_off = aligned(image.body_pos(inode)?, MAP_HEADER_LEN)?;
        let bytes = meta.array(HEADER, header_off)?;
        let full = inode.meta.layout == DataLayout::CompressedFull;
        let block_bits = image.superblock().block_bits;
        let header = ZmapHeader::decode(&bytes, header_off, block_bits, full)?;
        let file = File { image, inode: *inode, header_off, meta };
        let index = match header {
            ZmapHeader::Fragment(off) => Index::Fragment(off),
            ZmapHeader::Map(header) if full && header.advise.contains(Advise::COMPACTED_2B_OR_EXTENTS) => {
                Index::Records(header, Records::new(&file, &header)?)
            }
            ZmapHeader::Map(header) => {
                check_big_pclusters(image, &header, header_off, full)?;
                Index::Lclusters(header, Lclusters::new(&file, &header)?)
            }
        };
        Ok(Self { file, index })
    }

    /// Whether the map is made of encoded extents.
    pub fn has_records(&self) -> bool {
        matches!(self.index, Index::Records(..))
    }

    /// The extent that holds byte `off`, which must be in the file.
    pub fn extent_at(&mut self, off: u64) -> Result<Extent, ReadError> {
        let size = self.file.inode.meta.size;
        match &mut self.index {
            Index::Fragment(start) => Ok(Extent { la: 0, llen: size, kind: ExtentKind::Fragment { off: *start } }),
            Index::Records(header, records) => records.extent_at(&mut self.file, header, off),
            Index::Lclusters(header, lclusters) => {
                let found = lclusters.find(&mut self.file, header, off)?;
                let kind = self.file.resolve(header, lclusters, &found)?;
                Ok(Extent { la: found.la, llen: found.end - found.la, kind })
            }
        }
    }

    /// Whether the extent at `off` is of the second algorithm's kind.
    pub fn uses_head2(&mut self, off: u64) -> Result<bool, ReadError> {
        match &mut self.index {
            Index::Lclusters(header, lclusters) => {
                Ok(lclusters.find(&mut self.file, header, off)?.kind == HeadKind::Head2)
            }
            _ => Ok(false),
        }
    }

    /// Look at the whole index for what single lookups do not see. It must be in the metadata space.
    pub fn verify(&mut self) -> Result<(), ReadError> {
        match &mut self.index {
            Index::Fragment(_) => Ok(()),
            Index::Records(_, records) => records.verify(&mut self.file),
            Index::Lclusters(_, lclusters) => lclusters.verify(&mut self.file),
        }
    }

    /// Byte offset in the metadata space behind the index and an inline pcluster.
    pub fn metadata_end(&mut self) -> Result<u64, ReadError> {
        match &self.index {
            Index::Fragment(_) => Ok(self.file.header_off + MAP_HEADER_LEN),
            Index::Records(_, records) => records.end_off(),
            Index::Lclusters(header, lclusters) => {
                let inline = inline_len(header).map_or(0, u64::from);
                lclusters.end_off().checked_add(inline).ok_or_else(|| too_far(HEADER, self.file.header_off))
            }
        }
    }
}

impl File<'_> {
    pub fn block_bits(&self) -> BlockBits {
        self.image.superblock().block_bits
    }

    /// Where an extent of an lcluster index is stored.
    fn resolve(&self, header: &MapHeader, lclusters: &Lclusters, found: &Found) -> Result<ExtentKind, ReadError> {
        let is_last = found.end == self.inode.meta.size;
        if is_last && header.advise.contains(Advise::FRAGMENT_PCLUSTER) {
            if found.kind == HeadKind::Plain {
                return Err(self.corrupt("di_advise", 0, "a fragment with the type of a plain extent"));
            }
            let high = if self.inode.meta.layout == DataLayout::CompressedFull { found.blkaddr << 32 } else { 0 };
            return Ok(ExtentKind::Fragment { off: high | u64::from(header.fragment_off) });
        }
        let (device, pa, plen, inline) = match inline_len(header) {
            Some(len) if is_last => {
                let pa = lclusters.end_off();
                if self.block_bits().within(pa) + u64::from(len) > self.block_bits().len() {
                    return Err(self.corrupt("h_idata_size", len.into(), "inline pcluster crosses a block"));
                }
                (0, pa, len.into(), Some(self.meta.space()))
            }
            _ => {
                let plen = u64::from(found.blocks) << self.block_bits().bits();
                let (device, pa) = self.stored_at(found.blkaddr << self.block_bits().bits(), plen)?;
                (device, pa, plen as u32, None)
            }
        };
        match self.algorithm(header, found.kind)? {
            None => {
                let interlaced = header.advise.contains(Advise::INTERLACED_PCLUSTER);
                // Without a marker at the end of the file, kernels want the whole last lcluster in the pcluster.
                let end = if inline.is_some() { found.end } else { found.end_mark };
                self.plain(end - found.la, device, pa, plen, interlaced, inline)
            }
            Some(algorithm) => Ok(ExtentKind::Encoded { algorithm, device, pa, plen, partial: found.partial, inline }),
        }
    }

    /// The device and address of `plen` bytes at `addr` of the flat space.
    pub fn stored_at(&self, addr: u64, plen: u64) -> Result<(u16, u64), ReadError> {
        let Place { device, pa, run } = self.image.core.devices.in_flat_space(addr);
        match run >= plen {
            true => Ok((device, pa)),
            false => Err(self.corrupt("blkaddr", addr, "pcluster crosses a border of devices")),
        }
    }

    pub fn plain(
        &self,
        llen: u64,
        device: u16,
        pa: u64,
        plen: u32,
        interlaced: bool,
        inline: Option<Space>,
    ) -> Result<ExtentKind, ReadError> {
        if llen > plen.into() {
            return Err(self.corrupt("plen", plen.into(), "plain extent longer than its pcluster"));
        }
        if interlaced && inline.is_some() {
            // Kernels read wrong bytes here without an error.
            return Err(self.corrupt("h_advise", pa, "inline plain pcluster of an interlaced file"));
        }
        Ok(ExtentKind::Plain { device, pa, plen, interlaced, inline })
    }

    fn algorithm(&self, header: &MapHeader, kind: HeadKind) -> Result<Option<Algorithm>, ReadError> {
        let number = match kind {
            HeadKind::Plain => return Ok(None),
            HeadKind::Head1 => header.algorithms[0],
            HeadKind::Head2 => header.algorithms[1],
        };
        let unknown =
            || ReadError::unsupported(HEADER, self.header_off, "h_algorithmtype", number.into(), "unknown algorithm");
        self.announced(Algorithm::from_number(number).ok_or_else(unknown)?).map(Some)
    }

    /// The algorithm, if the superblock allows it.
    pub fn announced(&self, algorithm: Algorithm) -> Result<Algorithm, ReadError> {
        match self.image.compr_cfgs().has(algorithm) {
            true => Ok(algorithm),
            false => {
                let reason = "algorithm that the superblock does not announce";
                Err(ReadError::corrupt(HEADER, self.header_off, "h_algorithmtype", algorithm as u64, reason))
            }
        }
    }

    pub fn corrupt(&self, field: &'static str, value: u64, reason: &'static str) -> ReadError {
        ReadError::corrupt(INDEX, self.header_off, field, value, reason)
    }
}

/// Length of the inline pcluster in bytes, if the file has one.
fn inline_len(header: &MapHeader) -> Option<u16> {
    let fragment = header.advise.contains(Advise::FRAGMENT_PCLUSTER);
    let inline = header.advise.contains(Advise::INLINE_PCLUSTER);
    (inline && !fragment && header.idata_len != 0).then_some(header.idata_len)
}

fn check_big_pclusters(image: &Image, header: &MapHeader, at: u64, full: bool) -> Result<(), ReadError> {
    let (one, two) = (header.advise.contains(Advise::BIG_PCLUSTER_1), header.advise.contains(Advise::BIG_PCLUSTER_2));
    let corrupt = |reason| Err(ReadError::corrupt(HEADER, at, "h_advise", header.advise.bits().into(), reason));
    if (one || two) && !image.superblock().incompat.contains(Incompat::COMPR_CFGS) {
        return corrupt("big pclusters that the superblock does not announce");
    }
    if !full && one != two {
        return corrupt("the two BIG_PCLUSTER bits must be equal in a compact index");
    }
    Ok(())
}
