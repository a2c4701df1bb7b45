//! Hints to the devices: which bytes will be read soon.

use super::file::HINT_MAX_LEN;
use super::pieces::PackedMap;
use super::read::readable;
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

/// Files that lie so near each other are announced as one range, and ranges of at most so many bytes: more would not fit into the caches of
/// slow sources.
const GAP_MAX_LEN: u64 = 64 << 10;
const RUN_MAX_LEN: u64 = 4 << 20;

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
    /// Whether the contents of a file are in memory in all likelihood, where the source can tell without reading them: by its first stored bytes.
    /// Reads metadata only.
    ///
    /// # Errors
    /// Something without contents, a damaged map, a failing source.
    pub fn is_resident(&self, inode: &Inode) -> Result<Option<bool>, ReadError> {
        let mut found = None;
        self.each_stored(inode, 0..inode.size().min(1), &mut |device, stored| {
            found = self.core.devices.is_resident(device, stored.start, stored.end - stored.start);
        })?;
        Ok(found)
    }

    /// [`Image::prefetch`] for many files, at most 16 MiB of each: what lies side by side is announced at once. Returns how many stored bytes were announced.
    ///
    /// ```
    /// # fn main() -> Result<(), kiln_read::ReadError> {
    /// # let image = kiln_read::Image::open_path("tests/golden/zstd.erofs".as_ref(), &[], &Default::default())?;
    /// let files = [image.open_file("/big/text")?, image.open_file("/big/mixed")?];
    /// let announced = image.prefetch_many(files.iter().map(|file| *file.inode())).map_err(|(_, error)| error)?;
    /// # assert!(announced > 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Image::prefetch`], for the first file that has one, and which it is. Nothing is announced then.
    pub fn prefetch_many(&self, inodes: impl IntoIterator<Item = Inode>) -> Result<u64, (usize, ReadError)> {
        let mut ranges = Vec::new();
        for (nth, inode) in inodes.into_iter().enumerate() {
            let mut add = |device, stored: Range<u64>| ranges.push((device, stored.start, stored.end));
            let announced = self.each_stored(&inode, 0..inode.size().min(HINT_MAX_LEN), &mut add);
            announced.map_err(|error| (nth, error.at_nid(inode.nid)))?;
        }
        ranges.sort_unstable();
        let (mut announced, mut run) = (0, None::<(u16, u64, u64)>);
        let mut announce = |(device, start, end): (u16, u64, u64)| {
            self.will_need(device, start, end - start);
            announced += end - start;
        };
        for (device, start, end) in ranges {
            match &mut run {
                Some((of, first, until))
                    if *of == device
                        && start <= until.saturating_add(GAP_MAX_LEN)
                        && end.max(*until) - *first <= RUN_MAX_LEN =>
                {
                    *until = end.max(*until);
                }
                _ => run.replace((device, start, end)).into_iter().for_each(&mut announce),
            }
        }
        run.into_iter().for_each(&mut announce);
        Ok(announced)
    }

    /// Give the device and the stored bytes of each extent of a range, which the file has, to `each`; of fragments those in the packed inode.
    fn each_stored(
        &self,
        inode: &Inode,
        range: Range<u64>,
        each: &mut dyn FnMut(u16, Range<u64>),
    ) -> Result<(), ReadError> {
        let end = range.start + readable(inode, (range.end - range.start) as usize, range.start)? as u64;
        let (mut map, mut packed) = (Map::open(self, inode)?, PackedMap::new(self));
        self.each_piece(&mut map, &mut packed, range.start..end, &mut |extent, part| {
            match extent.kind {
                ExtentKind::Raw { device, pa } => {
                    let start = pa.saturating_add(part.start - extent.la);
                    each(device, start..start.saturating_add(part.end - part.start));
                }
                ExtentKind::Plain { device, pa, plen, inline: None, .. }
                | ExtentKind::Encoded { device, pa, plen, inline: None, .. } => {
                    each(device, pa..pa.saturating_add(plen.into()));
                }
                _ => {}
            }
            Ok(())
        })
    }

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
                ExtentKind::Raw { device, pa } => self.will_need(device, pa.saturating_add(off - extent.la), len),
                ExtentKind::Encoded { device, pa, inline: None, .. } => {
                    self.will_need(device, pa, EncodedExtent::of(&extent)?.fetched_for(end as usize));
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
        let announce = |(device, run): (u16, Range<u64>)| self.will_need(device, run.start, run.end - run.start);
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
