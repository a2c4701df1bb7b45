//! Messages on standard error in the form that scripts look for: `<E> erofs: …`.

use super::getopt::{Misuse, number};
use std::ffi::OsString;
use std::fmt::Arguments;
use std::io::{self, Write};

/// Least level with warnings.
const WARNING_LEVEL: u8 = 2;
/// Least level with information.
const INFO_LEVEL: u8 = 3;

/// The level of messages.
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

    /// Parses the value of `-d`.
    pub fn parse(value: &OsString) -> Result<Self, Misuse> {
        let level = number(value).and_then(|level| u8::try_from(level).ok()).filter(|&level| level <= 9);
        let level = level.ok_or_else(|| Misuse::Other(format!("invalid debug level {}", value.display())))?;
        Ok(Self { level })
    }

    /// Prints a warning, if the level of messages asks for it.
    pub fn warning(self, message: Arguments<'_>) {
        if self.level >= WARNING_LEVEL {
            line(format_args!("<W> erofs: {message}"));
        }
    }

    /// Prints a detail, if the level of messages asks for it.
    pub fn info(self, message: Arguments<'_>) {
        if self.level >= INFO_LEVEL {
            info(message);
        }
    }
}

/// Prints an error at any level.
pub fn error(message: Arguments<'_>) {
    line(format_args!("<E> erofs: {message}"));
}

/// Prints information at any level.
pub fn info(message: Arguments<'_>) {
    line(format_args!("<I> erofs: {message}"));
}

/// Prints a line without a mark.
pub fn line(message: Arguments<'_>) {
    // If standard error cannot be written, the message is lost.
    let _ = writeln!(io::stderr().lock(), "{message}");
}
