//! The phases of a build, one after the other.

use crate::context::Context;
use crate::context::clock::PhaseClock;
use crate::context::progress::Control;
use crate::error::BuildError;
use crate::error::Skipped;
use crate::explain::Reasons;
use crate::inodes::{self, digest};
use crate::layout;
use crate::layout::view::View;
use crate::options::BuildOptions;
use crate::output::Out;
use crate::pack::{self, append};
use crate::plan::file::Storage;
use crate::plan::{self, Apart};
use crate::summary::{self, Summary};
use crate::tree::Tree;
use crate::write::{self, special_inodes, superblock};
use std::collections::BTreeMap;

/// Build `tree` into `out`, for example an empty file. On an error it holds rubbish: the caller gives it its final name only
/// after success.
///
/// # Errors
/// An input that cannot be read or represented, by its path; an output that cannot be written; options that ask for
/// what the chosen kernel does not have; an interruption.
pub fn build<'a>(
    tree: &Tree,
    out: impl Into<Out<'a>>,
    options: &BuildOptions,
    control: &Control<'_>,
) -> Result<Summary, BuildError> {
    build_explained(tree, out, options, control).map(|(summary, _)| summary)
}

/// As [`build`], and keep what was decided, so that it can be told why each file is stored as it is.
///
/// # Errors
/// As [`build`].
pub fn build_explained<'t, 'a>(
    tree: &'t Tree,
    out: impl Into<Out<'a>>,
    options: &BuildOptions,
    control: &Control<'_>,
) -> Result<(Summary, Reasons<'t>), BuildError> {
    options.check()?;
    let out = out.into();
    let context = Context { tree, options, control };
    let (mut apart, mut clock) = (Apart::new(), PhaseClock::start());
    loop {
        let error = match attempt(out, &mut apart, &mut clock, context) {
            Ok(Built { summary, inodes, plan, data }) => {
                let summary = Summary { phases: clock.phases(), ..summary };
                return Ok((summary, Reasons::new(tree, inodes, plan, data, options)));
            }
            Err(error) => error,
        };
        // Others were to share what could not be had any more. The file's own data may still be had.
        let BuildError::Read { path, .. } = &error else { return Err(error) };
        let node = tree.find(path.split(|&byte| byte == b'/')).filter(|node| !apart.contains_key(node));
        let Some(node) = node.filter(|_| options.keep_going) else { return Err(error) };
        apart.insert(node, Skipped { path: path.clone(), error });
        out.clear()?;
        clock.finish("begun again");
    }
}

/// An image that was written, and the values that it was made of.
struct Built {
    summary: Summary,
    inodes: inodes::Inodes,
    plan: plan::Plan,
    data: pack::StoredData,
}

/// Build an image in which files that are `apart` share nothing.
fn attempt(out: Out<'_>, apart: &mut Apart, clock: &mut PhaseClock, context: Context<'_>) -> Result<Built, BuildError> {
    let Context { tree, options, .. } = context;
    let digests = digest::all(apart, context)?;
    let mut inodes = inodes::Inodes::gather(tree, &digests, options)?;
    let mut plan = plan::Plan::make(&inodes, apart, context)?;
    clock.finish("plan");
    let header = superblock::Header::new(out.blob.is_some(), options)?;
    let mut data = append::Appender::new(out, header.blocks, options);
    let mut packed = pack::pack(&plan, &mut data, context)?;
    plan.packing_is_done();
    let data_end = data.end();
    clock.finish("pack");
    let view = View::new(tree, &inodes, &plan, &packed, options);
    let layout = layout::Layout::make(&view)?;
    let metadata = special_inodes::SpecialInodes::pack(&view, &layout, &mut data, context)?;
    let written = write::write(&view, &layout, &metadata, data, &header, out, context)?;
    clock.finish("write");
    let mut summary = summary::summarize(&view, data_end, &written);
    summary.changed = changed(&mut plan, &mut packed, apart);
    summary.skipped = std::mem::take(&mut inodes.left_out);
    summary.skipped.append(&mut plan.left_out);
    summary.skipped.extend(packed.left_out.values_mut().filter_map(Option::take));
    Ok(Built { summary, inodes, plan, data: packed })
}

/// Files that have changed and are stored, by path: those of the plan and of packing, and of those that are apart for it.
fn changed(plan: &mut plan::Plan, packed: &mut pack::StoredData, apart: &mut Apart) -> Vec<Skipped> {
    let (planned, changes) = (std::mem::take(&mut plan.apart), std::mem::take(&mut packed.changed));
    let files = &plan.files;
    let stored = |file: u32| files[file as usize].storage != Storage::LeftOut && !packed.is_left_out(file);
    let planned = planned.into_iter().filter_map(|(file, one)| {
        let one = one.or_else(|| apart.remove(&files[file as usize].node))?;
        Some((file, one))
    });
    let all = planned.chain(changes);
    let all = all.filter(|(file, one)| one.error.is_change() && stored(*file));
    let by_path: BTreeMap<_, _> = all.map(|(_, one)| (one.path, one.error)).collect();
    by_path.into_iter().map(|(path, error)| Skipped { path, error }).collect()
}
