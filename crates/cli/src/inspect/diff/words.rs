//! A difference in words.

use crate::console::report::Out;
use crate::console::text;
use kiln_diff::{Difference, XattrChange};
use std::io::{self, Write};

/// Prints a difference: its kind, and both values.
pub fn print(out: &mut Out, difference: &Difference) -> io::Result<()> {
    match difference {
        Difference::Type { a, b } => write!(out, "type {} -> {}", text::file_type(*a), text::file_type(*b)),
        Difference::Size { a, b } => write!(out, "size {a} -> {b}"),
        Difference::Contents { off } => write!(out, "contents from byte {off}"),
        Difference::Target { a, b } => {
            write!(out, "target ")?;
            out.name(a)?;
            write!(out, " -> ")?;
            out.name(b)
        }
        Difference::Rdev { a, b } => write!(out, "device {}:{} -> {}:{}", a.major, a.minor, b.major, b.minor),
        Difference::Permissions { a, b } => write!(out, "mode {a:04o} -> {b:04o}"),
        Difference::Owner { a, b } => write!(out, "owner {a} -> {b}"),
        Difference::Group { a, b } => write!(out, "group {a} -> {b}"),
        Difference::Mtime { a: (a, 0), b: (b, 0) } => write!(out, "mtime {} -> {}", text::time(*a), text::time(*b)),
        Difference::Mtime { a, b } => {
            write!(out, "mtime {} -> {}", text::time_nsec(a.0, a.1), text::time_nsec(b.0, b.1))
        }
        Difference::Xattr { name, change } => {
            write!(out, "xattr ")?;
            out.name(name)?;
            write!(out, " {}", xattr_change(*change))
        }
        Difference::Links { a, b } if a == b => write!(out, "other links"),
        Difference::Links { a, b } => write!(out, "links {a} -> {b}"),
    }
}

pub fn xattr_change(change: XattrChange) -> &'static str {
    match change {
        XattrChange::Added => "added",
        XattrChange::Removed => "removed",
        XattrChange::Changed => "changed",
    }
}
