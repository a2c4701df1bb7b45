//! Detection of updates that would change nothing.

use kiln_builder::{BuildError, BuildOptions, ContentDigests, Control};
use kiln_diff::{Aspect, DiffError, DiffOptions, diff};
use kiln_digest::contents::ContentHash;
use kiln_read::{FileType, Image, ReadError};
use kiln_source::ScanOptions;
use kiln_tree::{ContentError, Kind, NodeId, ReusedData, Stored, Tree};
use std::ops::ControlFlow;

use crate::error::ReviseError;
use crate::update::Update;

impl Update<'_> {
    /// Returns true if the image has all of `tree`, which has the [base](Self::base), already: an update would only
    /// append the same metadata again.
    ///
    /// Names, metadata, attributes and hard links are compared, and what `options` say of the image as a whole: UUID,
    /// label, digests of contents. How what is new is stored does not count, for nothing is. Contents that the tree
    /// reuses from the same place of the image are not read.
    ///
    /// # Errors
    /// An image that cannot be read; an interruption.
    pub fn is_unchanged(
        &self,
        tree: &Tree,
        options: &BuildOptions,
        control: &Control<'_>,
    ) -> Result<bool, ReviseError> {
        let image = self.image();
        let unreadable = |source| ReviseError::Read { image: self.target.path.to_owned(), source };
        if !has_header(image, tree, options).map_err(unreadable)? {
            return Ok(false);
        }
        let scan_options = ScanOptions { threads: options.work.threads, ..ScanOptions::new(control.stop) };
        let old = self.base.scan(&scan_options)?.tree;
        let is_same = |a: NodeId, b: NodeId| is_stored_alike(&old, a, tree, b);
        let all = DiffOptions {
            path: b"",
            ignore: &[],
            latest_mtime: options.identity.source_date_epoch,
            is_same: Some(&is_same),
            brief: true,
            threads: options.work.threads,
            stop: control.stop,
            progress: None,
        };
        // Most updates change names or metadata, and all of these are seen sooner than where contents lie.
        for options in [DiffOptions { ignore: &[Aspect::Contents], ..all }, all] {
            let mut is_different = false;
            let found = diff(&old, tree, &options, &mut |_| {
                is_different = true;
                ControlFlow::Break(())
            });
            match found {
                Ok(_) if is_different => return Ok(false),
                Err(DiffError::Interrupted) => return Err(BuildError::Interrupted.into()),
                // Both trees have a root.
                Ok(_) | Err(DiffError::NotFound { .. }) => {}
            }
        }
        Ok(true)
    }
}

/// Returns true if the image has as many inodes, and is as a whole what `options` say.
fn has_header(image: &Image, tree: &Tree, options: &BuildOptions) -> Result<bool, ReadError> {
    let superblock = image.superblock();
    let unnamed = [superblock.packed_nid, superblock.metabox_nid].into_iter().flatten().count();
    let is_other = superblock.inos != (tree.len() + unnamed) as u64
        || options.identity.uuid.is_some_and(|uuid| uuid != superblock.uuid)
        || options.identity.label != [0; 16] && options.identity.label != superblock.volume_name;
    if is_other {
        return Ok(false);
    }
    Ok(match &options.metadata.content_digests {
        ContentDigests::AsSource => true,
        ContentDigests::Off => first_digest(image)?.flatten().is_none(),
        ContentDigests::Named(_) => first_digest(image)?.is_none_or(|found| match options.metadata.digest_hash {
            Some(hash) => found == Some(hash),
            None => found.is_some(),
        }),
    })
}

/// Returns the function of the digest of the first file that is not empty, if it has one; `None` if there is no such
/// file.
fn first_digest(image: &Image) -> Result<Option<Option<ContentHash>>, ReadError> {
    let root = image.inode(image.root_nid())?;
    for entry in image.walk(&root, b"") {
        let inode = entry?.inode;
        if inode.meta.file_type == FileType::Regular && inode.meta.size > 0 {
            return Ok(Some(image.content_digest(&inode)?.map(|digest| digest.hash())));
        }
    }
    Ok(None)
}

/// Returns true if two files of equal length are known to be the same bytes of the image.
fn is_stored_alike(old: &Tree, a: NodeId, tree: &Tree, b: NodeId) -> bool {
    match (old.stored(a), tree.stored(b)) {
        (Ok(Stored::Reused(one)), Ok(Stored::Reused(other))) if one == other => match one {
            // It does not say where these lie.
            ReusedData::Flat { tail_len: tail_len @ 1.., .. } => {
                has_tail_of(old, a, tree, b, tail_len).unwrap_or(false)
            }
            _ => true,
        },
        _ => false,
    }
}

/// Returns true if the last bytes of two files of equal length are the same.
fn has_tail_of(old: &Tree, a: NodeId, tree: &Tree, b: NodeId, tail_len: u64) -> Result<bool, ContentError> {
    let Kind::File { len, .. } = old.node(a).kind else { return Ok(false) };
    let off = len.saturating_sub(tail_len);
    let tail = |tree: &Tree, node| {
        let mut buf = vec![0; (len - off) as usize];
        let mut content = tree.open(node).map_err(std::io::Error::other)?;
        content.read_exact_at(&mut buf, off).map(|()| buf)
    };
    Ok(tail(old, a)? == tail(tree, b)?)
}
