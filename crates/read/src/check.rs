//! Is an image whole? Everything reachable is read, decoded and compared with what the rest of the image says.

mod data;
mod features;
mod problems;
pub(crate) mod report;
mod span;
mod tree;

use crate::error::ReadError;
use crate::image::Image;
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

impl Image {
    /// Check the whole image, decoding on `threads`.
    ///
    /// The report says what is damaged. The checksum of the superblock is compared even if the image was opened without.
    ///
    /// ```
    /// # fn main() -> Result<(), kiln_read::ReadError> {
    /// # let image = kiln_read::Image::open_path("tests/golden/zstd.erofs".as_ref(), &[], &Default::default())?;
    /// let report = image.check(kiln_read::Threads::PROCESSORS)?;
    /// for problem in &report.problems {
    ///     println!("{problem}");
    /// }
    /// assert_eq!(report.problem_count, 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A failing source, which says nothing about the image, a device that was not given, or a bug in this program.
    pub fn check(&self, threads: Threads) -> Result<CheckReport, ReadError> {
        self.check_with(threads, &|_| {})
    }

    /// [`Image::check`] with a callback: `progress` gets the lengths in bytes of extents that are going to be checked, those of
    /// regular files, of the packed inode and of the metabox.
    ///
    /// # Errors
    /// Those of [`Image::check`].
    pub fn check_with(&self, threads: Threads, progress: &dyn Fn(u64)) -> Result<CheckReport, ReadError> {
        let problems = Problems::default();
        // Inodes of the metabox have their places in its contents, whatever these compress to.
        let room = self.core.devices.total_len().saturating_add(self.space_len(MetadataSpace::Metabox));
        let mut spans = Spans::new(room);
        check_superblock(self, &problems, &mut spans)?;
        let mut report = data::with_decoders(self, &problems, threads.count(), |queue| {
            let mut tree = TreeCheck::new(self, &problems, &mut spans, queue, progress);
            tree.check_all()?;
            Ok(tree.into_report())
        })?;
        report.has_checksum = self.superblock().compat.contains(Compat::SB_CHKSUM);
        report.notes.extend(spans.report_overlaps(&problems));
        spans.plain_data().try_for_each(|(device, bytes)| read_plain(self, device, bytes))?;
        (report.problems, report.problem_count) = problems.into_list();
        Ok(report)
    }
}

/// Read data that is stored as it is. Nothing in it can be wrong, but its source may fail.
fn read_plain(image: &Image, device: u16, bytes: Range<u64>) -> Result<(), ReadError> {
    let mut buf = vec![0; PLAIN_STEP.min(bytes.end - bytes.start) as usize];
    let mut at = bytes.start;
    while at < bytes.end {
        let len = PLAIN_STEP.min(bytes.end - at);
        image.core.devices.read(device, &mut buf[..len as usize], at)?;
        at += len;
    }
    Ok(())
}

/// Check the superblock's own fields, and note where the records lie that it points to.
fn check_superblock(image: &Image, problems: &Problems, spans: &mut Spans) -> Result<(), ReadError> {
    let sb = image.superblock();
    problems.take(b"", image.verify_checksum())?;
    let blocks = sb.block_bits.blocks_for(image.source_len());
    if sb.blocks > blocks {
        problems.add(b"", None, Finding::Field { field: "blocks", stored: sb.blocks, expected: blocks });
    }
    let records =
        if sb.incompat.contains(Incompat::COMPR_CFGS) { image.compr_cfgs().encode()?.len() as u64 } else { 0 };
    spans.add_metadata(0, SUPERBLOCK_OFF, sb.record_len + records);
    spans.add_metadata(0, sb.devt_off, 128 * u64::from(sb.extra_devices));
    if let Some((start, end)) = image.core.prefixes.in_image {
        spans.add_metadata(0, start, end - start);
    }
    Ok(())
}
