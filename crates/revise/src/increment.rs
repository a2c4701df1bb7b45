//! Tree that reuses data of an older image of the same source: unchanged files keep the stored
//! contents of the image.

mod moved;
mod pairs;
mod stamps;

use kiln_source::{CLOCK_SECS, Scan, ScanOptions, Source, SourceError};
use kiln_tree::{Content, ContentError, ContentId, Contents, DigestOf, Stored, StoredDigest, Stores, Version};
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use crate::base::BaseImage;
use crate::comparison::{CompareGoal, Compared, Doubt, compare};
use crate::held::{HeldText, with_held};
use crate::versions::{Previous, versions};
use moved::Moved;
use pairs::{Evidence, Pairs};

pub use stamps::Stamps;

/// An older image of a source, with the criteria for unchanged files.
pub struct IncrementBase {
    /// The image.
    pub image: Arc<BaseImage>,
    /// Criterion for unchanged files.
    pub trust: Trust,
    /// Stamps of the files when the image was made. They replace the times in it.
    pub stamps: Option<Stamps>,
}

impl IncrementBase {
    /// Opens the image at `path`, and the stamps beside it if `trust` uses them. The stamps are
    /// `None` if there are none, or if they belong to another image.
    ///
    /// # Errors
    /// Those of [`BaseImage::open`]; unreadable stamps.
    pub fn open(path: &Path, trust: Trust) -> Result<Self, SourceError> {
        Self::of(Arc::new(BaseImage::open(path)?), trust)
    }

    /// Uses an open image, with its stamps as in [`IncrementBase::open`].
    ///
    /// # Errors
    /// Unreadable stamps.
    pub fn of(image: Arc<BaseImage>, trust: Trust) -> Result<Self, SourceError> {
        let stamps = match trust {
            Trust::Times => Stamps::open(&Stamps::path(image.path()), image.identity())?,
            Trust::Contents => None,
        };
        Ok(Self { image, trust, stamps })
    }
}

/// Criterion for unchanged files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// Equal size and time, or an equal stamp. Files of equal size are compared if these are not
    /// conclusive.
    #[default]
    Times,
    /// Equal contents: all files of equal size are compared.
    Contents,
}

/// Scans `source`, and lets regular files that are unchanged since `base` was made reuse its data.
/// These are files with the same path and contents, and files moved from a path that exists in the
/// base and not in `source`. All metadata comes from `source`. Both trees are scanned at the same
/// time.
///
/// Few images store their build time. But an image cannot be older than the latest time in it, so a
/// file whose time is earlier had not changed again with that same time when the image was made.
///
/// # Errors
/// Those of [`Source::scan`]; an unreadable base.
pub fn increment(source: &dyn Source, base: &IncrementBase, options: &ScanOptions<'_>) -> Result<Scan, SourceError> {
    let (scan, old) = std::thread::scope(|threads| {
        let old = threads.spawn(|| base.image.scan(options));
        let scan = source.scan(options);
        let old = old.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (scan, old)
    });
    let (scan, old) = (scan?, old?.tree);
    let known = base.image.changed_at().unwrap_or(i64::MAX);
    let times = old.nodes().map(|(_, node)| node.meta.mtime).chain(base.image.built_at());
    let latest = times.filter(|time| *time <= known).max();
    let evidence = match (base.trust, &base.stamps, &scan.stamps) {
        (Trust::Contents, ..) => Evidence::None,
        (Trust::Times, Some(then), Some(now)) => Evidence::Stamps { then, now },
        (Trust::Times, ..) => Evidence::Times { settled: latest.unwrap_or(i64::MIN).saturating_sub(CLOCK_SECS) },
    };
    let Pairs { mut reused, in_doubt } = pairs::find([&scan.tree, &old], &evidence);
    let mut believed: HashSet<u32> = reused.keys().copied().collect();
    let trees = [&scan.tree, &old];
    let compared: HashSet<Doubt> = in_doubt.iter().copied().collect();
    let mut held = HeldText::default();
    let Compared { equal, differences } = compare(trees, in_doubt, CompareGoal::Differences, options, &mut held)?;
    reused.extend(equal);
    let mut moved = Moved::find(trees, &reused, &evidence);
    believed.extend(moved.reused.iter().map(|(new, _)| *new));
    reused.extend(moved.reused.drain(..));
    moved.leave_out(&compared);
    loop {
        let in_doubt = moved.round(&scan.tree, &reused);
        if in_doubt.is_empty() {
            break;
        }
        reused.extend(compare(trees, in_doubt, CompareGoal::Equality, options, &mut held)?.equal);
    }
    let mut previous = versions(trees);
    previous.extend(moved.previous);
    previous.retain(|id, _| !reused.contains_key(id));
    let previous = Previous::find(trees, previous, differences, options, &mut held)?;
    held.forget(|id| reused.contains_key(&id));
    let old = old.into_contents();
    let tree = scan.tree.with_contents(|new| Box::new(Increment { new, old, reused, believed, previous, held }));
    Ok(Scan { tree, ..scan })
}

/// Contents of a tree, some of which reuse those of an older image.
struct Increment {
    new: Box<dyn Contents>,
    old: Box<dyn Contents>,
    /// Reused contents of the image, by content id of the tree.
    reused: HashMap<u32, ContentId>,
    /// Reused contents that were not compared.
    believed: HashSet<u32>,
    /// Previous versions of changed files.
    previous: Previous,
    /// Text of changed files.
    held: HeldText,
}

impl Contents for Increment {
    fn open(&self, id: ContentId, path: &[u8], version: Version) -> Result<Box<dyn Content>, ContentError> {
        match (version, self.reused.get(&id.0)) {
            (Version::Reused, Some(old)) => self.old.open(*old, path, Version::Scanned),
            (Version::Scanned, None) => Ok(with_held(self.held.of(id.0), self.new.open(id, path, version)?)),
            _ => self.new.open(id, path, version),
        }
    }

    fn stored(&self, id: ContentId, len: u64) -> Result<Stored, ContentError> {
        if let stored @ Stored::Elsewhere(_) = self.new.stored(id, len)? {
            return Ok(stored);
        }
        if let Some(old) = self.reused.get(&id.0) {
            return self.old.stored(*old, len);
        }
        self.previous.stored(&*self.old, id)
    }

    /// Returns the digest of the source, if it is an image with one. For reused contents that were
    /// not compared, returns that of the base, so that damage to it is detected.
    fn stored_digest(&self, id: ContentId) -> Result<Option<StoredDigest>, ContentError> {
        let of_source = self.new.stored_digest(id)?;
        let believed = self.reused.get(&id.0).filter(|_| of_source.is_none() && self.believed.contains(&id.0));
        let of_base = believed.map_or(Ok(None), |old| self.old.stored_digest(*old))?;
        Ok(of_source.or(of_base.map(|stored| StoredDigest { of: DigestOf::Reused, ..stored })))
    }

    fn stores(&self) -> Stores {
        let (new, old) = (self.new.stores(), self.old.stores());
        Stores { base: old.base, digests: old.digests.or(new.digests), ..new }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_tree::conformance::{Echo, assert_forwards};

    #[test]
    fn contents_that_are_not_reused_are_those_of_the_source() {
        let (reused, believed, previous) = (HashMap::from([(4, ContentId(9))]), HashSet::new(), Previous::default());
        let (new, old, held) = (Box::new(Echo), Box::new(Echo), HeldText::default());
        let increment = Increment { new, old, reused, believed, previous, held };
        let own = ["stored reused", "stored previous"];
        assert_forwards(&increment, (ContentId(3), "name"), (ContentId(3), "name"), &own);
    }
}
