//! Contents of the files of a tree: small ones as they are, digests of others, read by several
//! threads.

use crate::verity::{Algorithm, Digest, Hasher};
use kiln_parallel::Threads;
use kiln_parallel::ordered::{self, Costed};
use kiln_tree::{ContentError, Kind, NodeId, Tree, UnreadableFile};

/// Largest contents in bytes that composefs stores in the image by itself.
pub const INLINE_MAX_LEN: u64 = 64;
/// Bytes that are read at once.
const PIECE_LEN: usize = 256 << 10;
/// Files that may wait for the result of an earlier one.
const BACKLOG: u64 = 4096;

/// Contents of a regular file that is not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileContents<'c> {
    /// Contents that are stored in the image.
    Inline(&'c [u8]),
    /// fs-verity digest of contents that are an object beside the image.
    Object(Digest),
}

/// Contents of all regular files of a tree, as [`read`] found them.
#[derive(Debug)]
pub struct TreeContents {
    /// For each node, what is stored of its contents. Of small files the length and the bytes.
    files: Vec<Option<Known>>,
}

#[derive(Debug)]
enum Known {
    Inline(Box<[u8]>),
    Object(Box<Digest>),
}

impl TreeContents {
    /// Returns the contents of a node, those of nodes that are no regular files and of empty files as
    /// empty.
    pub fn of(&self, id: NodeId) -> FileContents<'_> {
        match self.files.get(id.idx()).and_then(Option::as_ref) {
            Some(Known::Inline(bytes)) => FileContents::Inline(bytes),
            Some(Known::Object(digest)) => FileContents::Object(**digest),
            None => FileContents::Inline(&[]),
        }
    }
}

/// Reads all regular files of a tree, each once.
///
/// # Errors
/// The first file, in the order of nodes, that cannot be read.
pub fn read(tree: &Tree, algorithm: Algorithm, threads: Threads) -> Result<TreeContents, UnreadableFile> {
    let mut files: Vec<Option<Known>> = std::iter::repeat_with(|| None).take(tree.len()).collect();
    let jobs = tree.nodes().filter_map(|(id, node)| match node.kind {
        Kind::File { len: len @ 1.., .. } => Some(Costed { job: (id, len), cost: 1 }),
        _ => None,
    });
    let make_worker = || {
        let mut buf = Vec::new();
        Ok(move |(id, len)| read_file(tree, id, len, algorithm, &mut buf).map(|known| (id, known)))
    };
    ordered::run(threads, BACKLOG, jobs, make_worker, |(id, known): (NodeId, Known)| {
        files[id.idx()] = Some(known);
        Ok(())
    })?;
    Ok(TreeContents { files })
}

fn read_file(
    tree: &Tree,
    id: NodeId,
    len: u64,
    algorithm: Algorithm,
    buf: &mut Vec<u8>,
) -> Result<Known, UnreadableFile> {
    let mut content = tree.open(id)?;
    let mut read = || -> Result<Known, ContentError> {
        buf.resize(PIECE_LEN, 0);
        if len <= INLINE_MAX_LEN {
            let bytes = &mut buf[..len as usize];
            content.read_exact_at(bytes, 0)?;
            content.verify_unchanged()?;
            return Ok(Known::Inline((&*bytes).into()));
        }
        let mut hasher = Hasher::new(algorithm);
        let mut off = 0;
        while off < len {
            let piece = &mut buf[..(len - off).min(PIECE_LEN as u64) as usize];
            content.read_exact_at(piece, off)?;
            hasher.update(piece);
            off += piece.len() as u64;
        }
        content.verify_unchanged()?;
        Ok(Known::Object(Box::new(hasher.finish())))
    };
    read().map_err(|source| UnreadableFile { path: tree.path(id), source })
}
