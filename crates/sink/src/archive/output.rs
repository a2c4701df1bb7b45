//! The output stream of an archive.

use super::report::ExportReport;
use crate::SinkError;
use std::io::Write;

const ZEROS: [u8; 4096] = [0; 4096];

/// An output stream that counts its bytes, and the report.
pub(super) struct Output<'a> {
    out: &'a mut dyn Write,
    /// Number of bytes written.
    pub(super) off: u64,
    pub(super) report: ExportReport,
}

impl<'a> Output<'a> {
    pub(super) fn new(out: &'a mut dyn Write) -> Self {
        Self { out, off: 0, report: ExportReport::default() }
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), SinkError> {
        self.out.write_all(bytes).map_err(SinkError::Write)?;
        self.off += bytes.len() as u64;
        Ok(())
    }

    /// Writes zeros up to the next multiple of `align`.
    pub(super) fn align(&mut self, align: u64) -> Result<(), SinkError> {
        let mut left = self.off.next_multiple_of(align) - self.off;
        while left > 0 {
            let len = left.min(ZEROS.len() as u64);
            self.write(&ZEROS[..len as usize])?;
            left -= len;
        }
        Ok(())
    }

    /// Flushes the stream and returns the report.
    pub(super) fn finish(self) -> Result<ExportReport, SinkError> {
        self.out.flush().map_err(SinkError::Write)?;
        Ok(self.report)
    }
}
