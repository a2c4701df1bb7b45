//! Owners and permissions by path, as Android's builds describe them. The formats of files are
//! tested with their parsers.

use kiln_tests::mem::{MemFile, MemTree};
use kiln_tests::snapshot::of_tree;
use kiln_tree::NodeId;
use kiln_tree::policy::{Access, AccessRule, FsConfig, Policy, apply};
use std::collections::HashMap;

const ACCESS: Access = Access { uid: 3, gid: 4, permissions: 0o750, capabilities: 0 };

/// Applies a description to a tree with the file `bin/sh`. Returns the paths that it changes.
fn changed(config: FsConfig) -> Result<Vec<String>, String> {
    let mut tree = MemTree::default();
    let dir = tree.dir(NodeId::ROOT, b"bin");
    tree.file(dir, b"sh", MemFile::whole(b"elf".to_vec()));
    let policy = Policy { fs_config: Some(config), ..Policy::default() };
    let tree = apply(tree.finish().unwrap(), &policy).map_err(|error| error.to_string())?;
    let found = of_tree(&tree).unwrap().into_iter();
    let found = found.filter(|(_, record)| (record.uid, record.gid, record.permissions) == (3, 4, 0o750));
    Ok(found.map(|(path, _)| String::from_utf8(path).unwrap()).collect())
}

#[test]
fn lists_must_name_all_files() {
    let list = |paths: &[&str]| {
        let files: HashMap<Box<[u8]>, Access> = paths.iter().map(|path| (path.as_bytes().into(), ACCESS)).collect();
        changed(FsConfig::list("list".into(), files, b"/system/"))
    };
    // Below the mount point, or by the path in the tree.
    assert_eq!(list(&["system", "system/bin", "bin/sh"]).unwrap(), ["", "bin", "bin/sh"]);
    assert_eq!(list(&["system", "bin/sh"]).unwrap_err(), "system/bin: not in list, which must list all files");
}

#[test]
fn rules_change_only_the_paths_that_they_match() {
    let (files, dirs) = (AccessRule::files(b"system/*/sh", ACCESS), AccessRule::dirs(b"vendor", ACCESS));
    let config = FsConfig::rules(vec![files.unwrap()], vec![dirs.unwrap()], b"system");
    assert_eq!(changed(config).unwrap(), ["bin/sh"]);
    assert!(AccessRule::files(b"[", ACCESS).is_err());
}
