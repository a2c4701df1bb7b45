//! Reasons why each file is stored the way it is: the decisions of the plan and the result.

use kiln_codec::Spec;
use kiln_format::inode::Form;
use kiln_format::zmap::HeadKind;
use std::ops::Range;

use crate::format::Format;
use crate::inodes::{ExtendedBecause, Inodes};
use crate::pack::{Extents, Stored, StoredData};
use crate::plan::Plan;
use crate::plan::file::Storage;
use crate::plan::hole;
use crate::plan::text::TextSource;
use kiln_tree::{Kind, NodeId, Tree};

/// A file, and the reasons why it is stored the way it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// Its first path in walk order, without leading slash.
    pub path: Vec<u8>,
    /// Size in bytes.
    pub len: u64,
    /// The way its contents are stored.
    pub how: How,
    /// Its compression, if that gains, and the choice that decided it.
    pub compression: Option<(Spec, Decision)>,
    /// The reason why it is not in the packed inode, if others are.
    pub unpacked: Option<Unpacked>,
    /// Properties that a compact inode cannot hold; empty for a compact inode.
    pub extended_because: Vec<ExtendedBecause>,
}

/// The choice that decided how a file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The default for all files.
    Default,
    /// A hint.
    Hint,
    /// The smallest result among samples of the file.
    Trial,
}

/// The way the contents of a file are stored.
#[derive(Clone, Debug, PartialEq)]
pub enum How {
    /// There are no contents.
    Empty,
    /// Shared with an earlier file of equal contents.
    Duplicate {
        /// Path of that file.
        of: Vec<u8>,
    },
    /// In the packed inode.
    Packed {
        /// First byte in the packed inode.
        off: u64,
        /// Bytes that are references to text stored elsewhere.
        referenced: u64,
    },
    /// Uncompressed, in one run.
    Flat {
        /// The reason for not compressing them.
        because: Uncompressed,
        /// Bytes beside the inode.
        inline: u64,
    },
    /// Uncompressed, in chunks: either all such files were asked to be, or some of the chunks are holes.
    Chunks {
        /// The reason for not compressing them.
        because: Uncompressed,
        /// Bytes of a chunk: as asked for, else the length for which chunks and their table take least room.
        chunk_len: u64,
        /// Bytes of holes, which are not stored.
        holes: u64,
    },
    /// In chunks, on extra devices that existed before.
    Placed {
        /// Bytes of a chunk: as many as the places of the data allow.
        chunk_len: u64,
    },
    /// Reused from the base: neither read nor encoded.
    Reused,
    /// Compressed.
    Compressed {
        /// Number of extents, including references and holes.
        extents: u64,
        /// Number of extents that did not compress.
        plain: u64,
        /// Bytes of text that are stored for this file.
        text: u64,
        /// Bytes that this text takes, including those beside the inode.
        stored: u64,
        /// Bytes that are references to text stored elsewhere.
        referenced: u64,
        /// Bytes of holes.
        holes: u64,
        /// Bytes of the last pcluster, if it lies beside the inode.
        inline: u64,
        /// Bytes of text at the end that lie in the packed inode.
        packed: u64,
    },
}

/// The reason why a file is not compressed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Uncompressed {
    /// No file is compressed.
    NoCompression,
    /// A hint forbids it.
    Hint,
    /// Samples from all over the file do not compress.
    Incompressible {
        /// Their mean entropy.
        bits_per_byte: f64,
    },
    /// The file is mostly holes: an index would take more room than compression saves.
    MostlyHoles,
    /// The file fits one block, the least that compression can reach.
    OneBlock,
    /// The file was compressed and did not become smaller.
    NoGain,
}

/// The reason why a file is not in the packed inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unpacked {
    /// The file is longer than the longest one to be packed.
    TooLong,
    /// The file may have holes, which packed files cannot have.
    Sparse,
    /// Its first bytes do not compress.
    Incompressible,
    /// The file is not compressed like the packed inode, or not at all.
    OtherWay,
}

/// The decisions of a finished build, as answers to questions about files.
pub struct Reasons<'a> {
    tree: &'a Tree,
    inodes: Inodes,
    plan: Plan,
    stored: Vec<Stored>,
    format: Format,
    /// References in the packed stream, by place.
    packed_refs: Vec<Range<u64>>,
}

impl<'a> Reasons<'a> {
    /// Takes the decisions from the values of a build; drops inline tails, which need memory.
    pub(crate) fn new(tree: &'a Tree, inodes: Inodes, plan: Plan, data: StoredData, format: &Format) -> Self {
        let refs = plan.parts.iter().flat_map(|parts| {
            let target = |one: &crate::plan::dedupe::matching::Ref| match parts.locate(one.target) {
                (TextSource::Fragments, at) => Some(at..at + one.len),
                (TextSource::File(_), _) => None,
            };
            parts.refs.iter().filter_map(target)
        });
        let mut packed_refs: Vec<_> = refs.collect();
        packed_refs.sort_unstable_by_key(|range| range.start);
        let StoredData { stored, .. } = data;
        Self { tree, inodes, plan, stored, format: format.clone(), packed_refs }
    }

    /// Returns every regular file of the image in walk order.
    pub fn explain(&self) -> impl Iterator<Item = Explanation> {
        let files = (0..).zip(&self.plan.files);
        files.filter_map(|(idx, file)| {
            Some(Explanation {
                path: self.tree.path(file.node),
                len: file.len,
                how: self.how(idx)?,
                compression: file.compression.map(|spec| (spec, self.decision(file.node, spec))),
                unpacked: self.unpacked(idx),
                extended_because: self.extended_because(file.node),
            })
        })
    }

    /// Returns the way a file is stored, or `None` for a file that is left out.
    fn how(&self, idx: u32) -> Option<How> {
        let file = &self.plan.files[idx as usize];
        Some(match (file.storage, &self.stored[idx as usize]) {
            (Storage::LeftOut, _) => return None,
            (Storage::Empty, _) => How::Empty,
            (Storage::Duplicate(original), _) => {
                How::Duplicate { of: self.tree.path(self.plan.files[original as usize].node) }
            }
            (Storage::Fragment, Stored::Fragment(off)) => {
                How::Packed { off: *off, referenced: overlap(&self.packed_refs, *off..off + file.len) }
            }
            (Storage::Chunks { chunk_bits, .. }, _) => {
                let holes = hole::total(self.plan.holes(idx));
                How::Chunks { because: self.uncompressed(idx), chunk_len: 1 << chunk_bits, holes }
            }
            (Storage::Reused { .. }, _) => How::Reused,
            (Storage::Placed { chunk_bits }, _) => How::Placed { chunk_len: 1 << chunk_bits },
            (_, Stored::Chunks { chunk_bits, .. }) => {
                How::Chunks { because: self.uncompressed(idx), chunk_len: 1 << chunk_bits, holes: 0 }
            }
            (Storage::Compressed { .. }, Stored::Fragment(off)) => How::Packed { off: *off, referenced: 0 },
            (Storage::Compressed { .. }, Stored::Compressed(extents)) => {
                compressed(file.len, hole::total(self.plan.holes(idx)), extents)
            }
            (_, stored) => {
                let tail = stored.as_flat().and_then(|(_, tail)| tail);
                let inline = tail.map_or(0, |tail| tail.len.into());
                How::Flat { because: self.uncompressed(idx), inline }
            }
        })
    }

    fn decision(&self, node: NodeId, spec: Spec) -> Decision {
        match self.format.compression.hints.get(node) {
            Some(_) => Decision::Hint,
            None if Some(spec) == self.format.compression.spec => Decision::Default,
            None => Decision::Trial,
        }
    }

    fn uncompressed(&self, idx: u32) -> Uncompressed {
        match self.plan.entropies.get(&idx) {
            _ if self.format.compression.hints.get(self.plan.files[idx as usize].node) == Some(None) => {
                Uncompressed::Hint
            }
            _ if self.plan.files[idx as usize].compression.is_none() => Uncompressed::NoCompression,
            _ if matches!(self.plan.files[idx as usize].storage, Storage::Chunks { sparse: true, .. }) => {
                Uncompressed::MostlyHoles
            }
            Some(&bits_per_byte) => Uncompressed::Incompressible { bits_per_byte },
            None if self.plan.files[idx as usize].len <= self.format.block_bits.len() => Uncompressed::OneBlock,
            None => Uncompressed::NoGain,
        }
    }

    fn unpacked(&self, idx: u32) -> Option<Unpacked> {
        let file = &self.plan.files[idx as usize];
        let most = self.format.packing.max_len;
        let has_own = matches!(file.storage, Storage::Flat | Storage::Chunks { .. } | Storage::Compressed { .. });
        match self.tree.node(file.node).kind {
            _ if most == 0 || !has_own => None,
            _ if file.len > most => Some(Unpacked::TooLong),
            _ if file.compression != self.format.compression.spec => Some(Unpacked::OtherWay),
            Kind::File { sparse: true, .. } => Some(Unpacked::Sparse),
            _ => Some(Unpacked::Incompressible),
        }
    }

    fn extended_because(&self, node: NodeId) -> Vec<ExtendedBecause> {
        match self.inodes.forms[node.idx()] {
            Form::Compact => Vec::new(),
            Form::Extended => self.inodes.extended_because(self.tree, node, &self.format),
        }
    }
}

fn compressed(len: u64, holes: u64, extents: &Extents) -> How {
    let Extents { list, text, bytes, inline, fragment, .. } = extents;
    let packed = list.last().filter(|_| fragment.is_some()).map_or(0, |end| end.llen.into());
    How::Compressed {
        extents: (list.len() - usize::from(fragment.is_some())) as u64,
        plain: list.iter().filter(|extent| extent.kind == HeadKind::Plain && extent.plen > 0).count() as u64,
        text: *text,
        stored: *bytes,
        referenced: len - holes - text - packed,
        holes,
        inline: inline.map_or(0, |tail| tail.len.into()),
        packed,
    }
}

/// Returns the bytes that `range` has in common with `ranges`, which are sorted and disjoint.
fn overlap(ranges: &[Range<u64>], range: Range<u64>) -> u64 {
    let first = ranges.partition_point(|one| one.end <= range.start);
    let common = |one: &Range<u64>| one.end.min(range.end) - one.start.max(range.start);
    ranges[first..].iter().take_while(|one| one.start < range.end).map(common).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlaps_are_counted() {
        let ranges = [2..4, 4..5, 9..12];
        for (range, bytes) in [(0..2, 0), (0..3, 1), (3..10, 3), (5..9, 0), (0..20, 6), (10..11, 1), (12..13, 0)] {
            assert_eq!(overlap(&ranges, range.clone()), bytes, "{range:?}");
        }
    }
}
