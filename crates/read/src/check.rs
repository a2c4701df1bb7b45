//! Check of an image: everything reachable is read, decoded and compared with the rest of the
//! image.

mod data;
mod features;
mod problems;
pub(crate) mod report;
mod span;
mod tree;

use crate::error::ReadError;
use crate::image::reader::Reader;
use crate::metadata::space::MetadataSpace;
use kiln_format::superblock::SUPERBLOCK_OFF;
use kiln_format::{Compat, Incompat};
use kiln_parallel::Threads;
use problems::Problems;
use report::{CheckReport, Finding};
use span::Spans;
use std::ops::Range;
use tree::TreeCheck;

/// Bytes of plain data that are read at a time.
const PLAIN_STEP: u64 = 1 << 20;

/// Implements `Image::check_with`.
pub(crate) fn check(reader: Reader<'_>, threads: Threads, progress: &dyn Fn(u64)) -> Result<CheckReport, ReadError> {
    let (problems, sb) = (Problems::default(), reader.superblock());
    // Inodes of the metabox have their places in its contents, however well these compress.
    let room = reader.volume.devices.total_len().saturating_add(reader.space_len(MetadataSpace::Metabox));
    let mut spans = Spans::new(room);
    check_superblock(reader, &problems, &mut spans)?;
    let mut report = data::with_decoders(reader, &problems, threads.count(), |queue| {
        let mut tree = TreeCheck::new(reader, &problems, &mut spans, queue, progress);
        tree.check_all()?;
        Ok(tree.into_report())
    })?;
    report.has_checksum = sb.compat.contains(Compat::SB_CHKSUM);
    report.notes.extend(spans.report_overlaps(&problems));
    spans.plain_data().try_for_each(|(device, bytes)| read_plain(reader, device, bytes))?;
    (report.problems, report.problem_count) = problems.into_list();
    Ok(report)
}

/// Reads plain data. Nothing in it can be wrong, but its source may fail.
fn read_plain(reader: Reader<'_>, device: u16, bytes: Range<u64>) -> Result<(), ReadError> {
    let mut buf = vec![0; PLAIN_STEP.min(bytes.end - bytes.start) as usize];
    let mut at = bytes.start;
    while at < bytes.end {
        let len = PLAIN_STEP.min(bytes.end - at);
        reader.volume.devices.read(device, &mut buf[..len as usize], at)?;
        at += len;
    }
    Ok(())
}

/// Checks the superblock's own fields, and note where the records lie that it points to.
fn check_superblock(reader: Reader<'_>, problems: &Problems, spans: &mut Spans) -> Result<(), ReadError> {
    let sb = reader.superblock();
    problems.take(b"", reader.volume.verify_checksum())?;
    let blocks = sb.block_bits.blocks_for(reader.volume.devices.primary_len());
    if sb.blocks > blocks {
        problems.add(b"", None, Finding::Field { field: "blocks", stored: sb.blocks, expected: blocks });
    }
    let records =
        if sb.incompat.contains(Incompat::COMPR_CFGS) { reader.volume.cfgs.encode()?.len() as u64 } else { 0 };
    spans.add_metadata(0, SUPERBLOCK_OFF, sb.record_len + records);
    spans.add_metadata(0, sb.devt_off, 128 * u64::from(sb.extra_devices));
    if let Some((start, end)) = reader.prefixes.in_image {
        spans.add_metadata(0, start, end - start);
    }
    Ok(())
}
