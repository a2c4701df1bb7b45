//! Files that a program reads first, stored so that decoding them costs less, as far as a budget of bytes goes.

use kiln_builder::{BuildError, BuildOptions, Spec};
use kiln_codec::Encoder;
use kiln_tree::{Content, Kind, NodeId, Tree};
use std::str::FromStr;

use crate::error::Error;
use crate::way::hint_way;

/// Bytes of text that are encoded at a time to find out how long they become.
const PIECE_LEN: usize = 256 << 10;

/// How files that come first are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HotAs {
    /// As all others.
    #[default]
    Same,
    /// By LZ4, which decodes several times as fast as the others.
    Lz4,
    /// As they are: nothing is decoded.
    Plain,
}

/// What a budget went into.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HotFiles {
    /// The files, in their order.
    pub nodes: Vec<NodeId>,
    /// Bytes that they take more than otherwise, by estimate.
    pub extra_bytes: u64,
    /// Files for which no budget was left.
    pub left: u64,
}

impl FromStr for HotAs {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "same" => Ok(Self::Same),
            "lz4" => Ok(Self::Lz4),
            "none" => Ok(Self::Plain),
            _ => Err("use lz4, none or same"),
        }
    }
}

/// Have the files of [`LayoutOptions::order`](kiln_builder::LayoutOptions::order) stored `hot_as`, in their order, as long as all of them take at most `budget` bytes more than
/// otherwise; one that would take more is passed over. `stored_len` are the bytes that a file takes otherwise, where that is known; else
/// encoding it tells. Files with a hint keep it. What is chosen becomes a hint.
///
/// # Errors
/// A file that cannot be read, a codec that fails.
pub fn store_hot(
    tree: &Tree,
    (hot_as, budget): (HotAs, u64),
    stored_len: &dyn Fn(NodeId) -> Option<u64>,
    options: &mut BuildOptions,
) -> Result<HotFiles, Error> {
    let mut found = HotFiles::default();
    let way = match hot_as {
        HotAs::Same => return Ok(found),
        HotAs::Lz4 => hint_way("lz4hc", options).ok().flatten(),
        HotAs::Plain => None,
    };
    let is_same = |spec: Spec| way.is_some_and(|way| way.method.algorithm() == spec.method.algorithm());
    let mut measure = Measure { tree, text: Vec::new(), out: Vec::new() };
    for node in options.layout.order.clone() {
        let Kind::File { len, .. } = tree.node(node).kind else { continue };
        let Some(default) =
            options.compression.spec.filter(|_| len > 0 && options.compression.hints.get(node).is_none())
        else {
            continue;
        };
        if is_same(default) {
            continue;
        }
        let block_len = options.block_bits.len();
        let now = stored_len(node).map_or_else(|| measure.encoded_len(node, len, default), Ok)?;
        let then = match way {
            Some(way) => measure.encoded_len(node, len, way)?,
            None => len,
        };
        // What does not get smaller is not compressed anyway.
        if now >= len {
            continue;
        }
        let extra = then.next_multiple_of(block_len).saturating_sub(now);
        if extra > budget - found.extra_bytes {
            found.left += 1;
            continue;
        }
        found.extra_bytes += extra;
        found.nodes.push(node);
        options.compression.hints.insert(node, way);
    }
    Ok(found)
}

/// Encodes files to find out how long they become.
struct Measure<'a> {
    tree: &'a Tree,
    text: Vec<u8>,
    out: Vec<u8>,
}

impl Measure<'_> {
    fn encoded_len(&mut self, node: NodeId, len: u64, spec: Spec) -> Result<u64, Error> {
        let mut encoder = Encoder::new(&spec).map_err(BuildError::from)?;
        let mut content = self.tree.open(node).map_err(BuildError::from)?;
        let mut encoded = 0;
        for at in (0..len).step_by(PIECE_LEN) {
            let piece = (len - at).min(PIECE_LEN as u64) as usize;
            self.text.resize(piece, 0);
            let read = Content::read_exact_at(&mut *content, &mut self.text, at);
            read.map_err(|source| BuildError::Read { path: self.tree.path(node), source })?;
            self.out.resize(piece, 0);
            encoder.reset();
            encoded += encoder.encode(&self.text, &mut self.out).map_err(BuildError::from)?.unwrap_or(piece) as u64;
        }
        Ok(encoded)
    }
}
