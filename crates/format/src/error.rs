//! What can be wrong with a record.

use std::fmt;

/// Whose fault a bad field is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The bytes contradict the format: the image is damaged or hostile.
    Corrupt,
    /// The bytes may be right, but mean something that this program does not know.
    Unsupported,
    /// A value to be written does not fit the field that should hold it.
    DoesNotFit,
}

/// A record that could not be decoded or encoded: which one, where, which field, which value.
///
/// `record` and `field` are the kernel's names, so that a search in its documentation finds them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{record} at byte {offset}: {field} = {value}: {reason}")]
pub struct FormatError {
    /// Kind of failure.
    pub problem: Problem,
    /// The kernel's name of the structure, `erofs_inode_compact` for example.
    pub record: &'static str,
    /// Byte offset of the record in its address space (the image, or the metabox); 0 when encoding.
    pub offset: u64,
    /// The kernel's name of the field.
    pub field: &'static str,
    /// The field's value.
    pub value: Value,
    /// What is wrong with it.
    pub reason: &'static str,
}

/// A value in an error message: shown in decimal, with hexadecimal beside it from 10 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value(pub u64);

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 10 { write!(f, "{}", self.0) } else { write!(f, "{} ({:#x})", self.0, self.0) }
    }
}

impl FormatError {
    /// A field whose bytes contradict the format.
    pub fn corrupt(record: &'static str, offset: u64, field: &'static str, value: u64, reason: &'static str) -> Self {
        Self { problem: Problem::Corrupt, record, offset, field, value: Value(value), reason }
    }

    /// A field that asks for something unknown.
    pub fn unsupported(
        record: &'static str,
        offset: u64,
        field: &'static str,
        value: u64,
        reason: &'static str,
    ) -> Self {
        Self { problem: Problem::Unsupported, record, offset, field, value: Value(value), reason }
    }

    /// A value too large for its field.
    pub fn does_not_fit(record: &'static str, field: &'static str, value: u64) -> Self {
        Self {
            problem: Problem::DoesNotFit,
            record,
            offset: 0,
            field,
            value: Value(value),
            reason: "does not fit the field",
        }
    }
}
