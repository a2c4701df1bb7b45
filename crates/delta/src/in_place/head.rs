//! Head of a journal, which says that the journal is complete, and for which target.

use kiln_output::{Output, write_all_at};

use crate::error::DeltaError;
use crate::in_place::read::{read_all, read_failed, write_failed};
use crate::in_place::records::{RECORDS_OFF, Record, RecordsSeal, read_records};
use crate::in_place::target::Identity;

/// First bytes of a journal.
const MAGIC: [u8; 8] = *b"\x8Akilnjnl";
/// First bytes of journals of version 1, which did not identify their target.
const MAGIC_1: [u8; 8] = *b"\x8Akilnjrn";
const VERSION: u32 = 2;
/// Length in bytes of magic, version and length of the head.
const FRONT_LEN: usize = 8 + 4 + 4;
/// Length in bytes of the fields: BLAKE3 digest and length of the new image, UUID of the old one,
/// length of the target, length and BLAKE3 digest of the records.
const FIELDS_LEN: usize = 32 + 8 + 16 + 8 + 8 + 32;
/// Length in bytes of the checksum, the first bytes of the BLAKE3 digest of everything before it.
const CHECK_LEN: usize = 8;
/// Upper limit on the length of a head in bytes.
const HEAD_MAX_LEN: usize = RECORDS_OFF as usize;

/// Head of a complete journal.
pub(super) struct Head {
    pub new_digest: [u8; 32],
    pub new_len: u64,
    pub old_uuid: [u8; 16],
    /// Length of the target in bytes when the journal was written.
    pub target_len: u64,
    pub records: RecordsSeal,
    pub identity: Identity,
}

/// Contents of the place of the head.
pub(super) enum Found {
    /// No head: the journal is incomplete, and nothing of it was written to the target.
    Nothing,
    /// A head that is damaged or was written only in part.
    Damaged,
    Head(Head),
}

/// Returns true if the file is a complete journal of any version. An incomplete one has no head.
///
/// # Errors
/// A file that cannot be read.
pub fn is_journal(file: &dyn Output) -> Result<bool, DeltaError> {
    let mut magic = [0; 8];
    Ok(read_all(file, &mut magic, 0).map_err(read_failed)? && (magic == MAGIC || magic == MAGIC_1))
}

impl Head {
    /// Reads the head of a journal.
    ///
    /// # Errors
    /// A journal of another version; a file that is not a journal.
    pub(super) fn read(journal: &dyn Output) -> Result<Found, DeltaError> {
        let refuse = |what: String| Err(DeltaError::Journal { what });
        let mut front = [0; FRONT_LEN];
        let is_whole = read_all(journal, &mut front, 0).map_err(read_failed)?;
        if front[..8] == [0; 8] {
            return Ok(Found::Nothing);
        }
        let [a, b, c, d, e, f, g, h] = [8, 9, 10, 11, 12, 13, 14, 15].map(|at| front[at]);
        let (version, len) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]) as usize);
        let version = match front.first_chunk() {
            Some(&MAGIC) => version,
            Some(&MAGIC_1) => 1,
            _ => return refuse(format!("has no valid magic: it begins with {:02x?}", &front[..8])),
        };
        if !is_whole {
            return Ok(Found::Damaged);
        }
        if version != VERSION {
            return refuse(format!(
                "has version {version}, but this program supports version {VERSION}: complete it with the kiln that wrote it"
            ));
        }
        let mut bytes = vec![0; len.min(HEAD_MAX_LEN)];
        if !(FRONT_LEN + FIELDS_LEN + CHECK_LEN..=HEAD_MAX_LEN).contains(&len)
            || !read_all(journal, &mut bytes, 0).map_err(read_failed)?
        {
            return Ok(Found::Damaged);
        }
        let (sealed, check) = bytes.split_at(len - CHECK_LEN);
        if blake3::hash(sealed).as_bytes()[..CHECK_LEN] != *check {
            return Ok(Found::Damaged);
        }
        let fields = Fields(&sealed[FRONT_LEN..]);
        Ok(match Identity::decode(&sealed[FRONT_LEN + FIELDS_LEN..]) {
            None => Found::Damaged,
            Some(identity) => Found::Head(Self {
                new_digest: fields.bytes(0),
                new_len: u64::from_le_bytes(fields.bytes(32)),
                old_uuid: fields.bytes(40),
                target_len: u64::from_le_bytes(fields.bytes(56)),
                records: RecordsSeal { len: u64::from_le_bytes(fields.bytes(64)), digest: fields.bytes(72) },
                identity,
            }),
        })
    }

    pub(super) fn write(&self, journal: &dyn Output) -> Result<(), DeltaError> {
        let identity = self.identity.encode();
        let len = FRONT_LEN + FIELDS_LEN + identity.len() + CHECK_LEN;
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((len as u32).to_le_bytes());
        bytes.extend(self.new_digest);
        bytes.extend(self.new_len.to_le_bytes());
        bytes.extend(self.old_uuid);
        bytes.extend(self.target_len.to_le_bytes());
        bytes.extend(self.records.len.to_le_bytes());
        bytes.extend(self.records.digest);
        bytes.extend(identity);
        bytes.extend(&blake3::hash(&bytes).as_bytes()[..CHECK_LEN]);
        write_all_at(journal, &bytes, 0).and_then(|()| journal.sync()).map_err(write_failed)
    }

    /// Calls [`read_records`] for this journal.
    pub(super) fn records(
        &self,
        journal: &dyn Output,
        take: &mut dyn FnMut(&Record<'_>) -> Result<(), DeltaError>,
    ) -> Result<(), DeltaError> {
        read_records(journal, &self.records, self.new_len, self.target_len, take)
    }
}

/// Fields of fixed length.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn bytes<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.0[at..at + N]);
        bytes
    }
}
