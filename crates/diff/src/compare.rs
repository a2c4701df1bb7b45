//! Comparing bytes.

use kiln_tree::{Content, ContentError, NodeId, Tree};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::change::Side;
use crate::jobs::Piece;

/// Bytes read at a time: as many as most compressed extents hold, so that few are decoded in parts.
const STEP_LEN: u64 = 1 << 20;

/// What comparing showed.
#[derive(Clone)]
pub(crate) struct Outcome {
    /// Offset in the file.
    pub first_different: Option<u64>,
    /// Why it could not be finished.
    pub unreadable: Option<(Side, Arc<ContentError>)>,
    /// How much was read on each side.
    pub bytes: u64,
}

impl Outcome {
    /// No difference.
    pub(crate) fn same() -> Self {
        Self { first_different: None, unreadable: None, bytes: 0 }
    }

    /// Whether nothing was found.
    pub(crate) fn is_same(&self) -> bool {
        self.first_different.is_none() && self.unreadable.is_none()
    }
}

/// Compares pieces of contents; each thread has one.
pub(crate) struct Comparer<'a> {
    a: &'a Tree,
    b: &'a Tree,
    stop: &'a AtomicBool,
    buf_a: Vec<u8>,
    buf_b: Vec<u8>,
}

type Failed = (Side, ContentError);

impl<'a> Comparer<'a> {
    /// Without buffers as long as there is nothing to compare.
    pub(crate) fn new(a: &'a Tree, b: &'a Tree, stop: &'a AtomicBool) -> Self {
        Self { a, b, stop, buf_a: Vec::new(), buf_b: Vec::new() }
    }

    /// Compare, unless that has become needless.
    pub(crate) fn run(&mut self, piece: &Piece) -> Outcome {
        let mut outcome = Outcome::same();
        if piece.decided.load(Ordering::Relaxed) < piece.range.start {
            return outcome;
        }
        match self.compare(piece, &mut outcome.bytes) {
            Ok(first_different) => outcome.first_different = first_different,
            Err((side, error)) => outcome.unreadable = Some((side, Arc::new(error))),
        }
        if !outcome.is_same() {
            piece.decided.fetch_min(piece.range.start, Ordering::Relaxed);
        }
        outcome
    }

    fn compare(&mut self, piece: &Piece, bytes: &mut u64) -> Result<Option<u64>, Failed> {
        let mut a = open(self.a, piece.a).map_err(at(Side::A))?;
        let mut b = open(self.b, piece.b).map_err(at(Side::B))?;
        let first_different = self.first_different(piece, &mut *a, &mut *b, bytes)?;
        a.verify_unchanged().map_err(at(Side::A))?;
        b.verify_unchanged().map_err(at(Side::B))?;
        Ok(first_different)
    }

    fn first_different(
        &mut self,
        piece: &Piece,
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

/// The first bytes of a buffer, which grows as needed.
fn front(buf: &mut Vec<u8>, len: usize) -> &mut [u8] {
    if buf.len() < len {
        buf.resize(len, 0);
    }
    &mut buf[..len]
}

fn at(side: Side) -> impl Fn(ContentError) -> Failed {
    move |error| (side, error)
}

/// Open contents; the caller knows the path, which need not be the first one.
fn open(tree: &Tree, id: NodeId) -> Result<Box<dyn Content>, ContentError> {
    tree.open(id).map_err(|error| error.source)
}
