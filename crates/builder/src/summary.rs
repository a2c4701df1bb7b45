//! Statistics of a finished build.

use kiln_codec::Spec;
use kiln_format::KernelVersion;
use kiln_format::feature::{Feature, OLDEST_KERNEL};
use std::cmp::Reverse;

use crate::context::clock::Phase;
use crate::error::Skipped;
use crate::layout::view::View;
use crate::pack::Stored;
use crate::plan::file::Storage;
use crate::plan::hole;
use crate::write::Written;
use kiln_tree::Kind;

/// Statistics of a finished build.
#[derive(Debug, Default)]
pub struct Summary {
    /// Number of regular files, hard links counted once.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Symbolic links, devices, pipes and sockets.
    pub others: u64,
    /// Number of inodes that no name leads to: those of packed files and directories, and of the metabox.
    pub special_inodes: u64,
    /// Number of inodes of the previous image, with what follows them, that stay in use.
    pub kept_inodes: u64,
    /// Number of names beyond the first one of an inode.
    pub hard_links: u64,
    /// Bytes of all regular files, hard links counted once.
    pub bytes_in: u64,
    /// Bytes of regular files whose digests are stored, so that readers can verify them.
    pub digested_bytes: u64,
    /// Size of the image in bytes.
    pub image_bytes: u64,
    /// Block size in bytes. Kernels mount no images with blocks longer than their pages.
    pub block_len: u64,
    /// Bytes of data blocks.
    pub data_bytes: u64,
    /// Bytes of the extra device.
    pub blob_bytes: u64,
    /// Number of files that are not stored, as they lie on extra devices that existed before.
    pub placed_files: u64,
    /// Bytes of these files, holes included.
    pub placed_bytes: u64,
    /// Bytes of these devices, in whole blocks.
    pub device_bytes: u64,
    /// Number of files that are reused from the base as stored.
    pub reused_files: u64,
    /// Bytes of these files.
    pub reused_bytes: u64,
    /// Stored bytes that were copied for these files.
    pub copied_bytes: u64,
    /// Bytes of contents that were read from the source and stored: each once, but for the exceptions that the crate's
    /// documentation lists.
    pub read_bytes: u64,
    /// Stored bytes that were read back, for comparisons of text and for late cuts.
    pub read_back_bytes: u64,
    /// First byte of the hot zone in the image.
    pub hot_start: u64,
    /// Length of the hot zone in bytes.
    pub hot_bytes: u64,
    /// Bytes of inodes, names, indexes and inline tails.
    pub metadata_bytes: u64,
    /// Number of files that share the data of an earlier one.
    pub duplicate_files: u64,
    /// Bytes of these files.
    pub duplicate_bytes: u64,
    /// Number of files in the packed inode.
    pub packed_files: u64,
    /// Bytes of these files.
    pub packed_bytes: u64,
    /// Number of files whose last bytes are in the packed inode.
    pub end_files: u64,
    /// Bytes of these ends.
    pub end_bytes: u64,
    /// Bytes of parts and chunks that are stored once though they occur several times: the repetitions.
    pub shared_bytes: u64,
    /// Number of chunks that did not fit into the memory of the index of parts.
    pub dropped_chunks: u64,
    /// Bytes of holes.
    pub hole_bytes: u64,
    /// Number of files with holes that are stored as zeros.
    pub filled_hole_files: u64,
    /// Bytes of these holes.
    pub filled_hole_bytes: u64,
    /// Number of files left uncompressed because compressing gained nothing.
    pub plain_files: u64,
    /// Bytes of these files.
    pub plain_bytes: u64,
    /// Compression of the other files, except packed files and those that share data; most used first.
    pub compression_uses: Vec<CompressionUse>,
    /// Number of files whose last bytes (or all) lie beside their inode.
    pub inline_files: u64,
    /// The oldest kernel that mounts the image.
    pub oldest_kernel: Option<KernelVersion>,
    /// The feature that needs this kernel.
    pub oldest_kernel_because: Option<Feature>,
    /// The image's UUID.
    pub uuid: [u8; 16],
    /// Time of each phase, in order.
    pub phases: Vec<Phase>,
    /// Inputs left out (with `keep_going`).
    pub skipped: Vec<Skipped>,
    /// Files that changed while they were read (with `keep_going`). They are stored with their scanned length, and
    /// with the bytes that were read.
    pub changed: Vec<Skipped>,
    /// Files that differ from the digest that an image stores for them (with `keep_going`). They are stored as read,
    /// together with that digest, so that a check finds them.
    pub damaged: Vec<Skipped>,
}

/// Files with the same compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompressionUse {
    /// Their compression.
    pub spec: Spec,
    /// Number of files.
    pub files: u64,
    /// Bytes of these files.
    pub bytes: u64,
}

/// Counts the contents of the image.
pub(crate) fn summarize(view: &View<'_>, data_end: u64, written: &Written) -> Summary {
    let block_len = view.block_bits.len();
    let because = written.features.iter().copied().max_by_key(|feature| feature.since());
    let devices = view.tree.stores().devices;
    let device_blocks = devices.iter().map(|device| view.block_bits.blocks_for(device.len));
    let mut summary = Summary {
        image_bytes: written.blocks * block_len,
        block_len,
        data_bytes: data_end - written.header_blocks * block_len,
        blob_bytes: view.data.blob_blocks.unwrap_or(0) * block_len,
        device_bytes: device_blocks.sum::<u64>() * block_len,
        metadata_bytes: written.metadata_end.saturating_sub(data_end.next_multiple_of(block_len)),
        shared_bytes: view.data.shared_chunk_bytes,
        copied_bytes: view.data.reused.bytes,
        read_bytes: view.data.read_bytes,
        read_back_bytes: view.data.read_back_bytes,
        hot_start: view.data.hot.start,
        hot_bytes: view.data.hot.end - view.data.hot.start,
        oldest_kernel: Some(because.map_or(OLDEST_KERNEL, Feature::since)),
        oldest_kernel_because: because,
        special_inodes: written.special_inodes,
        kept_inodes: written.kept_inodes,
        uuid: written.head.superblock.uuid,
        ..Summary::default()
    };
    if let Some(parts) = &view.plan.parts {
        summary.shared_bytes += parts.refs.iter().map(|one| one.len).sum::<u64>();
        summary.dropped_chunks = parts.stats.dropped_chunks;
    }
    for (id, node) in view.tree.nodes().filter(|(id, _)| !view.is_left_out(*id)) {
        match &node.kind {
            Kind::Directory(_) => summary.directories += 1,
            Kind::File { len, .. } => summary.files(view, id, *len),
            _ => summary.others += 1,
        }
        summary.hard_links += u64::from(view.tree.names_of(id) - 1);
    }
    summary.compression_uses.sort_by_key(|used| Reverse(used.bytes));
    summary
}

impl Summary {
    fn files(&mut self, view: &View<'_>, id: kiln_tree::NodeId, len: u64) {
        self.files += 1;
        self.bytes_in += len;
        self.digested_bytes += if view.inodes.has_digest(id) { len } else { 0 };
        let file = view.plan.file_of(id);
        let storage = file.map(|idx| view.plan.files[idx as usize].storage);
        self.hole_bytes += file.map_or(0, |idx| hole::total(view.plan.holes(idx)));
        if let Some(bytes) = file.and_then(|idx| view.plan.filled_holes.get(&idx))
            && !matches!(storage, Some(Storage::Duplicate(_)))
        {
            self.filled_hole_files += 1;
            self.filled_hole_bytes += bytes;
        }
        if matches!(storage, Some(Storage::Duplicate(_))) {
            self.duplicate_files += 1;
            self.duplicate_bytes += len;
        }
        if matches!(storage, Some(Storage::Placed { .. })) {
            self.placed_files += 1;
            self.placed_bytes += len;
        }
        if matches!(storage, Some(Storage::Reused { .. })) {
            let gaps = file.map_or(&[][..], |idx| view.plan.gaps(idx));
            // For a file that has changed, only unchanged text counts.
            self.reused_files += u64::from(gaps.is_empty());
            self.reused_bytes += len - gaps.iter().map(|gap| gap.end - gap.start).sum::<u64>();
        }
        if matches!(storage, Some(Storage::Fragment)) {
            self.packed_files += 1;
            self.packed_bytes += len;
        }
        match (view.stored(id), view.compression_of(id)) {
            (Some(stored @ (Stored::Flat(_) | Stored::Tail(..) | Stored::FlatTail(_))), compression) => {
                self.inline_files += u64::from(!matches!(stored, Stored::Flat(_)));
                if compression.is_some() && len > 0 {
                    self.plain_files += 1;
                    self.plain_bytes += len;
                }
            }
            (Some(Stored::Compressed(extents)), Some(spec)) if !matches!(storage, Some(Storage::Duplicate(_))) => {
                self.compressed(spec, len);
                let end = extents.fragment.and(extents.list.last());
                self.end_files += u64::from(end.is_some());
                self.end_bytes += end.map_or(0, |end| end.llen.into());
            }
            (Some(Stored::Fragment(_)), _) if matches!(storage, Some(Storage::Compressed { .. })) => {
                self.end_files += 1;
                self.end_bytes += len;
            }
            _ => {}
        }
    }

    fn compressed(&mut self, spec: Spec, len: u64) {
        match self.compression_uses.iter_mut().find(|known| known.spec == spec) {
            Some(known) => (known.files, known.bytes) = (known.files + 1, known.bytes + len),
            None => self.compression_uses.push(CompressionUse { spec, files: 1, bytes: len }),
        }
    }
}
