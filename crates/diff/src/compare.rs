//! Comparison of contents.

use kiln_tree::{Content, ContentError, NodeId, Tree};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::change::Side;
use crate::jobs::ContentPiece;

/// Number of bytes read at once: enough for most compressed extents, so that few are decoded more
/// than once.
const STEP_LEN: u64 = 1 << 20;

/// Result of a comparison of contents.
#[derive(Clone)]
pub(crate) struct Outcome {
    /// Offset in the file of the first different byte.
    pub first_different: Option<u64>,
    /// The error that ended the comparison early.
    pub unreadable: Option<(Side, Arc<ContentError>)>,
    /// Number of bytes read on each side.
    pub bytes: u64,
}

impl Outcome {
    /// Returns the result for equal contents.
    pub(crate) fn same() -> Self {
        Self { first_different: None, unreadable: None, bytes: 0 }
    }

    /// Returns true if there is no difference and no error.
    pub(crate) fn is_same(&self) -> bool {
        self.first_different.is_none() && self.unreadable.is_none()
    }
}

/// Comparison of pieces of contents, with buffers; each thread has one.
pub(crate) struct Comparer<'a> {
    a: &'a Tree,
    b: &'a Tree,
    stop: &'a AtomicBool,
    buf_a: Vec<u8>,
    buf_b: Vec<u8>,
}

type Failed = (Side, ContentError);

impl<'a> Comparer<'a> {
    /// Creates a comparer whose buffers are allocated on first use.
    pub(crate) fn new(a: &'a Tree, b: &'a Tree, stop: &'a AtomicBool) -> Self {
        Self { a, b, stop, buf_a: Vec::new(), buf_b: Vec::new() }
    }

    /// Compares the piece, unless an earlier piece of the file already has a difference.
    pub(crate) fn run(&mut self, piece: &ContentPiece) -> Outcome {
        let mut outcome = Outcome::same();
        if piece.first_difference.load(Ordering::Relaxed) < piece.range.start {
            return outcome;
        }
        match self.compare(piece, &mut outcome.bytes) {
            Ok(first_different) => outcome.first_different = first_different,
            Err((side, error)) => outcome.unreadable = Some((side, Arc::new(error))),
        }
        if !outcome.is_same() {
            piece.first_difference.fetch_min(piece.range.start, Ordering::Relaxed);
        }
        outcome
    }

    fn compare(&mut self, piece: &ContentPiece, bytes: &mut u64) -> Result<Option<u64>, Failed> {
        let mut a = open(self.a, piece.a).map_err(at(Side::A))?;
        let mut b = open(self.b, piece.b).map_err(at(Side::B))?;
        let first_different = self.first_different(piece, &mut *a, &mut *b, bytes)?;
        a.verify_unchanged().map_err(at(Side::A))?;
        b.verify_unchanged().map_err(at(Side::B))?;
        Ok(first_different)
    }

    fn first_different(
        &mut self,
        piece: &ContentPiece,
        a: &mut dyn Content,
        b: &mut dyn Content,
        bytes: &mut u64,
    ) -> Result<Option<u64>, Failed> {
        let mut off = piece.range.start;
        while off < piece.range.end && !self.stop.load(Ordering::Relaxed) {
            let len = STEP_LEN.min(piece.range.end - off);
            let buf_a = front(&mut self.buf_a, len as usize);
            let buf_b = front(&mut self.buf_b, len as usize);
            a.read_exact_at(buf_a, off).map_err(at(Side::A))?;
            b.read_exact_at(buf_b, off).map_err(at(Side::B))?;
            *bytes += len;
            if buf_a != buf_b {
                let same = buf_a.iter().zip(&*buf_b).take_while(|(a, b)| a == b).count();
                return Ok(Some(off + same as u64));
            }
            off += len;
        }
        Ok(None)
    }
}

/// Returns the first `len` bytes of a buffer, which grows as needed.
fn front(buf: &mut Vec<u8>, len: usize) -> &mut [u8] {
    if buf.len() < len {
        buf.resize(len, 0);
    }
    &mut buf[..len]
}

fn at(side: Side) -> impl Fn(ContentError) -> Failed {
    move |error| (side, error)
}

/// Opens contents. Errors do not name a path: the caller knows it, and a node may have several.
fn open(tree: &Tree, id: NodeId) -> Result<Box<dyn Content>, ContentError> {
    tree.open(id).map_err(|error| error.source)
}
