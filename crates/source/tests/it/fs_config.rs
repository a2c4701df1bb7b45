//! Owners, permissions and capabilities as Android's builds describe them.

use kiln_source::manifest::{parse_fs_config, read_fs_config};
use kiln_tests::mem::{MemFile, MemTree};
use kiln_tests::snapshot::{Snapshot, of_tree};
use kiln_tests::temp::TempDir;
use kiln_tree::policy::{FsConfig, Policy, apply};
use kiln_tree::{Kind, NodeId, Tree};
use std::fs;

/// Returns a system partition: `bin/run-as` with capabilities that it should lose, `etc/hosts`, a
/// link.
fn system() -> Tree {
    let mut tree = MemTree::default();
    let bin = tree.dir(NodeId::ROOT, b"bin");
    let run_as = tree.file(bin, b"run-as", MemFile::whole(b"elf".to_vec()));
    tree.xattr(run_as, b"security.capability", b"old");
    let etc = tree.dir(NodeId::ROOT, b"etc");
    let hosts = tree.file(etc, b"hosts", MemFile::whole(b"localhost".to_vec()));
    tree.xattr(hosts, b"security.capability", b"old");
    tree.add(bin, b"sh", Kind::Symlink(b"toybox".as_slice().into()));
    tree.finish().unwrap()
}

fn configured(config: FsConfig) -> Result<Snapshot, String> {
    let policy = Policy { fs_config: Some(config), ..Policy::default() };
    apply(system(), &policy).map(|tree| of_tree(&tree).unwrap()).map_err(|error| error.to_string())
}

const LIST: &str = " 0 0 755 selabel=u:object_r:rootfs:s0 capabilities=0x0
system/bin 0 2000 751
system/bin/run-as 0 2000 750 capabilities=0x10000000c0
system/bin/sh 0 2000 755
system/etc 0 0 755
etc/hosts 1 2 644
";

/// Revision 2, effective; setgid, setuid and block_suspend permitted.
const CAPABILITIES: [u8; 20] = [1, 0, 0, 2, 0xC0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0];

#[test]
fn a_list_decides_about_all_files() {
    let config = parse_fs_config(LIST.as_bytes(), "list", b"/system/").unwrap();
    let found = configured(config).unwrap();
    let owners = |path: &[u8]| (found[path].uid, found[path].gid, found[path].permissions);
    assert_eq!((owners(b""), owners(b"bin")), ((0, 0, 0o755), (0, 2000, 0o751)));
    assert_eq!((owners(b"bin/run-as"), owners(b"etc/hosts")), ((0, 2000, 0o750), (1, 2, 0o644)));
    let link = &of_tree(&system()).unwrap()[&b"bin/sh"[..]];
    assert_eq!((found[&b"bin/sh"[..]].gid, found[&b"bin/sh"[..]].permissions), (2000, link.permissions));
    assert_eq!(found[&b"bin/run-as"[..]].xattrs[&b"security.capability"[..]], CAPABILITIES);
    assert!(found[&b"etc/hosts"[..]].xattrs.is_empty());
    let missing = LIST.replace("system/etc 0", "system/other 0");
    let error = configured(parse_fs_config(missing.as_bytes(), "list", b"system").unwrap()).unwrap_err();
    assert_eq!(error, "system/etc: not in list, which must list all files");
}

/// Returns a record of `fs_config_files` and `fs_config_dirs`.
fn rule(mode: u16, gid: u16, capabilities: u64, prefix: &str) -> Vec<u8> {
    let len = 16 + (prefix.len() + 1).next_multiple_of(8);
    let mut record = [len as u16, mode, 0, gid].map(u16::to_le_bytes).concat();
    record.extend(capabilities.to_le_bytes());
    record.extend(prefix.as_bytes());
    record.resize(len, 0);
    record
}

#[test]
fn rules_of_a_build_decide_where_they_match() {
    let out = TempDir::new("out").unwrap();
    fs::create_dir_all(out.join("system/etc")).unwrap();
    assert!(read_fs_config(out.path(), b"system").unwrap_err().to_string().contains("no system/etc/fs_config_files"));
    let files = [rule(0o750, 2000, 0x10_0000_00C0, "system/bin/run-as"), rule(0o755, 2000, 0, "system/bin/*")].concat();
    fs::write(out.join("system/etc/fs_config_files"), files).unwrap();
    fs::write(out.join("system/etc/fs_config_dirs"), rule(0o751, 2000, 0, "system/bin")).unwrap();
    let before = of_tree(&system()).unwrap();
    for dir in [out.path().to_owned(), out.join("system")] {
        let found = configured(read_fs_config(&dir, b"system").unwrap()).unwrap();
        assert_eq!((found[&b"bin"[..]].gid, found[&b"bin"[..]].permissions), (2000, 0o751));
        assert_eq!(found[&b"bin/run-as"[..]].permissions, 0o750);
        assert_eq!(found[&b"bin/run-as"[..]].xattrs[&b"security.capability"[..]], CAPABILITIES);
        assert_eq!(found[&b"etc/hosts"[..]], before[&b"etc/hosts"[..]]);
    }
    fs::write(out.join("system/etc/fs_config_dirs"), [0; 15]).unwrap();
    let error = read_fs_config(out.path(), b"").unwrap_err().to_string();
    assert!(error.contains("fs_config_dirs (records), line 1: record"), "{error}");
}
