//! Hints to the devices: which bytes will be read soon.

use crate::error::ReadError;
use crate::image::Image;
use crate::map::extent::ExtentKind;
use crate::map::inode_map::Map;
use crate::map::pcluster::EncodedExtent;
use crate::metadata::inode::Inode;
use crate::options::read_policy::{Readahead, SourcePrefetch};
use crate::source::latency::Latency;
use crate::source::read_at::FETCH_MAX_LEN;
use std::ops::Range;

/// Bytes of pclusters that are announced when a fetch for a part of a read begins: those of the next fetches.
const REST_LEN: u64 = 2 * FETCH_MAX_LEN as u64;

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

    /// Tell the devices which pclusters hold a range of a file that is read in several fetches, as far as the next ones go, so that these
    /// bytes arrive while the first ones are decoded. Where the system reads ahead, it does that.
    pub(super) fn announce_rest(&self, map: &mut Map<'_>, range: Range<u64>) -> Result<(), ReadError> {
        let policy = &self.core.policy;
        if policy.prefetch == SourcePrefetch::Off || policy.readahead == Readahead::System {
            return Ok(());
        }
        let announce =
            |(device, run): (u16, Range<u64>)| self.core.devices.will_need(device, run.start, run.end - run.start);
        let (mut off, mut run, mut len) = (range.start, None::<(u16, Range<u64>)>, 0);
        while off < range.end && len < REST_LEN {
            let extent = map.extent_at(off)?;
            off = extent.end();
            let (ExtentKind::Encoded { device, pa, plen, inline: None, .. }
            | ExtentKind::Plain { device, pa, plen, inline: None, .. }) = extent.kind
            else {
                continue;
            };
            let end = pa.saturating_add(plen.into());
            len += u64::from(plen);
            match &mut run {
                Some((of, run)) if (*of, run.end) == (device, pa) => run.end = end,
                _ => run.replace((device, pa..end)).into_iter().for_each(announce),
            }
        }
        run.into_iter().for_each(announce);
        Ok(())
    }
}
