//! Plain text into pclusters, front to back.

use kiln_codec::{Encoder, Spec, probe};
use kiln_format::BlockBits;
use kiln_format::compr_cfg::EXTENT_MAX_LEN;
use kiln_format::zmap::HeadKind;

use crate::{BuildError, Control};

/// An extent relative to the stored bytes of its part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartExtent {
    /// Bytes of plain text.
    pub llen: u32,
    /// Bytes stored.
    pub plen: u32,
    /// How.
    pub kind: HeadKind,
}

/// What plain text became.
#[derive(Debug, Default)]
pub struct Filled {
    /// The pclusters, one behind the other.
    pub bytes: Vec<u8>,
    /// Extents, one behind the other.
    pub extents: Vec<PartExtent>,
}

impl Filled {
    fn push(&mut self, llen: usize, plen: usize, kind: HeadKind) {
        self.extents.push(PartExtent { llen: llen as u32, plen: plen as u32, kind });
    }
}

/// Fills pclusters; one for each thread.
pub struct Filler {
    encoder: Encoder,
    spec: Spec,
    block_bits: BlockBits,
    pcluster: Vec<u8>,
}

impl Filler {
    /// A filler for `spec`.
    ///
    /// # Errors
    /// An encoder that cannot be made.
    pub fn new(spec: &Spec, block_bits: BlockBits) -> Result<Self, BuildError> {
        let pcluster = vec![0; spec.pcluster_len as usize];
        Ok(Self { encoder: Encoder::new(spec)?, spec: *spec, block_bits, pcluster })
    }

    /// Whether pclusters may have several blocks.
    pub fn is_big(&self) -> bool {
        u64::from(self.spec.pcluster_len) > self.block_bits.len()
    }

    /// Bytes of what [`Filler::units`] encodes.
    pub fn unit_len(&self) -> u64 {
        self.spec.pcluster_len.into()
    }

    /// Fill whole blocks with `text`: the longest prefix that fits, then the longest of the rest, and so on.
    ///
    /// # Errors
    /// A codec that fails; an interruption.
    pub fn blocks(&mut self, text: &[u8], control: &Control<'_>) -> Result<Filled, BuildError> {
        let block_len = self.block_bits.len() as usize;
        self.encoder.reset();
        let mut filled = Filled { bytes: Vec::with_capacity(text.len() / 2), extents: Vec::new() };
        let mut rest = text;
        while !rest.is_empty() {
            // A part of slow compression takes many seconds.
            control.check()?;
            let unit = rest.len().min(self.spec.pcluster_len as usize);
            let taken = match self.pcluster(rest, unit)? {
                Some((consumed, produced)) => {
                    // An extent must save a block: then, too, its index has an entry for its count of blocks.
                    let stored = produced.next_multiple_of(block_len);
                    // Padding goes in front: the stream ends where its pcluster ends.
                    filled.bytes.resize(filled.bytes.len() + stored - produced, 0);
                    filled.bytes.extend_from_slice(&self.pcluster[..produced]);
                    filled.push(consumed, stored, HeadKind::Head1);
                    consumed
                }
                None => {
                    for block in rest[..unit].chunks(block_len) {
                        filled.bytes.extend_from_slice(block);
                        filled.bytes.resize(filled.bytes.len().next_multiple_of(block_len), 0);
                        filled.push(block.len(), block_len, HeadKind::Plain);
                    }
                    unit
                }
            };
            rest = &rest[taken..];
        }
        Ok(filled)
    }

    /// Cut `text` into units of the pcluster length and encode each, without padding.
    ///
    /// # Errors
    /// As [`Filler::blocks`].
    pub fn units(&mut self, text: &[u8], control: &Control<'_>) -> Result<Filled, BuildError> {
        self.encoder.reset();
        let mut filled = Filled { bytes: Vec::with_capacity(text.len() / 2), extents: Vec::new() };
        for unit in text.chunks(self.pcluster.len()) {
            control.check()?;
            let encoded = match probe::is_incompressible(unit) {
                true => None,
                false => self.encoder.encode(unit, &mut self.pcluster)?,
            };
            match encoded {
                Some(len) => {
                    filled.bytes.extend_from_slice(&self.pcluster[..len]);
                    filled.push(unit.len(), len, HeadKind::Head1);
                }
                None => {
                    filled.bytes.extend_from_slice(unit);
                    filled.push(unit.len(), unit.len(), HeadKind::Plain);
                }
            }
        }
        Ok(filled)
    }

    /// Fill one pcluster with the front of `rest`: bytes consumed and produced, if that saves a block.
    fn pcluster(&mut self, rest: &[u8], unit: usize) -> Result<Option<(usize, usize)>, BuildError> {
        let block_len = self.block_bits.len() as usize;
        // What fits one block saves none.
        if rest.len() <= block_len || unit > block_len && probe::is_incompressible(&rest[..unit]) {
            return Ok(None);
        }
        let text = &rest[..rest.len().min(EXTENT_MAX_LEN)];
        let filled = self.encoder.fill(text, &mut self.pcluster)?;
        let saves = filled.produced.next_multiple_of(block_len) < filled.consumed;
        Ok(saves.then_some((filled.consumed, filled.produced)))
    }
}
