//! Root inode in the sector that an update replaces.
//!
//! There it has the same nid in each generation, though each has its own: the record of a generation holds the sector
//! of the previous one. So directories that name the root need not be written again. Kernels hold the root inode itself
//! in memory, but may read its attributes later: no update changes those of another generation.

use kiln_format::addr::SLOT_LEN;
use kiln_format::generation::HEAD_LEN;
use kiln_format::inode::{Epoch, Inode};
use kiln_format::superblock::{BASE_LEN, ComprInfo, EXTSLOT_LEN, SUPERBLOCK_OFF};
use kiln_read::Generation;

/// Bytes that are left free for configuration records of all algorithms.
const RECORDS_LEN: u64 = 64;

/// A root inode in the head of a generation.
pub(super) struct RootInHead {
    /// Byte of the head at which the inode begins.
    pub start: usize,
    /// Byte of the head at which its attributes begin.
    body: usize,
    /// Byte of the head behind them.
    pub end: usize,
}

/// Returns the place of a generation's root inode in its head, if it lies there as a whole.
pub(super) fn in_head(generation: &Generation) -> Option<RootInHead> {
    let superblock = &generation.superblock;
    let place = superblock.inode_place(superblock.root_nid)?;
    let start = usize::try_from(place.checked_sub(SUPERBLOCK_OFF)?).ok()?;
    let epoch = Epoch { secs: superblock.epoch, nsec: superblock.fixed_nsec };
    let inode = Inode::decode(generation.head.get(start..)?, place, epoch, superblock.block_bits).ok()?;
    let end = start.checked_add(usize::try_from(inode.body_off()).ok()?)?;
    (end <= HEAD_LEN).then_some(RootInHead { start, body: start + inode.form.len(), end })
}

/// Returns the byte of the head behind the configuration records of a generation.
pub(super) fn records_end(generation: &Generation) -> u64 {
    let record_len = generation.superblock.record_len;
    let behind = generation.head.get(record_len as usize..).unwrap_or_default();
    let records = generation.superblock.compr_cfgs(behind).and_then(|cfgs| cfgs.encode());
    let has_records = matches!(generation.superblock.compr_info, ComprInfo::AvailableAlgs(_));
    let len = records.map_or(0, |records| if has_records { records.len() as u64 } else { 0 });
    (record_len + len).min(HEAD_LEN as u64)
}

/// Room for root inodes in the sector.
pub(super) struct RootRoom {
    /// First byte of the head that is free for them; the end of the head if none is.
    start: usize,
    /// Place of the last generation's root in the head.
    last: Option<usize>,
    /// Attributes of the generations' roots, with their places in the head.
    bodies: Vec<(usize, Vec<u8>)>,
}

impl RootRoom {
    /// Finds the room in an image with these generations, the oldest first, that was built with no metadata in front of
    /// byte `metadata`.
    pub(super) fn of(generations: &[Generation], metadata: u64) -> Self {
        let start = first_free(generations).filter(|_| metadata >= SUPERBLOCK_OFF + HEAD_LEN as u64);
        let start = start.unwrap_or(HEAD_LEN);
        let body = |generation: &Generation| {
            let root = in_head(generation)?;
            Some((root.body, generation.head[root.body..root.end].to_vec()))
        };
        let mut bodies: Vec<_> = generations.iter().filter_map(body).filter(|(_, body)| !body.is_empty()).collect();
        bodies.dedup();
        let last = generations.last().and_then(in_head).map(|root| root.start).filter(|last| *last >= start);
        Self { start, last, bodies }
    }

    /// Returns the byte of the image for an inode with a record of `record_len` bytes and the attributes `body`: that
    /// of the last generation's root, if possible.
    pub(super) fn place(&self, record_len: u64, body: &[u8]) -> Option<u64> {
        let record_len = record_len as usize;
        let highest = HEAD_LEN.checked_sub(record_len + body.len())?;
        let slot_len = SLOT_LEN as usize;
        let places = (self.start.next_multiple_of(slot_len)..highest + 1).step_by(slot_len).rev();
        let place = self.last.into_iter().filter(|last| *last <= highest).chain(places).find(|place| {
            let (start, end) = (place + record_len, place + record_len + body.len());
            self.bodies.iter().all(|(at, old)| {
                let is_apart = at + old.len() <= *place || end <= *at;
                let is_same = || start <= *at && body.get(at - start..).is_some_and(|body| body.starts_with(old));
                is_apart || is_same()
            })
        });
        place.map(|place| SUPERBLOCK_OFF + place as u64)
    }
}

/// Returns the first byte of the head that has been free in all generations, with all behind it.
fn first_free(generations: &[Generation]) -> Option<usize> {
    let built = generations.first()?;
    let in_use = built.head.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    let records = generations.iter().map(records_end).max()?.max(BASE_LEN as u64 + EXTSLOT_LEN + RECORDS_LEN);
    Some(in_use.max(records as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(start: usize, last: Option<usize>, bodies: &[(usize, &[u8])]) -> RootRoom {
        RootRoom { start, last, bodies: bodies.iter().map(|(at, body)| (*at, body.to_vec())).collect() }
    }

    #[test]
    fn a_root_keeps_its_place() {
        let place = |room: &RootRoom, body: &[u8]| room.place(64, body).map(|place| place - SUPERBLOCK_OFF);
        let free = room(216, None, &[]);
        assert_eq!(place(&free, &[]), Some(448), "at the end");
        assert_eq!(place(&free, &[1; 16]), Some(416), "with room for its attributes");
        assert_eq!(place(&free, &[1; 224]), Some(224), "at the first slot");
        assert_eq!(place(&free, &[1; 228]), None, "too long");
        assert_eq!(place(&room(HEAD_LEN, None, &[]), &[]), None, "no room");
        let last = room(216, Some(320), &[]);
        assert_eq!(place(&last, &[1; 128]), Some(320), "where the last one was");
        assert_eq!(place(&last, &[1; 132]), Some(288), "longer than there is room behind the last one");
    }

    #[test]
    fn attributes_of_other_roots_stay() {
        let place = |bodies: &[(usize, &[u8])], body: &[u8]| {
            room(216, Some(416), bodies).place(64, body).map(|place| place - SUPERBLOCK_OFF)
        };
        assert_eq!(place(&[(480, &[1; 16])], &[1; 16]), Some(416), "the same");
        assert_eq!(place(&[(480, &[1; 16])], &[1; 20]), Some(416), "longer");
        assert_eq!(place(&[(480, &[1; 16])], &[1; 12]), Some(384), "shorter");
        assert_eq!(place(&[(480, &[1; 16])], &[2; 16]), Some(384), "others");
        assert_eq!(place(&[(480, &[1; 16])], &[]), Some(416), "none: the record lies in front");
        assert_eq!(place(&[(416, &[1; 16])], &[]), Some(448), "behind those of another root");
        assert_eq!(place(&[(480, &[1; 16]), (292, &[3; 188])], &[2; 16]), None, "no room left");
    }
}
