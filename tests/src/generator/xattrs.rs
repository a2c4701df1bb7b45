//! Extended attributes, access control lists, capabilities.

use super::{Maker, create, file, subdir, symlink};
use rustix::fs::FileType;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// `security.capability`, revision 2, effective: CAP_NET_RAW and CAP_NET_BIND_SERVICE permitted.
const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 0x24, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Makes attributes of every kind on files of every kind.
pub fn make(maker: &mut Maker, dir: &OwnedFd) -> io::Result<()> {
    let at = dir.as_fd();
    let mut with = |at: BorrowedFd<'_>, name: &[u8], attrs: &[(&str, &[u8])]| {
        attrs.iter().try_for_each(|(attr, value)| maker.xattr(at, name, attr.as_bytes(), value).map(drop))
    };
    file(at, b"classes", b"x")?;
    with(at, b"classes", &[("user.a", b"1"), ("trusted.b", b"two"), ("security.c", &[3; 33])])?;
    file(at, b"empty-values", b"")?;
    with(at, b"empty-values", &[("user.empty", b""), ("trusted.empty", b""), ("user.x", b"")])?;
    for len in [1, 100, 1000, 2000, 3000, 3500, 3900, 4000, 4096, 60_000_usize] {
        let name = format!("value-{len}");
        file(at, name.as_bytes(), &vec![b'v'; len])?;
        with(at, name.as_bytes(), &[("user.large", &vec![len as u8; len])])?;
    }
    create(at, b"many")?;
    for n in 0..40 {
        with(at, b"many", &[(&format!("user.attribute-{n}"), format!("{n}").as_bytes())])?;
    }
    create(at, b"long-name")?;
    with(at, b"long-name", &[(&format!("user.{}", "n".repeat(250)), b"long")])?;
    let sharers = subdir(at, b"sharers")?;
    for n in 0..60_u8 {
        let name = [b's', b'a' + n % 26, b'a' + n / 26];
        file(sharers.as_fd(), &name, &vec![n; usize::from(n) * 70])?;
        with(sharers.as_fd(), &name, &[("user.shared", b"by all"), ("security.label", b"system_u:object_r:etc_t:s0")])?;
        if n % 2 == 0 {
            with(sharers.as_fd(), &name, &[("user.shared-by-half", &[5; 200])])?;
        }
        if n % 7 == 0 {
            with(sharers.as_fd(), &name, &[("user.own", &[n])])?;
        }
    }
    with(at, b"sharers", &[("user.on-a-directory", b"d"), ("trusted.overlay.opaque", b"y")])?;
    file(at, b"capable", b"#!/bin/sh\n")?;
    with(at, b"capable", &[("security.capability", &CAPABILITY)])?;
    symlink(at, b"symlink", b"classes")?;
    with(at, b"symlink", &[("trusted.on-a-symlink", b"l"), ("security.label", b"system_u:object_r:etc_t:s0")])?;
    acls(maker, dir)?;
    for (name, file_type) in [
        (&b"device"[..], FileType::CharacterDevice),
        (b"block", FileType::BlockDevice),
        (b"pipe", FileType::Fifo),
        (b"socket", FileType::Socket),
    ] {
        if maker.node(at, name, file_type, (1, 3))? {
            maker.xattr(at, name, b"trusted.on-a-node", name)?;
        }
    }
    Ok(())
}

/// Makes access lists of a file and a directory, and a directory's default.
fn acls(maker: &mut Maker, dir: &OwnedFd) -> io::Result<()> {
    let acl =
        acl(&[(0x01, 7, u32::MAX), (0x02, 5, 1000), (0x04, 4, u32::MAX), (0x10, 5, u32::MAX), (0x20, 0, u32::MAX)]);
    file(dir.as_fd(), b"acl-file", b"x")?;
    drop(subdir(dir.as_fd(), b"acl-dir")?);
    for (name, attr) in [
        (&b"acl-file"[..], &b"system.posix_acl_access"[..]),
        (b"acl-dir", b"system.posix_acl_access"),
        (b"acl-dir", b"system.posix_acl_default"),
    ] {
        maker.xattr(dir.as_fd(), name, attr, &acl)?;
    }
    Ok(())
}

/// Returns a list of (tag, permissions, id) in the form of the system call.
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&permissions.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}
