//! Hints to the devices: which bytes will be read soon.

use crate::error::ReadError;
use crate::image::Image;
use crate::map::extent::ExtentKind;
use crate::map::inode_map::Map;
use crate::map::pcluster::EncodedExtent;
use crate::metadata::inode::Inode;
use crate::source::latency::Latency;
use std::ops::Range;

/// # For servers
///
/// What a server needs to know before it prefetches.
impl Image {
    /// Whether the last fetch took so long that its bytes were not in memory. Only known if the [policy](crate::ReadPolicy) has
    /// [`Latency`].
    pub fn is_slow(&self) -> bool {
        self.core.policy.latency.as_ref().is_some_and(Latency::is_slow)
    }

    /// Whether a fetch was [slow](Image::is_slow) in the last 250 milliseconds: then a server should not prefetch.
    pub fn is_cold(&self) -> bool {
        self.core.policy.latency.as_ref().is_some_and(Latency::is_cold)
    }
}

impl Image {
    /// Announce the next steps of the stride that a read of bytes `wanted` is part of, if it is part of one and fetches are slow.
    pub(super) fn announce_stride(
        &self,
        inode: &Inode,
        map: &mut Map<'_>,
        wanted: Range<u64>,
    ) -> Result<(), ReadError> {
        if !self.is_slow() {
            return Ok(());
        }
        let core = &self.core;
        let len = wanted.end - wanted.start;
        let Some(steps) = core.state().strides.step(inode.nid.0, wanted.start, len) else { return Ok(()) };
        for off in steps.take_while(|off| off.saturating_add(len) <= inode.meta.size) {
            let extent = map.extent_at(off)?;
            let end = (off + len).min(extent.end()) - extent.la;
            match extent.kind {
                ExtentKind::Raw { device, pa } => {
                    core.devices.will_need(device, pa.saturating_add(off - extent.la), len)
                }
                ExtentKind::Encoded { device, pa, inline: None, .. } => {
                    core.devices.will_need(device, pa, EncodedExtent::of(&extent)?.fetched_for(end as usize));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Tell the devices which pclusters hold a range of a file, so that all are fetched while the first ones are decoded.
    pub(super) fn announce_pclusters(&self, map: &mut Map<'_>, range: Range<u64>) -> Result<(), ReadError> {
        let announce =
            |(device, run): (u16, Range<u64>)| self.core.devices.will_need(device, run.start, run.end - run.start);
        let (mut off, mut run) = (range.start, None::<(u16, Range<u64>)>);
        while off < range.end {
            let extent = map.extent_at(off)?;
            off = extent.end();
            let (ExtentKind::Encoded { device, pa, plen, inline: None, .. }
            | ExtentKind::Plain { device, pa, plen, inline: None, .. }) = extent.kind
            else {
                continue;
            };
            let end = pa.saturating_add(plen.into());
            match &mut run {
                Some((of, run)) if (*of, run.end) == (device, pa) => run.end = end,
                _ => run.replace((device, pa..end)).into_iter().for_each(announce),
            }
        }
        run.into_iter().for_each(announce);
        Ok(())
    }
}
