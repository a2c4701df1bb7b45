//! Parser of definitions.

use kiln_read::ReadAt;
use kiln_tree::policy::{
    EditOp, EditTime, MetadataChange, MissingParents, TreeEdit, TreeEdits, checked_xattr, parse_hex,
};
use kiln_tree::{ContentId, Kind, SyntaxError, Xattr};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use super::within;
use super::words::Words;
use crate::manifest::added_files::AddedFilesBuilder;
use crate::manifest::fields::{device, id, mode, number, tree_path};
use crate::manifest::host::{Links, host_file};
use crate::manifest::lines::LINE_MAX_LEN;

/// Definitions that have been read.
#[derive(Default)]
pub(super) struct Definitions {
    edits: Vec<TreeEdit>,
    files: AddedFilesBuilder,
    /// Files whose contents follow the definitions.
    stored: Vec<StoredFile>,
    /// Root directory of the host, if any file is on the host.
    host: Option<OwnedFd>,
}

struct StoredFile {
    /// Index of the edit that creates the file.
    edit_idx: usize,
    /// Offset in the data, in bytes.
    offset: u64,
}

impl Definitions {
    /// Parses a line.
    ///
    /// # Errors
    /// The first invalid field.
    pub(super) fn line(&mut self, line_idx: usize, line: &[u8]) -> Result<(), SyntaxError> {
        if matches!(line.trim_ascii_start(), [] | [b'#', ..]) {
            return Ok(());
        }
        let mut words = Words(line);
        let name = field(&mut words, "name", line)?;
        let definition = field(&mut words, "type", line)?;
        let [definition] = definition[..] else { return Err(unknown(&definition)) };
        let mut fields = Fields { words, line, time: None };
        if definition.is_ascii_uppercase() && definition != b'L' {
            fields.time = Some(fields.time()?);
        }
        let op = self.op(definition, &mut fields)?;
        if !fields.words.rest().is_empty() {
            return Err(SyntaxError::new("definition", line, "more fields than this type has"));
        }
        self.edits.push(TreeEdit { line_idx, path: tree_path(&name), op });
        Ok(())
    }

    fn op(&mut self, definition: u8, fields: &mut Fields<'_>) -> Result<EditOp, SyntaxError> {
        Ok(match definition {
            b'd' | b'D' => fields.create(|_| Ok(Kind::Directory(Box::default())))?,
            b'c' | b'C' => fields.create(|fields| fields.device().map(Kind::CharDevice))?,
            b'b' | b'B' => fields.create(|fields| fields.device().map(Kind::BlockDevice))?,
            b'i' | b'I' => fields.create(|fields| match &*fields.next("ipc")? {
                b"s" => Ok(Kind::Socket),
                b"f" => Ok(Kind::Fifo),
                other => Err(SyntaxError::new("ipc", other, "neither s (a socket) nor f (a pipe)")),
            })?,
            b's' | b'S' => fields.create(|fields| fields.rest("target").map(|target| Kind::Symlink(target.into())))?,
            b'R' => {
                let mut offset = 0;
                let op = fields.create(|fields| {
                    let len = number("length", &fields.next("length")?)?;
                    offset = number("offset", &fields.next("offset")?)?;
                    number::<u32>("sparse", &fields.next("sparse")?)?;
                    Ok(Kind::File { len, content: ContentId(0), sparse: false })
                })?;
                self.stored.push(StoredFile { edit_idx: self.edits.len(), offset });
                op
            }
            b'l' => self.host(fields, Links::Kept)?,
            b'h' => self.host(fields, Links::Followed)?,
            b'L' => EditOp::Link(tree_path(fields.rest("target")?)),
            b'm' | b'M' => EditOp::Change(fields.change()?),
            b'x' => EditOp::SetXattr(xattr(fields.rest("attribute")?)?),
            b'f' | b'F' => {
                let reason = "the file would contain the output of a command, and kiln runs no commands; \
                              write the output to a file and name it with l PATH";
                return Err(SyntaxError::new("type", &[definition], reason));
            }
            _ => return Err(unknown(&[definition])),
        })
    }

    fn host(&mut self, fields: &mut Fields<'_>, links: Links) -> Result<EditOp, SyntaxError> {
        let path = fields.rest("path")?;
        let node = host_file(path, links, &mut self.files, &mut self.host);
        let node = node.map_err(|error| SyntaxError::new("path", path, error))?;
        Ok(EditOp::Create { node, time: EditTime::Defined, parents: MissingParents::Refused })
    }

    /// Returns all edits. The contents of `R` definitions are in `data` of `bytes`, the file at
    /// `path`.
    ///
    /// # Errors
    /// Index of a line whose contents are missing, and the error.
    pub(super) fn finish(
        mut self,
        data: &Range<u64>,
        bytes: Arc<dyn ReadAt>,
        path: &Path,
    ) -> Result<TreeEdits, (usize, SyntaxError)> {
        for StoredFile { edit_idx, offset } in self.stored {
            let edit = &mut self.edits[edit_idx];
            if let EditOp::Create { node, .. } = &mut edit.op
                && let Kind::File { len, content, .. } = &mut node.kind
            {
                let range = within(data, offset, *len).map_err(|error| (edit.line_idx, error))?;
                *content = self.files.stored(range);
            }
        }
        let files = self.files.finish(Some(bytes), self.host);
        Ok(TreeEdits::new(path.to_string_lossy().into_owned(), self.edits, Arc::new(files)))
    }
}

/// Fields of a definition after its type.
struct Fields<'a> {
    words: Words<'a>,
    line: &'a [u8],
    /// Time of a definition in upper case, in seconds since 1970.
    time: Option<i64>,
}

impl<'a> Fields<'a> {
    fn next(&mut self, name: &'static str) -> Result<Vec<u8>, SyntaxError> {
        field(&mut self.words, name, self.line)
    }

    /// Returns the rest of the line, including spaces.
    fn rest(&mut self, name: &'static str) -> Result<&'a [u8], SyntaxError> {
        let rest = self.words.rest();
        match rest.is_empty() || rest.contains(&0) || rest.len() > LINE_MAX_LEN {
            true => Err(SyntaxError::new(name, rest, "missing, or with a zero byte")),
            false => Ok(rest),
        }
    }

    fn time(&mut self) -> Result<i64, SyntaxError> {
        let text = self.next("time")?;
        let time = number::<i64>("time", &text);
        time.map_err(|_| SyntaxError::new("time", &text, "write it in seconds since 1970; kiln does not run date(1)"))
    }

    fn change(&mut self) -> Result<MetadataChange, SyntaxError> {
        Ok(MetadataChange {
            permissions: Some(mode(&self.next("mode")?)?),
            uid: id("uid", &self.next("uid")?)?,
            gid: id("gid", &self.next("gid")?)?,
            time: self.time.map(|secs| (secs, 0)),
        })
    }

    /// Parses the definition of a new file, whose kind follows mode and owners.
    fn create(&mut self, kind: impl FnOnce(&mut Self) -> Result<Kind, SyntaxError>) -> Result<EditOp, SyntaxError> {
        let change = self.change()?;
        let kind = kind(self)?;
        let time = if self.time.is_some() { EditTime::Defined } else { EditTime::OfRoot };
        Ok(EditOp::Create { node: change.new_node(kind), time, parents: MissingParents::Refused })
    }

    fn device(&mut self) -> Result<kiln_format::inode::Rdev, SyntaxError> {
        device(&self.next("major")?, &self.next("minor")?)
    }
}

fn field(words: &mut Words<'_>, name: &'static str, line: &[u8]) -> Result<Vec<u8>, SyntaxError> {
    words
        .next()
        .ok_or_else(|| SyntaxError::new("definition", line, format!("{name} is missing, or its quotes are not closed")))
}

fn unknown(definition: &[u8]) -> SyntaxError {
    SyntaxError::new("type", definition, "not one of d, c, b, i, s, l, h, L, m, x, and D, C, B, I, S, R, M")
}

/// Parses `NAME=VALUE`, with the prefixes of values that mksquashfs supports.
fn xattr(text: &[u8]) -> Result<Xattr, SyntaxError> {
    let refuse = |reason: &str| SyntaxError::new("attribute", text, reason);
    let equals = text.iter().position(|&b| b == b'=').ok_or_else(|| refuse("write it as NAME=VALUE"))?;
    let value = match &text[equals + 1..] {
        [b'0', b's' | b'S', base64 @ ..] => from_base64(base64).ok_or_else(|| refuse("base64 must follow 0s"))?,
        [b'0', b'x' | b'X', digits @ ..] => {
            parse_hex(digits).ok_or_else(|| refuse("pairs of hexadecimal digits must follow 0x"))?
        }
        [b'0', b't' | b'T', escaped @ ..] => {
            from_octal(escaped).ok_or_else(|| refuse("three octal digits must follow \\"))?
        }
        plain => plain.to_vec(),
    };
    checked_xattr(&text[..equals], value, text)
}

fn from_base64(text: &[u8]) -> Option<Vec<u8>> {
    let end = text.iter().rposition(|&b| b != b'=').map_or(0, |at| at + 1);
    let (mut bytes, mut bits, mut bits_count) = (Vec::new(), 0_u32, 0);
    for byte in &text[..end] {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        (bits, bits_count) = (bits << 6 | u32::from(value), bits_count + 6);
        if bits_count >= 8 {
            bits_count -= 8;
            bytes.push((bits >> bits_count) as u8);
            bits &= (1 << bits_count) - 1;
        }
    }
    // The remaining bits have no meaning, and are fewer than those of a digit.
    (bits_count < 6 && text.len() - end <= 2).then_some(bytes)
}

fn from_octal(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        rest = match tail {
            _ if *first != b'\\' => {
                bytes.push(*first);
                tail
            }
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..] => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                tail
            }
            _ => return None,
        };
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_attributes_have_four_forms() {
        let value = |text: &str| xattr(text.as_bytes()).map(|xattr| xattr.value.escape_ascii().to_string());
        for text in [
            "user.comment=hello world",
            "user.comment=0saGVsbG8gd29ybGQ=",
            "user.comment=0x68656c6c6f20776f726c64",
            "user.comment=0thello\\040world",
        ] {
            assert_eq!(value(text).unwrap(), "hello world", "{text}");
        }
        assert_eq!(value("user.a=0saGVsbG8Ad29ybGQ").unwrap(), "hello\\x00world");
        assert_eq!(value("user.a=").unwrap(), "");
        for text in ["user.a", "a=b", "user.a=0s!", "user.a=0sA", "user.a=0x1", "user.a=0t\\8", "user.a=0t\\"] {
            assert!(value(text).is_err(), "{text}");
        }
    }

    #[test]
    fn fields_are_checked_one_by_one() {
        let error = |line: &str| Definitions::default().line(0, line.as_bytes()).unwrap_err().to_string();
        for (line, expected) in [
            ("a", "definition `a`: type is missing, or its quotes are not closed"),
            ("a q", "type `q`: not one of d, c, b, i, s, l, h, L, m, x, and D, C, B, I, S, R, M"),
            ("a d 10000 0 0", "mode `10000`: over 7777"),
            ("a d u=rw 0 0", "mode `u=rw`: not an octal number"),
            ("a d 755 daemon 0", "uid `daemon`: write it as a number; root is the only known name"),
            ("a d 755 0", "definition `a d 755 0`: gid is missing, or its quotes are not closed"),
            ("a d 755 0 0 0", "definition `a d 755 0 0 0`: more fields than this type has"),
            ("a c 755 0 0 4096 0", "major `4096`: over 4095"),
            (
                "a D \"1 jan 1980\" 755 0 0",
                "time `1 jan 1980`: write it in seconds since 1970; kiln does not run date(1)",
            ),
            ("a i 755 0 0 q", "ipc `q`: neither s (a socket) nor f (a pipe)"),
            ("a s 0 0 0 ", "target ``: missing, or with a zero byte"),
            ("a L", "target ``: missing, or with a zero byte"),
        ] {
            assert_eq!(error(line), expected);
        }
        assert!(error("a f 444 0 0 dmesg").contains("kiln runs no commands"));
        assert!(error("a l /nonexistent/file").starts_with("path `/nonexistent/file`: No such file"));
        assert!(error("a l /").starts_with("path `/`: "));
    }
}
