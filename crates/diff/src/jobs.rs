//! Cutting contents into pieces, each the work of one thread.

use kiln_tree::{Content, Kind, NodeId, Tree};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::walk::{Contents, Step, Visit, Walk};

/// Bytes of a piece: many enough that what two pieces share (an extent across their boundary) does not matter.
const PIECE_LEN: u64 = 4 << 20;

/// What one thread does at a time: a piece of contents, or nothing. The step of a path comes with the last piece.
pub(crate) struct Job {
    /// What to compare.
    pub piece: Option<Piece>,
    /// The path that it completes.
    pub step: Option<Step>,
}

/// A range of two files.
pub(crate) struct Piece {
    /// In the first tree.
    pub a: NodeId,
    /// In the second tree.
    pub b: NodeId,
    /// In bytes.
    pub range: Range<u64>,
    /// Where a piece that makes those behind it needless starts; `u64::MAX`: none so far. Those before it are still needed,
    /// for the first difference to be the first.
    pub decided: Arc<AtomicU64>,
}

impl Piece {
    /// In bytes.
    pub(crate) fn len(&self) -> u64 {
        self.range.end - self.range.start
    }
}

/// The jobs of a walk.
pub(crate) struct Jobs<'a> {
    a: &'a Tree,
    b: &'a Tree,
    walk: Walk<'a>,
    cutting: Option<Cutting>,
}

/// Contents of which there are pieces to come.
struct Cutting {
    step: Step,
    a: NodeId,
    b: NodeId,
    off: u64,
    len: u64,
    holes: Option<Holes>,
    decided: Arc<AtomicU64>,
}

/// Both files, as both may have holes. Where both have one is nothing to compare.
struct Holes {
    a: Box<dyn Content>,
    b: Box<dyn Content>,
}

impl<'a> Jobs<'a> {
    /// The jobs of `walk`, which walks these trees.
    pub(crate) fn new(a: &'a Tree, b: &'a Tree, walk: Walk<'a>) -> Self {
        Self { a, b, walk, cutting: None }
    }

    fn start(&self, step: Step, a: NodeId, b: NodeId) -> Cutting {
        let (len, sparse_in_a) = shape(self.a, a);
        let (_, sparse_in_b) = shape(self.b, b);
        let holes = (len > PIECE_LEN && sparse_in_a && sparse_in_b).then(|| self.holes(a, b)).flatten();
        Cutting { step, a, b, off: 0, len, holes, decided: Arc::new(AtomicU64::new(u64::MAX)) }
    }

    /// Files that cannot be opened have no known holes: their comparison meets the error.
    fn holes(&self, a: NodeId, b: NodeId) -> Option<Holes> {
        Some(Holes { a: self.a.open(a).ok()?, b: self.b.open(b).ok()? })
    }
}

/// Length, and whether there may be holes.
fn shape(tree: &Tree, id: NodeId) -> (u64, bool) {
    match tree.node(id).kind {
        Kind::File { len, sparse, .. } => (len, sparse),
        _ => (0, false),
    }
}

impl Iterator for Jobs<'_> {
    type Item = Job;

    fn next(&mut self) -> Option<Job> {
        let mut cutting = match self.cutting.take() {
            Some(cutting) => cutting,
            None => {
                let step = self.walk.next()?;
                match step.visit {
                    Visit::Both { contents: Contents::Compare { a, b, .. }, .. } => self.start(step, a, b),
                    _ => return Some(Job { piece: None, step: Some(step) }),
                }
            }
        };
        let piece = cutting.next_piece();
        if piece.is_none() || cutting.off >= cutting.len {
            return Some(Job { piece, step: Some(cutting.step) });
        }
        self.cutting = Some(cutting);
        Some(Job { piece, step: None })
    }
}

impl Cutting {
    /// The next piece that is not a hole as a whole.
    fn next_piece(&mut self) -> Option<Piece> {
        if self.decided.load(Ordering::Relaxed) != u64::MAX {
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
        Some(Piece { a: self.a, b: self.b, range, decided: Arc::clone(&self.decided) })
    }
}

impl Holes {
    /// Where data is next, on either side; `None` if that cannot be known.
    fn next_data(&mut self, off: u64, len: u64) -> Option<u64> {
        let start = |content: &mut dyn Content| content.next_data(off).ok().map(|run| run.map_or(len, |run| run.start));
        Some(start(&mut *self.a)?.min(start(&mut *self.b)?))
    }
}
