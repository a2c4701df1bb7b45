//! Methods of compression for files that a program reads first: decoding them costs less, within a budget of bytes.

use kiln_codec::{Encoder, Spec};
use kiln_tree::{Content, Kind, NodeId, Tree};
use std::str::FromStr;

use crate::error::BuildError;
use crate::options::BuildOptions;
use crate::options::hint_spec::hint_spec;

/// Length in bytes of the text that is encoded at a time to measure its encoded length.
const PIECE_LEN: usize = 256 << 10;

/// Method by which hot files are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HotMethod {
    /// That of all other files.
    #[default]
    Same,
    /// LZ4, which decodes several times as fast as the others.
    Lz4,
    /// None: nothing is decoded.
    Plain,
}

/// Files that are stored by a [`HotMethod`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HotFiles {
    /// The files, in their order.
    pub nodes: Vec<NodeId>,
    /// Estimated number of bytes that they take in addition.
    pub extra_bytes: u64,
    /// Number of files for which no budget was left.
    pub left: u64,
}

impl FromStr for HotMethod {
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

/// Chooses files of [`LayoutOptions::order`], in their order, and adds hints to store them by a method. Together they
/// take at most `budget` bytes more than without it; files that would exceed the budget are skipped. `stored_len`
/// returns the length in bytes of a file as it is stored otherwise, if that is known; else the file is encoded to
/// measure it. Files with a hint keep it.
///
/// # Errors
/// A file that cannot be read; a failing codec.
pub fn store_hot(
    tree: &Tree,
    (hot_method, budget): (HotMethod, u64),
    stored_len: &dyn Fn(NodeId) -> Option<u64>,
    options: &mut BuildOptions,
) -> Result<HotFiles, BuildError> {
    let mut found = HotFiles::default();
    let spec = match hot_method {
        HotMethod::Same => return Ok(found),
        HotMethod::Lz4 => hint_spec("lz4hc", options).ok().flatten(),
        HotMethod::Plain => None,
    };
    let is_same = |default: Spec| spec.is_some_and(|spec| spec.method.algorithm() == default.method.algorithm());
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
        let then = match spec {
            Some(spec) => measure.encoded_len(node, len, spec)?,
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
        options.compression.hints.insert(node, spec);
    }
    Ok(found)
}

/// Encoder that measures encoded lengths of files.
struct Measure<'a> {
    tree: &'a Tree,
    text: Vec<u8>,
    out: Vec<u8>,
}

impl Measure<'_> {
    fn encoded_len(&mut self, node: NodeId, len: u64, spec: Spec) -> Result<u64, BuildError> {
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
