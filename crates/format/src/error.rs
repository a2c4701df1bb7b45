//! Errors of records that cannot be decoded or encoded.

use std::fmt;

/// Kind of a [`FormatError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The bytes contradict the format: the image is damaged or hostile.
    Corrupt,
    /// The bytes may be valid but use something that this program does not know.
    Unsupported,
    /// A value to be written does not fit the field that should hold it.
    DoesNotFit,
}

/// Error of a record that could not be decoded or encoded, with the record, offset, field and
/// value.
///
/// `record` and `field` are the kernel's names, so that a search in its documentation finds them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{record} at byte {offset}: {field} = {value}: {reason}")]
pub struct FormatError {
    /// Kind of failure.
    pub problem: Problem,
    /// The kernel's name of the structure, for example `erofs_inode_compact`.
    pub record: &'static str,
    /// Byte offset of the record in its address space (the image, or the metabox); 0 when encoding.
    pub offset: u64,
    /// The kernel's name of the field.
    pub field: &'static str,
    /// The field's value.
    pub value: Value,
    /// Reason why the value is rejected.
    pub reason: &'static str,
}

/// Value in an error message: shown in decimal, and from 10 on also in hexadecimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value(pub u64);

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 10 { write!(f, "{}", self.0) } else { write!(f, "{} ({:#x})", self.0, self.0) }
    }
}

impl FormatError {
    /// Returns the error for a field whose bytes contradict the format.
    pub fn corrupt(record: &'static str, offset: u64, field: &'static str, value: u64, reason: &'static str) -> Self {
        Self { problem: Problem::Corrupt, record, offset, field, value: Value(value), reason }
    }

    /// Returns the error for a field that needs something unknown.
    pub fn unsupported(
        record: &'static str,
        offset: u64,
        field: &'static str,
        value: u64,
        reason: &'static str,
    ) -> Self {
        Self { problem: Problem::Unsupported, record, offset, field, value: Value(value), reason }
    }

    /// Returns the error for a value too large for its field.
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
