//! Text that was stored, read back from where it is.

use kiln_format::Algorithm;
use kiln_output as output;
use kiln_parallel::Threads;

use super::{PackCrew, Packing, Stored};
use crate::error::BuildError;
use crate::layout::lcluster_index::ZExtent;
use crate::pack::append::Destination;
use crate::pack::chunks::ChunkRun;
use crate::pack::inline_tails::TailRef;
use crate::pack::text_cache::{Encoded, Source};
use crate::plan::text::TextSource;

/// Place of the text that begins at some byte.
enum Found {
    /// In an extent.
    Extent(ZExtent, Option<TailRef>),
    /// Uncompressed in the image: first byte, and number of bytes.
    Plain(u64, u64),
    /// Uncompressed in a chunk: its device, first byte there, and number of bytes.
    Chunk(u16, u64, u64),
    /// This many zeros, in a chunk that is not stored.
    Zeros(u64),
    /// Uncompressed among the tails.
    Tail(TailRef),
    /// Left for the packed inode: first byte of the file.
    Left(u64),
}

impl Packing<'_, '_> {
    /// Fills `buf` with text of a source that was given to the crew, from byte `off` on. Takes results as far as these
    /// have it.
    ///
    /// # Errors
    /// Those of [`crate::build`]; text that was not given to the crew.
    pub(crate) fn read_older(
        &mut self,
        at: (TextSource, u64),
        buf: &mut [u8],
        crew: &mut PackCrew<'_>,
    ) -> Result<(), BuildError> {
        while self.is_first(at.0) && self.take_next(crew)? {}
        // Of files without extents, nothing tells how much is stored.
        if self.stored_extents(at.0).is_none() {
            self.take_all(crew)?;
        }
        while !self.read_stored(at, buf)? {
            if !self.take_next(crew)? {
                return Err(BuildError::Internal(format!("text at {at:?} is stored nowhere")));
            }
        }
        Ok(())
    }

    /// Decodes pclusters whose text will probably be read, on all cores: those at `places` that were given to the
    /// crew. Returns the number of places, from the first on, for which that was done: at least one.
    ///
    /// # Errors
    /// Those of [`crate::build`].
    pub(crate) fn decode_ahead(
        &mut self,
        places: &[(TextSource, u64)],
        crew: &mut PackCrew<'_>,
    ) -> Result<usize, BuildError> {
        let (mut pclusters, mut len, mut done) = (Vec::new(), 0, 0);
        for &(source, off) in places {
            while self.is_first(source) && self.take_next(crew)? {}
            let has_extents = self.stored_extents(source).is_some();
            let found = loop {
                let found = self.find_text(source, off);
                if found.is_some() || !has_extents || !self.take_next(crew)? {
                    break found;
                }
            };
            if let Some(Found::Extent(extent, None)) = found {
                let place = place_of(&extent, None);
                let is_known = self.texts.find(place) || pclusters.iter().any(|one: &Encoded| one.place == place);
                if !is_known {
                    len += extent.llen as usize;
                    if done > 0 && len > self.texts.ahead_len() {
                        break;
                    }
                    pclusters.push(self.read_pcluster(&extent, None, self.algorithm_of(source))?);
                }
            }
            done += 1;
        }
        self.texts.decode_all(pclusters, self.context.format.work.threads)?;
        Ok(done)
    }

    /// Fills `buf` with stored text of a source, from byte `off` on. Returns whether all of it is stored.
    ///
    /// # Errors
    /// An output that cannot be read; a codec that fails.
    pub(super) fn read_stored(
        &mut self,
        (source, mut off): (TextSource, u64),
        mut buf: &mut [u8],
    ) -> Result<bool, BuildError> {
        while !buf.is_empty() {
            let Some(found) = self.find_text(source, off) else { return Ok(false) };
            let len = match found {
                Found::Extent(extent, tail) => {
                    let algorithm = self.algorithm_of(source);
                    let text = self.decoded(&extent, tail, algorithm)?;
                    copy(&text[(off - extent.la) as usize..], buf)
                }
                Found::Plain(pa, len) => {
                    let len = len.min(buf.len() as u64) as usize;
                    self.read_image(pa, &mut buf[..len])?;
                    len
                }
                Found::Chunk(device, pa, len) => {
                    let len = len.min(buf.len() as u64) as usize;
                    let home = if device == 0 { Destination::Image } else { Destination::Chunks };
                    self.read_device(home, pa, &mut buf[..len])?;
                    len
                }
                Found::Zeros(len) => {
                    let len = len.min(buf.len() as u64) as usize;
                    buf[..len].fill(0);
                    len
                }
                Found::Tail(tail) => {
                    let mut text = Vec::new();
                    self.tails.get(tail, &mut text)?;
                    let TextSource::File(file) = source else { return Ok(false) };
                    let start = self.lens[file as usize] - text.len() as u64;
                    copy(&text[(off - start) as usize..], buf)
                }
                Found::Left(start) => {
                    let mut text = Vec::new();
                    if let TextSource::File(file) = source {
                        self.ends.get(file, &mut text)?;
                    }
                    copy(&text[(off - start) as usize..], buf)
                }
            };
            (off, buf) = (off + len as u64, &mut buf[len..]);
        }
        Ok(true)
    }

    /// Returns the algorithm that compresses a source.
    fn algorithm_of(&self, source: TextSource) -> Option<Algorithm> {
        match source {
            TextSource::File(file) => self.algorithms[file as usize],
            TextSource::Fragments => self.context.format.packing.spec.map(|spec| spec.method.algorithm()),
        }
    }

    /// Finds the text of a source from byte `off` on.
    fn find_text(&self, source: TextSource, off: u64) -> Option<Found> {
        if let Some(list) = self.stored_extents(source) {
            let at = list.partition_point(|extent| extent.end() <= off);
            if let Some(extent) = list.get(at).filter(|extent| extent.la <= off) {
                let inline = if self.is_inline(source, at) { self.inline_of(source) } else { None };
                return Some(Found::Extent(*extent, inline));
            }
        }
        let TextSource::File(file) = source else { return None };
        if let Some(start) = self.ends.start(file).filter(|start| *start <= off) {
            return Some(Found::Left(start));
        }
        let bits = self.block_bits.bits();
        let len = self.lens[file as usize];
        if let Stored::Chunks { chunk_bits, runs } = &self.stored[file as usize] {
            let (chunk, within) = (off >> chunk_bits, off & ((1 << chunk_bits) - 1));
            let rest = (len - off).min((1 << chunk_bits) - within);
            let run = runs[runs.partition_point(|run| run.first + run.count <= chunk)..].first();
            let run = run.filter(|run| run.first <= chunk);
            let place = |run: &ChunkRun| (run.start.0 << bits) + ((chunk - run.first) << chunk_bits) + within;
            return Some(run.map_or(Found::Zeros(rest), |run| Found::Chunk(run.device, place(run), rest)));
        }
        let (start, tail) = self.stored[file as usize].as_flat()?;
        let blocks_end = len - tail.map_or(0, |tail| u64::from(tail.len));
        match tail {
            Some(tail) if off >= blocks_end => Some(Found::Tail(tail)),
            _ => Some(Found::Plain((start.0 << bits) + off, blocks_end - off)),
        }
    }

    /// Returns the text of an extent.
    fn decoded(
        &mut self,
        extent: &ZExtent,
        tail: Option<TailRef>,
        algorithm: Option<Algorithm>,
    ) -> Result<&[u8], BuildError> {
        if !self.texts.find(place_of(extent, tail)) {
            let encoded = self.read_pcluster(extent, tail, algorithm)?;
            self.texts.decode_all(vec![encoded], Threads::ONE)?;
        }
        Ok(self.texts.latest())
    }

    /// Reads the pcluster of an extent.
    fn read_pcluster(
        &mut self,
        extent: &ZExtent,
        tail: Option<TailRef>,
        algorithm: Option<Algorithm>,
    ) -> Result<Encoded, BuildError> {
        let mut stored = Vec::new();
        match tail {
            Some(tail) => self.tails.get(tail, &mut stored)?,
            None => {
                stored.resize(extent.plen as usize, 0);
                self.read_image(extent.pa, &mut stored)?;
            }
        }
        Ok(Encoded { place: place_of(extent, tail), stored, extent: *extent, algorithm })
    }

    /// Reads bytes of the image.
    fn read_image(&mut self, pa: u64, buf: &mut [u8]) -> Result<(), BuildError> {
        self.read_device(Destination::Image, pa, buf)
    }

    /// Reads bytes of the device for a kind of data.
    fn read_device(&mut self, home: Destination, pa: u64, buf: &mut [u8]) -> Result<(), BuildError> {
        let (file, offset) = self.data.device(home).output();
        self.texts.read_back += buf.len() as u64;
        let read = output::read_exact_at(file, buf, offset.saturating_add(pa));
        read.map_err(|source| BuildError::Write { action: "read back the image", source })
    }

    /// Forgets decoded text, which may lie elsewhere now.
    pub(super) fn forget_texts(&mut self) {
        self.texts.clear();
    }
}

/// Returns the place of the pcluster of an extent.
fn place_of(extent: &ZExtent, tail: Option<TailRef>) -> Source {
    tail.map_or(Source::Image(extent.pa), |tail| Source::Tail(tail.off))
}

/// Copies as much as both have, and returns the number of bytes.
fn copy(text: &[u8], buf: &mut [u8]) -> usize {
    let len = text.len().min(buf.len());
    buf[..len].copy_from_slice(&text[..len]);
    len
}
