//! Images whose stored data lies elsewhere in another one: what programs read first in front, and nothing that belongs to no file.

use kiln_builder::{Control, Out, PhaseClock, Progress, Summary};
use kiln_output::{AtomicFile, Existing};
use kiln_parallel::Threads;
use kiln_source::ScanOptions;
use kiln_source::dir::FileId;
use kiln_source::image::erofs::{BaseImage, Relayout};
use kiln_tree::storage::PathOrder;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::error::Error;
use crate::hot_as::{HotAs, HotFiles, store_hot};

/// What is to become of an image, for callers that write the new one themselves; [`relayout`] makes files.
#[derive(Clone, Copy)]
pub struct RelayoutRequest<'a> {
    /// The image that is there.
    pub image: &'a Path,
    /// What comes first; an empty one: all data lies by path.
    pub order: &'a PathOrder,
    /// How files of the order are stored, and how many bytes more they may take, see [`store_hot`].
    pub hot_as: (HotAs, u64),
    /// The UUID of the new image; `None`: it comes from its contents.
    pub uuid: Option<[u8; 16]>,
    /// Leave out contents that are to be stored anew and cannot be read, and store those as they are read that do not have the digests that the image
    /// stores for them.
    pub keep_going: bool,
    /// How many threads work. The image does not depend on it.
    pub threads: Threads,
    /// Files that are being written: the image must not be among them.
    pub outputs: &'a [FileId],
    /// Where nameless files are made.
    pub scratch_dir: &'a Path,
    /// Ends the work with an error once set.
    pub stop: &'a AtomicBool,
}

/// An image that was made of another one.
#[derive(Debug)]
pub struct Relaid {
    /// What is in the new image, and what it takes. What was moved as it is stored is kept there.
    pub summary: Summary,
    /// Paths of the order at which nothing is.
    pub unmatched: Vec<Vec<u8>>,
    /// Files that are stored otherwise than before.
    pub hot_files: HotFiles,
    /// Bytes of the old image.
    pub old_len: u64,
}

impl RelayoutRequest<'_> {
    /// Write the new image to `out`, which is empty. On an error it holds rubbish.
    ///
    /// # Errors
    /// An image that cannot be read, or has extra devices; an output that cannot be written.
    pub fn build(&self, out: Out<'_>, progress: &(dyn Fn(Progress) + Sync)) -> Result<Relaid, Error> {
        let Self { image, order, hot_as, uuid, keep_going, threads, outputs, scratch_dir, stop } = *self;
        let clock = PhaseClock::start();
        let base = Arc::new(BaseImage::open(image)?);
        let old_len = base.image().source_len();
        let mut found = Relayout::of(&base, &ScanOptions { threads, outputs, ..ScanOptions::new(stop) })?;
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
        let hot_files = store_hot(found.tree(), hot_as, &|node| found.stored_len(node), &mut options)?;
        hot_files.nodes.iter().for_each(|node| found.store_anew(*node));
        let tree = found.into_tree();
        clock.finish("scan");
        let mut summary = kiln_builder::build(&tree, out, &options, &Control { stop, progress })?;
        summary.phases.splice(0..0, clock.phases());
        Ok(Relaid { summary, unmatched, hot_files, old_len })
    }
}

/// Move the data that `image` stores into the new file `out`, which appears when it is complete, or not at all: first what `order` says, in its
/// order, then all else by path. Chunks, data beside inodes, and small files of the order that lie among others are stored anew in the same way; all else
/// is not compressed again. What belongs to no file is left out: with an empty order, an image that was [updated](crate::update) becomes a tight one.
///
/// ```
/// use kiln::read::FollowLast;
/// use kiln::tree::storage::PathOrder;
///
/// # let tmp = tempfile::tempdir().unwrap();
/// # let [src, image, out] = ["src", "image.erofs", "out.erofs"].map(|name| tmp.path().join(name));
/// # std::fs::create_dir(&src).unwrap();
/// # for name in ["a", "b", "c"] {
/// #     std::fs::write(src.join(name), name.repeat(300_000)).unwrap();
/// # }
/// # kiln::pack(&src, &image, kiln::Preset::Balanced)?;
/// let order = PathOrder::parse(b"/c\n", "what programs read")?;
/// let relaid = kiln::relayout(&image, &out, &order)?;
/// assert!(relaid.unmatched.is_empty());
///
/// let moved = kiln::open(&out)?;
/// let position = |path: &[u8]| moved.position(&moved.resolve(path, FollowLast::Keep)?);
/// assert!(position(b"c")? < position(b"a")?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As [`RelayoutRequest::build`]; a file that exists.
pub fn relayout(image: impl AsRef<Path>, out: impl AsRef<Path>, order: &PathOrder) -> Result<Relaid, Error> {
    let file = AtomicFile::create(out.as_ref(), Existing::Keep)?;
    let outputs: Vec<FileId> = FileId::of(file.file()).into_iter().collect();
    let request = RelayoutRequest {
        image: image.as_ref(),
        order,
        hot_as: (HotAs::Same, 0),
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
