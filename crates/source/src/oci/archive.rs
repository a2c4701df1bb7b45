//! Detection of tar archives that hold container images.
//!
//! Programs choose order and names of the members freely. What all of them write is a list of
//! images, and the files that it names. So the decision is made when all members are known, and the
//! archive is read only once. Of a stream that is stored as it comes, the decision is made by its
//! first members ([`may_be_images`]), and an error if all of them say otherwise ([`lists_images`]).

use kiln_tree::{Kind, NodeId, Tree};
use std::collections::HashSet;

use super::blobs::{Blobs, Naming};
use super::records::{DOCKER_FILE, DockerImage, INDEX_FILE, LAYOUT_FILE, VERSION_FILE, VERSION_FRONT};

/// Names in the root of a layout.
const NAMES: [&str; 5] = [LAYOUT_FILE, INDEX_FILE, DOCKER_FILE, "repositories", "blobs"];

/// Interpretation of an archive.
pub(super) enum Taken {
    /// Container images, with the text of a note if it has other files.
    Images(Option<String>),
    /// A tar archive of files, with the text of a note if it resembles images.
    Files(Option<String>),
}

/// Decides how to interpret the archive of `blobs`.
pub(super) fn taken(blobs: &Blobs) -> Taken {
    let is_there = |name: &str| blobs.file(name).is_ok_and(|file| file.is_some());
    if is_there(LAYOUT_FILE) && is_there(INDEX_FILE) {
        return Taken::Images(with_others(blobs, &HashSet::new()));
    }
    if blobs.naming() == Naming::Flat {
        // Web applications have files of this name, too, which are JSON objects.
        let mut front = [0; VERSION_FRONT.len()];
        let version = blobs.file(VERSION_FILE).ok().flatten();
        let is_of_skopeo =
            version.is_some_and(|file| file.read_exact_at(&mut front, 0).is_ok()) && front == *VERSION_FRONT;
        return if is_of_skopeo { Taken::Images(None) } else { Taken::Files(None) };
    }
    let listed = if is_there(DOCKER_FILE) { blobs.json::<Vec<DockerImage>>(DOCKER_FILE).ok() } else { None };
    let Some((images, _)) = listed.filter(|(images, _)| !images.is_empty()) else { return Taken::Files(None) };
    let paths = || images.iter().flat_map(|image| [&image.config].into_iter().chain(&image.layers));
    if let Some(missing) = paths().find(|path| !is_there(path)) {
        return Taken::Files(Some(format!(
            "read as a tar archive of files: {DOCKER_FILE} lists container images, but {missing:?} is missing; use --from oci to read it \
             as images"
        )));
    }
    let roots = paths().filter_map(|path| path.split('/').find(|name| !matches!(*name, "" | ".")));
    Taken::Images(with_others(blobs, &roots.map(str::as_bytes).collect()))
}

/// Returns true if the root of the archive of `blobs` has a name that belongs to images.
pub(super) fn is_named_like_images(blobs: &Blobs) -> bool {
    blobs.root_names().any(is_known)
}

/// Returns true if an archive that begins with these names in its root may hold images.
pub(super) fn may_be_images(root: &Tree) -> bool {
    root.entries(NodeId::ROOT).iter().any(|entry| is_known(entry.name) || is_of_digest(entry.name))
}

/// Returns true if the files of `tree` are a list of images, and all that it names.
pub(super) fn lists_images(tree: &Tree) -> bool {
    let find = |path: &str| tree.find(path.split('/').filter(|name| !matches!(*name, "" | ".")).map(str::as_bytes));
    if find(LAYOUT_FILE).is_some() && find(INDEX_FILE).is_some() {
        return true;
    }
    let list = find(DOCKER_FILE).and_then(|node| {
        let Kind::File { len, .. } = tree.node(node).kind else { return None };
        let mut text = vec![0; usize::try_from(len).ok()?];
        tree.open(node).ok()?.read_exact_at(&mut text, 0).ok()?;
        serde_json::from_slice::<Vec<DockerImage>>(&text).ok()
    });
    let mut paths = list.iter().flatten().flat_map(|image| [&image.config].into_iter().chain(&image.layers)).peekable();
    paths.peek().is_some() && paths.all(|path| find(path).is_some())
}

/// Returns true if the name is one in the root of a layout.
fn is_known(name: &[u8]) -> bool {
    NAMES.iter().any(|known| known.as_bytes() == name)
}

/// Describes members in the root of an archive of images that do not belong to it and are not in
/// `named`, if there are any.
fn with_others(blobs: &Blobs, named: &HashSet<&[u8]>) -> Option<String> {
    let belongs = |name: &[u8]| is_known(name) || named.contains(name) || is_of_digest(name);
    let mut others = blobs.root_names().filter(|name| !belongs(name));
    let first = others.next()?;
    let (first, count) = (String::from_utf8_lossy(first), 1 + others.count());
    Some(format!(
        "read as an archive of container images; {count} other members of its root, such as {first:?}, are ignored; \
         use --from tar to read its files"
    ))
}

/// Returns true if the name is a digest, like those of layers and configurations.
fn is_of_digest(name: &[u8]) -> bool {
    let stem = name.split(|&byte| byte == b'.').next().unwrap_or_default();
    let digits = stem.strip_prefix(b"sha256:").unwrap_or(stem);
    digits.len() == 64 && digits.iter().all(u8::is_ascii_hexdigit)
}
