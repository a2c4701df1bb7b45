//! Records of a ZIP archive: local headers, descriptors, and the central directory.

use super::super::member::Member;
use super::super::time::civil;
use flate2::Crc;

const LOCAL: u32 = 0x0403_4b50;
const DESCRIPTOR: u32 = 0x0807_4b50;
const CENTRAL: u32 = 0x0201_4b50;
const END: u32 = 0x0605_4b50;
const END_64: u32 = 0x0606_4b50;
const END_64_LOCATOR: u32 = 0x0706_4b50;

/// Identifiers of extra fields: ZIP64, Unix time, Unix owner.
const ZIP64: u16 = 0x0001;
const TIME: u16 = 0x5455;
const OWNER: u16 = 0x7875;

/// Flags: a descriptor follows the data; the name is UTF-8.
const HAS_DESCRIPTOR: u16 = 1 << 3;
const IS_UTF8: u16 = 1 << 11;
/// Version needed to extract: 2.0 for directories and deflate, 4.5 for ZIP64.
const VERSION: u16 = 20;
const VERSION_64: u16 = 45;
/// Version made by: Unix, 4.5.
const MADE_BY: u16 = 3 << 8 | VERSION_64;
/// MS-DOS attribute of directories.
const IS_DIR: u32 = 0x10;

/// Storage method of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Store,
    Deflate,
    /// Deflate with lengths that are not known in advance.
    DeflateStreamed,
}

/// Description of a member for its headers.
pub(super) struct Entry {
    name: Vec<u8>,
    method: Method,
    mode: u16,
    is_dir: bool,
    mtime: i64,
    owner: (u32, u32),
    header_off: u64,
    sum: Crc,
    pub(super) crc: u32,
    /// Lengths in bytes of the contents, and of their stored form.
    pub(super) len: u64,
    pub(super) stored_len: u64,
}

impl Entry {
    /// Returns the entry of the next member; `None` if its name cannot be stored.
    pub(super) fn new(member: &Member, method: Method, header_off: u64) -> Option<Self> {
        let inode = &member.inode;
        let mut name = member.path.clone();
        if inode.is_dir() {
            name.push(b'/');
        }
        let is_possible = !member.path.is_empty() && name.len() <= usize::from(u16::MAX);
        is_possible.then(|| Self {
            name,
            method,
            mode: inode.mode(),
            is_dir: inode.is_dir(),
            mtime: inode.mtime(),
            owner: (inode.uid(), inode.gid()),
            header_off,
            sum: Crc::new(),
            crc: 0,
            len: 0,
            stored_len: 0,
        })
    }

    /// Adds a part of the contents.
    pub(super) fn append(&mut self, crc: &Crc, len: u64, stored_len: u64) {
        self.sum.combine(crc);
        self.crc = self.sum.sum();
        self.len += len;
        self.stored_len += stored_len;
    }

    /// Returns the header before the data.
    pub(super) fn local_header(&self) -> Vec<u8> {
        let is_streamed = self.method == Method::DeflateStreamed;
        let is_long = is_streamed || self.is_long();
        let mut extra = Vec::new();
        if is_long {
            // The lengths of a streamed member are 0 here; the presence of the field says that the
            // descriptor has 64-bit lengths.
            put_u16s(&mut extra, &[ZIP64, 16]);
            put_u64s(&mut extra, &[self.len, self.stored_len]);
        }
        self.put_unix_fields(&mut extra);
        let mut header = Vec::new();
        put_u32(&mut header, LOCAL);
        put_u16s(&mut header, &[if is_long { VERSION_64 } else { VERSION }, self.flags(), self.method_number()]);
        put_u16s(&mut header, &self.dos_time());
        put_u32(&mut header, self.crc);
        let lens = [self.stored_len, self.len].map(|len| if is_long { u32::MAX } else { len as u32 });
        lens.into_iter().for_each(|len| put_u32(&mut header, len));
        put_u16s(&mut header, &[self.name.len() as u16, extra.len() as u16]);
        [header, self.name.clone(), extra].concat()
    }

    /// Returns the descriptor after data whose lengths were not known in advance.
    pub(super) fn descriptor(&self) -> Vec<u8> {
        let mut descriptor = Vec::new();
        put_u32(&mut descriptor, DESCRIPTOR);
        put_u32(&mut descriptor, self.crc);
        put_u64s(&mut descriptor, &[self.stored_len, self.len]);
        descriptor
    }

    fn put_central(&self, out: &mut Vec<u8>) {
        let mut extra = Vec::new();
        let values = [self.len, self.stored_len, self.header_off];
        let long: Vec<u64> = values.into_iter().filter(|&value| value >= u32::MAX.into()).collect();
        if !long.is_empty() {
            put_u16s(&mut extra, &[ZIP64, 8 * long.len() as u16]);
            put_u64s(&mut extra, &long);
        }
        self.put_unix_fields(&mut extra);
        let is_long = !long.is_empty() || self.method == Method::DeflateStreamed;
        let short = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        put_u32(out, CENTRAL);
        put_u16s(out, &[MADE_BY, if is_long { VERSION_64 } else { VERSION }, self.flags(), self.method_number()]);
        put_u16s(out, &self.dos_time());
        [self.crc, short(self.stored_len), short(self.len)].into_iter().for_each(|value| put_u32(out, value));
        // Name, extra fields, comment, disk, internal attributes.
        put_u16s(out, &[self.name.len() as u16, extra.len() as u16, 0, 0, 0]);
        put_u32(out, u32::from(self.mode) << 16 | if self.is_dir { IS_DIR } else { 0 });
        put_u32(out, short(self.header_off));
        out.extend_from_slice(&self.name);
        out.extend_from_slice(&extra);
    }

    fn put_unix_fields(&self, extra: &mut Vec<u8>) {
        let secs = self.mtime.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
        put_u16s(extra, &[TIME, 5]);
        extra.push(1); // only the time of modification
        extra.extend(secs.to_le_bytes());
        put_u16s(extra, &[OWNER, 11]);
        extra.push(1); // version
        for id in [self.owner.0, self.owner.1] {
            extra.push(4);
            put_u32(extra, id);
        }
    }

    fn is_long(&self) -> bool {
        self.len.max(self.stored_len) >= u32::MAX.into()
    }

    fn flags(&self) -> u16 {
        let is_utf8 = !self.name.is_ascii() && str::from_utf8(&self.name).is_ok();
        let has_descriptor = self.method == Method::DeflateStreamed;
        (u16::from(is_utf8) * IS_UTF8) | (u16::from(has_descriptor) * HAS_DESCRIPTOR)
    }

    fn method_number(&self) -> u16 {
        if self.method == Method::Store { 0 } else { 8 }
    }

    /// Returns time and date of MS-DOS in UTC: from 1980 to 2107, in steps of two seconds.
    fn dos_time(&self) -> [u16; 2] {
        const FIRST: i64 = 315_532_800; // 1980-01-01
        const LAST: i64 = 4_354_819_198; // 2107-12-31 23:59:58
        let time = civil(self.mtime.clamp(FIRST, LAST));
        let date = (time.year - 1980) << 9 | i64::from(time.month) << 5 | i64::from(time.day);
        let clock = ((time.secs / 3600) << 11) | ((time.secs / 60 % 60) << 5) | (time.secs % 60 / 2);
        [clock as u16, date as u16]
    }
}

/// The central directory under construction, which lists all members again.
#[derive(Default)]
pub(super) struct Central {
    records: Vec<u8>,
    count: u64,
}

impl Central {
    pub(super) fn add(&mut self, entry: &Entry) {
        entry.put_central(&mut self.records);
        self.count += 1;
    }

    pub(super) fn records(&self) -> &[u8] {
        &self.records
    }

    /// Returns the records after the directory, which begins at byte `off`.
    pub(super) fn end(&self, off: u64) -> Vec<u8> {
        let len = self.records.len() as u64;
        let mut end = Vec::new();
        let is_long = self.count >= u16::MAX.into() || len.max(off) >= u32::MAX.into();
        if is_long {
            put_u32(&mut end, END_64);
            put_u64s(&mut end, &[44]); // bytes behind this field
            put_u16s(&mut end, &[MADE_BY, VERSION_64]);
            put_u64s(&mut end, &[0, self.count, self.count, len, off]); // the first: no other disks
            put_u32(&mut end, END_64_LOCATOR);
            put_u32(&mut end, 0);
            put_u64s(&mut end, &[off.saturating_add(len)]);
            put_u32(&mut end, 1);
        }
        let count = u16::try_from(self.count).unwrap_or(u16::MAX);
        let short = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        put_u32(&mut end, END);
        put_u16s(&mut end, &[0, 0, count, count]);
        put_u32(&mut end, short(len));
        put_u32(&mut end, short(off));
        put_u16s(&mut end, &[0]); // no comment
        end
    }
}

fn put_u16s(out: &mut Vec<u8>, values: &[u16]) {
    out.extend(values.iter().flat_map(|value| value.to_le_bytes()));
}

fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend(value.to_le_bytes());
}

fn put_u64s(out: &mut Vec<u8>, values: &[u64]) {
    out.extend(values.iter().flat_map(|value| value.to_le_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_members_need_longer_records() {
        let mut central = Central { records: Vec::new(), count: 65_534 };
        assert_eq!(central.end(5).len(), 22);
        central.count += 1;
        assert_eq!(central.end(5).len(), 22 + 56 + 20);
        assert_eq!(Central::default().end(1 << 32).len(), 22 + 56 + 20);
    }
}
