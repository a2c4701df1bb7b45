//! Lost contents, which are replaced by zeros and listed in the report.

use crate::SinkError;
use kiln_read::ReadError;
use std::collections::HashSet;
use std::ops::Range;

/// Maximum number of listed ranges: a hostile image could have one for each of its blocks.
const RANGES_MAX: usize = 1 << 20;

/// A file with zeros in place of some of its contents.
#[derive(Debug)]
pub struct LostContents {
    /// Path in the image.
    pub path: Vec<u8>,
    /// Byte ranges of the file that are lost, in order.
    pub ranges: Vec<Range<u64>>,
    /// The reason of the first loss.
    pub error: SinkError,
}

/// All losses, in the order in which workers find them.
#[derive(Default)]
pub(super) struct Lost {
    files: Vec<LostContents>,
    ranges: usize,
}

impl Lost {
    /// Notes that a range of a file is lost.
    ///
    /// # Errors
    /// `error`, if too many ranges are lost.
    pub(super) fn add(&mut self, path: &[u8], range: Range<u64>, error: ReadError) -> Result<(), SinkError> {
        let error = SinkError::Read(error);
        if self.ranges >= RANGES_MAX {
            return Err(error);
        }
        self.ranges += 1;
        self.files.push(LostContents { path: path.to_vec(), ranges: vec![range], error });
        Ok(())
    }

    /// Returns the losses sorted by path, with adjacent ranges merged, and without files in
    /// `skipped`.
    pub(super) fn into_list(mut self, skipped: &[(Vec<u8>, SinkError)]) -> Vec<LostContents> {
        self.files.sort_by(|a, b| (&a.path, a.ranges[0].start).cmp(&(&b.path, b.ranges[0].start)));
        let skipped: HashSet<&[u8]> = skipped.iter().map(|(path, _)| &path[..]).collect();
        let mut list: Vec<LostContents> = Vec::new();
        for one in self.files {
            match list.last_mut() {
                Some(last) if last.path == one.path => match last.ranges.last_mut() {
                    Some(range) if range.end == one.ranges[0].start => range.end = one.ranges[0].end,
                    _ => last.ranges.extend(one.ranges),
                },
                _ if skipped.contains(&one.path[..]) => {}
                _ => list.push(one),
            }
        }
        list
    }
}
