//! Messages in the form that scripts look for: `<E> erofs: …`, on standard error.

use super::getopt::{Misuse, number};
use std::ffi::OsString;
use std::fmt::Arguments;
use std::io::{self, Write};

/// From this level on there are warnings.
const WARNING_LEVEL: u8 = 2;
/// From this level on there is more.
const INFO_LEVEL: u8 = 3;

/// How much is told.
#[derive(Clone, Copy, Debug)]
pub struct Log {
    /// 0 to 9.
    level: u8,
}

impl Default for Log {
    fn default() -> Self {
        Self { level: 2 }
    }
}

impl Log {
    /// Errors only.
    pub const QUIET: Self = Self { level: 0 };

    /// The value of `-d`.
    pub fn parse(value: &OsString) -> Result<Self, Misuse> {
        let level = number(value).and_then(|level| u8::try_from(level).ok()).filter(|&level| level <= 9);
        let level = level.ok_or_else(|| Misuse::Other(format!("invalid debug level {}", value.display())))?;
        Ok(Self { level })
    }

    /// Something that is not as it should be, but no error.
    pub fn warning(self, message: Arguments<'_>) {
        if self.level >= WARNING_LEVEL {
            line(format_args!("<W> erofs: {message}"));
        }
    }

    /// A detail, printed only if the level of messages asks for it.
    pub fn info(self, message: Arguments<'_>) {
        if self.level >= INFO_LEVEL {
            info(message);
        }
    }
}

/// What is told at any level.
pub fn error(message: Arguments<'_>) {
    line(format_args!("<E> erofs: {message}"));
}

/// Something that is no error, told at any level.
pub fn info(message: Arguments<'_>) {
    line(format_args!("<I> erofs: {message}"));
}

/// A line without a mark.
pub fn line(message: Arguments<'_>) {
    // Where standard error cannot be written the message is lost.
    let _ = writeln!(io::stderr().lock(), "{message}");
}
