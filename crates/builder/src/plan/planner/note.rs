//! Takes note of pieces as they arrive: changes since the scan, digests, and files that equal earlier ones.

use super::{LongFile, Planner};
use crate::context::Context;
use crate::error::{BuildError, Skipped};
use crate::inodes::digest::{self, FileDigest};
use crate::plan::dedupe::parts::OlderText;
use crate::plan::duplicates::FileKey;
use crate::plan::file::{Storage, read_compat};
use crate::plan::text::TextSource;
use crate::read::{self, Piece, ReadRequest, Role, Unread, skippable};
use kiln_digest::contents::ContentDigest;
use kiln_tree::{ContentError, DigestOf};

impl Planner<'_> {
    /// Takes note of a piece, and adds it to `pieces` if its text is to be stored.
    pub(super) fn note(
        &mut self,
        request: ReadRequest,
        piece: Result<Piece, Unread>,
        pieces: &mut Vec<Piece>,
        older: &mut dyn OlderText,
    ) -> Result<(), BuildError> {
        let idx = request.file;
        if self.files[idx as usize].storage == Storage::LeftOut {
            return Ok(());
        }
        let mut piece = match piece {
            Ok(piece) => piece,
            Err(unread) => {
                self.leave_out(&request, unread);
                return Ok(());
            }
        };
        let Context { tree, ledger, .. } = self.context;
        if let Some(error) = piece.changed.take() {
            ledger.change(request.node, Skipped { path: tree.path(request.node), error });
        }
        if let Some(entropy) = piece.entropy {
            let (sum, count) = self.entropies.entry(idx).or_default();
            (*sum, *count) = (*sum + entropy, *count + 1);
        }
        let Role::Data { is_first, is_last } = request.role else {
            pieces.push(piece);
            return Ok(());
        };
        let is_whole = request.range == (0..self.files[idx as usize].len);
        if is_first && is_last && is_whole {
            self.note_digest(&request, &piece.digests)?;
            if !self.is_duplicate(&piece) {
                pieces.push(piece);
            }
            return Ok(());
        }
        self.note_part(piece, (is_first, is_last), pieces, older)
    }

    /// Leaves out a file that cannot be read.
    fn leave_out(&mut self, request: &ReadRequest, unread: Unread) {
        let Context { tree, ledger, .. } = self.context;
        let file = &mut self.files[request.file as usize];
        if file.storage == Storage::Fragment {
            self.packed.abandon_long();
        }
        file.storage = Storage::LeftOut;
        self.duplicates.forget(request.file);
        self.long = None;
        if let Unread::Failed(error) = unread {
            ledger.leave_out(Skipped { path: tree.path(request.node), error });
        }
    }

    /// Returns true if a file of one piece equals an earlier one, and lets it share the data of that one.
    fn is_duplicate(&mut self, piece: &Piece) -> bool {
        let (idx, Some(digest)) = (piece.request.file, piece.digest) else { return false };
        let file = &self.files[idx as usize];
        let key = FileKey { digest, len: file.len, start: piece.request.range.start };
        let compat = read_compat(file.compression);
        let first = self.duplicates.find(key, compat);
        // What lies beside the first one's inode must have room beside this one's.
        let has_room = first.is_none_or(|first| self.files[first as usize].inode_len >= file.inode_len);
        match first.filter(|_| has_room) {
            Some(first) => self.files[idx as usize].storage = Storage::Duplicate(first),
            None => self.duplicates.insert(key, compat, idx),
        }
        first.is_some() && has_room
    }

    /// Takes note of a piece that is not all of its file.
    fn note_part(
        &mut self,
        piece: Piece,
        (is_first, is_last): (bool, bool),
        pieces: &mut Vec<Piece>,
        older: &mut dyn OlderText,
    ) -> Result<(), BuildError> {
        let (request, idx) = (piece.request.clone(), piece.request.file);
        let file = &self.files[idx as usize];
        let (len, compat) = (file.len, read_compat(file.compression));
        if is_first {
            let key = piece.digest.map(|digest| FileKey { digest, len, start: request.range.start });
            let twin = key.and_then(|key| self.duplicates.find(key, compat));
            let twin = twin.filter(|twin| self.files[*twin as usize].inode_len >= file.inode_len);
            if let (Some(key), None) = (key, twin) {
                self.duplicates.insert(key, compat, idx);
            }
            let hashes = request.wanted.hashes;
            let digest = (!hashes.is_empty()).then(|| FileDigest::new(hashes));
            self.long = Some(LongFile { file: idx, twin, dropped: Vec::new(), count: 0, digest });
        }
        let Some(mut long) = self.long.take().filter(|long| long.file == idx) else {
            return Err(BuildError::Internal(format!("a piece of file {idx} came out of turn")));
        };
        if let Some(digest) = piece.digest {
            self.duplicates.add_piece(idx, request.range.start, digest);
            let is_same =
                long.twin.is_some_and(|twin| self.duplicates.has_piece(twin, long.count, request.range.start, digest));
            if !is_same
                && let Err(error) = skippable(self.part_from_twin(&mut long, pieces, older), self.context.format)?
            {
                self.leave_out(&request, Unread::Failed(error));
                return Ok(());
            }
        }
        // Behind the text before it, which may have been read again.
        if let Some(digest) = &mut long.digest {
            digest.add(&piece.text, request.range.start, self.context.control)?;
        }
        long.count += 1;
        match long.twin {
            Some(_) => long.dropped.push(piece.without_text()),
            None => pieces.push(piece),
        }
        if !is_last {
            self.long = Some(long);
            return Ok(());
        }
        if let Some(twin) = long.twin {
            if self.duplicates.piece_count(twin) == long.count {
                self.files[idx as usize].storage = Storage::Duplicate(twin);
                self.duplicates.forget(idx);
            } else if let Err(error) = skippable(self.part_from_twin(&mut long, pieces, older), self.context.format)? {
                self.leave_out(&request, Unread::Failed(error));
                return Ok(());
            }
        }
        let digests = long.digest.map(|digest| digest.finish(len, self.context.control)).transpose()?;
        self.note_digest(&request, &digests.unwrap_or_default())
    }

    /// Stores what was dropped of a file that turned out to differ from an earlier one. If it is read a second time for
    /// that, its digest is that of the second reading.
    ///
    /// # Errors
    /// A file that cannot be read any more, or that has changed, unless the build keeps going; an interruption.
    fn part_from_twin(
        &mut self,
        long: &mut LongFile,
        pieces: &mut Vec<Piece>,
        older: &mut dyn OlderText,
    ) -> Result<(), BuildError> {
        let Some(twin) = long.twin.take() else { return Ok(()) };
        let digest = long.digest.take_if(|_| !self.survey.is_stream);
        let mut again = digest.map(|digest| FileDigest::new(digest.hashes));
        for (number, dropped) in std::mem::take(&mut long.dropped).into_iter().enumerate() {
            let piece = if self.survey.is_stream {
                let text = self.text_of_twin(twin, &dropped.request, pieces, older)?;
                dropped.with_text(text)
            } else {
                self.read_again(&dropped.request, (long.file, number))?
            };
            if let Some(digest) = &mut again {
                digest.add(&piece.text, piece.request.range.start, self.context.control)?;
            }
            pieces.push(piece);
        }
        long.digest = again.or_else(|| long.digest.take());
        Ok(())
    }

    /// Returns the text of a piece from an earlier file that has the same, and that is stored or among `pieces`.
    fn text_of_twin(
        &self,
        twin: u32,
        request: &ReadRequest,
        pieces: &[Piece],
        older: &mut dyn OlderText,
    ) -> Result<Vec<u8>, BuildError> {
        let range = &request.range;
        let is_twins = |piece: &&Piece| piece.request.file == twin && piece.request.range == *range;
        if let Some(piece) = pieces.iter().find(is_twins) {
            return Ok(piece.text.to_vec());
        }
        let mut text = vec![0; (range.end - range.start) as usize];
        match self.packed.place_of(twin) {
            Some(off) => self.packed.read(off + range.start, &mut text, older)?,
            None => older.read(TextSource::File(twin), range.start, &mut text, self.packed.stream())?,
        }
        Ok(text)
    }

    /// Reads a piece of a file a second time, which had the digest with this number.
    fn read_again(&mut self, request: &ReadRequest, (file, number): (u32, usize)) -> Result<Piece, BuildError> {
        let Context { tree, format, ledger, .. } = self.context;
        let piece = read::again(request, self.context)?;
        self.read_bytes += piece.text.len() as u64;
        let is_same = |digest| self.duplicates.has_piece(file, number, request.range.start, digest);
        if !piece.digest.is_some_and(is_same) {
            let path = tree.path(request.node);
            let error = BuildError::Read { path: path.clone(), source: ContentError::Changed("its contents") };
            if !format.work.keep_going {
                return Err(error);
            }
            ledger.change(request.node, Skipped { path, error });
        }
        Ok(piece)
    }

    /// Records the digest of a file that was read, and compares it with the one that is stored for it.
    fn note_digest(&mut self, request: &ReadRequest, computed: &[ContentDigest]) -> Result<(), BuildError> {
        if computed.is_empty() {
            return Ok(());
        }
        let Context { tree, format, ledger, .. } = self.context;
        let stored = if self.survey.is_stream { None } else { tree.stored_digest(request.node)? };
        let stored = stored.filter(|stored| stored.of == DigestOf::Contents);
        let Some(error) = stored.as_ref().and_then(|stored| digest::mismatch(stored, computed)) else {
            // What has a stored digest of the same function keeps that one.
            let own = computed.iter().find(|one| Some(one.hash()) == self.survey.digest_hash);
            let own = own.filter(|own| stored.is_none_or(|stored| stored.digest.hash() != own.hash()));
            self.digests.extend(own.map(|own| (request.file, *own)));
            return Ok(());
        };
        {
            let path = tree.path(request.node);
            let error = BuildError::Read { path: path.clone(), source: error };
            if !format.work.keep_going {
                return Err(error);
            }
            ledger.damage(request.node, Skipped { path, error });
        }
        Ok(())
    }
}
