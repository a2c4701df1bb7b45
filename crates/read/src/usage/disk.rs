//! Disk usage of directories, as du(1) reports it.

use crate::error::ReadError;
use crate::explain::meter::CostMeter;
use crate::image::Image;
use crate::map::file_map::FileMap;
use crate::metadata::inode::Inode;
use kiln_format::Nid;
use std::collections::HashSet;
use std::ops::ControlFlow;

/// Sums over a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeUsage {
    /// Inodes of every type, the start included.
    pub files: u64,
    /// Sum of their sizes in bytes.
    pub apparent: u64,
    /// Bytes of the blocks that hold their data, and of their metadata: inode, xattr body, index,
    /// inline data. Shared xattrs, the superblock, and the indexes of packed inode and metabox are
    /// not counted.
    pub on_disk: u64,
}

/// Usage of a directory, when everything in it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirUsage<'a> {
    /// Path, as in [`Image::walk`].
    pub path: &'a [u8],
    /// Levels below the start, which has 0.
    pub depth: usize,
    /// Everything below it and itself.
    pub sums: TreeUsage,
}

/// Measures trees, counting each inode and each block once: what several trees share belongs to the
/// first one.
///
/// Blocks of fragments are those of the packed inode, and metadata in a metabox takes the blocks of
/// the metabox, so that the sum over the whole tree is what the image needs. Memory: about 16 bytes
/// for each inode, and 40 for each run of adjacent blocks.
///
/// ```
/// # fn main() -> Result<(), kiln_read::ReadError> {
/// # let image = kiln_read::Image::open_path("tests/golden/zstd.erofs".as_ref(), &[], &Default::default())?;
/// use kiln_read::DiskUsage;
/// use std::ops::ControlFlow;
///
/// let root = image.inode(image.root_nid())?;
/// let sums = DiskUsage::new(&image).measure(&root, b"/", &mut |dir| {
///     println!("{} {}", dir.sums.on_disk, dir.path.escape_ascii());
///     ControlFlow::Continue(())
/// })?;
/// # assert!(sums.on_disk > 0);
/// # Ok(())
/// # }
/// ```
pub struct DiskUsage<'a> {
    image: &'a Image,
    meter: CostMeter<'a>,
    seen: HashSet<Nid>,
}

/// A directory that the walk has entered and not left, with the sums so far.
struct DirSums {
    path: Vec<u8>,
    sums: TreeUsage,
}

impl<'a> DiskUsage<'a> {
    /// Returns a measurement that has not begun.
    pub fn new(image: &'a Image) -> Self {
        Self { image, meter: CostMeter::new(image.reader(), 1), seen: HashSet::new() }
    }

    /// Measures the tree from `start` on, which has the path `path`. `each` gets the directories in
    /// it, after all that is in them, and last the start itself, even if that is no directory. It
    /// may stop the rest.
    ///
    /// # Errors
    /// The first thing that is damaged, with its path; a failing source.
    pub fn measure(
        &mut self,
        start: &Inode,
        path: &[u8],
        each: &mut dyn FnMut(DirUsage<'_>) -> ControlFlow<()>,
    ) -> Result<TreeUsage, ReadError> {
        let mut stack = vec![DirSums { path: path.to_vec(), sums: TreeUsage::default() }];
        for entry in self.image.walk(start, path) {
            let entry = entry?;
            while stack.len() > 1 && !is_below(&entry.path, &stack[stack.len() - 1].path) {
                if leave(&mut stack, each).is_break() {
                    return Ok(total(stack));
                }
            }
            let sums = self.inode(&entry.inode).map_err(|error| error.at_nid(entry.inode.nid).at_path(&entry.path))?;
            if entry.inode.is_dir() && entry.inode.nid != start.nid {
                stack.push(DirSums { path: entry.path, sums });
            } else if let Some(frame) = stack.last_mut() {
                frame.sums.add(&sums);
            }
        }
        while stack.len() > 1 {
            if leave(&mut stack, each).is_break() {
                return Ok(total(stack));
            }
        }
        let sums = stack[0].sums;
        let _ = each(DirUsage { path, depth: 0, sums });
        Ok(sums)
    }

    /// Returns the usage of an inode, or nothing if it was measured before.
    fn inode(&mut self, inode: &Inode) -> Result<TreeUsage, ReadError> {
        if !self.seen.insert(inode.nid) {
            return Ok(TreeUsage::default());
        }
        let start = self.image.reader().inode_pos(inode.nid)?;
        if !inode.has_contents() {
            let on_disk = self.metadata(inode, start, self.image.reader().body_pos(inode)?)?;
            return Ok(TreeUsage { files: 1, apparent: inode.meta.size, on_disk });
        }
        let mut map = FileMap::open(self.image.reader(), inode)?;
        let mut on_disk = self.metadata(inode, start, map.file().metadata_end()?)?;
        for part in map.parts(0..inode.meta.size) {
            // Inline data adds nothing: it is part of the metadata.
            on_disk += self.meter.charge(&part?)?.fetched;
        }
        Ok(TreeUsage { files: 1, apparent: inode.meta.size, on_disk })
    }

    fn metadata(&mut self, inode: &Inode, start: u64, end: u64) -> Result<u64, ReadError> {
        let len = end.saturating_sub(start);
        Ok(self.meter.fetch_metadata(inode.space(), start, len)?.fetched)
    }
}

impl TreeUsage {
    fn add(&mut self, other: &TreeUsage) {
        self.files += other.files;
        self.apparent = self.apparent.saturating_add(other.apparent);
        self.on_disk = self.on_disk.saturating_add(other.on_disk);
    }
}

/// Reports the last directory of the stack, and add its sums to those of its parent.
fn leave(stack: &mut Vec<DirSums>, each: &mut dyn FnMut(DirUsage<'_>) -> ControlFlow<()>) -> ControlFlow<()> {
    let depth = stack.len() - 1;
    let (Some(frame), Some(above)) = (stack.pop(), stack.last_mut()) else { return ControlFlow::Break(()) };
    above.sums.add(&frame.sums);
    each(DirUsage { path: &frame.path, depth, sums: frame.sums })
}

/// Returns the sum over the directories that the walk has not left, where the caller has stopped
/// it.
fn total(stack: Vec<DirSums>) -> TreeUsage {
    let mut sums = TreeUsage::default();
    stack.iter().for_each(|frame| sums.add(&frame.sums));
    sums
}

/// Returns true if `path` is below the directory `dir`. Names hold no slashes.
fn is_below(path: &[u8], dir: &[u8]) -> bool {
    path.strip_prefix(dir).is_some_and(|rest| rest.starts_with(b"/"))
}
