//! Files that the base stores already: which of them are taken over as they are stored, and what of its packed inode.

mod list;

use kiln_codec::Spec;
use kiln_format::compr_cfg::EXTENT_MAX_LEN;
use kiln_format::feature::Feature;
use kiln_format::{Algorithm, BlockBits};
use kiln_parallel::ordered::{self, Costed};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use crate::context::Context;
use crate::error::BuildError;
use crate::layout::lcluster_index::{self, IndexShape, MapEnd};
use crate::options::BuildOptions;
use crate::plan::file::{FilePlan, Storage};
use crate::plan::former::{self, Candidate, FORMER_MIN_LEN, Patched};
use crate::plan::kept::list::KeptList;
use crate::tree::{Base, BaseFacts, Former, Kept, KeptExtent, KeptExtents, Taking};

/// Of the text of a packed pcluster, at least one part in so many must be in use still, or its files are stored anew.
const USED_SHARE: u64 = 4;

/// Files that a thread looks up at a time.
const LOOKED_UP: usize = 256;

/// What is taken over from a base.
#[derive(Default)]
pub(crate) struct KeptFiles {
    /// Where it is copied from.
    pub base: Option<Arc<dyn Base>>,
    /// How the base stores them.
    pub files: KeptList,
    /// What is taken over of its packed inode.
    pub packed: KeptPacked,
    /// Stored bytes of the base that come first, see [`hot::runs`](crate::plan::hot::runs).
    pub hot: Vec<(u64, u64)>,
}

/// What is to be stored of files of which only parts are taken over.
pub(crate) type Gaps = HashMap<u32, Vec<Range<u64>>>;

/// What is taken over of the packed inode of a base: the front of that of the new image.
#[derive(Default)]
pub(crate) struct KeptPacked {
    /// Its extents, one behind the other as they will be, each with the byte of the base's packed inode where it began.
    pub extents: Vec<(u64, KeptExtent)>,
}

impl KeptPacked {
    /// Bytes of plain text.
    pub(crate) fn len(&self) -> u64 {
        self.extents.last().map_or(0, |(_, extent)| extent.end())
    }

    /// Where byte `off` of the base's packed inode will be.
    pub(crate) fn moved(&self, off: u64) -> Option<u64> {
        let behind = self.extents.partition_point(|(was, _)| *was <= off);
        let (was, extent) = self.extents.get(behind.checked_sub(1)?)?;
        (off - was < u64::from(extent.llen)).then(|| extent.la + (off - was))
    }

    /// The extents that hold `len` bytes of the base's packed inode from `off` on.
    pub(crate) fn holding(&self, off: u64, len: u64) -> impl Iterator<Item = &KeptExtent> {
        let first = self.extents.partition_point(|(was, extent)| was + u64::from(extent.llen) <= off);
        let behind = off.saturating_add(len);
        self.extents[first..].iter().take_while(move |(was, _)| *was < behind).map(|(_, extent)| extent)
    }
}

/// Decide which of `files` are taken over from the base of the tree, if it has one, and of which some parts are. Returns the files, how these are stored,
/// and what is not taken over of the latter.
///
/// # Errors
/// A base of another block size, or a damaged one.
pub(crate) fn look_up(
    mut files: Vec<FilePlan>,
    context: Context<'_>,
) -> Result<(Vec<FilePlan>, KeptFiles, Gaps), BuildError> {
    let Context { tree, options, control, .. } = context;
    let Some(base) = tree.base() else { return Ok((files, KeptFiles::default(), Gaps::new())) };
    let facts = base.facts();
    let [base_len, block_len] = [facts.block_bits, options.block_bits].map(BlockBits::len);
    if base_len != block_len {
        return Err(BuildError::BaseBlocks { base_len, block_len });
    }
    let rules = Rules::new(facts, options);
    let mut kept = Vec::new();
    let worker = || {
        Ok(|range: Range<usize>| {
            control.check()?;
            let candidates = (range.start as u32..).zip(&files[range]).filter(|(_, file)| is_candidate(file));
            let known =
                candidates.map(|(idx, file)| Ok((idx, tree.kept(file.node)?.filter(|how| rules.allow(how, file)))));
            known.collect::<Result<Vec<_>, BuildError>>()
        })
    };
    let jobs = (0..files.len()).step_by(LOOKED_UP).map(|at| at..files.len().min(at + LOOKED_UP));
    let jobs = jobs.map(|job| Costed { job, cost: 1 });
    ordered::run(options.threads, LOOKED_UP as u64, jobs, worker, |known| {
        kept.extend(known.into_iter().filter_map(|(idx, how)| Some((idx, how?))));
        Ok(())
    })?;
    let mut kept = KeptList::from_iter(kept);
    let packed = rules.packed(&mut kept, &files);
    for (idx, how) in kept.iter() {
        let file = &mut files[idx as usize];
        let (algorithm, tail_len) = match how {
            Kept::Extents(extents) => (rules.algorithm(extents), 0),
            Kept::Flat { tail_len, .. } => (None, *tail_len as u16),
            Kept::Fragment { .. } => (None, 0),
        };
        (file.storage, file.compression) = (Storage::Kept { algorithm, tail_len }, None);
    }
    let gaps = patch(&mut files, &mut kept, &rules, context)?;
    Ok((files, KeptFiles { base: Some(base), files: kept, packed, hot: Vec::new() }, gaps))
}

/// Decide of which files that are not in `kept` parts are taken over, and put them there. What is not taken over of them.
fn patch(
    files: &mut [FilePlan],
    kept: &mut KeptList,
    rules: &Rules<'_>,
    context: Context<'_>,
) -> Result<Gaps, BuildError> {
    let mut candidates = Vec::new();
    for (idx, file) in (0..).zip(&*files).filter(|(idx, file)| is_candidate(file) && !kept.contains(*idx)) {
        if file.len < FORMER_MIN_LEN || context.ledger.apart().contains(&file.node) {
            continue;
        }
        let former = context.tree.former(file.node)?;
        let former = former.filter(|former| former::spec(former, file).is_some() && rules.allow_former(former));
        candidates.extend(former.map(|former| Candidate { file: idx, former }));
    }
    let (mut gaps, mut patched) = (Gaps::new(), Vec::new());
    let found = former::compare(&candidates, files, context)?;
    for (candidate, Patched { kept: extents, gaps: between }) in
        candidates.iter().zip(found).filter_map(|(candidate, found)| Some((candidate, found?)))
    {
        let file = &mut files[candidate.file as usize];
        file.storage = Storage::Kept { algorithm: extents.algorithm, tail_len: 0 };
        gaps.insert(candidate.file, between);
        patched.push((candidate.file, Kept::Extents(extents)));
    }
    kept.extend(patched);
    Ok(gaps)
}

fn is_candidate(file: &FilePlan) -> bool {
    file.len > 0 && !matches!(file.storage, Storage::Placed { .. } | Storage::LeftOut | Storage::Empty)
}

/// What can be taken over into an image with these options.
struct Rules<'a> {
    facts: &'a BaseFacts,
    options: &'a BuildOptions,
    block_bits: BlockBits,
    /// How the packed inode will be compressed, if there may be one.
    packed: Option<Spec>,
}

impl<'a> Rules<'a> {
    fn new(facts: &'a BaseFacts, options: &'a BuildOptions) -> Self {
        Self { facts, options, block_bits: options.block_bits, packed: options.packed_spec() }
    }

    /// Whether a file can be taken over. Of fragments only whether there may be any.
    fn allow(&self, how: &Kept, file: &FilePlan) -> bool {
        match how {
            Kept::Flat { pa, tail_len } => {
                let tail = self.options.inline_tail_len(file.len, file.inode_len as usize) as u64;
                // A tail needs room beside the inode, and a file without one needs none.
                pa.is_multiple_of(self.block_bits.len()) && (*tail_len == 0 || *tail_len == tail)
            }
            Kept::Extents(extents) => {
                let ends_packed = extents.fragment.is_none_or(|_| !self.options.encoded_extents && self.packs());
                let ends_inline = extents.inline.is_none_or(|inline| self.has_room(inline.plen, file));
                let ends = extents.fragment.map(|(la, _)| la).or(extents.inline.map(|inline| inline.la));
                let covered = extents.list.last().map_or(0, KeptExtent::end);
                // An index has no holes, but one that is damaged may end too early.
                let is_whole = self.options.encoded_extents || covered >= ends.unwrap_or(file.len);
                ends_packed && ends_inline && is_whole && self.allow_extents(extents, ends)
            }
            Kept::Fragment { .. } => self.packs(),
        }
    }

    /// Whether fragments of the base can be taken over: its packed inode is compressed as the new one.
    fn packs(&self) -> bool {
        let same = |spec: Spec| self.facts.packed.algorithm.is_none_or(|one| one == spec.method.algorithm());
        self.options.kernel_has(Feature::Fragments.since())
            && self.packed.is_some_and(same)
            && !self.facts.packed.list.is_empty()
    }

    /// Whether a pcluster of `len` bytes has room beside the inode of a file, behind the longest index that this may get.
    fn has_room(&self, len: u32, file: &FilePlan) -> bool {
        let (block_bits, inode_len) = (self.block_bits, u64::from(file.inode_len));
        let end = MapEnd::Inline(len as u16);
        let full = IndexShape { len: file.len, block_bits, big: true, scattered: true, end };
        let index_len = lcluster_index::len_behind(inode_len, full).unwrap_or(u64::MAX);
        !self.options.encoded_extents
            && self.options.kernel_has(Feature::TailPacking.since())
            && inode_len.saturating_add(index_len).saturating_add(len.into()) <= block_bits.len()
    }

    /// Whether extents of an older version of a file can be taken over one by one: they follow one another from its beginning on.
    fn allow_former(&self, former: &Former) -> bool {
        let list = &former.extents.list;
        let mut heads = list.iter().scan(0, |next, extent| Some(std::mem::replace(next, extent.end()) == extent.la));
        // Texts are compared in memory.
        let is_short = list.iter().all(|extent| extent.llen as usize <= EXTENT_MAX_LEN);
        is_short && list.len() > 1 && heads.all(|follows| follows) && self.allow_extents(&former.extents, None)
    }

    /// Whether a map can say where such extents lie. `end`: where the file goes on in the packed inode, or beside its inode.
    fn allow_extents(&self, extents: &KeptExtents, end: Option<u64>) -> bool {
        let has_algorithm = self.algorithm(extents).is_some_and(|one| self.options.kernel_has(since(one)));
        let has_partial = extents.list.iter().any(|extent| extent.partial);
        let has_refs = !has_partial || self.options.kernel_has(Feature::Fragments.since());
        has_algorithm && has_refs && (self.options.encoded_extents || self.fits_index(&extents.list, end))
    }

    /// Whether an index can say where extents lie: pclusters of whole blocks, plain ones of one, and one head in each lcluster.
    fn fits_index(&self, list: &[KeptExtent], end: Option<u64>) -> bool {
        let block_len = self.block_bits.len();
        let in_blocks = |extent: &KeptExtent| {
            let plen = u64::from(extent.plen);
            let aligned = extent.pa.is_multiple_of(block_len) && plen.is_multiple_of(block_len);
            aligned && (!extent.plain || plen == block_len)
        };
        let is_big = list.iter().any(|extent| u64::from(extent.plen) > block_len);
        let heads = || list.iter().map(|extent| extent.la).chain(end).map(|la| la >> self.block_bits.bits());
        list.iter().all(in_blocks)
            && (!is_big || self.options.kernel_has(Feature::BigPcluster.since()))
            && heads().zip(heads().skip(1)).all(|(one, next)| one < next)
            && list.iter().scan(0, |next, extent| Some(std::mem::replace(next, extent.end()) == extent.la)).all(|ok| ok)
            && end.is_none_or(|end| list.last().map_or(0, KeptExtent::end) == end)
    }

    /// What the map of a file says that its pclusters are compressed by.
    fn algorithm(&self, extents: &KeptExtents) -> Option<Algorithm> {
        extents.algorithm.or_else(|| Algorithm::ALL.into_iter().find(|one| self.facts.cfgs.has(*one)))
    }

    /// What is taken over of the packed inode. Files of which some text lies where too little of it is in use are taken out of `kept`.
    fn packed(&self, kept: &mut KeptList, files: &[FilePlan]) -> KeptPacked {
        let list = &self.facts.packed.list;
        let block_len = self.block_bits.len();
        let stays = |extent: &KeptExtent, used: u64| {
            let llen = u64::from(extent.llen);
            // What follows it may begin anywhere, but not in the same lcluster.
            let fits = self.options.encoded_extents || llen >= block_len && self.fits_alone(extent);
            // What stays where it is costs nothing.
            let pays = match self.facts.taking {
                Taking::Copied => used.saturating_mul(USED_SHARE) >= llen,
                Taking::InPlace => used > 0,
            };
            fits && pays
        };
        let mut spans: Vec<Span> = kept.iter().filter_map(|(file, how)| span(how, file, (files, list))).collect();
        let stay: Vec<bool> = list.iter().zip(used(list, &spans)).map(|(extent, used)| stays(extent, used)).collect();
        let mut gone = Vec::new();
        spans.retain(|span| {
            let covered =
                list[span.extents.clone()].iter().map(|extent| overlap(extent, span.off, span.len)).sum::<u64>();
            let remains = covered >= span.len && span.extents.clone().all(|idx| stay[idx]);
            gone.extend((!remains).then_some(span.file));
            remains
        });
        kept.retain(|file, _| gone.binary_search(&file).is_err());
        let used = used(list, &spans);
        let (mut la, mut extents) = (0, Vec::new());
        for (extent, _) in list.iter().zip(used).filter(|(_, used)| *used > 0) {
            extents.push((extent.la, KeptExtent { la, ..*extent }));
            la += u64::from(extent.llen);
        }
        KeptPacked { extents }
    }

    fn fits_alone(&self, extent: &KeptExtent) -> bool {
        self.fits_index(&[KeptExtent { la: 0, ..*extent }], None)
    }
}

/// The first kernel that has an algorithm.
fn since(algorithm: Algorithm) -> kiln_format::KernelVersion {
    match algorithm {
        Algorithm::Lz4 => Feature::Lz4.since(),
        Algorithm::Lzma => Feature::Lzma.since(),
        Algorithm::Deflate => Feature::Deflate.since(),
        Algorithm::Zstd => Feature::Zstd.since(),
    }
}

/// What a file has of the base's packed inode.
struct Span {
    file: u32,
    /// The first byte.
    off: u64,
    /// How many.
    len: u64,
    /// The extents that have some of them.
    extents: Range<usize>,
}

/// What a file that is stored like this has of the base's packed inode, of which these are the extents.
fn span(how: &Kept, file: u32, (files, list): (&[FilePlan], &[KeptExtent])) -> Option<Span> {
    let file_len = files[file as usize].len;
    let (off, len) = match how {
        Kept::Fragment { off } => (*off, file_len),
        Kept::Extents(KeptExtents { fragment: Some((la, off)), .. }) => (*off, file_len.saturating_sub(*la)),
        _ => return None,
    };
    Some(Span { file, off, len, extents: overlapping(list, off, len) })
}

/// Which of the extents have some of `len` bytes from `off` on.
pub(super) fn overlapping(list: &[KeptExtent], off: u64, len: u64) -> std::ops::Range<usize> {
    let first = list.partition_point(|extent| extent.end() <= off);
    let end = list.partition_point(|extent| extent.la < off.saturating_add(len));
    first..end.max(first)
}

/// How many of `len` bytes from `off` on an extent has.
fn overlap(extent: &KeptExtent, off: u64, len: u64) -> u64 {
    extent.end().min(off.saturating_add(len)).saturating_sub(extent.la.max(off))
}

/// How many bytes of each extent files have, those that share some counted for each.
fn used(list: &[KeptExtent], spans: &[Span]) -> Vec<u64> {
    let mut used = vec![0_u64; list.len()];
    for Span { off, len, extents, .. } in spans {
        for at in extents.clone() {
            used[at] = used[at].saturating_add(overlap(&list[at], *off, *len));
        }
    }
    used
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(la: u64, llen: u32) -> KeptExtent {
        KeptExtent { la, llen, pa: 4096 + la, plen: 4096, plain: false, partial: false }
    }

    #[test]
    fn bytes_of_what_stays_move_to_the_front() {
        let extents = vec![(10_000, extent(0, 5000)), (30_000, extent(5000, 100))];
        let packed = KeptPacked { extents };
        assert_eq!(packed.len(), 5100);
        for (off, moved) in [
            (9999, None),
            (10_000, Some(0)),
            (14_999, Some(4999)),
            (15_000, None),
            (30_000, Some(5000)),
            (30_100, None),
        ] {
            assert_eq!(packed.moved(off), moved, "{off}");
        }
        assert_eq!((KeptPacked::default().len(), KeptPacked::default().moved(0)), (0, None));
    }

    #[test]
    fn what_an_extent_has_of_a_range() {
        for (off, len, found) in [(0, 100, 0), (90, 20, 10), (100, 50, 50), (120, 5, 5), (140, 50, 10), (150, 9, 0)] {
            assert_eq!(overlap(&extent(100, 50), off, len), found, "{off} {len}");
        }
    }

    #[test]
    fn extents_that_hold_a_range_are_found() {
        let list = [extent(0, 100), extent(100, 50), extent(150, 10)];
        for (off, len, found) in
            [(0, 1, 0..1), (99, 2, 0..2), (100, 50, 1..2), (0, 160, 0..3), (160, 5, 3..3), (50, 0, 0..1)]
        {
            assert_eq!(overlapping(&list, off, len), found, "{off} {len}");
        }
    }
}
