//! Relayouts: images with the stored data of another one in another order, hot data first, without
//! unreferenced data.

mod stored_tree;

use kiln_builder::{Control, HotFiles, HotMethod, Out, PhaseClock, Progress, Summary, store_hot};
use kiln_output::{AtomicFile, Existing};
use kiln_parallel::Threads;
use kiln_source::ScanOptions;
use kiln_source::dir::FileId;
use kiln_tree::storage::PathOrder;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::base::BaseImage;
use crate::error::ReviseError;
use stored_tree::StoredTree;

/// A new layout of an image, for callers that write the new image themselves; [`relayout`] writes files.
#[derive(Clone, Copy)]
pub struct RelayoutRequest<'a> {
    /// Path of the image.
    pub image: &'a Path,
    /// Data that comes first. If it is empty, all data is ordered by path.
    pub order: &'a PathOrder,
    /// Method by which files of the order are stored, and the number of bytes that they may take in addition, see
    /// [`store_hot`].
    pub hot_method: (HotMethod, u64),
    /// UUID of the new image; `None` to derive it from its contents.
    pub uuid: Option<[u8; 16]>,
    /// True to leave out contents that must be stored again and cannot be read, and to store contents that do not
    /// match their stored digests as they are read.
    pub keep_going: bool,
    /// Number of threads. The image does not depend on it.
    pub threads: Threads,
    /// Files that are being written: the image must not be among them.
    pub outputs: &'a [FileId],
    /// Directory for unnamed files.
    pub scratch_dir: &'a Path,
    /// Flag that ends the work with an error when set.
    pub stop: &'a AtomicBool,
}

/// Result of a relayout.
#[derive(Debug)]
pub struct Relaid {
    /// Summary of the build. Data that was moved as stored counts as reused.
    pub summary: Summary,
    /// Paths of the order that do not exist.
    pub unmatched: Vec<Vec<u8>>,
    /// Files that are stored by another method than before.
    pub hot_files: HotFiles,
    /// Length in bytes of the old image.
    pub old_len: u64,
}

impl RelayoutRequest<'_> {
    /// Writes the new image to `out`, which must be empty. After an error, its contents are undefined.
    ///
    /// # Errors
    /// An image that cannot be read, or has extra devices; an output that cannot be written.
    pub fn build(&self, out: Out<'_>, progress: &(dyn Fn(Progress) + Sync)) -> Result<Relaid, ReviseError> {
        let Self { image, order, hot_method, uuid, keep_going, threads, outputs, scratch_dir, stop } = *self;
        let clock = PhaseClock::start();
        let base = Arc::new(BaseImage::open(image)?);
        let old_len = base.image().source_len();
        let mut found = StoredTree::of(&base, &ScanOptions { threads, outputs, ..ScanOptions::new(stop) })?;
        let (nodes, unmatched) = order.of(found.tree());
        let mut options = found.options().clone().with(|options| {
            options.work.threads = threads;
            options.identity.uuid = uuid;
            options.work.keep_going = keep_going;
            options.work.scratch_dir = scratch_dir.to_owned();
            options.layout.order = nodes;
            options.layout.hot = order.hot_zone(found.tree());
        });
        found.gather(&options.layout.hot);
        let hot_files = store_hot(found.tree(), hot_method, &|node| found.stored_len(node), &mut options)?;
        hot_files.nodes.iter().for_each(|node| found.store_again(*node));
        let tree = found.into_tree();
        clock.finish("scan");
        let mut summary = kiln_builder::build(&tree, out, &options, &Control { stop, progress })?;
        summary.phases.splice(0..0, clock.phases());
        Ok(Relaid { summary, unmatched, hot_files, old_len })
    }
}

/// Moves the data that `image` stores into the new file `out`, which appears when it is complete, or not at all: first
/// the data of `order`, then all other data by path. Chunks, data beside inodes, and small files of the order that lie
/// among others are stored again in the same way; all other data is not compressed again. Unreferenced data is left
/// out: with an empty order, this compacts an image that was [updated](crate::update).
///
/// ```
/// use kilnfs::read::FollowLast;
/// use kilnfs::tree::storage::PathOrder;
///
/// # let tmp = tempfile::tempdir().unwrap();
/// # let [src, image, out] = ["src", "image.erofs", "out.erofs"].map(|name| tmp.path().join(name));
/// # std::fs::create_dir(&src).unwrap();
/// # for name in ["a", "b", "c"] {
/// #     std::fs::write(src.join(name), name.repeat(300_000)).unwrap();
/// # }
/// # kilnfs::pack(&src, &image, kilnfs::Preset::Balanced)?;
/// let order = PathOrder::parse(b"/c\n", "what programs read")?;
/// let relaid = kiln_revise::relayout(&image, &out, &order)?;
/// assert!(relaid.unmatched.is_empty());
///
/// let moved = kilnfs::open(&out)?;
/// let position = |path: &[u8]| moved.position(&moved.resolve(path, FollowLast::Keep)?);
/// assert!(position(b"c")? < position(b"a")?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As [`RelayoutRequest::build`]; a file that exists.
pub fn relayout(image: impl AsRef<Path>, out: impl AsRef<Path>, order: &PathOrder) -> Result<Relaid, ReviseError> {
    let file = AtomicFile::create(out.as_ref(), Existing::Keep)?;
    let outputs: Vec<FileId> = FileId::of(file.file()).into_iter().collect();
    let request = RelayoutRequest {
        image: image.as_ref(),
        order,
        hot_method: (HotMethod::Same, 0),
        uuid: None,
        keep_going: false,
        threads: Threads::default(),
        outputs: &outputs,
        scratch_dir: file.dir_path(),
        stop: &AtomicBool::new(false),
    };
    let relaid = request.build(Out::from(&file), &|_| {})?;
    file.commit()?;
    Ok(relaid)
}
