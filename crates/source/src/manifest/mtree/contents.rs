//! Contents of the files listed in a manifest.

use kiln_format::Hex;
use kiln_tree::{Content, ContentError, ContentId, PlainContents, Version};
use sha2::{Digest, Sha256};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;

use crate::dir::contents::{Stamp, open_changed_beneath, open_stamped_beneath};

/// Length in bytes of the pieces that are hashed.
const PIECE_LEN: usize = 1 << 20;

/// A file listed in a manifest.
pub(super) struct ListedFile {
    /// Stamp, or `None` for an empty file that does not exist.
    stamp: Option<Stamp>,
    /// Path below the root, if it differs from the file's own path.
    place: Option<Box<[u8]>>,
    checked: Option<Box<Checked>>,
}

/// Expected and actual digest of a file.
struct Checked {
    /// Length of the file in bytes.
    len: u64,
    listed: [u8; 32],
    found: OnceLock<[u8; 32]>,
}

impl ListedFile {
    pub(super) fn empty() -> Self {
        Self { stamp: None, place: None, checked: None }
    }

    /// Creates a file of `len` bytes.
    pub(super) fn below(stamp: Stamp, len: u64, place: Option<Vec<u8>>, sha256: Option<[u8; 32]>) -> Self {
        let checked = sha256.map(|listed| Box::new(Checked { len, listed, found: OnceLock::new() }));
        Self { stamp: Some(stamp), place: place.map(Into::into), checked }
    }

    fn place<'p>(&'p self, path: &'p [u8]) -> &'p [u8] {
        self.place.as_deref().unwrap_or(path)
    }
}

/// Files of a manifest, by [`ContentId`].
#[derive(Default)]
pub(super) struct ListedFiles(Vec<ListedFile>);

impl ListedFiles {
    pub(super) fn push(&mut self, file: ListedFile) -> ContentId {
        self.0.push(file);
        ContentId(self.0.len() as u32 - 1)
    }

    /// Returns the contents, which are below `root`.
    pub(super) fn below(self, root: Option<OwnedFd>) -> ListedContents {
        ListedContents { root, files: self.0 }
    }
}

/// Contents of the files listed in a manifest. Digests are checked before any byte is returned. As
/// long as the stamp is unchanged, the result of the check is reused.
pub(super) struct ListedContents {
    root: Option<OwnedFd>,
    files: Vec<ListedFile>,
}

impl PlainContents for ListedContents {
    fn open_plain(&self, id: ContentId, path: &[u8], version: Version) -> Result<Box<dyn Content>, ContentError> {
        let file = &self.files[id.0 as usize];
        let (Some(root), Some(stamp)) = (&self.root, file.stamp) else { return Ok(Box::new(Empty)) };
        // The digest does not apply to a changed file.
        if version == Version::Changed && file.checked.is_none() {
            return open_changed_beneath(root.as_fd(), file.place(path), stamp);
        }
        let mut content = open_stamped_beneath(root.as_fd(), file.place(path), stamp)?;
        if let Some(checked) = &file.checked {
            checked.compare(&mut *content)?;
        }
        Ok(content)
    }
}

impl Checked {
    fn compare(&self, content: &mut dyn Content) -> Result<(), ContentError> {
        let found = match self.found.get() {
            Some(found) => *found,
            None => {
                let found = sha256(content, self.len)?;
                *self.found.get_or_init(|| found)
            }
        };
        if found == self.listed {
            return Ok(());
        }
        let message = format!("its SHA-256 is {}, but the manifest has {}", Hex(&found), Hex(&self.listed));
        Err(io::Error::new(io::ErrorKind::InvalidData, message).into())
    }
}

fn sha256(content: &mut dyn Content, len: u64) -> Result<[u8; 32], ContentError> {
    let (mut hash, mut off) = (Sha256::new(), 0);
    let mut piece = vec![0; PIECE_LEN.min(usize::try_from(len).unwrap_or(PIECE_LEN))];
    while off < len {
        let part = piece.len().min(usize::try_from(len - off).unwrap_or(usize::MAX));
        content.read_exact_at(&mut piece[..part], off)?;
        hash.update(&piece[..part]);
        off += part as u64;
    }
    content.verify_unchanged()?;
    Ok(hash.finalize().into())
}

/// A file without contents.
struct Empty;

impl Content for Empty {
    fn read_exact_at(&mut self, buf: &mut [u8], _: u64) -> Result<(), ContentError> {
        buf.fill(0);
        Ok(())
    }

    fn next_data(&mut self, _: u64) -> Result<Option<Range<u64>>, ContentError> {
        Ok(None)
    }

    fn verify_unchanged(&mut self) -> Result<(), ContentError> {
        Ok(())
    }
}
