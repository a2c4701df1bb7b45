//! Compression of metadata: large directories in the packed inode, inodes in the metabox.
//!
//! A directory contains nids, which depend on the lengths of the inodes, but not on the address of the first one. So
//! the layout comes first; then directories can be compressed and, once their blocks have an address, the inodes.

use kiln_codec::Spec;

use crate::context::Context;
use crate::context::progress::Control;
use crate::error::BuildError;
use crate::format::Format;
use crate::layout::special::SpecialInode;
use crate::layout::view::View;
use crate::layout::{Layout, Run};
use crate::pack::Extents;
use crate::pack::append::{Appender, Destination};
use crate::pack::fill::{End, FillForm, PclusterWriter};
use crate::pack::stored::ExtentStart;
use crate::pack::worker::{self, PackOutput, Shape};
use crate::plan::text::segment_len;
use crate::write::directory;
use crate::write::inode_writer::InodeWriter;
use kiln_parallel::ordered::{self, Costed};

/// Bytes of uncompressed metadata that are written at a time: a multiple of all block sizes.
pub(crate) const WRITE_LEN: usize = 1 << 20;

/// The inodes without names, whose contents lie within the data.
pub(crate) struct SpecialInodes {
    /// The packed inode, if there is one: its contents are files, then directories.
    pub packed: Option<SpecialInode>,
    /// The metabox.
    pub metabox: Option<Metabox>,
}

/// All inodes but the special ones.
pub(crate) struct Metabox {
    /// Their bytes, as the contents of the metabox.
    pub contents: SpecialInode,
    /// Number of inodes.
    pub inodes: u64,
}

impl SpecialInodes {
    /// Compresses directories and inodes, if options ask for it, behind `data`, which is returned as well.
    ///
    /// # Errors
    /// As [`crate::build`].
    pub(crate) fn pack<'b>(
        view: &View<'_>,
        layout: &Layout,
        data: Appender<'b>,
        context: Context<'_>,
    ) -> Result<(Self, Appender<'b>), BuildError> {
        let Context { format, control, .. } = context;
        let mut packer = MetadataPacker { data, format, control };
        let packed = format.packing.spec.map(|spec| packer.packed_inode(spec, view, layout)).transpose()?;
        let metabox = format.metadata.metabox.map(|spec| packer.metabox(spec, view, layout)).transpose()?;
        Ok((Self { packed: packed.filter(|contents| contents.len > 0), metabox }, packer.data))
    }
}

/// Compresses metadata and appends it to the data.
struct MetadataPacker<'a, 'b> {
    data: Appender<'b>,
    format: &'a Format,
    control: &'a Control<'a>,
}

impl MetadataPacker<'_, '_> {
    /// Packs the packed inode: the files that are stored already, then directories.
    fn packed_inode(&mut self, spec: Spec, view: &View<'_>, layout: &Layout) -> Result<SpecialInode, BuildError> {
        let algorithm = spec.method.algorithm();
        let directories = layout.packed_directories.iter().map(|dir| directory::data(view, layout, *dir));
        let (directories, end) = self.compress(directories, spec, view.data.fragments_len)?;
        Ok(SpecialInode { len: end, extents: view.data.fragments.followed_by(directories), algorithm })
    }

    /// Packs the blocks of directories, then the metabox, which holds their addresses.
    fn metabox(&mut self, spec: Spec, view: &View<'_>, layout: &Layout) -> Result<Metabox, BuildError> {
        let mut writer = InodeWriter::new(view, layout, self.data.next_block(), 0);
        for piece in pieces(bytes(&layout.blocks, layout, &mut writer), WRITE_LEN) {
            self.control.check()?;
            self.data.append(&PackOutput::new(piece?, Shape::Flat { tail: Vec::new() }), Destination::Image)?;
        }
        let (extents, len) = self.compress(bytes(&layout.inodes, layout, &mut writer), spec, 0)?;
        let contents = SpecialInode { len, extents, algorithm: spec.method.algorithm() };
        Ok(Metabox { contents, inodes: writer.serial })
    }

    /// Compresses `texts`, which follow one another in a special inode from byte `start` on, into whole blocks.
    /// Returns their places, and the byte of the inode at which they end.
    fn compress(
        &mut self,
        texts: impl Iterator<Item = Result<Vec<u8>, BuildError>> + Send,
        spec: Spec,
        start: u64,
    ) -> Result<(Extents, u64), BuildError> {
        let Self { data, format, control } = self;
        let (format, control, block_bits) = (*format, *control, format.block_bits);
        let worker = || {
            let mut filler = PclusterWriter::new(&spec, FillForm::of(format))?;
            Ok(move |text: Result<Vec<u8>, BuildError>| {
                let text = text?;
                let output = worker::compress(&mut filler, &text, true, End::Padded, control)?;
                Ok::<_, BuildError>((text.len() as u64, output))
            })
        };
        let segment = segment_len(spec.pcluster_len);
        let jobs = pieces(texts, segment as usize).map(|job| Costed { job, cost: segment });
        let (mut extents, mut end) = (Extents::default(), start);
        ordered::run(format.work.threads, format.work.backlog(), jobs, worker, |(len, output)| {
            control.check()?;
            let output = data.adjust_for_position(output, Some(spec));
            let pa = data.append(&output, Destination::Image)?;
            if let Shape::Extents { list, .. } = &output.shape {
                extents.extend(ExtentStart { la: end, pa }, list, None, block_bits);
            }
            end += len;
            Ok(())
        })?;
        Ok((extents, end))
    }
}

/// Returns the bytes of a run: each region with the zeros before it.
pub(crate) fn bytes<'a, 'b>(
    run: &'a Run,
    layout: &'a Layout,
    emitter: &'a mut InodeWriter<'b>,
) -> impl Iterator<Item = Result<Vec<u8>, BuildError>> + Send + use<'a, 'b> {
    let mut end = run.start;
    let rest = std::iter::once((run.start + run.len, None));
    let regions = run.regions.iter().map(|region| (layout.pos(*region), Some(region)));
    regions.chain(rest).map(move |(pos, region)| {
        let overlaps = || BuildError::Internal(format!("{region:?} at {pos} overlaps what ends at {end}"));
        let mut out = vec![0; pos.checked_sub(end).ok_or_else(overlaps)? as usize];
        if let Some(region) = region {
            let mut bytes = Vec::new();
            emitter.region(region, &mut bytes)?;
            out.append(&mut bytes);
        }
        end += out.len() as u64;
        Ok(out)
    })
}

/// Returns `texts` in sequence, in pieces of `len` bytes, the last one shorter.
pub(crate) fn pieces(
    mut texts: impl Iterator<Item = Result<Vec<u8>, BuildError>>,
    len: usize,
) -> impl Iterator<Item = Result<Vec<u8>, BuildError>> {
    let mut gathered = Vec::new();
    std::iter::from_fn(move || {
        while gathered.len() < len {
            match texts.next() {
                Some(Ok(mut text)) => gathered.append(&mut text),
                Some(Err(error)) => return Some(Err(error)),
                None => break,
            }
        }
        let rest = gathered.split_off(gathered.len().min(len));
        let piece = std::mem::replace(&mut gathered, rest);
        (!piece.is_empty()).then_some(Ok(piece))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_have_the_length_asked_for() {
        for lens in [&[][..], &[0, 0], &[3, 4, 3], &[10], &[25, 0, 1], &[40, 2]] {
            let mut byte = 0..;
            let texts: Vec<Vec<u8>> = lens.iter().map(|&len| byte.by_ref().take(len).collect()).collect();
            let all = texts.concat();
            let found: Vec<Vec<u8>> = pieces(texts.into_iter().map(Ok), 10).map(Result::unwrap).collect();
            assert_eq!(found, all.chunks(10).map(<[u8]>::to_vec).collect::<Vec<_>>());
        }
    }
}
