//! The phases of a build, one after the other.

use crate::context::Context;
use crate::context::clock::{Phase, PhaseClock};
use crate::context::ledger::{ClosedLedger, Ledger};
use crate::context::progress::Control;
use crate::error::BuildError;
use crate::explain::Reasons;
use crate::format::{Format, check};
use crate::inodes::previous::PreviousMetadata;
use crate::inodes::{Inodes, digest};
use crate::layout::Layout;
use crate::layout::view::View;
use crate::options::BuildOptions;
use crate::out::Out;
use crate::pack::StoredData;
use crate::pack::append::Appender;
use crate::plan::Plan;
use crate::plan::file::Storage;
use crate::plan::survey::Survey;
use crate::store::{StoredTree, store};
use crate::stream::{StoredStream, begin};
use crate::summary::{self, Summary};
use crate::write::special_inodes::SpecialInodes;
use crate::write::superblock::{Head, Header};
use crate::write::{self, ImageParts, kept};
use kiln_format::inode::EXTENDED_LEN;
use kiln_tree::{NodeId, Reuse, Tree};

/// Builds `tree` into `out`, for example an empty file. After an error the contents of `out` are undefined: give the
/// output its final name only after success.
///
/// # Errors
/// An input that cannot be read or represented, with its path; an output that cannot be written; options that the
/// chosen kernel does not support; an interruption.
pub fn build<'a>(
    tree: &Tree,
    out: impl Into<Out<'a>>,
    options: &BuildOptions,
    control: &Control<'_>,
) -> Result<Summary, BuildError> {
    build_explained(tree, out, options, control).map(|(summary, _)| summary)
}

/// Builds an image as [`build`] does, and returns its decisions: the reasons why each file is stored the way it is.
///
/// # Errors
/// As [`build`].
pub fn build_explained<'t, 'a>(
    tree: &'t Tree,
    out: impl Into<Out<'a>>,
    options: &BuildOptions,
    control: &Control<'_>,
) -> Result<(Summary, Reasons<'t>), BuildError> {
    build_behind(tree, out.into(), options, control).map(|(summary, reasons, _)| (summary, reasons))
}

/// Builds an image as [`build_explained`] does, behind an older one if `out` says so: data that the base of the tree
/// stores stays in place ([`Reuse::InPlace`]), new data and all metadata are appended. Nothing that exists is
/// overwritten. The image becomes the new one when the caller writes the head that is returned to byte 1024, with a
/// checksum if the options ask for one.
///
/// # Errors
/// Those of [`build`]; options that such an image cannot have.
pub fn build_behind<'t>(
    tree: &'t Tree,
    out: Out<'_>,
    options: &BuildOptions,
    control: &Control<'_>,
) -> Result<(Summary, Reasons<'t>, Head), BuildError> {
    let format = &Format::of(options, tree.stores().digests)?;
    let (clock, ledger) = (PhaseClock::start(), Ledger::default());
    let context = Context { tree, format, control, ledger: &ledger, previous: None };
    let built = run(out, &clock, context)?;
    told(built, clock.phases(), ledger, options, (tree, format))
}

/// An image that was written, with the values of its phases.
pub(crate) struct Built {
    /// Counts of its contents.
    pub summary: Summary,
    /// Its inodes.
    pub inodes: Inodes,
    /// The decisions on files.
    pub plan: Plan,
    /// Places of the data.
    pub data: StoredData,
    /// Its superblock.
    pub head: Head,
}

/// Builds an image.
///
/// # Errors
/// As [`build`].
pub(crate) fn run(out: Out<'_>, clock: &PhaseClock, context: Context<'_>) -> Result<Built, BuildError> {
    let Context { tree, format, .. } = context;
    let (previous, inodes) = gather(out, context)?;
    let context = Context { previous: previous.as_ref(), ..context };
    let survey = Survey::make(&inodes, context)?;
    clock.finish("survey");
    let (placed, stored) = (tree.stores().devices.len(), usize::from(out.blob.is_some()));
    let base = tree.stores().base;
    let reuse = base.as_ref().map(|base| base.facts().reuse).unwrap_or_default();
    let header = match out.behind {
        Some(behind) => Header::behind(behind, placed + stored, format)?,
        None if reuse == Reuse::InPlace => {
            return Err(BuildError::Internal(
                "what stays in place is in no image to which this one is added".to_owned(),
            ));
        }
        None => Header::new(placed + stored, base.map(|base| base.facts().cfgs).unwrap_or_default(), format)?,
    };
    // The device that is written comes behind the existing ones: it has the last number.
    let data = Appender::new(out, header.blocks, header.devices, format);
    let (stored, data) = store(survey, data, context)?;
    clock.finish("store");
    complete((inodes, stored), (header, data), out, clock, context)
}

/// Gathers the properties of inodes. If the image goes behind a previous one, finds the metadata of that image that it
/// may keep.
fn gather(out: Out<'_>, context: Context<'_>) -> Result<(Option<PreviousMetadata>, Inodes), BuildError> {
    // Digests are known when the contents have been read; until then something of their length stands for them.
    let digests = digest::placeholders(context.tree, context.format);
    // Nothing of the previous image is looked at if not even a root without attributes has room.
    let behind = out.behind.filter(|behind| (behind.root)(EXTENDED_LEN as u64, &[]).is_some());
    let found = behind.and_then(|behind| Some((behind, PreviousMetadata::find(context.tree, context.format)?)));
    if let Some((behind, mut found)) = found {
        let inodes = Inodes::gather(&digests, Context { previous: Some(&found), ..context })?;
        let (record_len, mut body) = (inodes.forms[NodeId::ROOT.idx()].len() as u64, Vec::new());
        inodes.encode_xattrs(NodeId::ROOT, 0, &mut body);
        if let Some(root) = (behind.root)(record_len, &body) {
            found.root = root;
            return Ok((Some(found), inodes));
        }
    }
    Ok((None, Inodes::gather(&digests, context)?))
}

/// Builds the image of a tree whose contents are stored already, see [`store_stream`](crate::store_stream). `out` and
/// options are those with which they were stored.
///
/// # Errors
/// As [`build`].
pub fn build_stored<'t>(
    tree: &'t Tree,
    stored: StoredStream,
    out: Out<'_>,
    options: &BuildOptions,
    control: &Control<'_>,
) -> Result<(Summary, Reasons<'t>), BuildError> {
    let format = &Format::of(options, tree.stores().digests)?;
    let (clock, ledger) = (PhaseClock::start(), Ledger::default());
    let context = Context { tree, format, control, ledger: &ledger, previous: None };
    let inodes = Inodes::gather(&digest::placeholders(tree, format), context)?;
    let mut phases = stored.phases.clone();
    let (stored, appended) = stored.attach(&inodes, context)?;
    let (header, data) = begin(out, format)?;
    let built = complete((inodes, stored), (header, data.resume(appended)), out, &clock, context)?;
    phases.extend(clock.phases());
    let (summary, reasons, _) = told(built, phases, ledger, options, (tree, format))?;
    Ok((summary, reasons))
}

/// Completes an image whose data is stored: adds inodes and directories.
fn complete(
    (inodes, stored): (Inodes, StoredTree),
    (header, data): (Header, Appender<'_>),
    out: Out<'_>,
    clock: &PhaseClock,
    context: Context<'_>,
) -> Result<Built, BuildError> {
    let StoredTree { plan, digests, data: stored } = stored;
    let data_end = data.end();
    let inodes = match context.format.metadata.digest_hash.is_some() {
        true => Inodes::gather(&plan.digests(&digests, context)?, context)?,
        false => inodes,
    };
    let view = View::new(&inodes, &plan, &stored, context);
    let layout = match context.previous {
        Some(previous) => {
            let zone = data.next_block().0 << view.block_bits.bits();
            Layout::make_behind(&view, previous.root, kept::find(previous, &view)?, zone)?
        }
        None => Layout::make(&view)?,
    };
    let (special_inodes, data) = SpecialInodes::pack(&view, &layout, data, context)?;
    let parts = ImageParts { view: &view, layout: &layout, special_inodes: &special_inodes, header: &header };
    let written = write::write(parts, data, out, context)?;
    clock.finish("write");
    let summary = summary::summarize(&view, data_end, &written);
    Ok(Built { summary, inodes, plan, data: stored, head: written.head })
}

/// Returns what is told about an image that was built.
fn told<'t>(
    built: Built,
    phases: Vec<Phase>,
    ledger: Ledger,
    options: &BuildOptions,
    (tree, format): (&'t Tree, &Format),
) -> Result<(Summary, Reasons<'t>, Head), BuildError> {
    let Built { summary, inodes, plan, data, head } = built;
    check::features(&head.superblock.features(), options)?;
    let ClosedLedger { skipped, changed, damaged } = ledger.close(|node| is_stored(&plan, node));
    let summary = Summary { phases, skipped, changed, damaged, ..summary };
    Ok((summary, Reasons::new(tree, inodes, plan, data, format), head))
}

/// Returns whether a regular file is in the image.
fn is_stored(plan: &Plan, node: NodeId) -> bool {
    plan.file_of(node).is_some_and(|file| plan.files[file as usize].storage != Storage::LeftOut)
}
