//! Places of contents in an archive, by which they are opened without another scan.
//!
//! As bytes, little-endian: a kind (1 byte) and the number of contents (8 bytes), then
//!
//! * of kind 0, data that are stored as they are: the length of the archive, decompressed (8 bytes);
//!   of each file, its start (8) and its length (4), or `u32::MAX` if it is listed behind; the
//!   number of listed files (8); of each, its content id (4), the number of its runs (4), and of
//!   each run its offset in the file, its offset in the archive and its length (8 each);
//! * of kind 1, members of a zip archive, each with the range of its data (8 and 8), the length (8)
//!   and the CRC-32 (4) of its text, and its method (1).

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::archive::zip::record::PackedData;
use crate::error::SourceError;
use crate::fields::Fields;
use crate::stored::{StoredFiles, StoredRun};

const STORED: u8 = 0;
const PACKED: u8 = 1;

/// Places of the contents of an archive, by content id. A scan finds them
/// ([`Source::scan_places`]); later they open the contents without one ([`Source::contents_at`]).
///
/// [`Source::scan_places`]: crate::Source::scan_places
/// [`Source::contents_at`]: crate::Source::contents_at
#[derive(Clone, Debug)]
pub struct ArchivePlaces(pub(crate) Places);

#[derive(Clone, Debug)]
pub(crate) enum Places {
    /// Data that are stored as they are in the archive, which has `len` bytes, decompressed.
    Stored { files: Arc<StoredFiles>, len: u64 },
    /// Members of a zip archive.
    Packed(Arc<[PackedData]>),
}

impl ArchivePlaces {
    /// Returns the number of contents: their ids are smaller.
    pub fn count(&self) -> usize {
        match &self.0 {
            Places::Stored { files, .. } => files.count(),
            Places::Packed(files) => files.len(),
        }
    }

    /// Returns the error for a source at `path` whose contents cannot be at such places.
    pub(crate) fn not_of(&self, path: &Path) -> SourceError {
        let reason = "these are places of contents in an archive of another format";
        SourceError::Options { path: path.to_owned(), reason }
    }

    /// Returns the places as bytes, for [`ArchivePlaces::from_bytes`].
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let head = |out: &mut Vec<u8>, kind| {
            out.push(kind);
            out.extend((self.count() as u64).to_le_bytes());
        };
        match &self.0 {
            Places::Stored { files, len } => {
                head(&mut out, STORED);
                out.extend(len.to_le_bytes());
                files.append_to(&mut out);
            }
            Places::Packed(files) => {
                head(&mut out, PACKED);
                files.iter().for_each(|file| out.extend(file.to_bytes()));
            }
        }
        out
    }

    /// Returns the places in `bytes`.
    ///
    /// # Errors
    /// Bytes that are no places: [`io::ErrorKind::InvalidData`], with the offset.
    pub fn from_bytes(bytes: &[u8]) -> io::Result<Self> {
        let mut fields = Fields::new(bytes);
        let [kind] = fields.array("kind")?;
        let places = match kind {
            STORED => {
                let count = fields.count("number of files", StoredFiles::FILE_LEN)?;
                let len = fields.u64("length of the archive")?;
                Places::Stored { files: Arc::new(StoredFiles::read_from(&mut fields, count)?), len }
            }
            PACKED => {
                let count = fields.count("number of members", PackedData::LEN)?;
                let member = |_| PackedData::read_from(&mut fields);
                Places::Packed((0..count).map(member).collect::<io::Result<_>>()?)
            }
            kind => return Err(fields.invalid("kind", kind.into())),
        };
        match fields.are_at_the_end() {
            true => Ok(Self(places)),
            false => Err(fields.invalid("length of the places", bytes.len() as u64)),
        }
    }
}

impl StoredFiles {
    /// Length of a file's record in bytes.
    const FILE_LEN: usize = 12;

    fn append_to(&self, out: &mut Vec<u8>) {
        for (start, len) in self.starts().iter().zip(self.lens()) {
            out.extend(start.to_le_bytes());
            out.extend(len.to_le_bytes());
        }
        let mut others: Vec<_> = self.others().iter().collect();
        others.sort_unstable_by_key(|(id, _)| **id);
        out.extend((others.len() as u64).to_le_bytes());
        for (id, runs) in others {
            out.extend(id.to_le_bytes());
            out.extend((runs.len() as u32).to_le_bytes());
            runs.iter().flat_map(|run| [run.la, run.pa, run.len]).for_each(|number| out.extend(number.to_le_bytes()));
        }
    }

    fn read_from(fields: &mut Fields<'_>, count: usize) -> io::Result<Self> {
        let (mut starts, mut lens) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for _ in 0..count {
            starts.push(fields.u64("start")?);
            lens.push(fields.u32("length")?);
        }
        let listed = fields.count("number of listed files", 8)?;
        let mut others = Vec::new();
        for _ in 0..listed {
            let id = fields.u32("content id")?;
            let runs_len = fields.u32("number of runs")?;
            let mut runs: Vec<StoredRun> = Vec::new();
            for _ in 0..runs_len {
                let run =
                    StoredRun { la: fields.u64("la")?, pa: fields.u64("pa")?, len: fields.u64("length of a run")? };
                let is_behind = runs.last().is_none_or(|last| last.end() <= run.la);
                let fits = run.la.checked_add(run.len).and(run.pa.checked_add(run.len)).is_some();
                if !is_behind || !fits || run.len == 0 {
                    return Err(fields.invalid("length of a run", run.len));
                }
                runs.push(run);
            }
            others.push((id, runs.into_boxed_slice()));
        }
        Self::of_parts(starts, lens, others).ok_or_else(|| fields.invalid("number of listed files", listed as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_tree::ContentId;

    fn stored() -> ArchivePlaces {
        let mut files = StoredFiles::default();
        files.whole(512..1000);
        files.whole(3..3);
        files.whole(0..1 << 33);
        files.sparse(vec![StoredRun { la: 4096, pa: 7, len: 9 }, StoredRun { la: 9000, pa: 100, len: 1 }]);
        ArchivePlaces(Places::Stored { files: Arc::new(files), len: 1 << 40 })
    }

    #[test]
    fn places_of_stored_data_come_back() {
        let places = stored();
        let again = ArchivePlaces::from_bytes(&places.to_bytes()).unwrap();
        assert_eq!((again.count(), again.to_bytes()), (4, places.to_bytes()));
        let (Places::Stored { files, len }, Places::Stored { files: before, .. }) = (&again.0, &places.0) else {
            panic!("{again:?}")
        };
        assert_eq!(*len, 1 << 40);
        for id in (0..4).map(ContentId) {
            assert_eq!(files.runs(id), before.runs(id));
        }
    }

    #[test]
    fn bytes_that_are_no_places_are_refused() {
        let bytes = stored().to_bytes();
        for len in 0..bytes.len() {
            assert!(ArchivePlaces::from_bytes(&bytes[..len]).is_err(), "{len} bytes");
        }
        assert!(ArchivePlaces::from_bytes(&[&bytes[..], b"1"].concat()).is_err());
        for at in 0..bytes.len() {
            // Whatever it is, it is no panic, and every id that it counts can be asked for.
            let mut bytes = bytes.clone();
            bytes[at] ^= 0xFF;
            if let Ok(ArchivePlaces(Places::Stored { files, .. })) = ArchivePlaces::from_bytes(&bytes) {
                (0..files.count() as u32).for_each(|id| drop(files.runs(ContentId(id))));
            }
        }
        let told = ArchivePlaces::from_bytes(&[9, 0]).unwrap_err().to_string();
        assert_eq!(told, "places: before byte 1: kind = 9: out of range");
    }
}
