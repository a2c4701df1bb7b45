//! Recognition of tar archives whose files are images of containers.
//!
//! Programs order and call the members of such archives as they like; what all of them write is a list of images, and
//! what that names. So an archive is looked at when all of its members are known, and need not be read for it a second
//! time.

use std::collections::HashSet;

use super::blobs::{Blobs, Naming};
use super::records::{DOCKER_FILE, DockerImage, INDEX_FILE, LAYOUT_FILE, VERSION_FILE, VERSION_FRONT};

/// Names in the root of a layout.
const NAMES: [&str; 5] = [LAYOUT_FILE, INDEX_FILE, DOCKER_FILE, "repositories", "blobs"];

/// Kind that an archive is taken for.
pub(super) enum Taken {
    /// For images. What speaks against it.
    Images(Option<String>),
    /// For the files that are its members. What speaks against it.
    Files(Option<String>),
}

/// Decides what the archive in which `blobs` lie is taken for.
pub(super) fn taken(blobs: &Blobs) -> Taken {
    let is_there = |name: &str| blobs.file(name).is_ok_and(|file| file.is_some());
    if is_there(LAYOUT_FILE) && is_there(INDEX_FILE) {
        return Taken::Images(with_others(blobs, &HashSet::new()));
    }
    if blobs.naming() == Naming::Flat {
        // Of what is called so, web applications have manifests that are objects.
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
            "taken for a tar archive of files: {DOCKER_FILE} lists images of containers, but {missing:?} is not in \
             it; --from oci takes it for images"
        )));
    }
    let roots = paths().filter_map(|path| path.split('/').find(|name| !matches!(*name, "" | ".")));
    Taken::Images(with_others(blobs, &roots.map(str::as_bytes).collect()))
}

/// Tells if the root of the archive in which `blobs` lie has a name that belongs to images.
pub(super) fn is_named_like_images(blobs: &Blobs) -> bool {
    blobs.root_names().any(|name| NAMES.iter().any(|known| known.as_bytes() == name))
}

/// Describes what else the root of an archive of images has, beside `named`; `None`: nothing.
fn with_others(blobs: &Blobs, named: &HashSet<&[u8]>) -> Option<String> {
    let is_known =
        |name: &[u8]| NAMES.iter().any(|known| known.as_bytes() == name) || named.contains(name) || is_of_digest(name);
    let mut others = blobs.root_names().filter(|name| !is_known(name));
    let first = others.next()?;
    let (first, count) = (String::from_utf8_lossy(first), 1 + others.count());
    Some(format!(
        "taken for an archive of images of containers, of which {count} other members of its root, {first:?} for \
         one, are no part; --from tar takes its files as they are"
    ))
}

/// Tells if a file or directory is called by a digest, as those of a layer or a configuration are.
fn is_of_digest(name: &[u8]) -> bool {
    let stem = name.split(|&byte| byte == b'.').next().unwrap_or_default();
    let digits = stem.strip_prefix(b"sha256:").unwrap_or(stem);
    digits.len() == 64 && digits.iter().all(u8::is_ascii_hexdigit)
}
