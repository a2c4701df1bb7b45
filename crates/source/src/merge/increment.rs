//! A tree over an older image of it: files that have not changed have the contents that the image stores.

mod comparison;
mod moved;
mod pairs;
mod stamps;

use kiln_tree::{Content, ContentError, ContentId, Contents, DigestOf, Former, Stored, StoredDigest, Stores, Version};
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use super::versions::{Versions, former_of, versions};
use crate::error::SourceError;
use crate::image::erofs::BaseImage;
use crate::source::{CLOCK_SECS, Scan, ScanOptions, Source};
use comparison::{Compared, Differences, Wanted};
use moved::Moved;
use pairs::{Evidence, Pairs};

pub use stamps::Stamps;

/// An older image of a source, and what is believed of it.
pub struct IncrementBase {
    /// The image.
    pub image: Arc<BaseImage>,
    /// How it is told that a file has not changed.
    pub trust: Trust,
    /// What the files were when the image was made. They take the place of the times in it.
    pub stamps: Option<Stamps>,
}

impl IncrementBase {
    /// The image at `path`, and the stamps beside it if they are wanted: these are `None` if there are none, or if they are of another image.
    ///
    /// # Errors
    /// As [`BaseImage::open`]; stamps that cannot be read.
    pub fn open(path: &Path, trust: Trust) -> Result<Self, SourceError> {
        Self::of(Arc::new(BaseImage::open(path)?), trust)
    }

    /// This image, and the stamps beside it as [`IncrementBase::open`] has them.
    ///
    /// # Errors
    /// Stamps that cannot be read.
    pub fn of(image: Arc<BaseImage>, trust: Trust) -> Result<Self, SourceError> {
        let stamps = match trust {
            Trust::Times => Stamps::open(&Stamps::path(image.path()), image.identity())?,
            Trust::Contents => None,
        };
        Ok(Self { image, trust, stamps })
    }
}

/// How it is told that a file has not changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// By size and time, or by the stamp. A file of equal size of which these do not tell is compared.
    #[default]
    Times,
    /// All files of equal size are compared.
    Contents,
}

/// The tree of `source` with what is unchanged since `base` was made of it: regular files of the same path and
/// contents, and those that were moved from a path at which the base has them and `source` does not. All but their
/// contents is as it is in `source`. Both are scanned at the same time.
///
/// Few images say when they were made. But each was made when the latest of the times in it had come, and files that were changed before that
/// are not what a later change with the same time has made of them.
///
/// # Errors
/// As [`Source::scan`], and a base that cannot be read.
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
    let Pairs { mut kept, in_doubt } = pairs::find([&scan.tree, &old], &evidence);
    let mut believed: HashSet<u32> = kept.keys().copied().collect();
    let trees = [&scan.tree, &old];
    let Compared { equal, differences } = comparison::compare(trees, in_doubt, Wanted::Differences, options)?;
    kept.extend(equal);
    let mut moved = Moved::find(trees, &kept, &evidence);
    believed.extend(moved.kept.iter().map(|(new, _)| *new));
    kept.extend(moved.kept.drain(..));
    loop {
        let in_doubt = moved.round(&scan.tree, &kept);
        if in_doubt.is_empty() {
            break;
        }
        kept.extend(comparison::compare(trees, in_doubt, Wanted::Equality, options)?.equal);
    }
    let mut former = versions(trees);
    former.extend(moved.former);
    let (old, base) = (old.into_contents(), base.image.clone());
    let tree =
        scan.tree.with_contents(|new| Box::new(Increment { new, old, kept, believed, former, differences, base }));
    Ok(Scan { tree, ..scan })
}

/// Contents of a tree, some of them as an older image has them.
struct Increment {
    new: Box<dyn Contents>,
    old: Box<dyn Contents>,
    /// Contents of the image, by those of the tree.
    kept: HashMap<u32, ContentId>,
    /// Those of them that were not compared.
    believed: HashSet<u32>,
    /// Older versions, of files that have changed.
    former: Versions,
    /// Where these differ, if it is known.
    differences: Differences,
    base: Arc<BaseImage>,
}

impl Contents for Increment {
    fn open(&self, id: ContentId, path: &[u8], version: Version) -> Result<Box<dyn Content>, ContentError> {
        let old = match version {
            Version::Scanned | Version::Changed => None,
            Version::Reused => self.kept.get(&id.0),
            Version::Previous => self.former.get(&id.0).map(|(old, _)| old),
        };
        match old {
            Some(old) => self.old.open(*old, path, Version::Scanned),
            None => self.new.open(id, path, version),
        }
    }

    fn stored(&self, id: ContentId, len: u64) -> Result<Stored, ContentError> {
        if let stored @ Stored::Elsewhere(_) = self.new.stored(id, len)? {
            return Ok(stored);
        }
        if let Some(old) = self.kept.get(&id.0) {
            return self.old.stored(*old, len);
        }
        let former = former_of(&*self.old, &self.former, id)?;
        let differences = || self.differences.get(&(id.0, self.former.get(&id.0)?.0)).cloned();
        Ok(former.map_or(Stored::ToRead, |former| Stored::Previous(Former { differences: differences(), ..former })))
    }

    /// The digest that the source stores, if it is an image that has one. Otherwise, for contents that are believed to be the same, the digest that
    /// the base stores, so that damage to the base shows.
    fn stored_digest(&self, id: ContentId) -> Result<Option<StoredDigest>, ContentError> {
        let of_source = self.new.stored_digest(id)?;
        let believed = self.kept.get(&id.0).filter(|_| of_source.is_none() && self.believed.contains(&id.0));
        let of_base = believed.map_or(Ok(None), |old| self.old.stored_digest(*old))?;
        Ok(of_source.or(of_base.map(|stored| StoredDigest { of: DigestOf::Kept, ..stored })))
    }

    fn stores(&self) -> Stores {
        let Stores { devices, digest_name, .. } = self.new.stores();
        let digest_name = self.old.stores().digest_name.or(digest_name);
        Stores { devices, base: Some(self.base.clone()), digest_name }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::erofs::base::tests::empty_base;
    use kiln_tree::conformance::{Echo, assert_forwards};

    #[test]
    fn what_is_not_kept_is_of_the_source() {
        let (kept, believed, former) = (HashMap::from([(4, ContentId(9))]), HashSet::new(), Versions::new());
        let (differences, base) = (Differences::new(), empty_base());
        let (new, old) = (Box::new(Echo), Box::new(Echo));
        let increment = Increment { new, old, kept, believed, former, differences, base };
        let own = ["base", "kept", "open_kept", "former", "open_former"];
        assert_forwards(&increment, (ContentId(3), "name"), (ContentId(3), "name"), &own);
    }
}
