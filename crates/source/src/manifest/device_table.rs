//! Device tables of makedevs, as used by buildroot and genimage.

use kiln_format::inode::Rdev;
use kiln_tree::policy::{Capabilities, EditOp, EditTime, MetadataChange, MissingParents, TreeEdit, TreeEdits};
use kiln_tree::{Kind, NoContents, SyntaxError};
use std::path::Path;
use std::sync::Arc;

use super::fields::{checked, id, mode, number, tree_path, words};
use super::lines::{Lines, ListError};

/// Maximum number of devices in a table: as many as a driver can have.
const DEVICES_MAX: u64 = 1 << 20;

/// First word of a line that sets an attribute of the file of the previous line.
const XATTR_MARK: &[u8] = b"|xattr";

/// Parses a device table, the file at `path`. Its lines are `NAME TYPE MODE UID GID MAJOR MINOR
/// START INC COUNT`, where `-` stands for no value.
///
/// Types: `f` changes an existing file, `F` a file if it exists; `r` changes an existing
/// directory and everything below it; `d` creates a directory and its parents, or changes it;
/// `c`, `b` and `p` create a device or a pipe in an existing directory. For `f`, `F` and `r`, a
/// mode of `-1` keeps the permissions. A COUNT creates that many devices: their names end in
/// START, START + 1 and so on, and the minor number increases by INC. A line `|xattr
/// CAPABILITY` sets a capability of the file of the previous line, such as `cap_net_raw+ep`.
///
/// # Errors
/// The first invalid line.
pub fn parse_device_table(text: &[u8], path: &Path) -> Result<TreeEdits, ListError> {
    let mut lines = Lines::new(text, path);
    let mut table = Table::default();
    while let Some(line) = lines.next()? {
        table.line(line.idx, &line.text).map_err(|error| lines.error(line.idx, error))?;
    }
    Ok(TreeEdits::new(path.to_string_lossy().into_owned(), table.edits, Arc::new(NoContents)))
}

#[derive(Default)]
struct Table {
    edits: Vec<TreeEdit>,
    devices: u64,
    /// Capabilities of the file of the previous line.
    capabilities: Capabilities,
}

impl Table {
    fn line(&mut self, line_idx: usize, line: &[u8]) -> Result<(), SyntaxError> {
        let fields = words(line);
        match fields[..] {
            [] | [[b'#', ..], ..] => return Ok(()),
            [XATTR_MARK, clause] => return self.capability(line_idx, clause),
            _ => {}
        }
        self.capabilities = Capabilities::default();
        let wrong =
            || SyntaxError::new("line", line, "expected 10 fields: NAME TYPE MODE UID GID MAJOR MINOR START INC COUNT");
        let [name, file_type, permissions, uid, gid, major, minor, start, inc, count] = fields[..] else {
            return Err(wrong());
        };
        let keeps_mode = permissions == b"-1" && matches!(file_type, b"f" | b"F" | b"r");
        let permissions = if keeps_mode { None } else { Some(mode(permissions)?) };
        let change = MetadataChange { permissions, uid: id("uid", uid)?, gid: id("gid", gid)?, time: None };
        let op = match file_type {
            b"f" => EditOp::Change(change),
            b"F" => EditOp::ChangeIfThere(change),
            b"r" => EditOp::ChangeBelow(change),
            b"d" => create(change, Kind::Directory(Box::default()), MissingParents::Created),
            b"p" => create(change, Kind::Fifo, MissingParents::Refused),
            b"c" | b"b" => {
                let kind = if file_type == b"c" { Kind::CharDevice } else { Kind::BlockDevice };
                let device = Rdev { major: number("major", major)?, minor: or_zero("minor", minor)? };
                return self.devices(line_idx, (name, change, device), [start, inc, count], kind);
            }
            _ => return Err(SyntaxError::new("type", file_type, "not one of f, F, d, r, c, b and p")),
        };
        if or_zero("count", count)? > 0_u32 {
            return Err(SyntaxError::new("count", count, "only devices can have a count"));
        }
        self.push(line_idx, name, op);
        Ok(())
    }

    fn devices(
        &mut self,
        line_idx: usize,
        (name, change, first): (&[u8], MetadataChange, Rdev),
        [start, inc, count]: [&[u8]; 3],
        kind: fn(Rdev) -> Kind,
    ) -> Result<(), SyntaxError> {
        let (first_number, step): (u32, u32) = (or_zero("start", start)?, or_zero("inc", inc)?);
        let devices: u32 = or_zero("count", count)?;
        self.devices += u64::from(devices.max(1));
        if self.devices > DEVICES_MAX {
            return Err(SyntaxError::new("count", count, format!("more than {DEVICES_MAX} devices")));
        }
        if devices == 0 {
            self.push(line_idx, name, create(change, kind(checked(first)?), MissingParents::Refused));
        }
        for idx in 0..devices {
            let minor = u64::from(idx) * u64::from(step) + u64::from(first.minor);
            let device = checked(Rdev { minor: u32::try_from(minor).unwrap_or(u32::MAX), ..first })?;
            let numbered = [name, (u64::from(first_number) + u64::from(idx)).to_string().as_bytes()].concat();
            self.push(line_idx, &numbered, create(change, kind(device), MissingParents::Refused));
        }
        Ok(())
    }

    fn capability(&mut self, line_idx: usize, clause: &[u8]) -> Result<(), SyntaxError> {
        let path = self.edits.last().map(|edit| edit.path.clone());
        let path = path.ok_or_else(|| SyntaxError::new("line", XATTR_MARK, "no line of a file precedes it"))?;
        self.capabilities.add(clause)?;
        self.edits.push(TreeEdit { line_idx, path, op: EditOp::SetXattr(self.capabilities.xattr()) });
        Ok(())
    }

    fn push(&mut self, line_idx: usize, name: &[u8], op: EditOp) {
        self.edits.push(TreeEdit { line_idx, path: tree_path(name), op });
    }
}

fn create(change: MetadataChange, kind: Kind, parents: MissingParents) -> EditOp {
    EditOp::Create { node: change.new_node(kind), time: EditTime::OfRoot, parents }
}

/// Parses a number; `-` is 0.
fn or_zero(field: &'static str, text: &[u8]) -> Result<u32, SyntaxError> {
    if text == b"-" { Ok(0) } else { number(field, text) }
}
