//! Attributes that EROFS cannot hold.

use kiln_source::{LeftOutXattrs, UnfitXattr, leave_out_unfit};
use kiln_tests::mem::{MemFile, MemTree};
use kiln_tests::snapshot::{Record, Snapshot, of_tree};
use kiln_tree::NodeId;
use kiln_tree::policy::{NameGlobs, Policy, XattrPolicy, apply};

const ROOT: NodeId = NodeId::ROOT;

fn file(tree: &mut MemTree, dir: NodeId, name: &str) -> NodeId {
    tree.file(dir, name.as_bytes(), MemFile::whole(name.into()))
}

/// Returns a line for each path, with its attributes.
fn listing(snapshot: &Snapshot) -> Vec<String> {
    let line = |(path, record): (&Vec<u8>, &Record)| {
        let xattrs = record.xattrs.iter().map(|(n, v)| format!(" {}={}", n.escape_ascii(), v.escape_ascii()));
        format!("{}{}", path.escape_ascii(), xattrs.collect::<String>())
    };
    snapshot.iter().map(line).collect()
}

#[test]
fn attributes_that_erofs_cannot_hold_are_left_out_or_refused() {
    let tree = || {
        let mut tree = MemTree::default();
        let (a, b) = (file(&mut tree, ROOT, "a"), file(&mut tree, ROOT, "b"));
        for (node, name) in [(a, "user.kept"), (a, "com.apple.x"), (b, "com.apple.x"), (ROOT, "system.nfs4_acl")] {
            tree.xattr(node, name.as_bytes(), b"1");
        }
        tree.finish().unwrap()
    };
    let globs = |glob: &str| NameGlobs::new([glob.as_bytes()]).unwrap();
    let fit = |policy: &XattrPolicy| {
        let mut tree = apply(tree(), &Policy { xattrs: policy.clone(), ..Policy::default() }).unwrap();
        let left_out = leave_out_unfit(&mut tree, policy, LeftOutXattrs::default())?;
        let counts = left_out.iter().map(|one| (one.name.escape_ascii().to_string(), one.count, one.path.clone()));
        Ok::<_, UnfitXattr>((listing(&of_tree(&tree).unwrap()), counts.collect::<Vec<_>>()))
    };
    let (lines, counts) = fit(&XattrPolicy::default()).unwrap();
    assert_eq!(lines, ["", "a user.kept=1", "b"]);
    assert_eq!(counts, [("com.apple.x".into(), 2, b"a".to_vec()), ("system.nfs4_acl".into(), 1, Vec::new())]);
    let strict = XattrPolicy { strict: true, ..XattrPolicy::default() };
    let error = fit(&strict).unwrap_err().to_string();
    assert!(error.starts_with("a: extended attribute com.apple.x: EROFS holds user."), "{error}");
    assert!(error.contains("to leave it out, use --xattr-exclude 'com.apple.x'"), "{error}");
    let error = fit(&XattrPolicy { exclude: globs("com.apple.*"), ..strict.clone() }).unwrap_err().to_string();
    assert!(error.starts_with("/: extended attribute system.nfs4_acl: "), "{error}");
    let (lines, counts) = fit(&XattrPolicy { include: Some(globs("user.*")), ..strict }).unwrap();
    assert_eq!((lines.len(), counts.len()), (3, 0));
}
