//! Copies of reused pclusters from a base. Adjacent ones are merged into runs; each pcluster is copied at its first
//! use.

use kiln_format::{Blkaddr, BlockBits, FormatError};
use rustix::fs::copy_file_range;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::Arc;

use crate::error::BuildError;
use crate::pack::device::Device;
use kiln_output as output;
use kiln_tree::{Base, Reuse};

/// Bytes that are copied through memory at a time, if the system cannot copy by itself.
const COPY_LEN: usize = 1 << 20;
/// Most bytes of a run that are copied at once, so that other data is written meanwhile and an interruption is
/// noticed.
const RUN_MAX_LEN: u64 = 64 << 20;

/// Data reused from a base.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReuseTotals {
    /// Stored bytes.
    pub bytes: u64,
    /// A pcluster has several blocks.
    pub big: bool,
    /// The algorithms, as in `available_compr_algs`.
    pub algorithms: u16,
    /// Configuration records of these algorithms.
    pub cfgs: kiln_format::compr_cfg::ComprCfgs,
}

/// Bytes of the base that follow one another, in it and in the image.
#[derive(Clone, Copy, Debug)]
struct CopiedRun {
    /// First byte in the base.
    from: u64,
    /// First byte in the image.
    to: u64,
    len: u64,
}

/// Copies from a base.
pub(in crate::pack) struct ReuseCopier {
    pub(super) base: Arc<dyn Base>,
    /// All runs, by their first byte in the base.
    runs: BTreeMap<u64, CopiedRun>,
    /// Run to be copied next.
    pending: Option<CopiedRun>,
    /// All bytes keep their place within a block, not only those that begin one: a pcluster of DEFLATE must end
    /// where it ended.
    keeps_places: bool,
    /// Bytes of all runs.
    pub copied: u64,
    /// Bytes that stay where they are.
    pub in_place: u64,
}

impl ReuseCopier {
    pub(in crate::pack) fn new(base: Arc<dyn Base>) -> Self {
        let keeps_places = base.facts().cfgs.deflate_windowbits.is_some();
        Self { base, runs: BTreeMap::new(), pending: None, keeps_places, copied: 0, in_place: 0 }
    }

    /// Returns the place in the image of `len` bytes of the base from `pa` on: an existing one, or one behind all
    /// data. Data that begins a block in the base does so in the image. If the image goes behind the base, data
    /// stays in place.
    ///
    /// # Errors
    /// Bytes behind the end of the base, or more than it has; those of the device.
    pub(in crate::pack) fn place(
        &mut self,
        (pa, len): (u64, u64),
        device: &mut Device<'_>,
        bits: BlockBits,
    ) -> Result<u64, BuildError> {
        if let Some((_, run)) = self.runs.range(..=pa).next_back()
            && pa.saturating_add(len) <= run.from + run.len
        {
            return Ok(run.to + (pa - run.from));
        }
        let facts = self.base.facts();
        let base_len = facts.len;
        if facts.reuse == Reuse::InPlace {
            self.in_place = self.in_place.saturating_add(len);
            return match pa.checked_add(len).is_some_and(|end| end <= base_len) {
                true => Ok(pa),
                false => Err(BuildError::BaseRange { pa, len, base_len }),
            };
        }
        self.copied = self.copied.saturating_add(len);
        if pa.checked_add(len).is_none_or(|end| end > base_len) || self.copied > base_len {
            return Err(BuildError::BaseRange { pa, len, base_len });
        }
        let block_off = (self.keeps_places || bits.within(pa) == 0).then(|| bits.within(pa));
        let is_there = |end: u64| block_off.is_none_or(|off| off == bits.within(end));
        let follows =
            |run: &&mut CopiedRun| run.from + run.len == pa && run.to + run.len == device.end && is_there(device.end);
        let run = match self.pending.as_mut().filter(follows) {
            Some(run) if run.len < RUN_MAX_LEN => {
                run.len += len;
                *run
            }
            _ => {
                self.flush(device)?;
                let ahead = block_off.map_or(0, |off| off + bits.len() - bits.within(device.end));
                device.end += bits.within(ahead);
                CopiedRun { from: pa, to: device.end, len }
            }
        };
        self.runs.insert(run.from, run);
        self.pending = Some(run);
        device.reserve(len)?;
        Ok(run.to + (pa - run.from))
    }

    /// Copies the pending run.
    ///
    /// # Errors
    /// Those of the base and of the device.
    pub(in crate::pack) fn flush(&mut self, device: &Device<'_>) -> Result<(), BuildError> {
        let Some(CopiedRun { from, to, len }) = self.pending.take() else { return Ok(()) };
        let (output, offset) = device.output();
        let to = offset.saturating_add(to);
        let done = match (self.base.file(), output.file()) {
            (Some(base), Some(file)) => copied_by_system(base, from, file, to, len)?,
            _ => 0,
        };
        let mut buf = vec![0; COPY_LEN.min((len - done) as usize)];
        let mut at = done;
        while at < len {
            let piece = &mut buf[..COPY_LEN.min((len - at) as usize)];
            let unreadable = |source| BuildError::BaseRead { pa: from + at, len: len - at, source };
            self.base.read_exact_at(piece, from + at).map_err(unreadable)?;
            output::write_all_at(output, piece, to + at)
                .map_err(|source| BuildError::Write { action: "write the image", source })?;
            at += piece.len() as u64;
        }
        Ok(())
    }
}

/// Lets the system copy, which shares blocks if the filesystem can. Returns the number of bytes copied, which is
/// lower if it cannot.
fn copied_by_system(base: &File, from: u64, file: &File, to: u64, len: u64) -> Result<u64, BuildError> {
    let (mut off_in, mut off_out, mut left) = (from, to, len);
    while left > 0 {
        match copy_file_range(base, Some(&mut off_in), file, Some(&mut off_out), left as usize) {
            Ok(0) => break,
            Ok(copied) => left -= copied as u64,
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT | rustix::io::Errno::FBIG) if left < len => break,
            Err(error @ (rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT | rustix::io::Errno::FBIG)) => {
                return Err(BuildError::Write { action: "write the image", source: io::Error::from(error) });
            }
            // Not for these files, or not on this system. Read and write errors show in the fallback.
            Err(_) => break,
        }
    }
    Ok(len - left)
}

impl Device<'_> {
    /// Leaves room for bytes that are written later.
    fn reserve(&mut self, len: u64) -> Result<(), BuildError> {
        self.end += len;
        let blocks = self.block_bits().blocks_for(self.end);
        if blocks >= Blkaddr::HOLE32.0 {
            return Err(FormatError::does_not_fit("erofs_super_block", "blocks_lo", blocks).into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_format::compr_cfg::ComprCfgs;
    use kiln_output::MemoryOutput;
    use kiln_tree::{BaseFacts, ContentError, NodeId, ReusedExtents, Tree};

    struct Bytes(Vec<u8>, BaseFacts);

    impl Base for Bytes {
        fn facts(&self) -> &BaseFacts {
            &self.1
        }

        fn file(&self) -> Option<&File> {
            None
        }

        fn read_exact_at(&self, buf: &mut [u8], pa: u64) -> io::Result<()> {
            buf.copy_from_slice(&self.0[pa as usize..][..buf.len()]);
            Ok(())
        }

        fn inode_places(&self, _: &Tree) -> Vec<(NodeId, u64)> {
            Vec::new()
        }

        fn verify_unchanged(&self) -> Result<(), ContentError> {
            Ok(())
        }
    }

    fn copier(len: usize) -> ReuseCopier {
        copier_of(len, Reuse::Copy, ComprCfgs::default())
    }

    fn copier_of(len: usize, reuse: Reuse, cfgs: ComprCfgs) -> ReuseCopier {
        let bytes: Vec<u8> = (0..len).map(|at| (at / 7) as u8).collect();
        let (identity, packed) = (Vec::new(), ReusedExtents::default());
        let (len, block_bits) = (len as u64, BlockBits::DEFAULT);
        let facts = BaseFacts { reuse, identity, len, block_bits, cfgs, packed, metadata: None };
        ReuseCopier::new(Arc::new(Bytes(bytes, facts)))
    }

    #[test]
    fn bytes_are_copied_once_and_keep_their_place_in_a_block() {
        let output = MemoryOutput::default();
        let bits = BlockBits::DEFAULT;
        let mut device = Device::new(0, (&output, 512), bits, 4096);
        let mut copier =
            copier_of(100_000, Reuse::Copy, ComprCfgs { deflate_windowbits: Some(15), ..ComprCfgs::default() });
        let mut place = |pa, len, device: &mut Device<'_>| copier.place((pa, len), device, bits).unwrap();
        assert_eq!(place(8192, 4096, &mut device), 4096);
        assert_eq!(place(12288, 100, &mut device), 8192, "goes on");
        assert_eq!(place(9000, 50, &mut device), 4904, "is there");
        assert_eq!(place(20_490, 100, &mut device), 12298, "the same place in a block");
        device.append(b"between").unwrap();
        assert_eq!(place(20_590, 100, &mut device), 16384 + 110, "something lies between");
        copier.flush(&device).unwrap();
        assert_eq!(copier.copied, 4096 + 300);
        let mut found = vec![0; 4096];
        for (pa, to, len) in [(8192, 4096, 4096), (12288, 8192, 100), (20_490, 12298, 100), (20_590, 16494, 100)] {
            output::read_exact_at(&output, &mut found[..len], 512 + to).unwrap();
            assert!((pa..pa + len).map(|at| (at / 7) as u8).eq(found[..len].iter().copied()), "{pa}");
        }
    }

    #[test]
    fn what_begins_a_block_does_so_again() {
        let output = MemoryOutput::default();
        let bits = BlockBits::DEFAULT;
        let mut device = Device::new(0, (&output, 0), bits, 4096);
        let mut copier = copier(100_000);
        let mut place = |pa, len, device: &mut Device<'_>| copier.place((pa, len), device, bits).unwrap();
        assert_eq!(place(20_490, 100, &mut device), 4096, "no room is left");
        assert_eq!(place(20_590, 3986, &mut device), 4196, "goes on, up to the end of the block");
        assert_eq!(place(24_576, 5000, &mut device), 8192, "the next block, which is not right behind it any more");
        assert_eq!(place(29_576, 24, &mut device), 13_192, "goes on");
        assert_eq!(place(8192, 10, &mut device), 16_384);
        copier.flush(&device).unwrap();
        let mut found = vec![0; 5000];
        for (pa, to, len) in [(20_490, 4096, 4086), (24_576, 8192, 5000), (29_576, 13_192, 24), (8192, 16_384, 10)] {
            output::read_exact_at(&output, &mut found[..len], to).unwrap();
            assert!((pa..pa + len).map(|at| (at / 7) as u8).eq(found[..len].iter().copied()), "{pa}");
        }
    }

    #[test]
    fn what_stays_in_place_is_not_copied() {
        let output = MemoryOutput::default();
        let bits = BlockBits::DEFAULT;
        let mut device = Device::new(0, (&output, 0), bits, 102_400);
        let mut copier = copier_of(100_000, Reuse::InPlace, ComprCfgs::default());
        for (pa, len) in [(8192, 4096), (99_000, 1000), (8192, 4096)] {
            assert_eq!(copier.place((pa, len), &mut device, bits).unwrap(), pa);
        }
        copier.flush(&device).unwrap();
        assert_eq!((copier.copied, copier.in_place, device.end), (0, 9192, 102_400));
        assert!(matches!(copier.place((99_000, 1001), &mut device, bits), Err(BuildError::BaseRange { .. })));
    }

    #[test]
    fn a_base_gives_no_more_than_it_has() {
        let output = MemoryOutput::default();
        let mut device = Device::new(0, (&output, 0), BlockBits::DEFAULT, 4096);
        for (pa, len) in [(96_000, 4096), (u64::MAX, 2), (100_000, 1)] {
            let error = copier(100_000).place((pa, len), &mut device, BlockBits::DEFAULT).unwrap_err();
            assert!(matches!(error, BuildError::BaseRange { .. }), "{error}");
        }
        // Overlapping pclusters may be copied several times, but with a limit.
        let mut copier = copier(100_000);
        let copied = (0..).map_while(|n| copier.place((n * 10, 50_000 - n), &mut device, BlockBits::DEFAULT).ok());
        assert_eq!(copied.count(), 2);
    }
}
