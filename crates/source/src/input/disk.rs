//! Partitions of disk images: GPT, and the table of the master boot record (MBR).
//!
//! A GPT is read as UEFI says (2.10, chapter 5), an MBR as Linux reads it: partitions 1 to 4 are those of its table, 5
//! and up lie in a chain in an extended one. Of a GPT, the backup at the end of the disk counts where the first one is
//! damaged.

mod gpt;
mod mbr;

use kiln_read::ReadAt;
use std::fmt;
use std::io;
use std::ops::Range;
use std::str::FromStr;

/// Most partitions that an error lists.
const TOLD_MAX: usize = 20;
/// Length of sectors of an MBR in bytes, and of those of a GPT that are tried.
const SECTOR_LENS: [u64; 2] = [512, 4096];

/// Which partition of a disk is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartitionChoice {
    /// Its number, as Linux counts: from 1 on.
    Number(u32),
    /// Its label, which a GPT has.
    Label(String),
}

/// A text names no partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("use the number of a partition, from 1 on, or its label")]
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

/// A partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Its number, as Linux counts: from 1 on.
    pub number: u32,
    /// Its label; empty in an MBR.
    pub label: String,
    /// Bytes of the disk that it takes. A damaged table can tell of bytes behind the end of the disk.
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

/// The partitions of `disk`, by their numbers; `None`: it has no table.
///
/// # Errors
/// Errors of the disk; a table that is damaged, with what is wrong.
pub fn partitions(disk: &dyn ReadAt) -> io::Result<Option<Vec<Partition>>> {
    // What is left of an older GPT does not count where the MBR has partitions of its own, as for Linux.
    if mbr::has_own_partitions(disk)? {
        return mbr::partitions(disk);
    }
    match gpt::partitions(disk)? {
        Some(found) => Ok(Some(found)),
        None => mbr::partitions(disk),
    }
}

/// Returns the bytes of `disk` that the partition takes that is meant.
///
/// # Errors
/// As [`partitions`]; no table; none is meant, or several are: the partitions are listed; one that ends
/// behind the disk.
pub(crate) fn find(disk: &dyn ReadAt, choice: &PartitionChoice) -> io::Result<Range<u64>> {
    let refuse =
        |reason: String| Err(io::Error::new(io::ErrorKind::InvalidInput, format!("--partition {choice}: {reason}")));
    let Some(all) = partitions(disk)? else {
        return refuse("no disk with partitions: neither a GPT nor an MBR is in it".into());
    };
    let is_meant = |partition: &&Partition| match choice {
        PartitionChoice::Number(number) => partition.number == *number,
        PartitionChoice::Label(label) => partition.label == *label,
    };
    let meant: Vec<&Partition> = all.iter().filter(is_meant).collect();
    match *meant {
        [one] if one.range.end <= disk.len()? => Ok(one.range.clone()),
        [one] => refuse(format!("it ends at byte {}, and the disk has {}", one.range.end, disk.len()?)),
        [] => refuse(format!("the disk has {}", tell(&all))),
        _ => refuse(format!("several have this label, so name a number: {}", tell(&all))),
    }
}

/// Partitions in a message.
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

/// The `LEN` bytes at `off`; `None`: `disk` ends before.
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
