//! Files beside an image that tell of its hash tree. When the image becomes another one they are set aside: none may
//! stand beside an image that it does not fit.

use crate::find::is_tree;
use crate::sidecar::{Sidecar, with_suffix};
use kiln_digest::Digest;
use kiln_output::OutputError;
use kiln_read::FileSource;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Longest root hash in a file, with blanks.
const ROOT_HASH_MAX_LEN: u64 = 4096;

/// Suffix of a kind of file, behind the name of the image, and a test for it.
type Kind = (&'static str, fn(&Path) -> bool);

/// Kinds of such files. Other files of these names are none.
const KINDS: [Kind; 4] =
    [(".roothash", has_root_hash), (SIGNATURE, has_signature), (".dmverity", has_sidecar), (".verity", has_tree)];
/// Suffix of the signature of a root hash, which its owner makes anew.
pub const SIGNATURE: &str = ".roothash.p7s";

/// Returns the file for the root hash of an image.
pub fn root_hash_path(image: &Path) -> PathBuf {
    with_suffix(image, ".roothash")
}

/// Reads the root hash in a file; `None` if there is none.
pub fn read_root_hash(path: &Path) -> Option<Digest> {
    let mut text = String::new();
    File::open(path).and_then(|file| file.take(ROOT_HASH_MAX_LEN).read_to_string(&mut text)).ok()?;
    text.trim().parse().ok()
}

/// Returns the files that tell of the hash tree of `image`: `IMAGE.roothash`, its signature, `IMAGE.dmverity` and
/// `IMAGE.verity`.
pub fn found(image: &Path) -> Vec<PathBuf> {
    let paths = KINDS.iter().map(|(suffix, is_it)| (with_suffix(image, suffix), is_it));
    paths.filter(|(path, is_it)| path.is_file() && is_it(path)).map(|(path, _)| path).collect()
}

/// Renames the files that tell of the hash tree of `image`, except those in `kept`: `.old` is appended. Returns old and
/// new names.
///
/// # Errors
/// A file that cannot be renamed.
pub fn set_aside(image: &Path, kept: &[&Path]) -> Result<Vec<(PathBuf, PathBuf)>, OutputError> {
    let stale = found(image).into_iter().filter(|path| !kept.contains(&&**path));
    let renamed = stale.map(|path| {
        let old = with_suffix(&path, ".old");
        match fs::rename(&path, &old) {
            Ok(()) => Ok((path, old)),
            Err(source) => Err(OutputError::File { path, action: "rename", source }),
        }
    });
    renamed.collect()
}

fn has_root_hash(path: &Path) -> bool {
    read_root_hash(path).is_some()
}

/// A structure in DER, or one in PEM.
fn has_signature(path: &Path) -> bool {
    let mut start = Vec::new();
    let read = File::open(path).and_then(|file| file.take(16).read_to_end(&mut start));
    read.is_ok() && (start.starts_with(&[0x30]) || start.starts_with(b"-----BEGIN"))
}

fn has_sidecar(path: &Path) -> bool {
    Sidecar::read(path).is_ok_and(|sidecar| sidecar.is_some())
}

/// A damaged tree is one, too.
fn has_tree(path: &Path) -> bool {
    FileSource::open(path).is_ok_and(|file| is_tree(&file).unwrap_or(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_tells_of_a_tree_is_set_aside() {
        let dir = kiln_tests::temp::TempDir::new("beside").unwrap();
        let image = dir.join("image");
        let write = |suffix: &str, bytes: &[u8]| fs::write(with_suffix(&image, suffix), bytes).unwrap();
        write(".roothash", b"notes of mine");
        write(".verity", b"verify this");
        write(".dmverity", b"{}");
        write(".roothash.p7s", b"notes");
        assert_eq!(found(&image), Vec::<PathBuf>::new());
        let hash = "ab".repeat(32);
        write(".roothash", format!("{hash}\n").as_bytes());
        write(".verity", b"verity\0\0 damaged");
        write(".dmverity", format!("{{\"roothash\":\"{hash}\",\"hashoffset\":4096}}").as_bytes());
        assert_eq!(read_root_hash(&root_hash_path(&image)).unwrap().to_string(), hash);
        let kept = with_suffix(&image, ".verity");
        let renamed = set_aside(&image, &[&kept]).unwrap();
        assert_eq!(renamed.len(), 2);
        write(".roothash.p7s", &[0x30, 0x82, 1, 2]);
        assert_eq!(found(&image), [with_suffix(&image, ".roothash.p7s"), kept.clone()]);
        set_aside(&image, &[&kept]).unwrap();
        assert!(renamed.iter().all(|(path, old)| !path.exists() && old.is_file()));
        assert_eq!(found(&image), [kept]);
    }
}
