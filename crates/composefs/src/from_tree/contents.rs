//! Contents of the files of a tree: small ones as they are, digests of others, read by several
//! threads.

use kiln_digest::fsverity::FsVerity;
use kiln_digest::{Algorithm, Digest};
use kiln_parallel::Threads;
use kiln_parallel::ordered::{self, Costed};
use kiln_tree::{Content, ContentError, Kind, NodeId, Tree, UnreadableFile};

/// Largest contents in bytes that composefs stores in the image by itself.
pub const INLINE_MAX_LEN: u64 = 64;
/// Bytes that are read at once.
const PIECE_LEN: usize = 256 << 10;
/// Files that a thread takes at once, and the bytes after which it takes no more of them: handing a small file over
/// costs as much as hashing it.
const BATCH_FILES: usize = 32;
const BATCH_LEN: u64 = 256 << 10;
/// Batches that may wait for the result of an earlier one.
const BACKLOG: u64 = 128;

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
    read_with(tree, threads, || {
        let mut buf = Vec::new();
        move |id, len, mut content: Box<dyn Content>| {
            let digest = digest(&mut *content, len, algorithm, &mut buf);
            digest.map_err(|source| UnreadableFile { path: tree.path(id), source })
        }
    })
}

/// Reads all regular files of a tree, each once. Each thread has its own function from `make_digester`,
/// which takes the contents of each file that is no small one, and their length in bytes, and returns
/// their digest: it may copy them meanwhile.
///
/// # Errors
/// The first file, in the order of nodes, that cannot be read; errors of the functions.
pub fn read_with<E, D>(tree: &Tree, threads: Threads, make_digester: impl Fn() -> D + Sync) -> Result<TreeContents, E>
where
    E: From<UnreadableFile> + Send,
    D: FnMut(NodeId, u64, Box<dyn Content>) -> Result<Digest, E>,
{
    let mut files: Vec<Option<Known>> = std::iter::repeat_with(|| None).take(tree.len()).collect();
    let mut with_contents = tree.nodes().filter_map(|(id, node)| match node.kind {
        Kind::File { len: len @ 1.., .. } => Some((id, len)),
        _ => None,
    });
    let jobs = std::iter::from_fn(|| {
        let (mut batch, mut batch_len) = (Vec::new(), 0_u64);
        while batch.len() < BATCH_FILES && batch_len < BATCH_LEN {
            let Some((id, len)) = with_contents.next() else { break };
            batch_len = len.saturating_add(batch_len);
            batch.push((id, len));
        }
        (!batch.is_empty()).then_some(Costed { job: batch, cost: 1 })
    });
    let make_worker = || {
        let mut digester = make_digester();
        let mut find = move |id, len| -> Result<Known, E> {
            let mut content = tree.open(id)?;
            if len > INLINE_MAX_LEN {
                return Ok(Known::Object(Box::new(digester(id, len, content)?)));
            }
            let bytes = small(&mut *content, len).map_err(|source| UnreadableFile { path: tree.path(id), source })?;
            Ok(Known::Inline(bytes))
        };
        Ok(move |batch: Vec<(NodeId, u64)>| -> Result<Vec<(NodeId, Known)>, E> {
            batch.into_iter().map(|(id, len)| Ok((id, find(id, len)?))).collect()
        })
    };
    ordered::run(threads, BACKLOG, jobs, make_worker, |found: Vec<(NodeId, Known)>| {
        found.into_iter().for_each(|(id, known)| files[id.idx()] = Some(known));
        Ok(())
    })?;
    Ok(TreeContents { files })
}

/// Returns the digest of contents of `len` bytes, which pass through `buf` in pieces.
///
/// # Errors
/// Contents that cannot be read, or have changed.
pub fn digest(
    content: &mut dyn Content,
    len: u64,
    algorithm: Algorithm,
    buf: &mut Vec<u8>,
) -> Result<Digest, ContentError> {
    let mut hasher = FsVerity::new(algorithm);
    buf.resize(PIECE_LEN, 0);
    let mut off = 0;
    while off < len {
        let piece = &mut buf[..(len - off).min(PIECE_LEN as u64) as usize];
        content.read_exact_at(piece, off)?;
        hasher.update(piece);
        off += piece.len() as u64;
    }
    content.verify_unchanged()?;
    Ok(hasher.finish())
}

fn small(content: &mut dyn Content, len: u64) -> Result<Box<[u8]>, ContentError> {
    let mut bytes = vec![0; len as usize];
    content.read_exact_at(&mut bytes, 0)?;
    content.verify_unchanged()?;
    Ok(bytes.into())
}
