//! tar archives as other programs extract them.

use super::{exported, packed, program};
use kiln_format::inode::FileType;
use kiln_sink::archive::{ExportOptions, Format, Loss};
use kiln_tests::snapshot::{Snapshot, assert_same, of_dir};
use kiln_tests::temp::TempDir;

/// Removes sockets, which a tar archive cannot hold.
fn without_sockets(snapshot: &Snapshot) -> Snapshot {
    let is_socket = |file_type| file_type == FileType::Socket;
    snapshot.iter().filter(|(_, record)| !is_socket(record.file_type)).map(|(p, r)| (p.clone(), r.clone())).collect()
}

#[test]
fn gnu_tar_restores_everything() {
    let Some(packed) = packed() else { return };
    let (tar, report) = exported(&packed.image, &["/"], &ExportOptions::new(Format::Tar));
    let sockets = packed.snapshot.len() - without_sockets(&packed.snapshot).len();
    assert_eq!(super::losses(&report), [(Loss::Sockets, sockets as u64)]);
    let scratch = TempDir::new("export").unwrap();
    let args = ["-xpf", "-", "--acls", "--xattrs", "--xattrs-include=*", "--numeric-owner", "--warning=no-timestamp"];
    // GNU tar warns that it ignores `hdrcharset`, which it does not need: its names are bytes.
    let args = [&args[..], &["--warning=no-unknown-keyword"]].concat();
    if program(scratch.path(), "tar", &args, &tar).is_some() {
        assert_same(&without_sockets(&packed.snapshot), &of_dir(scratch.path()).unwrap(), "GNU tar");
    }
}

#[test]
fn bsdtar_restores_everything() {
    let Some(packed) = packed() else { return };
    let (tar, _) = exported(&packed.image, &["/"], &ExportOptions::new(Format::Tar));
    let scratch = TempDir::new("export").unwrap();
    let args = ["-xpf", "-", "--acls", "--xattrs", "--numeric-owner"];
    if program(scratch.path(), "bsdtar", &args, &tar).is_some() {
        let [mut expected, mut actual] =
            [without_sockets(&packed.snapshot), without_sockets(&of_dir(scratch.path()).unwrap())];
        for tree in [&mut expected, &mut actual] {
            // The target directory itself stays as it is.
            tree.remove(&b""[..]);
            for (path, record) in tree {
                // For a time before 1970, bsdtar adds the fraction to the whole seconds instead of
                // subtracting it.
                record.mtime = if path.starts_with(b"times/-") { (0, 0) } else { record.mtime };
                // bsdtar does not decode `%3D` and `%25`, the escapes that GNU tar uses in names of
                // attributes.
                record.xattrs.retain(|name, _| !name.contains(&b'=') && !name.contains(&b'%'));
            }
        }
        assert_same(&expected, &actual, "bsdtar");
    }
}

#[test]
fn parts_come_with_the_directories_that_they_are_in() {
    let Some(packed) = packed() else { return };
    let (tar, _) = exported(&packed.image, &["sparse/comb", "nodes", "links"], &ExportOptions::new(Format::Tar));
    let scratch = TempDir::new("export").unwrap();
    let args = ["-xpf", "-", "--xattrs", "--xattrs-include=*", "--numeric-owner"];
    let is_part = |path: &[u8]| {
        [&b"nodes"[..], b"links"].iter().any(|part| path.starts_with(part))
            || [&b"sparse"[..], b"sparse/comb"].contains(&path)
    };
    if program(scratch.path(), "tar", &args, &tar).is_some() {
        let mut expected = without_sockets(&packed.snapshot);
        expected.retain(|path, _| is_part(path));
        let mut actual = of_dir(scratch.path()).unwrap();
        actual.remove(&b""[..]);
        assert_same(&expected, &actual, "a part");
    }
}
