//! Partitions of disk images: GPT, and the table of the master boot record (MBR).
//!
//! A GPT is read as UEFI specifies (2.10, chapter 5), an MBR as Linux reads it: partitions 1 to 4
//! are those of its table, 5 and up are in a chain within an extended partition. If the first GPT
//! is damaged, the backup at the end of the disk is used.

mod gpt;
mod mbr;

use kiln_read::ReadAt;
use std::fmt;
use std::io;
use std::ops::Range;
use std::str::FromStr;

/// Maximum number of partitions listed in an error.
const TOLD_MAX: usize = 20;
/// Sector lengths in bytes that are tried for a GPT; the first is that of an MBR.
const SECTOR_LENS: [u64; 2] = [512, 4096];

/// Selects a partition of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartitionChoice {
    /// Number of the partition, from 1, as in Linux.
    Number(u32),
    /// Label of the partition; only a GPT has labels.
    Label(String),
}

/// Error for a text that selects no partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected the number of a partition, from 1, or its label")]
pub struct PartitionChoiceError;

impl FromStr for PartitionChoice {
    type Err = PartitionChoiceError;

    fn from_str(text: &str) -> Result<Self, PartitionChoiceError> {
        match text.parse() {
            Ok(0) => Err(PartitionChoiceError),
            Ok(number) => Ok(PartitionChoice::Number(number)),
            Err(_) if text.is_empty() => Err(PartitionChoiceError),
            Err(_) => Ok(PartitionChoice::Label(text.to_owned())),
        }
    }
}

impl fmt::Display for PartitionChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PartitionChoice::Number(number) => write!(f, "{number}"),
            PartitionChoice::Label(label) => write!(f, "{label:?}"),
        }
    }
}

/// A partition of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Number of the partition, from 1, as in Linux.
    pub number: u32,
    /// Label of the partition; empty in an MBR.
    pub label: String,
    /// Range on the disk in bytes. In a damaged table it may exceed the disk.
    pub range: Range<u64>,
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, label, range } = self;
        write!(f, "{number}")?;
        if !label.is_empty() {
            write!(f, " {label:?}")?;
        }
        write!(f, " ({} bytes at byte {})", range.end - range.start, range.start)
    }
}

/// Returns the partitions of `disk`, sorted by number, or `None` if it has no partition table.
///
/// # Errors
/// Read errors; a description of the damage of a damaged table.
pub fn partitions(disk: &dyn ReadAt) -> io::Result<Option<Vec<Partition>>> {
    // Like Linux, ignore the remains of an older GPT if the MBR has partitions of its own.
    if mbr::has_own_partitions(disk)? {
        return mbr::partitions(disk);
    }
    match gpt::partitions(disk)? {
        Some(found) => Ok(Some(found)),
        None => mbr::partitions(disk),
    }
}

/// Returns the range of the selected partition of `disk` in bytes.
///
/// # Errors
/// Those of [`partitions`]; a disk without a table; a choice that matches no partition or several,
/// with a list of all; a partition that exceeds the disk.
pub(crate) fn find(disk: &dyn ReadAt, choice: &PartitionChoice) -> io::Result<Range<u64>> {
    let refuse =
        |reason: String| Err(io::Error::new(io::ErrorKind::InvalidInput, format!("--partition {choice}: {reason}")));
    let Some(all) = partitions(disk)? else {
        return refuse("not a disk with partitions: it has neither a GPT nor an MBR".into());
    };
    let is_meant = |partition: &&Partition| match choice {
        PartitionChoice::Number(number) => partition.number == *number,
        PartitionChoice::Label(label) => partition.label == *label,
    };
    let meant: Vec<&Partition> = all.iter().filter(is_meant).collect();
    match *meant {
        [one] if one.range.end <= disk.len()? => Ok(one.range.clone()),
        [one] => refuse(format!("it ends at byte {}, but the disk has {} bytes", one.range.end, disk.len()?)),
        [] => refuse(format!("the disk has {}", tell(&all))),
        _ => refuse(format!("several partitions have this label, use a number: {}", tell(&all))),
    }
}

/// Formats partitions for a message.
pub(crate) fn tell(partitions: &[Partition]) -> String {
    if partitions.is_empty() {
        return "no partitions".to_owned();
    }
    let more = partitions.len().saturating_sub(TOLD_MAX);
    let mut told: Vec<String> = partitions.iter().take(TOLD_MAX).map(ToString::to_string).collect();
    told.extend((more > 0).then(|| format!("and {more} more")));
    told.join(", ")
}

fn invalid(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

/// Reads the `LEN` bytes at `off`. Returns `None` if `disk` is too short.
fn read<const LEN: usize>(disk: &dyn ReadAt, off: u64) -> io::Result<Option<[u8; LEN]>> {
    let mut bytes = [0; LEN];
    match off.checked_add(LEN as u64).is_some_and(|end| disk.len().is_ok_and(|len| end <= len)) {
        true => disk.read_exact_at(&mut bytes, off).map(|()| Some(bytes)),
        false => Ok(None),
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]))
}
