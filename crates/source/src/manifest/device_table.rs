//! Device tables of makedevs, as buildroot and genimage have them.

use kiln_format::inode::Rdev;
use kiln_tree::Kind;
use std::path::Path;

use super::capability::Capabilities;
use super::edits::{AddedFiles, Change, Edit, Op, Parents, Time, TreeEdits, node, tree_path};
use super::fields::{checked, id, mode, number, words};
use super::lines::{Lines, ListError};
use crate::filter::error::SyntaxError;

/// Devices that a table may make: as many as a driver can have.
const DEVICES_MAX: u64 = 1 << 20;

/// Begins the lines that give what the line before made an attribute.
const XATTR_MARK: &[u8] = b"|xattr";

impl TreeEdits {
    /// The edits of a device table, in the file at `path`: lines `NAME TYPE MODE UID GID MAJOR MINOR START INC COUNT`, where `-` is
    /// nothing.
    ///
    /// Types: `f` changes a file that must be there, `F` one that need not; `r` a directory that must be there, with all
    /// below it; `d` makes a directory, with those above it, or changes it; `c`, `b` and `p` make a device or a pipe in a
    /// directory that must be there. A mode `-1` of `f`, `F` and `r` leaves permissions as they are. With a COUNT, there are so many
    /// devices: their names end in START, START + 1 and so on, and each has the minor number of that before, and INC.
    /// A line `|xattr CAPABILITY` gives the file of the line before it a capability, as `cap_net_raw+ep`.
    ///
    /// # Errors
    /// The first line that is not what it should be.
    pub fn device_table(text: &[u8], path: &Path) -> Result<Self, ListError> {
        let mut lines = Lines::new(text, path);
        let mut table = Table::default();
        while let Some(line) = lines.next()? {
            table.line(line.idx, &line.text).map_err(|error| lines.error(line.idx, error))?;
        }
        Ok(Self::new(path, table.edits, AddedFiles::none()))
    }
}

#[derive(Default)]
struct Table {
    edits: Vec<Edit>,
    devices: u64,
    /// Capabilities of the file that the line before was about.
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
        let wrong = || {
            SyntaxError::new("line", line, "10 fields are needed: NAME TYPE MODE UID GID MAJOR MINOR START INC COUNT")
        };
        let [name, file_type, permissions, uid, gid, major, minor, start, inc, count] = fields[..] else {
            return Err(wrong());
        };
        let keeps_mode = permissions == b"-1" && matches!(file_type, b"f" | b"F" | b"r");
        let permissions = if keeps_mode { None } else { Some(mode(permissions)?) };
        let change = Change { permissions, uid: id("uid", uid)?, gid: id("gid", gid)?, time: None };
        let op = match file_type {
            b"f" => Op::Change(change),
            b"F" => Op::ChangeIfThere(change),
            b"r" => Op::ChangeBelow(change),
            b"d" => create(change, Kind::Directory(Box::default()), Parents::Made),
            b"p" => create(change, Kind::Fifo, Parents::MustExist),
            b"c" | b"b" => {
                let kind = if file_type == b"c" { Kind::CharDevice } else { Kind::BlockDevice };
                let device = Rdev { major: number("major", major)?, minor: or_zero("minor", minor)? };
                return self.devices(line_idx, (name, change, device), [start, inc, count], kind);
            }
            _ => return Err(SyntaxError::new("type", file_type, "not one of f, F, d, r, c, b and p")),
        };
        if or_zero("count", count)? > 0_u32 {
            return Err(SyntaxError::new("count", count, "only of devices there can be several"));
        }
        self.push(line_idx, name, op);
        Ok(())
    }

    fn devices(
        &mut self,
        line_idx: usize,
        (name, change, first): (&[u8], Change, Rdev),
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
            self.push(line_idx, name, create(change, kind(checked(first)?), Parents::MustExist));
        }
        for idx in 0..devices {
            let minor = u64::from(idx) * u64::from(step) + u64::from(first.minor);
            let device = checked(Rdev { minor: u32::try_from(minor).unwrap_or(u32::MAX), ..first })?;
            let numbered = [name, (u64::from(first_number) + u64::from(idx)).to_string().as_bytes()].concat();
            self.push(line_idx, &numbered, create(change, kind(device), Parents::MustExist));
        }
        Ok(())
    }

    fn capability(&mut self, line_idx: usize, clause: &[u8]) -> Result<(), SyntaxError> {
        let path = self.edits.last().map(|edit| edit.path.clone());
        let path = path.ok_or_else(|| SyntaxError::new("line", XATTR_MARK, "there is no file before it"))?;
        self.capabilities.add(clause)?;
        self.edits.push(Edit { line_idx, path, op: Op::SetXattr(self.capabilities.xattr()) });
        Ok(())
    }

    fn push(&mut self, line_idx: usize, name: &[u8], op: Op) {
        self.edits.push(Edit { line_idx, path: tree_path(name), op });
    }
}

fn create(change: Change, kind: Kind, parents: Parents) -> Op {
    Op::Create { node: node(change, kind), time: Time::OfRoot, parents }
}

/// A number, or `-` for none.
fn or_zero(field: &'static str, text: &[u8]) -> Result<u32, SyntaxError> {
    if text == b"-" { Ok(0) } else { number(field, text) }
}
