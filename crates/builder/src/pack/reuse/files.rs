//! Files that are reused from a base, and its packed inode.

use kiln_format::feature::Feature;
use kiln_format::zmap::HeadKind;
use kiln_format::{Algorithm, Blkaddr};

use crate::error::BuildError;
use crate::layout::lcluster_index::ZExtent;
use crate::pack::append::Destination;
use crate::pack::{Extents, Packing, Stored};
use crate::plan::file::{FilePlan, Storage};
use crate::plan::text::TextSource;
use kiln_tree::{ReusedData, ReusedExtent};

impl Packing<'_, '_> {
    /// Copies the hot zone first, regardless of files, which then refer to it.
    pub(in crate::pack) fn reuse_hot(&mut self) -> Result<(), BuildError> {
        let reused = &self.survey.reused;
        for &run in &reused.hot {
            self.copy(run.0, run.1)?;
        }
        Ok(())
    }

    /// Copies the reused data of all files up to `stream` in plan order, and of `stream`; before the packed inode, that
    /// of its front.
    ///
    /// # Errors
    /// Those of the base and of the device; an interruption.
    pub(in crate::pack) fn reuse_up_to(&mut self, stream: TextSource) -> Result<(), BuildError> {
        let TextSource::File(file) = stream else { return self.reuse_packed() };
        // The files of a stream are in no base.
        let end = (file as usize + 1).min(self.survey.files.len());
        while self.reused_up_to < end {
            let file = self.reused_up_to;
            self.reused_up_to += 1;
            if matches!(self.survey.files[file].storage, Storage::Reused { .. }) {
                self.context.control.check()?;
                self.reuse_file(file as u32)?;
            }
        }
        Ok(())
    }

    /// Copies all reused data that is not copied yet.
    ///
    /// # Errors
    /// Those of the base and of the device; an interruption.
    pub(in crate::pack) fn reuse_all(&mut self) -> Result<(), BuildError> {
        if let Some(last) = self.survey.files.len().checked_sub(1) {
            self.reuse_up_to(TextSource::File(last as u32))?;
        }
        self.reuse_packed()
    }

    fn reuse_file(&mut self, file: u32) -> Result<(), BuildError> {
        let reused = &self.survey.reused;
        let lost = || BuildError::Internal(format!("file {file} is reused, but nothing says how"));
        let len = self.survey.files[file as usize].len;
        self.data.device(Destination::Image).align(self.context.format.layout.data_align);
        let moved = |off| reused.packed.moved(off).ok_or_else(lost);
        let stored = match reused.files.get(file).ok_or_else(lost)? {
            // It is read like other tails.
            ReusedData::Flat { tail_len, .. } if *tail_len == len => return Ok(()),
            ReusedData::Flat { pa, tail_len } => {
                let blocks = (len - tail_len).next_multiple_of(self.block_bits.len());
                let start = Blkaddr(self.copy(*pa, blocks)? >> self.block_bits.bits());
                let tail = self.stored[file as usize].as_flat().and_then(|(_, tail)| tail);
                Stored::flat(Some(start), tail)
            }
            ReusedData::Fragment { off } => Stored::Fragment(moved(*off)?),
            ReusedData::Extents(reused) => {
                // Text between reused extents may be stored already.
                let mut extents = match std::mem::replace(&mut self.stored[file as usize], Stored::Nothing) {
                    Stored::Compressed(gaps) => *gaps,
                    _ => Extents::default(),
                };
                extents.blocks += u64::from(reused.blocks);
                for extent in &reused.list {
                    let extent = self.reuse_extent(extent)?;
                    extents.text += u64::from(extent.llen);
                    extents.bytes += u64::from(extent.plen);
                    extents.list.push(extent);
                }
                if let Some((la, off)) = reused.fragment {
                    let pa = extents.list.last().map_or(0, |extent| extent.pa + u64::from(extent.plen));
                    let (llen, kind) = ((len - la) as u32, HeadKind::Head1);
                    extents.list.push(ZExtent { la, llen, plen: 0, pa, kind, partial: false });
                    extents.fragment = Some(moved(off)?);
                    self.feature(Feature::Fragments);
                }
                if let Some(inline) = &reused.inline {
                    self.reuse_inline(inline, &mut extents)?;
                }
                Stored::Compressed(Box::new(extents))
            }
        };
        self.stored[file as usize] = stored;
        Ok(())
    }

    fn reuse_packed(&mut self) -> Result<(), BuildError> {
        let reused = &self.survey.reused;
        if std::mem::replace(&mut self.has_reused_packed, true) || reused.packed.extents.is_empty() {
            return Ok(());
        }
        for (_, extent) in &reused.packed.extents {
            let extent = self.reuse_extent(extent)?;
            self.fragments.text += u64::from(extent.llen);
            self.fragments.bytes += u64::from(extent.plen);
            self.fragments.blocks += self.block_bits.blocks_for(extent.plen.into());
            self.fragments.list.push(extent);
        }
        self.feature(Feature::Fragments);
        Ok(())
    }

    fn reuse_extent(&mut self, reused: &ReusedExtent) -> Result<ZExtent, BuildError> {
        let ReusedExtent { la, llen, pa, plen, plain, partial } = *reused;
        let pa = self.copy(pa, plen.into())?;
        if partial {
            self.feature(Feature::Fragments);
        }
        self.reused.big |= u64::from(plen) > self.block_bits.len();
        // Plain encoded extents have no padding.
        let plen = if self.encoded && plain { plen.min(llen) } else { plen };
        let kind = if plain { HeadKind::Plain } else { HeadKind::Head1 };
        Ok(ZExtent { la, llen, plen, pa, kind, partial })
    }

    /// Reuses the end of a file that lies beside its inode.
    fn reuse_inline(&mut self, reused: &ReusedExtent, extents: &mut Extents) -> Result<(), BuildError> {
        let ReusedExtent { la, llen, pa, plen, plain, .. } = *reused;
        let nothing = || BuildError::Internal("there is no base".to_owned());
        let mut bytes = vec![0; plen as usize];
        let read = self.copier.as_ref().ok_or_else(nothing)?.base.read_exact_at(&mut bytes, pa);
        read.map_err(|source| BuildError::BaseRead { pa, len: plen.into(), source })?;
        let end = extents.list.last().map_or(0, |extent| extent.pa + u64::from(extent.plen));
        let kind = if plain { HeadKind::Plain } else { HeadKind::Head1 };
        extents.list.push(ZExtent { la, llen, plen, pa: end, kind, partial: false });
        extents.text += u64::from(llen);
        extents.bytes += u64::from(plen);
        extents.inline = Some(self.tails.push(&bytes)?);
        self.feature(Feature::TailPacking);
        Ok(())
    }

    /// Returns the place in the image of these bytes of the base.
    fn copy(&mut self, pa: u64, len: u64) -> Result<u64, BuildError> {
        let bits = self.block_bits;
        let nothing = || BuildError::Internal("there is no base".to_owned());
        let copier = self.copier.as_mut().ok_or_else(nothing)?;
        let before = (copier.copied, copier.in_place);
        let to = copier.place((pa, len), self.data.device(Destination::Image), bits)?;
        if (copier.copied, copier.in_place) != before {
            self.data.digest.update(&[pa.to_le_bytes(), len.to_le_bytes()].concat());
        }
        Ok(to)
    }

    /// Copies the remaining data, and records what readers need for it.
    pub(in crate::pack) fn finish_reuse(&mut self, files: &[FilePlan]) -> Result<(), BuildError> {
        let Some(copier) = &mut self.copier else { return Ok(()) };
        copier.flush(self.data.device(Destination::Image))?;
        copier.base.verify_unchanged().map_err(|source| BuildError::BaseChanged { source })?;
        self.reused.bytes = copier.copied;
        self.reused.cfgs = copier.base.facts().cfgs;
        let packed = copier.base.facts().packed.algorithm.filter(|_| !self.survey.reused.packed.extents.is_empty());
        let files = files.iter().filter_map(|file| file.reused_algorithm());
        self.reused.algorithms = files.chain(packed).fold(0, |all, algorithm: Algorithm| all | algorithm.bit());
        Ok(())
    }
}
