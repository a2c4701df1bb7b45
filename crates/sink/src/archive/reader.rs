//! Reading of members into windows.
//!
//! An archive is a stream in walk order, but an image stores contents in its own order. So contents
//! are read one window at a time: the files in it are decoded in stored order on several threads,
//! each into its place in the window. Files that share a pcluster are usually neighbours in the
//! walk and thus in one window, so the pcluster is decoded once. While one window is written, the
//! next is read.

use super::damage::Damage;
use super::digest::{Digests, WindowPiece};
use super::member::{Body, Links, Member, Rules};
use super::members::Members;
use super::options::ExportOptions;
use super::report::Loss;
use super::window::{Part, Window};
use crate::SinkError;
use crate::control::Control;
use kiln_parallel::Threads;
use kiln_read::{ExtentKind, FileRangeMut, FileType, Image, Inode, Nid};
use std::collections::HashMap;
use std::iter;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Size in bytes of a window's contents.
const WINDOW_LEN: usize = 16 << 20;
/// Size in bytes of names, extended attributes and extent lists after which a window ends.
const METADATA_LEN: usize = 4 << 20;

/// Reader of windows.
pub(super) struct Reader<'a> {
    image: &'a Image,
    members: Members<'a>,
    rules: &'a Rules,
    threads: Threads,
    /// True if extents are read before a member begins.
    looks_ahead: bool,
    damage: Damage,
    digests: Digests<'a>,
    control: Control<'a>,
    names: HashMap<Nid, Names>,
    /// A member that continues in the next window.
    current: Option<Current>,
}

/// Names of an inode that has several.
struct Names {
    first: Arc<[u8]>,
    /// Number of names in total, and of those still to come; only set with [`Links::DataWithLast`].
    count: u32,
    left: u32,
}

struct Current {
    member: Arc<Member>,
    is_begun: bool,
    /// Bytes of data still to be read.
    left: u64,
    /// Index of the next range, and bytes of it already taken.
    range: usize,
    done: u64,
}

/// A range of a file; consecutive fetches fill a window.
struct Fetch {
    inode: Inode,
    off: u64,
    len: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(
        image: &'a Image,
        members: Members<'a>,
        rules: &'a Rules,
        options: &ExportOptions,
        control: Control<'a>,
    ) -> Self {
        let (threads, looks_ahead, damage) = (options.threads, options.keep_going, Damage::new(options));
        let (digests, names) = (Digests::new(image), HashMap::new());
        Self { image, members, rules, threads, looks_ahead, damage, digests, control, names, current: None }
    }

    /// Counts the names of each inode in `members`, which must be the members to be read.
    pub(super) fn count_names(&mut self, mut members: Members<'_>) -> Result<(), SinkError> {
        loop {
            self.check_stop()?;
            let next = members.next();
            let Some(next) = self.damage.survive(next)? else { continue };
            let Some((path, inode)) = next else { break };
            if has_links(&inode) {
                let names = self.names.entry(inode.nid);
                let names = names.or_insert_with(|| Names { first: path.into(), count: 0, left: 0 });
                (names.count, names.left) = (names.count.saturating_add(1), names.left.saturating_add(1));
            }
        }
        // The second walk finds the same damage.
        self.damage.take();
        Ok(())
    }

    /// Returns the next window, with `memory` as its buffer; `None` at the end.
    pub(super) fn next(&mut self, memory: Vec<u8>) -> Result<Option<Window>, SinkError> {
        let (mut parts, mut fetches) = (Vec::new(), Vec::<(usize, Fetch)>::new());
        let (mut len, mut metadata_len) = (0, 0);
        while len < WINDOW_LEN && metadata_len < METADATA_LEN {
            self.check_stop()?;
            if self.current.is_none() {
                let next = self.members.next();
                match self.damage.survive(next)? {
                    None => metadata_len += size_of::<SinkError>(),
                    Some(Some((path, inode))) => self.current = self.begin(path, inode)?,
                    Some(None) => break,
                }
                if self.current.is_none() {
                    continue;
                }
            }
            let Some(mut current) = self.current.take() else { break };
            let is_short = current.left <= WINDOW_LEN as u64;
            if is_short && !current.is_begun && current.left > (WINDOW_LEN - len) as u64 {
                // The member fits as a whole into the next window.
                self.current = Some(current);
                break;
            }
            let (start, is_first) = (len, !std::mem::replace(&mut current.is_begun, true));
            current.take(WINDOW_LEN - len, |fetch| {
                len += fetch.len;
                fetches.push((parts.len(), fetch));
            });
            metadata_len += if is_first { current.member.memory_len() } else { 0 };
            let (member, is_last) = (Arc::clone(&current.member), current.left == 0);
            parts.push(Part { member, range: start..len, is_first, is_last });
            if !is_last {
                self.current = Some(current);
            }
        }
        if parts.is_empty() && self.damage.is_none() {
            return Ok(None);
        }
        let contents = self.fetch(&parts, &fetches, memory, len)?;
        let (damage, digested_bytes) = (self.damage.take(), self.digests.take_bytes());
        Ok(Some(Window { parts, contents, damage, digested_bytes }))
    }

    /// Reads contents into their places in `memory`.
    fn fetch(
        &mut self,
        parts: &[Part],
        fetches: &[(usize, Fetch)],
        mut memory: Vec<u8>,
        len: usize,
    ) -> Result<Vec<u8>, SinkError> {
        memory.resize(len, 0);
        let (mut rest, mut reads) = (&mut memory[..], Vec::with_capacity(fetches.len()));
        for (_, Fetch { inode, off, len }) in fetches {
            let (buf, behind) = rest.split_at_mut(*len);
            reads.push(FileRangeMut { inode: *inode, off: *off, buf });
            rest = behind;
        }
        let read = self.image.read_many_into(&mut reads, self.threads);
        let (mut start, mut pieces) = (0, Vec::with_capacity(fetches.len()));
        for ((nth, Fetch { inode, off, len }), result) in fetches.iter().zip(read) {
            let (path, place) = (&parts[*nth].member.path, start..start + len);
            start = place.end;
            let is_whole = result.is_ok();
            match result {
                Ok(have) => debug_assert_eq!(have, *len, "ranges lie inside their files"),
                Err(error) => {
                    self.damage.salvage(self.image, path, (inode, *off, &mut memory[place.clone()]), error)?
                }
            }
            pieces.push((*nth, WindowPiece { off: *off, place, is_whole }));
        }
        self.compare(parts, pieces, &memory)?;
        (self.control.progress)(len as u64);
        Ok(memory)
    }

    /// Verifies contents against stored digests.
    fn compare(&mut self, parts: &[Part], pieces: Vec<(usize, WindowPiece)>, contents: &[u8]) -> Result<(), SinkError> {
        if !self.rules.contents {
            return Ok(());
        }
        let mut pieces = pieces.into_iter().peekable();
        for (nth, part) in parts.iter().enumerate() {
            let of_part = iter::from_fn(|| pieces.next_if(|(of, _)| *of == nth)).map(|(_, piece)| piece);
            self.digests.see(part, of_part, contents, &mut self.damage)?;
        }
        Ok(())
    }

    /// Begins a member; returns `None` if it is left out.
    fn begin(&mut self, path: Vec<u8>, inode: Inode) -> Result<Option<Current>, SinkError> {
        let member = self.member(path, inode);
        let Some(member) = self.damage.survive(member)? else {
            // Further names must not refer to this one.
            if self.rules.links == Links::ToFirst {
                self.names.remove(&inode.nid);
            }
            return Ok(None);
        };
        let left = if self.rules.contents { member.data_len() } else { 0 };
        Ok(Some(Current { member: Arc::new(member), is_begun: false, left, range: 0, done: 0 }))
    }

    fn member(&mut self, path: Vec<u8>, inode: Inode) -> Result<Member, SinkError> {
        let mut member =
            Member { path, inode, xattrs: Vec::new(), body: Body::Nothing, names_count: 1, is_copy: false };
        if let Some(body) = self.left_out(&member.path, &inode)? {
            return Ok(Member { body, ..member });
        }
        if has_links(&inode)
            && let Some(body) = self.link(&mut member)
        {
            return Ok(Member { body, ..member });
        }
        member.body = self.body(&member.path, &inode)?;
        member.xattrs = self.image.list_xattrs(&inode).map_err(|error| error.at_path(&member.path))?;
        Ok(member)
    }

    /// Returns the body of a member that must be left out.
    fn left_out(&self, path: &[u8], inode: &Inode) -> Result<Option<Body>, SinkError> {
        if let Some(loss) = (self.rules.left_out)(inode.file_type()) {
            return Ok(Some(Body::LeftOut(loss)));
        }
        if !inode.is_file() {
            return Ok(None);
        }
        if let Some(object) = self.image.composefs_object(inode).map_err(|error| error.at_path(path))? {
            return Ok(Some(Body::Skipped(object)));
        }
        Ok((inode.size() > self.rules.file_max_len).then_some(Body::LeftOut(Loss::LargeFiles)))
    }

    /// Returns the body of a further name, which has no data of its own.
    fn link(&mut self, member: &mut Member) -> Option<Body> {
        let (nid, is_file) = (member.inode.nid, member.inode.is_file());
        let is_known = self.names.contains_key(&nid);
        let names = self.names.entry(nid);
        let names = names.or_insert_with(|| Names { first: member.path.as_slice().into(), count: 1, left: 1 });
        let is_first = !is_known || names.left == names.count && self.rules.links == Links::DataWithLast;
        names.left = names.left.saturating_sub(1);
        let is_link = match self.rules.links {
            Links::ToFirst => !is_first,
            Links::DataWithLast if member.inode.is_symlink() => false,
            Links::DataWithLast => {
                member.names_count = names.count;
                is_file && names.left > 0
            }
            Links::Copied => false,
        };
        let has_links = self.rules.links != Links::Copied && !member.inode.is_symlink();
        member.is_copy = !is_first && !is_link && !has_links;
        is_link.then(|| Body::LinkTo(Arc::clone(&names.first)))
    }

    fn body(&self, path: &[u8], inode: &Inode) -> Result<Body, SinkError> {
        Ok(match inode.file_type() {
            FileType::Symlink => Body::Target(self.image.read_link(inode).map_err(|error| error.at_path(path))?),
            FileType::Regular if self.rules.sparse => Body::Data(self.data_ranges(path, inode)?),
            FileType::Regular if inode.size() > 0 => {
                // Without extents, a file of any stated length would become zeros of that length.
                if self.looks_ahead {
                    self.data_ranges(path, inode)?;
                }
                Body::Data(iter::once(0..inode.size()).collect())
            }
            _ => Body::Nothing,
        })
    }

    /// Returns the ranges of a file that are not holes.
    fn data_ranges(&self, path: &[u8], inode: &Inode) -> Result<Vec<Range<u64>>, SinkError> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for extent in self.image.extents(inode) {
            let extent = extent.map_err(|error| error.at_path(path))?;
            let (start, end) = (extent.la, extent.end().min(inode.size()));
            if extent.kind == ExtentKind::Hole || start >= end {
                continue;
            }
            match ranges.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => ranges.push(start..end),
            }
        }
        Ok(ranges)
    }

    fn check_stop(&self) -> Result<(), SinkError> {
        if self.control.stop.load(Ordering::Relaxed) { Err(SinkError::Stopped) } else { Ok(()) }
    }
}

impl Current {
    /// Passes the next fetches to `give`, at most `room` bytes in total.
    fn take(&mut self, room: usize, mut give: impl FnMut(Fetch)) {
        let Body::Data(ranges) = &self.member.body else { return };
        let mut room = (room as u64).min(self.left);
        while room > 0
            && let Some(range) = ranges.get(self.range)
        {
            let off = range.start + self.done;
            let len = room.min(range.end - off);
            give(Fetch { inode: self.member.inode, off, len: len as usize });
            (room, self.left, self.done) = (room - len, self.left - len, self.done + len);
            if off + len == range.end {
                (self.range, self.done) = (self.range + 1, 0);
            }
        }
    }
}

/// Returns true if an inode other than a directory has several names.
fn has_links(inode: &Inode) -> bool {
    inode.nlink() > 1 && !inode.is_dir()
}
