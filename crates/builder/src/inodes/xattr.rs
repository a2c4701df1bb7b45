//! Extended attributes: the shared ones, and the body of each inode.
//!
//! Equal sets of attributes are kept once, however many inodes have them: a tree with one label on a million files
//! has one set. A (name, value) pair with several owners goes to the shared area; ids count from the start of that
//! area.

use kiln_format::xattr::{self, BODY_HEADER_LEN, HIDDEN, RawXattrBodyHeader, SHARED_MAX};
use std::collections::HashMap;
use std::num::NonZeroU32;
use zerocopy::IntoBytes;

use crate::error::BuildError;
use crate::error::InputProblem;
use crate::format::MetadataFormat;
use kiln_tree::{Node, Xattr};

/// Id of a set of attributes that one or more inodes have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SetId(NonZeroU32);

impl SetId {
    /// Returns the id of the set at `idx`.
    fn of(idx: usize) -> Self {
        Self(NonZeroU32::MIN.saturating_add(idx as u32))
    }

    fn idx(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// Fronts of names, each stored once.
#[derive(Debug, Default)]
pub(crate) struct Prefixes {
    /// Index of the base, and the bytes that follow it.
    list: Vec<(u8, Box<[u8]>)>,
    /// The last one names digests of contents, and nothing else.
    has_digests: bool,
}

impl Prefixes {
    /// Takes the prefixes that the options choose.
    ///
    /// # Errors
    /// A name without a base, or with nothing behind it; too many of them.
    pub(crate) fn new(metadata: &MetadataFormat) -> Result<Self, BuildError> {
        let names = &metadata.xattr_prefixes;
        let prefix = |name: &Vec<u8>| {
            let refuse = |reason| BuildError::XattrPrefix { name: name.clone(), reason };
            match xattr::split_name(name) {
                Some((index, infix)) if !infix.is_empty() && infix.len() < xattr::NAME_MAX_LEN => {
                    Ok((index, infix.into()))
                }
                _ => Err(refuse("begin it with user., trusted. or security., and go on for up to 254 bytes")),
            }
        };
        let refuse = |name: &[u8], reason| Err(BuildError::XattrPrefix { name: name.to_vec(), reason });
        let mut list: Vec<(u8, Box<[u8]>)> = names.iter().map(prefix).collect::<Result<_, _>>()?;
        if let Some(name) = &metadata.digest_prefix {
            if name.is_empty() || name.len() > xattr::NAME_MAX_LEN {
                return refuse(name, "names of digests have 1 to 255 bytes");
            }
            let visible = xattr::split_name(name).filter(|(_, infix)| !infix.is_empty());
            let (index, infix) = visible.unwrap_or((HIDDEN, &**name));
            list.push((index, infix.into()));
        }
        if list.len() > xattr::LONG_PREFIX_MAX {
            return refuse(&list[xattr::LONG_PREFIX_MAX].1, "an image has 128 prefixes at most");
        }
        Ok(Self { list, has_digests: metadata.digest_prefix.is_some() })
    }

    /// Returns the number of the prefix that names digests of contents, if there are any.
    pub(crate) fn digest_id(&self) -> Option<u8> {
        self.has_digests.then(|| self.count() - 1)
    }

    /// Returns the number of prefixes.
    pub(crate) fn count(&self) -> u8 {
        self.list.len() as u8
    }

    /// Returns the table of prefixes.
    pub(crate) fn table(&self) -> Vec<u8> {
        let mut table = Vec::new();
        for (index, infix) in &self.list {
            xattr::encode_long_prefix(*index, infix, &mut table).expect("lengths were checked");
        }
        table
    }

    /// Returns the number of the longest prefix of a name, and the length of the prefix behind the base.
    fn longest(&self, index: u8, rest: &[u8]) -> Option<(u8, usize)> {
        let fits = |(base, infix): &(u8, Box<[u8]>)| *base == index && rest.starts_with(infix);
        let of_trees = &self.list[..self.list.len() - usize::from(self.has_digests)];
        let fitting = (0..).zip(of_trees).filter(|(_, prefix)| fits(prefix));
        let longest = fitting.max_by_key(|(number, (_, infix))| (infix.len(), u8::MAX - number));
        longest.map(|(number, (_, infix))| (number, infix.len()))
    }
}

/// All attributes of a tree.
#[derive(Debug, Default)]
pub(crate) struct Xattrs {
    /// Attributes in the order they first occur.
    pairs: Vec<Pair>,
    /// Each set: indexes of `pairs`, sorted by name.
    sets: Vec<Set>,
    /// The shared area: entries of all shared pairs.
    shared_area: Vec<u8>,
}

#[derive(Debug)]
struct Pair {
    index: u8,
    rest: Box<[u8]>,
    /// Number of the long prefix that the name begins with, and the length of the prefix behind the base.
    prefix: Option<(u8, usize)>,
    value: Box<[u8]>,
    /// Number of inodes that have it.
    owners: u64,
    /// Place of its shared entry, once shared.
    shared: Option<SharedPlace>,
}

/// Place of a shared entry.
#[derive(Clone, Copy, Debug)]
enum SharedPlace {
    /// Offset in the shared area.
    Area(u32),
    /// Id in the previous image.
    Previous(u32),
}

/// Choice of the attributes that are shared.
#[derive(Clone, Copy)]
pub(crate) enum Sharing<'a> {
    /// Those with at least this many owners.
    From(u64),
    /// Those that the previous image has, with their ids by entries.
    Known(&'a HashMap<Box<[u8]>, u32>),
}

#[derive(Debug)]
struct Set {
    pairs: Box<[u32]>,
    body_len: usize,
}

/// Collects the sets of a tree.
#[derive(Default)]
pub(crate) struct Collector {
    prefixes: Prefixes,
    xattrs: Xattrs,
    set_by_pairs: HashMap<Box<[u32]>, SetId>,
    pair_by_attr: HashMap<Xattr, u32>,
}

impl Collector {
    /// Collects sets of names that may have these prefixes.
    pub(crate) fn new(prefixes: Prefixes) -> Self {
        Self { prefixes, ..Self::default() }
    }

    /// Adds the attributes of `node` and a digest of its contents. Returns their set, or `None` for a node without
    /// attributes.
    ///
    /// # Errors
    /// An attribute that the format cannot hold.
    pub(crate) fn add(&mut self, node: &Node, digest: Option<&[u8]>) -> Result<Option<SetId>, InputProblem> {
        let mut pairs = Vec::with_capacity(node.xattrs.len() + 1);
        pairs.extend(digest.map(|value| self.digest_pair(value)));
        if node.xattrs.is_empty() && pairs.is_empty() {
            return Ok(None);
        }
        for attr in node.xattrs.iter() {
            pairs.push(self.pair(attr)?);
        }
        let xattrs = &mut self.xattrs;
        pairs.sort_unstable_by(|&a, &b| xattrs.pairs[a as usize].name().cmp(&xattrs.pairs[b as usize].name()));
        if let Some(twice) =
            pairs.windows(2).find(|w| xattrs.pairs[w[0] as usize].name() == xattrs.pairs[w[1] as usize].name())
        {
            let (index, rest) = xattrs.pairs[twice[0] as usize].name();
            let name = [xattr::prefix(index).unwrap_or_default(), rest].concat();
            return Err(InputProblem::Xattr { name, reason: "is there twice" });
        }
        // The body is longest with nothing shared: if that fits, any form fits.
        let longest: usize =
            BODY_HEADER_LEN + pairs.iter().map(|&p| xattrs.pairs[p as usize].entry_len()).sum::<usize>();
        if longest > xattr::BODY_MAX_LEN {
            return Err(InputProblem::XattrBody(longest));
        }
        for &pair in &pairs {
            xattrs.pairs[pair as usize].owners += 1;
        }
        let pairs = pairs.into_boxed_slice();
        let next = SetId::of(xattrs.sets.len());
        let id = *self.set_by_pairs.entry(pairs.clone()).or_insert(next);
        if id == next {
            xattrs.sets.push(Set { pairs, body_len: 0 });
        }
        Ok(Some(id))
    }

    /// Returns the pair of a digest, whose name is a prefix with nothing behind it, or is stored in full.
    fn digest_pair(&mut self, value: &[u8]) -> u32 {
        let of_prefix = self.prefixes.digest_id().zip(self.prefixes.list.last());
        let (index, rest, prefix) = match of_prefix {
            Some((number, (index, infix))) => (*index, infix.clone(), Some((number, infix.len()))),
            None => (HIDDEN, xattr::FINGERPRINT_NAME.into(), None),
        };
        // No attribute of a tree has an empty name.
        let key = Xattr { name: Box::default(), value: value.into() };
        let pairs = &mut self.xattrs.pairs;
        *self.pair_by_attr.entry(key).or_insert_with(|| {
            pairs.push(Pair { index, rest, prefix, value: value.into(), owners: 0, shared: None });
            pairs.len() as u32 - 1
        })
    }

    fn pair(&mut self, attr: &Xattr) -> Result<u32, InputProblem> {
        let refuse = |reason| Err(InputProblem::Xattr { name: attr.name.to_vec(), reason });
        if let Some(&pair) = self.pair_by_attr.get(attr) {
            return Ok(pair);
        }
        let Some((index, rest)) = xattr::split_name(&attr.name) else {
            return refuse("EROFS holds user., trusted., security. and POSIX ACL attributes only");
        };
        if attr.name.len() > xattr::NAME_MAX_LEN {
            return refuse("the name is longer than 255 bytes");
        }
        if attr.value.len() > xattr::VALUE_MAX_LEN {
            return refuse("the value is longer than 65535 bytes");
        }
        let pair = self.xattrs.pairs.len() as u32;
        let prefix = self.prefixes.longest(index, rest);
        let (rest, value) = (rest.into(), attr.value.clone());
        self.xattrs.pairs.push(Pair { index, rest, prefix, value, owners: 0, shared: None });
        self.pair_by_attr.insert(attr.clone(), pair);
        Ok(pair)
    }

    /// Decides which attributes are shared.
    pub(crate) fn finish(self, sharing: Sharing<'_>) -> Xattrs {
        let (mut xattrs, mut entry) = (self.xattrs, Vec::new());
        for pair in &mut xattrs.pairs {
            match sharing {
                Sharing::From(owners) if pair.owners >= owners.max(1) => {
                    if let Ok(off) = u32::try_from(xattrs.shared_area.len()) {
                        pair.shared = Some(SharedPlace::Area(off));
                        pair.encode(&mut xattrs.shared_area);
                    }
                }
                Sharing::From(_) => {}
                Sharing::Known(ids) => {
                    entry.clear();
                    pair.encode(&mut entry);
                    pair.shared = ids.get(&*entry).copied().map(SharedPlace::Previous);
                }
            }
        }
        for set in &mut xattrs.sets {
            let (shared, inline) = split(&xattrs.pairs, &set.pairs);
            set.body_len =
                BODY_HEADER_LEN + 4 * shared.len() + inline.iter().map(|pair| pair.entry_len()).sum::<usize>();
        }
        xattrs
    }
}

impl Pair {
    fn entry_len(&self) -> usize {
        xattr::entry_len(self.stored_name().1.len(), self.value.len())
    }

    /// Returns the index that is stored, and the bytes that are stored behind it.
    fn stored_name(&self) -> (u8, &[u8]) {
        match self.prefix {
            Some((number, len)) => (xattr::LONG_PREFIX | number, &self.rest[len..]),
            None => self.name(),
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let (index, rest) = self.stored_name();
        xattr::encode_entry(index, rest, &self.value, out).expect("lengths were checked when the pair was collected");
    }

    fn name(&self) -> (u8, &[u8]) {
        (self.index, &self.rest)
    }
}

/// Splits a set into pairs that a body lists by id (at most 255) and pairs that it contains.
fn split<'a>(pairs: &'a [Pair], set: &[u32]) -> (Vec<&'a Pair>, Vec<&'a Pair>) {
    let all = set.iter().map(|&pair| &pairs[pair as usize]);
    let (mut shared, mut inline): (Vec<_>, Vec<_>) = all.partition(|pair| pair.shared.is_some());
    inline.extend(shared.drain(SHARED_MAX.min(shared.len())..));
    (shared, inline)
}

impl Xattrs {
    /// Returns whether there are no attributes at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    /// Returns the bytes of the shared area.
    pub(crate) fn shared_area(&self) -> &[u8] {
        &self.shared_area
    }

    /// Returns the length of a set's body in bytes.
    pub(crate) fn body_len(&self, set: Option<SetId>) -> usize {
        set.map_or(0, |set| self.sets[set.idx()].body_len)
    }

    /// Appends a set's body, or an empty one with room for later attributes. `shared_base` is the id of the first
    /// byte of the shared area: its distance in units of 4 bytes from `xattr_blkaddr`.
    pub(crate) fn encode_body(&self, set: Option<SetId>, shared_base: u32, out: &mut Vec<u8>) {
        let pairs = set.map_or(&[][..], |set| &self.sets[set.idx()].pairs);
        let (shared, inline) = split(&self.pairs, pairs);
        let present = pairs.iter().map(|&pair| self.pairs[pair as usize].name());
        let filter = present.fold(u32::MAX, |filter, (index, rest)| filter & !xattr::filter_bit(index, rest));
        let header = RawXattrBodyHeader {
            h_name_filter: filter.into(),
            h_shared_count: shared.len() as u8,
            h_reserved2: [0; 7],
        };
        out.extend_from_slice(header.as_bytes());
        for pair in shared {
            let id = match pair.shared.expect("shared") {
                SharedPlace::Area(off) => shared_base + off / 4,
                SharedPlace::Previous(id) => id,
            };
            out.extend_from_slice(&id.to_le_bytes());
        }
        for pair in inline {
            pair.encode(out);
        }
    }
}
