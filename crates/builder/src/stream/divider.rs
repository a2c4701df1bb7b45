//! Division of contents into pieces, as they come.

use std::io::Read;
use std::mem;
use std::ops::Range;

use crate::format::Format;
use crate::options::Dedupe;
use crate::plan::file::{FileHoles, FilePlan, Storage};
use crate::plan::hole;
use crate::plan::pieces::{self, FileFacts};
use crate::read::{self, Hashes, ReadRequest, Role};
use kiln_format::inode::EXTENDED_LEN;
use kiln_format::xattr::BODY_HEADER_LEN;
use kiln_parallel::channel::Sender;
use kiln_tree::{ContentId, Incoming, Intake, IntakeError, NodeId};

/// Bytes of text that are handed over at once, at least: small files one by one would cost a switch of threads each.
const GROUP_LEN: usize = 256 << 10;
/// Cost of an arrival beside its text.
const ARRIVAL_COST: usize = 512;
/// Most bytes of an attribute beside its name and value: its header, and the rounding behind it.
const XATTR_COST: usize = 4 + 3;

/// Something that has arrived.
pub(super) enum Arrival {
    /// A file, whose pieces follow.
    File(FilePlan, FileHoles),
    /// Text of a file.
    Piece(ReadRequest, Vec<u8>),
    /// The piece of a file that cannot be read; no more of it follows.
    Lost(ReadRequest),
}

/// Divides the contents of files.
pub(super) struct Divider<'a> {
    format: &'a Format,
    send: Sender<Vec<Arrival>>,
    /// Arrivals that are handed over together, and their cost.
    group: Vec<Arrival>,
    group_len: usize,
    /// Number of files so far.
    count: u32,
}

impl<'a> Divider<'a> {
    /// Creates a divider whose arrivals go to `send`.
    pub(super) fn new(format: &'a Format, send: Sender<Vec<Arrival>>) -> Self {
        Self { format, send, group: Vec::new(), group_len: 0, count: 0 }
    }

    /// Hands over what is left.
    pub(super) fn finish(mut self) {
        // If nothing takes it, the taker has failed, and tells so.
        let _ = self.hand_over();
    }

    fn push(&mut self, arrival: Arrival) -> Result<(), IntakeError> {
        let text_len = if let Arrival::Piece(_, text) = &arrival { text.len() } else { 0 };
        self.group_len += ARRIVAL_COST + text_len;
        self.group.push(arrival);
        if self.group_len >= GROUP_LEN { self.hand_over() } else { Ok(()) }
    }

    fn hand_over(&mut self) -> Result<(), IntakeError> {
        self.group_len = 0;
        self.send.send(mem::take(&mut self.group)).map_err(|_| IntakeError::Closed)
    }

    /// Returns the most bytes that an inode with such attributes takes, whatever its metadata.
    fn inode_max_len(&self, (bytes, count): (usize, usize)) -> u32 {
        let hash = self.format.metadata.digest_hash;
        let digest = hash.map_or(0, |hash| hash.value_len() + usize::from(u8::MAX) + XATTR_COST);
        (EXTENDED_LEN + BODY_HEADER_LEN + bytes + count * XATTR_COST + digest) as u32
    }

    /// Returns the requests for the pieces of a file.
    fn requests<'h>(
        &self,
        file: &FilePlan,
        incoming: Incoming<'_>,
        holes: &'h [Range<u64>],
    ) -> impl Iterator<Item = ReadRequest> + use<'h>
    where
        'a: 'h,
    {
        let format = self.format;
        let is_dense = matches!(incoming.data, [all] if *all == (0..incoming.len));
        let facts = FileFacts {
            holes,
            gaps: None,
            may_be_sparse: !is_dense,
            has_peers: format.dedupe != Dedupe::Off,
            hashes: Hashes { own: format.metadata.digest_hash, stored: None },
            is_estimate: false,
        };
        // Where parts are looked for, the parts of long files are found, and their text need not be had again.
        let finds_parts = format.dedupes_parts() && matches!(file.storage, Storage::Compressed { .. });
        pieces::of_file(self.count, file, facts, format).map(move |mut request| {
            let is_only = matches!(request.role, Role::Data { is_first: true, is_last: true });
            request.wanted.digest &= is_only || !finds_parts;
            request
        })
    }
}

impl Intake for Divider<'_> {
    fn take(&mut self, incoming: Incoming<'_>, text: &mut dyn Read) -> Result<ContentId, IntakeError> {
        let format = self.format;
        let Incoming { len, data, xattrs } = incoming;
        let (node, compression) = (NodeId(self.count), format.compression.spec);
        let inode_len = self.inode_max_len(xattrs);
        let mut file = FilePlan { node, len, inode_len, storage: Storage::Empty, compression };
        let holes = match len {
            0 => FileHoles::default(),
            _ => file.with_holes(hole::between(data, len, format.block_bits), format),
        };
        let kept = holes.kept.clone();
        let requests = self.requests(&file, incoming, &kept);
        self.push(Arrival::File(file, holes))?;
        let mut data = Data { runs: data, text };
        for request in requests {
            let piece_len = (request.range.end - request.range.start) as usize;
            let mut piece = Vec::with_capacity(read::room(piece_len, format));
            if let Err(error) = data.append(request.range.clone(), &mut piece) {
                self.push(Arrival::Lost(request))?;
                self.count += 1;
                return Err(error);
            }
            self.push(Arrival::Piece(request, piece))?;
        }
        self.count += 1;
        Ok(ContentId(self.count - 1))
    }
}

/// Data of a file, and the zeros between.
struct Data<'a> {
    /// Runs that are not read to their end.
    runs: &'a [Range<u64>],
    text: &'a mut dyn Read,
}

impl Data<'_> {
    /// Appends the bytes of a range, which begins behind all earlier ones.
    fn append(&mut self, range: Range<u64>, piece: &mut Vec<u8>) -> Result<(), IntakeError> {
        let mut at = range.start;
        while let Some(run) = self.runs.first().filter(|run| run.start < range.end) {
            let (start, end) = (run.start.max(at), run.end.min(range.end));
            piece.resize(piece.len() + (start - at) as usize, 0);
            let wanted = end - start;
            let read = self.text.take(wanted).read_to_end(piece)?;
            if (read as u64) < wanted {
                return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
            }
            at = end;
            if end == run.end {
                self.runs = &self.runs[1..];
            } else {
                break;
            }
        }
        piece.resize(piece.len() + (range.end - at) as usize, 0);
        Ok(())
    }
}
