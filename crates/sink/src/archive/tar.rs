//! tar in the format of POSIX.1-2001.
//!
//! A member is a `ustar` header if its values fit: names of up to 256 bytes that can be split at a
//! slash, ids of 21 bits, files below 8 GiB, whole seconds from 1970 on. Other values are PAX
//! records before it, which override the header. Names are raw bytes in both, as all programs
//! accept them; `hdrcharset` marks PAX names that are not UTF-8. PAX records also hold extended
//! attributes (`SCHILY.xattr.`), holes (`GNU.sparse.`, version 1.0) and POSIX ACLs as text
//! (`SCHILY.acl.`).

mod acl;
mod header;
mod pax;
mod sparse;

use super::member::{Body, Links, Member, Rules};
use super::output::Output;
use super::report::Loss;
use super::writer::MemberWriter;
use crate::SinkError;
use header::{BLOCK_LEN, Header};
use kiln_format::acl::{ACCESS, DEFAULT};
use kiln_read::FileType;
use pax::Records;

pub(super) const RULES: Rules = Rules {
    sparse: true,
    links: Links::ToFirst,
    contents: true,
    file_max_len: u64::MAX,
    left_out: |file_type| (file_type == FileType::Socket).then_some(Loss::Sockets),
};

/// Length in bytes to which archives are padded: programs read 20 blocks at once.
const RECORD_LEN: u64 = 20 * BLOCK_LEN;

/// Writer of tar archives.
pub(super) struct TarWriter;

impl MemberWriter for TarWriter {
    fn begin(&mut self, member: &Member, out: &mut Output<'_>) -> Result<(), SinkError> {
        let mut name = [b"./", &member.path[..]].concat();
        if member.inode.is_dir() && !member.path.is_empty() {
            name.push(b'/');
        }
        let mut header = Header::new(&member.inode);
        let mut records = Records::default();
        let mut sparse_map = None;
        let link;
        match &member.body {
            Body::LinkTo(first) => {
                link = [b"./", &first[..]].concat();
                header.set_hard_link();
                header.set_link(&link, &mut records);
            }
            Body::Target(target) => header.set_link(target, &mut records),
            Body::Data(ranges) if sparse::has_holes(ranges, member.inode.size()) => {
                let map = sparse::map(ranges, member.inode.size());
                header.set_size(map.len() as u64 + member.data_len(), &mut records);
                sparse_map = Some(map);
            }
            _ => header.set_size(member.data_len(), &mut records),
        }
        match &sparse_map {
            Some(_) => {
                header.set_name(&sparse::stand_in(&name), &mut records);
                // After the substitute name, because programs may take the last name that they
                // read.
                sparse::describe(&name, member.inode.size(), &mut records);
            }
            None => header.set_name(&name, &mut records),
        }
        header.set_ids(&member.inode, &mut records);
        header.set_time(&member.inode, &mut records);
        self.add_xattrs(member, &mut records, out);
        if !records.is_empty() {
            let records = records.finish();
            out.write(&Header::of_records(records.len() as u64).finish())?;
            out.write(&records)?;
            out.align(BLOCK_LEN)?;
        }
        out.write(&header.finish())?;
        out.write(&sparse_map.unwrap_or_default())
    }

    fn data(&mut self, bytes: &[u8], out: &mut Output<'_>) -> Result<(), SinkError> {
        out.write(bytes)
    }

    fn end(&mut self, _: &Member, out: &mut Output<'_>) -> Result<(), SinkError> {
        out.align(BLOCK_LEN)
    }

    fn finish(&mut self, out: &mut Output<'_>) -> Result<(), SinkError> {
        out.write(&[0; 2 * BLOCK_LEN as usize])?;
        out.align(RECORD_LEN)
    }
}

impl TarWriter {
    /// Adds extended attributes. ACLs are written only as text: if also written as attributes, they
    /// would be set twice.
    fn add_xattrs(&self, member: &Member, records: &mut Records, out: &mut Output<'_>) {
        let mut is_lost = false;
        for xattr in &member.xattrs {
            let acl = match &xattr.name[..] {
                ACCESS => acl::text(&xattr.value).map(|text| ("SCHILY.acl.access", text)),
                DEFAULT => acl::text(&xattr.value).map(|text| ("SCHILY.acl.default", text)),
                _ => None,
            };
            match acl {
                Some((key, text)) => records.add(key.as_bytes(), text.as_bytes()),
                // Programs that treat names as C strings would set another attribute.
                None if xattr.name.contains(&0) => is_lost = true,
                None => records.add_xattr(&xattr.name, &xattr.value),
            }
        }
        if is_lost {
            out.report.lose(Loss::Xattrs, &member.path);
        }
    }
}
