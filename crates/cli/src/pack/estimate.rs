//! `kiln pack --estimate`: images that the presets would make.

use super::args::Args;
use super::failure::failure;
use super::preset::PresetArg;
use super::sources::Operands;
use super::summary::{InSource, LeftOutXattrJson, NoteJson, tell_notes};
use crate::console::report::{Bytes, Out, SkippedJson, note, print_document};
use crate::console::size::Human;
use crate::exit::{Exit, Failure};
use crate::process::signals::Signals;
use kiln_builder::{Estimate, Interval};
use kiln_source::Scan;
use kiln_tree::storage::DataOrder;
use kilnfs::Packer;
use serde::Serialize;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Estimates an image for each preset, with the other options as they are.
pub fn run(args: &Args, operands: &Operands<'_>) -> Result<Exit, Failure> {
    args.work.apply_nice()?;
    let tree = (args.tree.filter()?, args.tree.policy()?);
    let order = args.by_path.order()?;
    let signals = Signals::catch()?;
    let candidates = PresetArg::layouts().map(|(name, preset)| Ok((name, candidate(args, preset, &order)?)));
    let mut candidates = candidates.collect::<Result<Vec<_>, Failure>>()?;
    let Some(first) = candidates.iter().find_map(|(_, packer)| packer.as_ref().ok().cloned()) else {
        // None is possible. The last preset compresses: its reason is not that it does not.
        let last = candidates.pop().and_then(|(_, packer)| packer.err());
        return last.map_or(Ok(Exit::Done), |reason| Err(Failure::Usage(reason)));
    };
    let source = args.sources.open(operands, &args.out.spool, Some(&signals))?;
    let fail = |error| failure(error, &signals, source.path());
    let packer = first.filter(tree.0).policy(tree.1).stop(Arc::clone(signals.stop()));
    let scanned = packer.scan(&*source).map_err(fail)?;
    let mut rows = Vec::new();
    for (preset, candidate) in candidates {
        let outcome = match candidate {
            Ok(candidate) => scanned.estimate_as(&candidate).map_err(fail)?.map_err(|refused| refused.to_string()),
            Err(reason) => Err(reason),
        };
        rows.push((preset, outcome));
    }
    let (src, scan) = (args.sources.only_source(operands), &scanned.scan);
    tell_notes(scan);
    for skipped in &scan.skipped {
        note(format_args!("skipped: {}", InSource::new(src, skipped)));
    }
    match args.work.json {
        true => print_document(&EstimateJson::new(source.path(), src, scan, rows))?,
        false => tell(&rows, args.quiet.quiet)?,
    }
    Ok(if scan.skipped.is_empty() { Exit::Done } else { Exit::Skipped })
}

/// Returns the packer for one of the presets, or the reason why the other options cannot be had with it.
fn candidate(args: &Args, preset: PresetArg, order: &DataOrder) -> Result<Result<Packer, String>, Failure> {
    let options = match args.options(preset.into(), None) {
        Ok(options) => options,
        Err(Failure::Usage(reason)) => return Ok(Err(reason)),
        Err(failure) => return Err(failure),
    };
    let hints = args.by_path.hints(&options)?;
    let packer = Packer::new().options(options).hints(hints).order(order.clone());
    Ok(Ok(if args.layout.blob_device.is_some() { packer.extra_device() } else { packer }))
}

/// For people: a table on standard output.
fn tell(rows: &[(String, Result<Estimate, String>)], quiet: bool) -> Result<(), Failure> {
    let mut out = Out::new();
    let line = ["preset", "image", "", "of input", "CPU s", "", "wall s", "", "oldest kernel"];
    write_line(&mut out, line.map(String::from))?;
    for (preset, outcome) in rows {
        let Estimate { image_bytes, cpu_secs, wall_secs, .. } = match outcome {
            Ok(estimate) => estimate,
            Err(reason) => {
                writeln!(out, "{preset:<9} {reason}")?;
                continue;
            }
        };
        let estimate = outcome.as_ref().expect("just seen");
        let because = estimate.oldest_kernel_because.map(|feature| format!(" ({})", feature.name()));
        write_line(
            &mut out,
            [
                preset.clone(),
                Human(image_bytes.value as u64).to_string(),
                plus_minus(*image_bytes),
                share(image_bytes.value, estimate.bytes_in),
                format!("{:.1}", cpu_secs.value),
                plus_minus(*cpu_secs),
                format!("{:.1}", wall_secs.value),
                plus_minus(*wall_secs),
                format!("{}{}", estimate.oldest_kernel, because.unwrap_or_default()),
            ],
        )?;
        let blob_bytes = estimate.blob_bytes;
        if blob_bytes.value > 0.0 {
            let (len, error) = (Human(blob_bytes.value as u64).to_string(), plus_minus(blob_bytes));
            writeln!(out, "{:<9} {len:>10} {error:<8} on the extra device", "")?;
        }
    }
    out.finish()?;
    let estimates = rows.iter().filter_map(|(_, outcome)| outcome.as_ref().ok());
    if !quiet {
        note(format_args!(
            "of 100 such intervals 95 hold the truth; times are those of this machine, with free processors"
        ));
        if estimates.clone().any(|estimate| estimate.parts_ignored) {
            note(format_args!(
                "equal parts or chunks were not looked for in all of so large a tree: images may become smaller"
            ));
        }
    }
    Ok(())
}

fn write_line(out: &mut Out, cells: [String; 9]) -> Result<(), Failure> {
    let [preset, image, image_error, share, cpu, cpu_error, wall, wall_error, kernel] = cells;
    Ok(writeln!(
        out,
        "{preset:<9} {image:>10} {image_error:<8} {share:>8} {cpu:>8} {cpu_error:<8} {wall:>8} {wall_error:<8} {kernel}"
    )?)
}

/// The error in percent.
fn plus_minus(figure: Interval) -> String {
    if figure.value > 0.0 { format!("± {:.1} %", 100.0 * figure.error / figure.value) } else { String::new() }
}

fn share(bytes: f64, bytes_in: u64) -> String {
    if bytes_in > 0 { format!("{:.1} %", 100.0 * bytes / bytes_in as f64) } else { "-".into() }
}

/// For programs.
#[derive(Serialize)]
struct EstimateJson {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_b64: Option<String>,
    estimates: Vec<RowJson>,
    skipped: Vec<SkippedJson>,
    notes: Vec<NoteJson>,
    left_out_xattrs: Vec<LeftOutXattrJson>,
}

impl EstimateJson {
    fn new(path: &Path, src: &Path, scan: &Scan, rows: Vec<(String, Result<Estimate, String>)>) -> Self {
        let path = Bytes(path.as_os_str().as_bytes());
        Self {
            path: path.lossy(),
            path_b64: path.b64_if_lossy(),
            estimates: rows.into_iter().map(|(preset, outcome)| RowJson::new(preset, outcome)).collect(),
            skipped: scan.skipped.iter().map(|one| InSource::new(src, one).json()).collect(),
            notes: NoteJson::list(&scan.notes),
            left_out_xattrs: LeftOutXattrJson::list(&scan.left_out_xattrs),
        }
    }
}

#[derive(Serialize)]
struct RowJson {
    preset: String,
    #[serde(flatten)]
    estimate: Option<FiguresJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
}

#[derive(Serialize)]
struct FiguresJson {
    bytes_in: u64,
    image_bytes: u64,
    image_bytes_error: u64,
    blob_bytes: u64,
    blob_bytes_error: u64,
    cpu_secs: f64,
    cpu_secs_error: f64,
    wall_secs: f64,
    wall_secs_error: f64,
    oldest_kernel: String,
    oldest_kernel_because: Option<&'static str>,
    text_bytes: u64,
    sampled_bytes: u64,
    parts_ignored: bool,
}

impl RowJson {
    fn new(preset: String, outcome: Result<Estimate, String>) -> Self {
        match outcome {
            Ok(estimate) => Self { preset, estimate: Some(FiguresJson::new(&estimate)), refused: None },
            Err(reason) => Self { preset, estimate: None, refused: Some(reason) },
        }
    }
}

impl FiguresJson {
    fn new(estimate: &Estimate) -> Self {
        let Estimate { image_bytes, blob_bytes, cpu_secs, wall_secs, .. } = *estimate;
        Self {
            bytes_in: estimate.bytes_in,
            image_bytes: image_bytes.value.round() as u64,
            image_bytes_error: image_bytes.error.ceil() as u64,
            blob_bytes: blob_bytes.value.round() as u64,
            blob_bytes_error: blob_bytes.error.ceil() as u64,
            cpu_secs: cpu_secs.value,
            cpu_secs_error: cpu_secs.error,
            wall_secs: wall_secs.value,
            wall_secs_error: wall_secs.error,
            oldest_kernel: estimate.oldest_kernel.to_string(),
            oldest_kernel_because: estimate.oldest_kernel_because.map(|feature| feature.name()),
            text_bytes: estimate.text_bytes,
            sampled_bytes: estimate.sampled_bytes,
            parts_ignored: estimate.parts_ignored,
        }
    }
}
