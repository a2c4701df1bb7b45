//! Output of commands: text for people and JSON for programs.

mod contents;
mod counts;
mod entry;
mod failed;
mod json;
mod skipped;
mod streamed;

pub use contents::Contents;
pub use counts::Counts;
pub use entry::EntryJson;
pub use failed::ErrorJson;
pub use json::{Bytes, JsonList, print_document, print_error};
pub use skipped::{PathJson, SkippedJson};
pub use streamed::Streamed;

use crate::console::text;
use crate::exit::Failure;
use std::fmt;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

/// Version of the JSON documents: fields may be added within one version, never changed or removed.
pub const SCHEMA: u32 = 2;

/// Prints an error to standard error.
pub fn error(message: &dyn fmt::Display) {
    note(format_args!("{message}"));
}

/// Prints a message other than data to standard error.
pub fn note(message: fmt::Arguments<'_>) {
    // If standard error cannot be written, only the exit code remains.
    let _ = writeln!(io::stderr().lock(), "kiln: {message}");
}

/// Standard output.
pub struct Out {
    out: BufWriter<StdoutLock<'static>>,
    is_terminal: bool,
}

impl Out {
    pub fn new() -> Self {
        let stdout = io::stdout();
        let is_terminal = stdout.is_terminal();
        Self { out: BufWriter::with_capacity(64 << 10, stdout.lock()), is_terminal }
    }

    /// Prints a name or path: raw for programs, without control characters for terminals.
    pub fn name(&mut self, name: &[u8]) -> io::Result<()> {
        match self.is_terminal {
            true => self.out.write_all(text::escape(name).as_bytes()),
            false => self.out.write_all(name),
        }
    }

    /// Flushes the output: only now is it known if all of it could be written.
    pub fn finish(mut self) -> Result<(), Failure> {
        Ok(self.out.flush()?)
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
