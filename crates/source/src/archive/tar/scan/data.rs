//! Data of members, which are skipped, or taken as they come.

use kiln_tree::{Incoming, IntakeError, Kind};
use std::io;

use super::Scan;
use crate::archive::tar::header::RECORD_LEN;
use crate::archive::tar::member::{Member, MemberKind};
use crate::archive::tar::sparse::{self, MapText, SparseMap};
use crate::error::SourceError;
use crate::stored::StoredRun;

/// A sparse map, if the file has one, and the length in bytes of its records; or why the map is
/// invalid.
type MapOf = Result<(Option<SparseMap>, u64), String>;

impl Scan<'_, '_> {
    /// Skips the data of a member. Returns the kind of a regular file, and a placeholder for
    /// others; the inner error says why a file is invalid.
    pub(super) fn data(&mut self, member: &Member<'_>, what: MemberKind) -> Result<Result<Kind, String>, SourceError> {
        let size = member.stored_len(what).map_err(|reason| self.members.malformed(member.offset, reason))?;
        match what {
            MemberKind::File | MemberKind::OldSparseFile if self.omits_data() => {
                self.omitted_file(member, size).map(Ok)
            }
            MemberKind::File | MemberKind::OldSparseFile => self.file(member, size),
            _ if self.omits_data() => Ok(Ok(Kind::Fifo)),
            _ => self.skip_data(size, 0).map(|()| Ok(Kind::Fifo)),
        }
    }

    /// Returns the regular file whose data of `size` bytes come next, and skips them; the inner
    /// error says why it is invalid.
    fn file(&mut self, member: &Member<'_>, size: u64) -> Result<Result<Kind, String>, SourceError> {
        let (map, passed) = match self.map(member, size)? {
            Ok(found) => found,
            Err(reason) => return self.skip_data(size, 0).map(|()| Err(reason)),
        };
        if self.members.has_intake() {
            return self.take_file(member, map, (size, passed));
        }
        let start = self.tape.offset();
        self.skip_data(size, passed)?;
        let Some(map) = map else { return Ok(Ok(self.members.whole_file(start..start + size))) };
        Ok(match map.finish(start, size - passed) {
            Ok((len, runs)) => {
                self.members.charge(b"", runs.len() * size_of::<StoredRun>())?;
                Ok(self.members.sparse_file(len, runs))
            }
            Err(reason) => Err(reason),
        })
    }

    /// Lets the data of a regular file be taken as they come: `size` bytes, of which `passed` have been read.
    fn take_file(
        &mut self,
        member: &Member<'_>,
        map: Option<SparseMap>,
        (size, passed): (u64, u64),
    ) -> Result<Result<Kind, String>, SourceError> {
        let is_sparse = map.is_some();
        let (len, data) = match map.map(|map| map.finish(0, size - passed)) {
            None => (size, (size > 0).then_some(0..size).into_iter().collect()),
            Some(Ok((len, runs))) => (len, runs.iter().map(|run| run.la..run.end()).collect::<Vec<_>>()),
            Some(Err(reason)) => return self.skip_data(size, passed).map(|()| Err(reason)),
        };
        let (start, incoming) =
            (self.tape.offset(), Incoming { len, data: &data, xattrs: member.extended.xattrs_max_len() });
        let taken = self.members.take(&member.path, incoming, self.tape);
        let done = self.tape.offset() - start;
        match taken {
            Ok(content) => {
                self.skip_data(size, passed + done)?;
                Ok(Ok(Kind::File { len, content, sparse: is_sparse }))
            }
            Err(IntakeError::Closed) => Err(SourceError::Interrupted),
            Err(IntakeError::Read(error)) => Err(self.lost_data(size, passed + done, &error)),
        }
    }

    /// Returns the error for data of `len` bytes that end after `there`.
    fn lost_data(&self, len: u64, there: u64, error: &io::Error) -> SourceError {
        let start = self.tape.offset() - there;
        match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                self.members.malformed(start, format!("the archive ends {there} bytes into a file of {len} bytes"))
            }
            _ => self.members.unreadable(start, error),
        }
    }

    /// Returns a regular file whose data of `size` bytes are not in the archive. Records of an old
    /// sparse map count as headers and are present.
    fn omitted_file(&mut self, member: &Member<'_>, size: u64) -> Result<Kind, SourceError> {
        let old_map = if member.what() == MemberKind::OldSparseFile { self.map(member, size)?.ok() } else { None };
        let old_len = old_map.and_then(|(map, _)| map).map(|map| map.real_len());
        let len = old_len.or(member.extended.sparse.real_len).unwrap_or(size);
        Ok(self.members.sparse_file(len, Vec::new()))
    }

    /// Reads the sparse map of a file with data of `size` bytes, if it has one, and returns the
    /// number of those bytes that the map took. The inner error says why the map is invalid where
    /// the archive can still be read on.
    fn map(&mut self, member: &Member<'_>, size: u64) -> Result<MapOf, SourceError> {
        let malformed = |scan: &Self, reason| scan.members.malformed(member.offset, reason);
        if member.what() == MemberKind::OldSparseFile {
            let (mut map, mut goes_on) =
                sparse::of_header(member.header.record()).map_err(|reason| malformed(self, reason))?;
            while goes_on {
                let record = self.record()?;
                goes_on = sparse::push_record(&mut map, &record).map_err(|reason| malformed(self, reason))?;
            }
            return Ok(Ok((Some(map), 0)));
        }
        let said = &member.extended.sparse;
        let Some(real_len) = said.real_len else { return Ok(Ok((None, 0))) };
        match (said.major, said.minor) {
            (0, _) => {
                let mut map = SparseMap::new(real_len);
                let pushed = said.map.iter().try_for_each(|&(off, len)| map.push(off, len));
                Ok(pushed.map(|()| (Some(map), 0)))
            }
            (1, 0) => {
                let (mut text, mut passed) = (MapText::new(real_len), 0);
                while !text.is_complete() {
                    passed += RECORD_LEN as u64;
                    if passed > size {
                        return Err(malformed(
                            self,
                            format!("a sparse map that is longer than the {size} bytes of its file"),
                        ));
                    }
                    let record = self.record()?;
                    text.push_record(&record).map_err(|reason| malformed(self, reason))?;
                }
                Ok(Ok((Some(text.into_map()), passed)))
            }
            (major, minor) => Ok(Err(format!("sparse files of version {major}.{minor} are not supported"))),
        }
    }

    /// Skips data of `len` bytes, of which `passed` have been read, and the padding after them.
    fn skip_data(&mut self, len: u64, passed: u64) -> Result<(), SourceError> {
        let at = self.tape.offset();
        if let Err(error) = self.tape.skip(len - passed) {
            return Err(self.lost_data(len, passed + (self.tape.offset() - at), &error));
        }
        self.skip_padding(len)
    }
}
