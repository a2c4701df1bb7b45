//! Maps from the contents of an inode to the image.

use std::io;

use super::fields::{Fields, invalid};
use super::inode::{Inode, Map};
use super::volume::Volume;
use super::xattr::inline_rest;
use crate::stored::StoredRun;

const EXTENT_MAGIC: u16 = 0xF30A;
/// Length in bytes of each header, extent and index entry.
const ENTRY_LEN: usize = 12;
/// Maximum depth of trees that the kernel makes.
const DEPTH_MAX: u16 = 5;
/// Extents longer than this are unwritten: the excess is the number of reserved blocks, which read
/// as zeros.
const WRITTEN_MAX_LEN: u32 = 1 << 15;
/// Number of addresses in the inode that lead to data. Three more lead to single, double and triple
/// indirect blocks.
const DIRECT_COUNT: u64 = 12;
const ADDRESS_LEN: usize = 4;
/// Length in bytes of contents in place of the block map.
const INLINE_LEN: u64 = 60;

/// Returns the runs of the contents of `inode`: sorted, within its length and disjoint. Bytes
/// between them read as zeros.
///
/// # Errors
/// A map that is damaged or leads out of the image.
pub(super) fn runs(volume: &Volume, inode: &Inode) -> io::Result<Vec<StoredRun>> {
    let mut runs = Runs { volume, len: inode.len, end: 0, runs: Vec::new() };
    match inode.map() {
        Map::Inline => inline(&mut runs, volume, inode)?,
        Map::Extents(root) => extents(&mut runs, root, None)?,
        Map::Blocks(addresses) => blocks(&mut runs, addresses)?,
    }
    Ok(runs.runs)
}

struct Runs<'a> {
    volume: &'a Volume,
    /// Length of the file in bytes.
    len: u64,
    /// First block of the file that has not been mapped yet.
    end: u64,
    runs: Vec<StoredRun>,
}

impl Runs<'_> {
    /// Maps `count` blocks of the file, from block `first`, to `block` of the image, or to a hole.
    fn push(&mut self, first: u64, count: u64, block: Option<u64>) -> io::Result<()> {
        if first < self.end {
            return Err(invalid(format!("block {first} of the file is mapped twice")));
        }
        self.end = first + count;
        let bits = self.volume.superblock.block_bits;
        let (la, Some(block)) = (first << bits, block) else { return Ok(()) };
        if la >= self.len {
            return Ok(());
        }
        let (pa, len) = (self.volume.block_off(block)?, (count << bits).min(self.len - la));
        self.volume.check_range(pa, len)?;
        match self.runs.last_mut() {
            Some(last) if last.end() == la && last.pa + last.len == pa => last.len += len,
            _ => self.runs.push(StoredRun { la, pa, len }),
        }
        Ok(())
    }
}

/// Maps contents in the inode and in an attribute of it. If the attribute is empty, everything
/// after the inode's part is a hole; so is that part if it is zeros.
fn inline(runs: &mut Runs<'_>, volume: &Volume, inode: &Inode) -> io::Result<()> {
    let front = inode.len.min(INLINE_LEN);
    let rest = inode.len - front;
    let (pa, len) = if rest > 0 { inline_rest(inode)? } else { (0, 0) };
    let is_cut = rest > 0 && len == 0;
    if front > 0 && !(is_cut && volume.read(inode.i_block_off(), front as usize)?.iter().all(|&byte| byte == 0)) {
        runs.runs.push(StoredRun { la: 0, pa: inode.i_block_off(), len: front });
    }
    if rest > 0 && !is_cut {
        if rest > len {
            return Err(invalid(format!(
                "inline contents of {} bytes, of which the second part has only {len}",
                inode.len
            )));
        }
        volume.check_range(pa, rest)?;
        runs.runs.push(StoredRun { la: INLINE_LEN, pa, len: rest });
    }
    Ok(())
}

/// Reads the node `node` of an extent tree, whose parent has depth `above`. The recursion ends
/// because depths fall. Each node has an entry after all previous ones, so no node is read
/// repeatedly.
fn extents(runs: &mut Runs<'_>, node: &[u8], above: Option<u16>) -> io::Result<()> {
    let header = Fields(node);
    let (magic, count, depth) = (header.u16(0)?, header.u16(2)?, header.u16(6)?);
    if magic != EXTENT_MAGIC {
        return Err(invalid(format!("eh_magic = {magic:#x}")));
    }
    let is_wrong_depth = match above {
        None => depth > DEPTH_MAX,
        Some(above) => depth + 1 != above || count == 0,
    };
    if is_wrong_depth {
        return Err(invalid(format!("eh_depth = {depth}, eh_entries = {count} below a node of depth {above:?}")));
    }
    for idx in 1..=usize::from(count) {
        let entry = Fields(header.bytes(idx * ENTRY_LEN, ENTRY_LEN)?);
        let first = u64::from(entry.u32(0)?);
        if depth > 0 {
            let block = u64::from(entry.u16(8)?) << 32 | u64::from(entry.u32(4)?);
            extents(runs, &runs.volume.visit(block)?, Some(depth))?;
            continue;
        }
        let block = u64::from(entry.u16(6)?) << 32 | u64::from(entry.u32(8)?);
        match u32::from(entry.u16(4)?) {
            0 => return Err(invalid(format!("ee_len = 0 at block {first}"))),
            len @ 1..=WRITTEN_MAX_LEN => runs.push(first, len.into(), Some(block))?,
            len => runs.push(first, (len - WRITTEN_MAX_LEN).into(), None)?,
        }
    }
    Ok(())
}

/// Reads the addresses in an inode.
fn blocks(runs: &mut Runs<'_>, addresses: &[u8]) -> io::Result<()> {
    let per_block = runs.volume.superblock.block_len() / ADDRESS_LEN as u64;
    let mut first = 0;
    for (idx, address) in addresses.chunks_exact(ADDRESS_LEN).enumerate() {
        let level = (idx as u64 + 1).saturating_sub(DIRECT_COUNT) as u32;
        address_of(runs, u64::from(Fields(address).u32(0)?), first, level)?;
        first += per_block.pow(level);
    }
    Ok(())
}

/// Maps `block`: data of the file's block `first` if `level` is 0, otherwise addresses of the level
/// below. The highest level is 3.
fn address_of(runs: &mut Runs<'_>, block: u64, first: u64, level: u32) -> io::Result<()> {
    if block == 0 || first << runs.volume.superblock.block_bits >= runs.len {
        return Ok(());
    }
    if level == 0 {
        return runs.push(first, 1, Some(block));
    }
    let addresses = runs.volume.visit(block)?;
    let step = (addresses.len() as u64 / ADDRESS_LEN as u64).pow(level - 1);
    for (idx, address) in addresses.chunks_exact(ADDRESS_LEN).enumerate() {
        address_of(runs, Fields(address).u32(0)?.into(), first + idx as u64 * step, level - 1)?;
    }
    Ok(())
}
