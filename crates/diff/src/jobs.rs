//! Splitting of contents into pieces, each compared by one thread.

use kiln_tree::{Content, Kind, NodeId, Tree};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::walk::{Contents, Visit, Walk, WalkStep};

/// Size in bytes of a piece: large enough that an extent shared by two pieces does not matter.
const PIECE_LEN: u64 = 4 << 20;

/// A unit of work of one thread: a piece of contents, or nothing. The last job of a path has its
/// step.
pub(crate) struct Job {
    /// Contents to compare.
    pub piece: Option<ContentPiece>,
    /// WalkStep that this job completes.
    pub step: Option<WalkStep>,
}

/// A range of two files.
pub(crate) struct ContentPiece {
    /// Node in the first tree.
    pub a: NodeId,
    /// Node in the second tree.
    pub b: NodeId,
    /// Range in bytes.
    pub range: Range<u64>,
    /// Start of the first piece known to have a difference or an error; `u64::MAX` if there is
    /// none. Later pieces of the file are not needed; earlier ones are, to find the first
    /// difference.
    pub first_difference: Arc<AtomicU64>,
}

impl ContentPiece {
    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.range.end - self.range.start
    }
}

/// Iterator over the jobs of a walk.
pub(crate) struct Jobs<'a> {
    a: &'a Tree,
    b: &'a Tree,
    walk: Walk<'a>,
    cursor: Option<PieceCursor>,
}

/// Position within contents that are being split.
struct PieceCursor {
    step: WalkStep,
    a: NodeId,
    b: NodeId,
    off: u64,
    len: u64,
    holes: Option<Holes>,
    first_difference: Arc<AtomicU64>,
}

/// Both files, which may have holes. Common holes need no comparison.
struct Holes {
    a: Box<dyn Content>,
    b: Box<dyn Content>,
}

impl<'a> Jobs<'a> {
    /// Creates the jobs of `walk`, which must walk these trees.
    pub(crate) fn new(a: &'a Tree, b: &'a Tree, walk: Walk<'a>) -> Self {
        Self { a, b, walk, cursor: None }
    }

    fn start(&self, step: WalkStep, a: NodeId, b: NodeId) -> PieceCursor {
        let (len, sparse_in_a) = len_and_sparse(self.a, a);
        let (_, sparse_in_b) = len_and_sparse(self.b, b);
        let holes = (len > PIECE_LEN && sparse_in_a && sparse_in_b).then(|| self.holes(a, b)).flatten();
        PieceCursor { step, a, b, off: 0, len, holes, first_difference: Arc::new(AtomicU64::new(u64::MAX)) }
    }

    /// Opens both files to find their holes. If one cannot be opened, the comparison will report
    /// the error.
    fn holes(&self, a: NodeId, b: NodeId) -> Option<Holes> {
        Some(Holes { a: self.a.open(a).ok()?, b: self.b.open(b).ok()? })
    }
}

/// Returns the length of a file in bytes, and true if it may have holes.
fn len_and_sparse(tree: &Tree, id: NodeId) -> (u64, bool) {
    match tree.node(id).kind {
        Kind::File { len, sparse, .. } => (len, sparse),
        _ => (0, false),
    }
}

impl Iterator for Jobs<'_> {
    type Item = Job;

    fn next(&mut self) -> Option<Job> {
        let mut cursor = match self.cursor.take() {
            Some(cursor) => cursor,
            None => {
                let step = self.walk.next()?;
                match step.visit {
                    Visit::Both { contents: Contents::Compare { a, b, .. }, .. } => self.start(step, a, b),
                    _ => return Some(Job { piece: None, step: Some(step) }),
                }
            }
        };
        let piece = cursor.next_piece();
        if piece.is_none() || cursor.off >= cursor.len {
            return Some(Job { piece, step: Some(cursor.step) });
        }
        self.cursor = Some(cursor);
        Some(Job { piece, step: None })
    }
}

impl PieceCursor {
    /// Returns the next piece that is not entirely a hole.
    fn next_piece(&mut self) -> Option<ContentPiece> {
        if self.first_difference.load(Ordering::Relaxed) != u64::MAX {
            return None;
        }
        if let Some(holes) = &mut self.holes {
            match holes.next_data(self.off, self.len) {
                Some(data) => self.off = (data - data % PIECE_LEN).max(self.off),
                None => self.holes = None,
            }
        }
        if self.off >= self.len {
            return None;
        }
        let range = self.off..self.off.saturating_add(PIECE_LEN).min(self.len);
        self.off = range.end;
        Some(ContentPiece { a: self.a, b: self.b, range, first_difference: Arc::clone(&self.first_difference) })
    }
}

impl Holes {
    /// Returns the start of the next data on either side; `None` if it is unknown.
    fn next_data(&mut self, off: u64, len: u64) -> Option<u64> {
        let start = |content: &mut dyn Content| content.next_data(off).ok().map(|run| run.map_or(len, |run| run.start));
        Some(start(&mut *self.a)?.min(start(&mut *self.b)?))
    }
}
