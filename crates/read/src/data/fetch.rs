//! Fetches of many ranges: what one step of a read needs from the devices comes in one call for
//! each of them, as each call to a source that is far away takes a round trip.

use crate::error::ReadError;
use crate::image::reader::Reader;
use crate::options::read_policy::Readahead;
use crate::source::devices::DeviceRange;
use crate::source::read_at::FETCH_MAX_LEN;

/// Bytes of pclusters that are fetched together, and their places in one buffer. Adjacent ones are
/// one range of their device.
#[derive(Default)]
pub(super) struct FetchPlan {
    runs: Vec<Run>,
    len: usize,
}

/// Adjacent bytes of a device.
struct Run {
    device: u16,
    pa: u64,
    len: usize,
}

impl FetchPlan {
    /// Adds `len` bytes from byte `pa` of a device on, which must have been checked. Returns where
    /// they begin in the buffer.
    pub(super) fn add(&mut self, device: u16, pa: u64, len: usize) -> usize {
        match self.runs.last_mut() {
            Some(run) if (run.device, run.pa + run.len as u64) == (device, pa) => run.len += len,
            _ => self.runs.push(Run { device, pa, len }),
        }
        self.len += len;
        self.len - len
    }

    /// Returns the bytes of all of them.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Forgets them.
    pub(super) fn clear(&mut self) {
        self.runs.clear();
        self.len = 0;
    }
}

impl<'a> Reader<'a> {
    /// Fetches the planned bytes into `buf`, which has its length, and the ranges `direct`, in one
    /// call for each device.
    pub(super) fn fetch<'b>(
        self,
        plan: &FetchPlan,
        buf: &'b mut [u8],
        direct: Vec<DeviceRange<'b>>,
    ) -> Result<(), ReadError> {
        let (mut ranges, mut buf) = (direct, buf);
        ranges.reserve_exact(plan.runs.len());
        for &Run { device, pa, len } in &plan.runs {
            let (part, rest) = buf.split_at_mut(len);
            ranges.push(DeviceRange { device, off: pa, buf: part });
            buf = rest;
        }
        if ranges.len() > 1 {
            ranges.sort_unstable_by_key(|range| (range.device, range.off));
        }
        ranges.retain_mut(|range| !self.read_staged(range.device, range.buf, range.off));
        for range in &ranges {
            self.step_readahead(range.device, range.off, range.buf.len() as u64);
        }
        self.volume.devices.fetch(ranges)
    }

    /// Fills `buf` from byte `pa` of a device on, which must have been checked, if these bytes
    /// belong to a list that is [loaded](Image::load_ahead) at the moment.
    pub(crate) fn read_staged(self, device: u16, buf: &mut [u8], pa: u64) -> bool {
        let staged = self.volume.state().staged();
        !staged.is_empty() && staged.read(device, buf, pa, &|device, buf, pa| self.volume.devices.read(device, buf, pa))
    }

    /// Tells a device that these bytes will be read soon, unless they are those of a list that is
    /// [loaded](Image::load_ahead) at the moment: the device would fetch them once more.
    pub(super) fn will_need(self, device: u16, pa: u64, len: u64) {
        if !self.volume.state().staged().has(device, pa) {
            self.volume.devices.will_need(device, pa, len);
        }
    }

    /// Returns the largest number of bytes of pclusters that one read fetches at once, unless one
    /// pcluster alone is longer.
    pub(super) fn fetch_max_len(self) -> usize {
        match self.volume.policy.readahead {
            Readahead::System => self.volume.devices.fetch_max_len(),
            Readahead::Image => FETCH_MAX_LEN,
        }
    }

    /// Tells the readahead, if it is the image's, that `len` bytes from byte `pa` of a device on
    /// are about to be fetched.
    pub(super) fn step_readahead(self, device: u16, pa: u64, len: u64) {
        if self.volume.policy.readahead == Readahead::System {
            return;
        }
        if let Some(soon) = self.volume.state().readahead.step(device, pa, len) {
            self.will_need(device, soon.start, soon.end - soon.start);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_pclusters_are_one_range() {
        let mut plan = FetchPlan::default();
        let starts = [(0, 100, 50), (0, 150, 10), (1, 160, 10), (0, 160, 10), (0, 100, 50)]
            .map(|(device, pa, len)| plan.add(device, pa, len));
        assert_eq!(starts, [0, 50, 60, 70, 80]);
        let runs: Vec<_> = plan.runs.iter().map(|run| (run.device, run.pa, run.len)).collect();
        assert_eq!(runs, [(0, 100, 60), (1, 160, 10), (0, 160, 10), (0, 100, 50)]);
        assert_eq!(plan.len(), 130);
    }
}
