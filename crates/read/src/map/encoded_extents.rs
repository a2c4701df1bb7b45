//! Lookups in encoded extents.

use super::compressed_file::{CompressedFile, HEADER};
use super::extent::Pcluster;
use super::extent::{Extent, ExtentKind};
use crate::error::{ReadError, aligned, too_far};
use crate::metadata::reader::MetadataReader;
use kiln_format::addr::BlockBits;
use kiln_format::zmap::{Advise, ExtentRecord, MAP_HEADER_LEN, MapHeader, RecordSize};

const RECORD: &str = "z_erofs_extent";

/// A table of encoded extents.
pub(super) struct ExtentRecords {
    size: RecordSize,
    /// Byte offset of the first record.
    table: u64,
    count: u64,
    /// log2 of the extents' length, where all have the same.
    bits: u8,
    /// True if plain pclusters of whole blocks are interlaced.
    is_interlaced: bool,
}

/// Records between two cached sums of lengths, see
/// [`StartSums`](crate::cache::start_sums::StartSums).
const STRIDE: u64 = 512;
/// Most records of 4 bytes whose lengths are summed: a table of 1 GiB.
const SUMMED_MAX: u64 = 1 << 28;

impl ExtentRecords {
    pub(super) fn new(file: &CompressedFile<'_>, header: &MapHeader) -> Result<Self, ReadError> {
        let size = RecordSize::from_advise(header.advise);
        let bits = header.lcluster_bits;
        let far = || too_far(HEADER, file.header_off);
        let behind = file.header_off.checked_add(MAP_HEADER_LEN).ok_or_else(far)?;
        let table = aligned(behind, size.len())?.checked_add(size.start_len()).ok_or_else(far)?;
        let count =
            if size.has_fixed_extents() { file.inode.meta.size.div_ceil(1 << bits) } else { header.extent_count };
        let is_interlaced = header.advise.contains(Advise::INTERLACED_PCLUSTER);
        Ok(Self { size, table, count, bits, is_interlaced })
    }

    /// Returns the byte offset behind the last record.
    pub(super) fn end_off(&self) -> Result<u64, ReadError> {
        let len = self.count.checked_mul(self.size.len());
        len.and_then(|len| self.table.checked_add(len)).ok_or_else(|| too_far(RECORD, self.table))
    }

    /// Returns the extent with byte `off`, which must be in the file.
    pub(super) fn extent_at(
        &self,
        file: &mut CompressedFile<'_>,
        header: &MapHeader,
        off: u64,
    ) -> Result<Extent, ReadError> {
        let size = file.inode.meta.size;
        let idx = if self.size.has_fixed_extents() { Some(off >> self.bits) } else { self.bisect(file, off)? };
        let Some(idx) = idx else {
            // Bytes before the first record are a hole.
            let end = if self.count == 0 { size } else { self.la(file, 0)?.min(size) };
            return Ok(Extent { la: 0, llen: end, kind: ExtentKind::Hole });
        };
        let record = self.record(file, idx)?;
        let la = record.la.unwrap_or(idx << self.bits);
        let is_last = idx + 1 == self.count;
        let end = match (is_last, self.size.has_fixed_extents()) {
            (true, _) => size,
            (false, true) => (idx + 1) << self.bits,
            (false, false) => self.la(file, idx + 1)?.min(size),
        };
        if la > off || end <= off {
            return Err(file.corrupt("lstart", la, "extents are not in order"));
        }
        let kind = if is_last && header.advise.contains(Advise::FRAGMENT_PCLUSTER) {
            let high = record.pa.map_or(0, |pa| pa << 32);
            ExtentKind::Fragment { off: high | u64::from(record.plen.0) }
        } else {
            self.stored(file, idx, record, end - la)?
        };
        Ok(Extent { la, llen: end - la, kind })
    }

    fn stored(
        &self,
        file: &mut CompressedFile<'_>,
        idx: u64,
        record: ExtentRecord,
        llen: u64,
    ) -> Result<ExtentKind, ReadError> {
        let plen = record.plen.plen();
        if plen == 0 {
            return Ok(ExtentKind::Hole);
        }
        let addr = match record.pa {
            Some(pa) => pa,
            None => self.summed_start(file, idx)?,
        };
        let (device, pa) = file.stored_at(addr, plen.into())?;
        let unknown = |number: u8| {
            ReadError::unsupported(RECORD, self.table, "plen (algorithm)", number.into(), "unknown algorithm")
        };
        match record.plen.algorithm().map_err(unknown)? {
            None => {
                let whole_blocks = is_aligned(file.block_bits(), addr) && is_aligned(file.block_bits(), plen.into());
                let interlaced = whole_blocks && self.is_interlaced;
                file.plain(llen, Pcluster { device, inline: None, pa, plen }, interlaced)
            }
            Some(algorithm) => {
                let algorithm = file.announced(algorithm)?;
                Ok(ExtentKind::Encoded { algorithm, device, pa, plen, partial: record.plen.partial(), inline: None })
            }
        }
    }

    /// Checks every record: if records are out of order, two lookups contradict each other.
    pub(super) fn verify(&self, file: &mut CompressedFile<'_>) -> Result<(), ReadError> {
        if self.size.has_fixed_extents() {
            return Ok(());
        }
        let mut previous = None;
        for idx in 0..self.count {
            let la = self.la(file, idx)?;
            if previous.is_some_and(|previous| previous >= la) {
                return Err(file.corrupt("lstart", la, "extents are not in order"));
            }
            previous = Some(la);
        }
        Ok(())
    }

    /// Returns the last record that starts at or before `off`.
    fn bisect(&self, file: &mut CompressedFile<'_>, off: u64) -> Result<Option<u64>, ReadError> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let mid = low + (high - low) / 2;
            if self.la(file, mid)? <= off { low = mid + 1 } else { high = mid }
        }
        Ok(low.checked_sub(1))
    }

    fn la(&self, file: &mut CompressedFile<'_>, idx: u64) -> Result<u64, ReadError> {
        Ok(self.record(file, idx)?.la.unwrap_or(idx << self.bits))
    }

    fn record(&self, file: &mut CompressedFile<'_>, idx: u64) -> Result<ExtentRecord, ReadError> {
        let off = self.record_off(idx)?;
        let mut bytes = [0; 32];
        let record = &mut bytes[..self.size.len() as usize];
        file.meta.fill(RECORD, record, off)?;
        Ok(ExtentRecord::decode(record, self.size))
    }

    fn record_off(&self, idx: u64) -> Result<u64, ReadError> {
        let rel = idx.checked_mul(self.size.len());
        rel.and_then(|rel| self.table.checked_add(rel)).ok_or_else(|| too_far(RECORD, self.table))
    }

    /// Returns the address of record `idx` of a 4-byte table: the start address and all lengths
    /// before it.
    fn summed_start(&self, file: &mut CompressedFile<'_>, idx: u64) -> Result<u64, ReadError> {
        if idx >= SUMMED_MAX {
            return Err(ReadError::unsupported(RECORD, self.table, "count", idx, "too many records of 4 bytes"));
        }
        let (nid, sums) = (file.inode.nid, &file.reader.volume.state().start_sums.sums);
        let wanted = idx / STRIDE;
        let known = (1..=wanted).rev().find_map(|stride| Some((stride, sums.get(&(nid, stride))?)));
        let (mut stride, mut sum) = match known {
            Some(known) => known,
            None => (0, u64::from_le_bytes(file.meta.array(RECORD, self.table - self.size.start_len())?)),
        };
        while stride < wanted {
            sum = self.add_lengths(&mut file.meta, sum, stride * STRIDE, STRIDE)?;
            stride += 1;
            sums.insert((nid, stride), sum);
        }
        self.add_lengths(&mut file.meta, sum, wanted * STRIDE, idx % STRIDE)
    }

    /// Adds to `sum` the stored lengths of `count` (at most [`STRIDE`]) records from `first` on.
    fn add_lengths(&self, meta: &mut MetadataReader<'_>, sum: u64, first: u64, count: u64) -> Result<u64, ReadError> {
        const BATCH: u64 = 256;
        let mut bytes = [0; 4 * BATCH as usize];
        let mut sum = sum;
        for from in (0..count).step_by(BATCH as usize) {
            let batch = &mut bytes[..4 * BATCH.min(count - from) as usize];
            meta.fill(RECORD, batch, self.record_off(first + from)?)?;
            let lengths =
                batch.chunks_exact(4).map(|b| u64::from(ExtentRecord::decode(b, RecordSize::Four).plen.plen()));
            sum = lengths.sum::<u64>().checked_add(sum).ok_or_else(|| too_far(RECORD, self.table))?;
        }
        Ok(sum)
    }
}

fn is_aligned(block_bits: BlockBits, off: u64) -> bool {
    block_bits.within(off) == 0
}
